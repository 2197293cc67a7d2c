"""Under torchrun `train` is one training: charged once, shown once, of the same weights everywhere, ended and resumed as one."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import honestdp
from honestdp import Budget, Compute, Ledger, Run
from honestdp.checks import InvalidArgument
from honestdp.models.evaluation import evaluate
from honestdp.optimizers import SGD
from honestdp.training.train import train
from tests.many_ranks import on_ranks, started
from tests.toy_training import toy_data, toy_model
from tests.training.test_checkpoint import EVERY_RULE

RUN = Run(records=60, lot=10, steps=24, noise=0.9)
_BEGIN = """
import hashlib, json, os, signal, sys, torch, numpy, honestdp
from honestdp import Compute, Run
from honestdp.training.train import train, train_population
from tests.toy_training import toy_data, toy_model
from honestdp.optimizers import SGD
RUN = Run(records=60, lot=10, steps=24, noise=0.9)
rank, rule = int(os.environ["RANK"]), SGD(lr=0.1, clip=1.0)
def digest(*results):
    every = torch.cat([p.detach().flatten() for one in results for p in one.model.parameters()])
    return hashlib.sha256(every.numpy().tobytes()).hexdigest()
"""


def said(folder: Path, code: str, size: int, *words: str) -> list[Any]:
    """What each rank printed, as JSON."""
    every = on_ranks(folder, _BEGIN + code, size, *words)
    for exit_code, _, error in every:
        assert exit_code == 0, error
    return [json.loads(out) for _, out, _ in every]


_WHOLE = """
from tests.training.test_checkpoint import EVERY_RULE
seen = []
def stop(step, model):
    seen.append(step)
    if step >= 20:
        raise honestdp.errors.StopTraining
def jitter(x, u):
    return x + u.mean()
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 60
    def __getitem__(self, i): return toy_data()[0][i], toy_data()[1][i]
x, y = toy_data()
if rank == 0:
    numpy.save("x.npy", x.numpy())
quick = Run(records=60, lot=60, steps=3, noise=30.0)
answers, how = {}, {"run": quick, "optimizer": rule, "delta": 1e-5}
every = train_population(toy_model(seed=rank), (x, y), run=RUN, optimizers=EVERY_RULE, delta=1e-5,
    ledger="ledger.db", dataset="toy", compute=Compute(progress=True, checkpoint="all.safetensors"))
answers["every rule"] = digest(*every)
answers["epsilon"], answers["charges"] = every[0].epsilon, every[0].balance.charges
answers["statement"] = str(every[0].statement)
watched = train(toy_model(), (x, y), on_step=stop, every=10, run=RUN, optimizer=rule)
answers["watched"], answers["stopped"], looks = digest(watched), watched.stopped, seen
people = honestdp.by_person((x, y), numpy.arange(60) // 3, rows=2)
answers["people"] = digest(train(toy_model(), people, **{**how, "run": Run(records=20, lot=5, steps=5, noise=2.0)}))
varied = honestdp.augment.PerRecord(jitter, draws=2)
answers["augmented"] = digest(train(toy_model(), (x, y), augment=varied, **how))
answers["decoded"] = digest(train(toy_model(), Rows(), compute=Compute(workers=0), **how))
answers["file"] = digest(train(toy_model(), (numpy.load("x.npy", mmap_mode="r"), y.numpy()), **how))
answers["secure"] = digest(train(toy_model(), (x, y), secure=True, **how))
answers["seeded"] = digest(train(toy_model(), (x, y), noise_seed=5, **how))
assert digest(train(toy_model(), (x, y), noise_seed=5, **how)) == answers["seeded"]
print(json.dumps([answers, looks]))
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], list[str], Path]:
    """What two ranks print of many trainings, what they say besides, and where."""
    folder = tmp_path_factory.mktemp("whole")
    Ledger(folder / "ledger.db").set_budget("toy", Budget(100.0, 1e-4))
    every = on_ranks(folder, _BEGIN + _WHOLE, 2)
    for exit_code, _, error in every:
        assert exit_code == 0, error
    return [json.loads(out) for _, out, _ in every], [error for _, _, error in every], folder


@pytest.mark.slow
def test_every_rank_ends_with_the_same_weights_to_the_last_bit(whole: Any) -> None:
    """Of every rule, of records in every home, of people and of variants; though the models they were given began differently."""
    (first, _), (second, _) = whole[0]
    assert first == second
    homes = {"augmented", "decoded", "file", "secure", "seeded"}
    assert len({first[name] for name in homes}) == len(homes)


def test_a_training_is_charged_once_whatever_ranks_it_has(whole: Any) -> None:
    ledger = Ledger(whole[2] / "ledger.db")
    assert len(ledger.charges("toy")) == 1
    assert {answers["charges"] for answers, _ in whole[0]} == {1}


def test_the_epsilon_of_ranks_is_that_of_one_process(whole: Any) -> None:
    """Their law is (test_ranks_law), so that what is accounted is the same `Run`."""
    alone = honestdp.Result(toy_model(), RUN, SGD(lr=0.1, clip=1.0), 1e-5, siblings=(RUN,) * (len(EVERY_RULE) - 1))
    assert {answers["epsilon"] for answers, _ in whole[0]} == {alone.epsilon}


def test_a_statement_says_that_the_traffic_between_ranks_is_secret(whole: Any) -> None:
    assert "trained by 2 processes" in whole[0][0][0]["statement"]
    assert "a share of the noise" in whole[0][0][0]["statement"]


def test_rank_0_alone_shows_and_looks(whole: Any) -> None:
    assert [looks for _, looks in whole[0]] == [[0, 10, 20], []]
    assert {answers["stopped"] for answers, _ in whole[0]} == {20}
    assert whole[1][1] == ""


_LONG = """
from honestdp.boundary.mechanism import Mechanism
path, victim, at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
true, made = Mechanism._eager, [0]
def eager(self, *rest):
    made[0] += 1
    if (rank, made[0]) == (victim, at):
        os.kill(os.getpid(), signal.SIGKILL)
    return true(self, *rest)
Mechanism._eager = eager
run = Run(records=60, lot=10, steps=110, noise=2.0)
compute = Compute(checkpoint=path or None, checkpoint_seconds=0)
model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 3)).double()
with torch.no_grad():
    for p in model.parameters():
        p.fill_(0.1)
try:
    print(json.dumps(digest(train(model, toy_data(), run=run, optimizer=rule, noise_seed=7, compute=compute))))
except honestdp.errors.RankLost as lost:
    print(json.dumps(str(lost)))
"""


@pytest.mark.kill
@pytest.mark.parametrize(("size", "victim"), [(2, 0), (4, 2)])
def test_a_rank_that_dies_stops_all_others_at_once_and_all_go_on_together(
    size: int, victim: int, tmp_path: Path
) -> None:
    undisturbed = set(said(tmp_path, _LONG, size, "", "-1", "0"))
    processes = started(tmp_path, _BEGIN + _LONG, size, "kept", str(victim), "90")
    processes[victim].wait(timeout=120)
    died = time.monotonic()
    for rank, process in enumerate(processes):
        out, error = process.communicate(timeout=60)
        if rank == victim:
            assert process.returncode == -signal.SIGKILL
        else:
            assert process.returncode == 0, error
            words = json.loads(out)
            assert words.startswith("another rank of this training ended or cannot be reached")
            assert "stopped at step 64 of 110" in words
            assert f"to resume, start all {size} ranks and call again with the same arguments" in words
    assert time.monotonic() - died < 20
    assert set(said(tmp_path, _LONG, size, "kept", "-1", "0")) == undisturbed
    assert len(undisturbed) == 1


_KEPT = """
answers = []
for path in sys.argv[1:]:
    try:
        answers.append(digest(train(toy_model(), toy_data(), run=RUN, optimizer=rule, compute=Compute(checkpoint=path))))
    except honestdp.errors.HonestdpError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""


def test_a_checkpoint_is_resumed_by_as_many_ranks_as_began_it(tmp_path: Path) -> None:
    how: dict[str, Any] = {"run": RUN, "optimizer": SGD(lr=0.1, clip=1.0)}
    train(toy_model(), toy_data(), compute=Compute(checkpoint=tmp_path / "alone"), **how)
    for _, words in said(tmp_path, _KEPT, 2, "two", "alone"):
        assert words.startswith("checkpoint must be resumed by 1 rank, as it was begun")
    other = "resumed by 2 ranks, as it was begun: by another number it would draw other"
    with pytest.raises(InvalidArgument, match=other):
        train(toy_model(), toy_data(), compute=Compute(checkpoint=tmp_path / "two"), **how)


_APART = """
x, y = toy_data()
def told(data=(x, y), **rest):
    given = {"run": Run(records=60, lot=10, steps=2, noise=2.0), "optimizer": rule, "delta": 1e-5, **rest}
    try:
        return digest(train(toy_model(), data, **given))
    except (honestdp.errors.HonestdpError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
class Own(SGD):
    def update(self, params, state, release, constants):
        moved, state = super().update(params, state, release, constants)
        return moved + 1e-15 * int(os.environ["RANK"]), state
order = torch.randperm(60, generator=torch.Generator().manual_seed(rank))
few = 60 - 10 * rank
answers = {
    "run": told(run=Run(records=60, lot=10 + rank, steps=2, noise=2.0)),
    "optimizers": told(optimizer=SGD(lr=0.1 + rank, clip=1.0)),
    "noise_seed": told(noise_seed=rank),
    "the loss's code": told(loss=[lambda output, y: output[:, 0], lambda output, y: output[:, 1]][rank]),
    "number": told((x[:few], y[:few])),
    "order": told((x[order], y[order])),
    "ledger": told(ledger="ledger.db", dataset="poor"),
    "labels": told((x, torch.where(torch.arange(60) > 50, 9, y)), noise_seed=5),
    "weights": told(optimizer=Own(lr=0.1, clip=1.0)),
    "few": told((x[:1], y[:1]), run=Run(records=1, lot=1, steps=2, noise=2.0)),
    "wrong": told(compute=Compute(ranks=3)),
    "charges": honestdp.Ledger("ledger.db").balance("poor").charges if rank == 0 else 0,
}
alone = [told(compute=Compute(ranks=1), noise_seed=rank), told(noise_seed=3)]
print(json.dumps([answers, alone]))
"""


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("apart")
    Ledger(folder / "ledger.db").set_budget("poor", Budget(0.001, 1e-4))
    return said(folder, _APART, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "optimizers", "noise_seed", "the loss's code"])
def test_ranks_that_are_called_otherwise_are_refused_on_all(apart: Any, name: str) -> None:
    for answers, _ in apart:
        assert answers[name].startswith(f"InvalidArgument: {name} must be the same on all ranks")


def test_ranks_with_other_records_are_refused_on_all(apart: Any) -> None:
    """An unseeded shuffle on each rank would put a record on two of them."""
    for answers, _ in apart:
        assert answers["number"].startswith(
            "InvalidArgument: the number of records in data must be the same on all ranks"
        )
        assert answers["order"].startswith(
            "InvalidArgument: data must be the same records in the same order on all ranks"
        )


def test_what_stops_one_rank_is_told_to_the_others(apart: Any) -> None:
    first, second = (answers for answers, _ in apart)
    assert first["ledger"].startswith("BudgetExceeded: ")
    assert second["ledger"].startswith("RankLost: rank 0 stopped: BudgetExceeded: ")
    assert first["labels"] == second["labels"]  # one rank alone has labels that are no classes, and nobody is told
    assert "rank" not in first["labels"].lower()
    assert first["charges"] == 0


def test_weights_that_differ_in_a_bit_between_ranks_are_noticed(apart: Any) -> None:
    for answers, _ in apart:
        assert answers["weights"].startswith("RuntimeError: the ranks have different weights")


def test_more_ranks_than_records_and_another_number_of_ranks_are_refused(apart: Any) -> None:
    for answers, _ in apart:
        assert answers["few"] == "InvalidArgument: ranks must be at most 1, the number of records, got 2"
        assert answers["wrong"].startswith(
            "InvalidArgument: ranks must be 2, as many processes as were started together"
        )


def test_a_process_may_train_by_itself_and_after_a_refusal_all_train_together(apart: Any) -> None:
    (own, together), (other, same) = (alone for _, alone in apart)
    assert own != other
    assert together == same
    assert len(own) == len(same) == 64


# In this process, as it would be under torchrun


@pytest.fixture
def under_torchrun(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    return monkeypatch


def test_a_search_under_torchrun_is_refused_with_the_way_out(under_torchrun: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match=r"ranks must be 1 for a search: .*Compute\(cluster=\.\.\.\)"):
        honestdp.tune(
            toy_model(), toy_data(), budget=Budget(1.0, 1e-5), optimizer="sgd", space={"lr": [0.1], "clip": 1.0}
        )


def test_one_question_under_torchrun_is_refused_for_each_process_would_get_an_answer(
    under_torchrun: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a ledger and without: so many noisy answers, each with noise of its own, would be stated as one."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("a", Budget(1.0, 1e-5))
    books: dict[str, Any] = {"ledger": ledger, "dataset": "a"}
    table = honestdp.Table({"income": honestdp.Range(bounds="private"), "ill": honestdp.Flag()}, "ill")
    alone = r"the number of processes started together must be 1 for .*without torchrun.*Nothing was charged, got 2"
    for paid in (books, {}):
        with pytest.raises(InvalidArgument, match=alone):
            table.learn({"income": [1.0], "ill": [True]}, epsilon=0.5, **paid)
        with pytest.raises(InvalidArgument, match=alone):
            evaluate(SAVED, toy_data(), epsilon=0.5, **paid)
    assert ledger.balance("a").charges == 0


SAVED: Any = None  # which is not even looked at


def test_half_of_torchruns_environment_is_refused_by_name(under_torchrun: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"run": RUN, "optimizer": SGD(lr=0.1, clip=1.0)}
    with pytest.raises(InvalidArgument, match="MASTER_ADDR and MASTER_PORT must be set where WORLD_SIZE is 2"):
        train(toy_model(), toy_data(), **how)
    under_torchrun.setenv("WORLD_SIZE", "two")
    with pytest.raises(InvalidArgument, match="WORLD_SIZE must be a whole number of processes"):
        train(toy_model(), toy_data(), **how)
    train(toy_model(), toy_data(), compute=Compute(ranks=1), **how)


def test_ranks_that_were_not_started_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(InvalidArgument, match=r"ranks must be 1, as many processes as were started together.*got 4"):
        train(toy_model(), toy_data(), run=RUN, optimizer=SGD(lr=0.1, clip=1.0), compute=Compute(ranks=4))
    with pytest.raises(InvalidArgument, match="ranks must be a whole number of at least 1, got 0"):
        Compute(ranks=0)


def test_the_same_seed_on_one_process_gives_what_it_always_gave() -> None:
    """Lots and noise of one process follow from the same children of a seed as before there were ranks."""
    result = train(toy_model(), toy_data(), run=Run(records=60, lot=10, steps=5, noise=1.0), optimizer=SGD(lr=0.1, clip=1.0),
                   noise_seed=4)  # fmt: skip
    first = next(result.model.parameters()).detach().flatten()[:3]
    torch.testing.assert_close(first, torch.tensor(FIRST, dtype=torch.float64), rtol=1e-6, atol=1e-6)


FIRST = [0.019547605188563466, 0.25251015126705173, -0.36897419691085814]
