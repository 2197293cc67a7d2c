"""One charge, one winner: two copies of a folder say the same thing, an older copy is refused, and one process has the folder."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import opendp.measurements  # noqa: F401 what is forked from here need not import it
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import honestdp
from honestdp.boundary import sampling
from honestdp.boundary.data import PrivateData
from honestdp.boundary.decoding import decoded_once
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.ledger import KeyEnded, Ledger, StaleCopy
from honestdp.search import lifecycle as carrying
from honestdp.search import planning, secret
from honestdp.search import runs as execution
from honestdp.search.folder import Lock
from honestdp.search.lifecycle import Search, SearchStopped
from honestdp.training.loop import Job
from honestdp.training.population import Population
from honestdp.training.spec import Compute, TrainSpec
from honestdp.training.train import train_population
from tests.search import closed_form_search as closed_form
from tests.search import dying_searches as deaths
from tests.tiny_search import WHOLE, clouds, linear, once_charged

KILLS = 4  # of each selection, at random moments


def noisy(width: int) -> nn.Module:
    """Draws from torch's generator in its forward pass. (A model that draws from Python's or numpy's is refused.)

    Of torch's own modules: what is forked from here need not try them anew.
    """
    return nn.Sequential(nn.Linear(3, width), nn.Dropout(0.3), nn.Linear(width, 2))


def private() -> PrivateData:
    return PrivateData(deaths.records())


def forked(act: Callable[[], Any]) -> int:
    """The process that does this; it ends with 0 where nothing is raised."""
    number = os.fork()
    if number:
        return number
    code = 1
    try:
        torch.set_num_threads(1)
        random.seed()  # each process has draws of its own, as processes have
        np.random.seed()  # noqa: NPY002
        torch.seed()
        act()
        code = 0
    except InvalidArgument:
        code = 2
    except BaseException as error:
        os.write(2, repr(error).encode())
    finally:
        os._exit(code)


def search_of(selection: str) -> Search:
    """Without a ledger, with dropout, of several blocks, chunks and batches."""
    made: list[Search] = []

    def caught(self: Search, *_: Any, **__: Any) -> Any:
        made.append(self)
        raise SearchStopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search, "carry_out", caught)
        named = {
            **deaths.arguments(selection),
            "steps": 20,
            "space": {"lr": [0.5, 0.7, 1.0], "clip": [1.0], "width": [2, 3]},
        }
        with pytest.raises(SearchStopped):
            honestdp.tune(noisy, deaths.records(), **named, out="out")
    return made[0]


def _small(patch: pytest.MonkeyPatch) -> None:
    """Few runs make several batches of several chunks of several blocks each, all of them with checkpoints."""
    patch.setattr(execution, "BATCH", 4)
    patch.setattr(sampling, "_BLOCK_STEPS", 8)
    patch.setattr(execution, "CHECKPOINT_SECONDS", 0.0)
    honest = planning.planned
    patch.setattr(carrying, "planned", lambda *args: replace(honest(*args), together=(2, 2)))
    patch.setattr(os, "fsync", lambda handle: None)
    _no_report(patch)


def _no_report(patch: pytest.MonkeyPatch) -> None:
    """It takes longer than the search, and is a function of what else leaves."""
    patch.setattr("honestdp.search.tune._report", lambda *_: "")


@pytest.mark.kill
@pytest.mark.parametrize("selection", deaths.SELECTIONS)
def test_two_copies_of_a_killed_search_end_with_the_same_bytes(
    selection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small(monkeypatch)
    search, chance, copied, latest = search_of(selection), random.Random(3), 0, 0.3
    while copied < KILLS:
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        victim = forked(lambda out=out: search.carry_out(private(), out, resume=False, show=False))
        while not (out / "search.json").exists():  # before there is nothing to copy
            time.sleep(0.001)
        time.sleep(chance.uniform(0, latest))
        os.kill(victim, signal.SIGKILL)
        if deaths.ended(victim) == 0:  # done before it was killed: sooner, then
            latest *= 0.8
            continue
        copied += 1
        found = []
        for number in range(2):
            copy = tmp_path / f"copy {copied} {number}"
            shutil.copytree(out, copy)
            assert deaths.ended(forked(lambda c=copy: search.carry_out(private(), c, resume=True, show=False))) == 0
            names = sorted(path for path in copy.rglob("*") if path.is_file() and path.name != "report.html")
            found.append({str(path.relative_to(copy)): path.read_bytes() for path in names})
        assert {"model.safetensors", "result.json"} <= found[0].keys()
        assert found[0] == found[1]


@pytest.mark.slow
def test_a_second_answer_of_a_copy_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that was: chunks of a copy that draw seeds of their own."""
    _small(monkeypatch)
    search = search_of("winner")
    once_charged(monkeypatch, Population, "block", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(SearchStopped):
        search.carry_out(private(), tmp_path / "out", resume=False, show=False)
    monkeypatch.undo()
    _no_report(monkeypatch)
    honest = Job.population
    found = []
    for number in range(2):
        shutil.copytree(tmp_path / "out", tmp_path / str(number))
        with monkeypatch.context() as patch:
            patch.setattr(Population, "restore", lambda self, saved: None)
            patch.setattr(
                Job, "population", lambda self, chunk: (setattr(self, "seed", Seed.fresh()), honest(self, chunk))[1]
            )
            search.carry_out(private(), tmp_path / str(number), resume=True, show=False)
        found.append((tmp_path / str(number) / "model.safetensors").read_bytes())
    assert found[0] != found[1]


def test_halves_of_a_chunk_that_did_not_fit_draw_nothing_that_the_whole_has_drawn() -> None:
    x, y = clouds(100)
    run = honestdp.Run(records=100, lot=100, steps=1, noise=1.0)
    job_of = honestdp.training.train.assemble
    job = job_of(
        linear(),
        (x, y),
        run=run,
        optimizers=[honestdp.optimizers.SGD(lr=1.0, clip=1.0)] * 4,
        spec=TrainSpec(compute=Compute(device="cpu")),
    )
    states = [job.population(chunk)._mechanism.random_state() for chunk in ([0, 1, 2, 3], [0, 1], [2, 3], [0])]
    for place in (0, 2):  # of the lots, of the noise
        every = [state[place].tolist() for state in states]
        assert all(one != other for i, one in enumerate(every) for other in every[:i])
        assert job.population([0, 1])._mechanism.random_state()[place].tolist() == every[1]


@pytest.mark.slow
def test_copies_of_a_training_s_checkpoint_end_in_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two chunks: at the kill the second has not begun. No seed is fixed."""
    monkeypatch.setattr("honestdp.training.loop.quickest_chunk", lambda *_, **__: 1)

    def go(path: Path) -> torch.Tensor:
        torch.seed()
        run = honestdp.Run(records=80, lot=20, steps=150, noise=1.0)
        rules = [honestdp.optimizers.SGD(lr=0.1, clip=1.0)] * 2
        torch.manual_seed(0)
        model = noisy(4)
        torch.seed()
        results = train_population(
            model,
            deaths.records(),
            run=run,
            optimizers=rules,
            compute=Compute(checkpoint=path, checkpoint_seconds=0.0, device="cpu"),
        )
        return torch.cat([p.detach().flatten() for one in results for p in one.model.parameters()])

    honest, count = Population.block, [0]

    def block(self: Population, **named: Any) -> None:
        count[0] += 1
        if count[0] == 2:
            raise KeyboardInterrupt
        honest(self, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Population, "block", block)
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path / "one")
    shutil.copy(tmp_path / "one", tmp_path / "two")
    assert go(tmp_path / "one").equal(go(tmp_path / "two"))
    assert not go(tmp_path / "one").equal(go(tmp_path / "new"))


class Cropped(Dataset[Any]):
    """Records that are never the same twice, drawn from all three global generators."""

    def __init__(self) -> None:
        self.x, self.y = deaths.records()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        blur = random.random() + float(np.random.random()) + float(torch.rand(1))  # noqa: NPY002
        return self.x[index] * np.float32(blur), self.y[index]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_what_a_dataset_draws_follows_from_the_seed_however_many_workers_there_are(workers: int) -> None:
    x, _ = decoded_once(Cropped(), workers=workers, seed=Seed.fixed(1))
    assert torch.equal(x, decoded_once(Cropped(), workers=0, seed=Seed.fixed(1))[0])
    assert not torch.equal(x, decoded_once(Cropped(), workers=workers, seed=Seed.fixed(2))[0])


# ---- The ledger


def _stopped(folder: Path) -> dict[str, Any]:
    ledger = Ledger(folder / "ledger.db")
    ledger.set_budget("a", honestdp.Budget(50.0, 1e-5))
    settings = {**WHOLE, "ledger": folder / "ledger.db", "dataset": "a"}
    _stop(folder / "out", settings)
    return settings


def _stop(out: Path, settings: dict[str, Any], **named: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        once_charged(patch, Population, "block", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(SearchStopped):
            honestdp.tune(linear, clouds(), **settings, out=out, **named)


@pytest.mark.slow
def test_of_two_copies_the_ledger_lets_one_go_on(tmp_path: Path) -> None:
    settings = _stopped(tmp_path)
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    _stop(tmp_path / "out", settings, resume=True)
    with pytest.raises(StaleCopy):
        honestdp.tune(linear, clouds(), **settings, out=tmp_path / "copy", resume=True)
    shutil.copytree(tmp_path / "out", tmp_path / "later")
    honestdp.tune(linear, clouds(), **settings, out=tmp_path / "out", resume=True)
    for name in ("copy", "later"):
        with pytest.raises((StaleCopy, KeyEnded)):
            honestdp.tune(linear, clouds(), **settings, out=tmp_path / name, resume=True)
        assert not (tmp_path / name / "result.json").exists()
        # The search is over: what is left of its secrets could only take the winner's noise away.
        assert not (tmp_path / name / ".secret").exists()
    assert Ledger(tmp_path / "ledger.db").balance("a").charges == 1


@pytest.mark.slow
@pytest.mark.parametrize("told", [False, True])
def test_a_kill_between_the_folder_s_token_and_the_ledger_s_is_made_good(told: bool, tmp_path: Path) -> None:
    settings = _stopped(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        honest = Ledger.resume

        def killed(self: Ledger, *args: Any, **named: Any) -> None:
            if told:
                honest(self, *args, **named)
            raise KeyboardInterrupt

        patch.setattr(Ledger, "resume", killed)
        with pytest.raises(SearchStopped):
            honestdp.tune(linear, clouds(), **settings, out=tmp_path / "out", resume=True)
    honestdp.tune(linear, clouds(), **settings, out=tmp_path / "out", resume=True)
    kinds = [entry.kind for entry in Ledger(tmp_path / "ledger.db").entries("a")]
    assert kinds == ["budget", "charge", "resume", "resume", "over"]


# ---- One process at a time


def test_a_folder_belongs_to_one_process_until_it_ends_however_that_is(tmp_path: Path) -> None:
    def hold() -> None:
        with Lock(tmp_path):
            (tmp_path / "held").touch()
            time.sleep(600)

    def take() -> None:
        with Lock(tmp_path):
            pass

    holder = forked(hold)
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    assert deaths.ended(forked(take)) == 2
    with pytest.raises(InvalidArgument, match=r"out must be a folder in which no other process works"):
        take()
    os.kill(holder, signal.SIGKILL)
    deaths.ended(holder)
    assert deaths.ended(forked(take)) == 0
    take()


def test_a_worker_that_outlives_its_search_does_not_hold_the_folder(tmp_path: Path) -> None:
    def search() -> None:
        with Lock(tmp_path):
            number = forked(lambda: ((tmp_path / "lives").touch(), time.sleep(600)))
            (tmp_path / "worker").write_text(str(number))
            while not (tmp_path / "lives").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

    assert deaths.ended(forked(search)) == -signal.SIGKILL
    try:
        with Lock(tmp_path):
            pass
    finally:
        os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)


def test_who_opened_the_lock_before_it_was_removed_does_not_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    honest, removed = fcntl.flock, []

    def flock(handle: int, how: int) -> None:
        if not removed:
            removed.append((tmp_path / ".lock").unlink())
        honest(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with Lock(tmp_path):
        assert (tmp_path / ".lock").exists()
        with pytest.raises(InvalidArgument):
            Lock(tmp_path).__enter__()


@pytest.mark.slow
def test_two_processes_cannot_resume_one_search_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = search_of("winner")
    _no_report(monkeypatch)
    out, honest = tmp_path / "out", Population.block

    def slowly(self: Population, **named: Any) -> None:
        (tmp_path / "working").touch()
        limit = time.monotonic() + 120  # for a second one that is not refused and so waits for itself
        while not (tmp_path / "refused").exists() and time.monotonic() < limit:
            time.sleep(0.01)
        honest(self, **named)

    once_charged(monkeypatch, Population, "block", slowly)
    first = forked(lambda: search.carry_out(private(), out, resume=False, show=False))
    while not (tmp_path / "working").exists():
        time.sleep(0.01)
    second = forked(lambda: search.carry_out(private(), out, resume=True, show=False))
    assert deaths.ended(second) == 2
    (tmp_path / "refused").touch()
    assert deaths.ended(first) == 0
    assert not (out / ".lock").exists()


# ---- Global generators


def _numbers(one: secret.Secret) -> dict[str, Any]:
    return {
        "count": len(one.candidates),
        "candidates": one.candidates[:5],
        "ties": one.ties[:1],
        "starts": one.starts[:1],
        "split": one.held_out(1000, 0.5).tobytes(),
        "seed": one.seed.key,
        "noise": one.noise[:5],
    }


def _fixed_world() -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)


def _states() -> list[Any]:
    return [random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()]  # noqa: NPY002


def test_no_draw_of_a_search_follows_a_global_generator_or_moves_one() -> None:
    """Each kind of draw differs somewhere in 40 searches; the chance that one does not by itself is below 1e-9 (a count, at
    most one half for any value).
    """
    made = closed_form.designed(closed_form_envelope())
    found = []
    for _ in range(40):
        _fixed_world()
        before = _states()
        found.append(_numbers(secret.drawn(made, seed=None)))
        assert _states() == before
    assert {name for name in found[0] if all(one[name] == found[0][name] for one in found)} == set()


def closed_form_envelope() -> Any:
    from honestdp.selection import RandomStopping, count_of

    return RandomStopping(count=count_of(runs=4.0, shape=1.0))


def test_a_whole_search_leaves_the_global_generators_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_report(monkeypatch)
    search = search_of("winner")
    _fixed_world()
    before = _states()
    search.carry_out(private(), tmp_path / "out", resume=False, show=False)
    assert _states() == before


@pytest.mark.parametrize("culprit", ["torch", "numpy", "python"])
def test_a_seed_from_a_global_generator_is_noticed(culprit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number = {
        "torch": lambda: int(torch.randint(2**62, (1,))),
        "numpy": lambda: int(np.random.randint(2**62)),  # noqa: NPY002
        "python": lambda: random.getrandbits(62),
    }[culprit]
    monkeypatch.setattr(Seed, "fresh", staticmethod(lambda: replace(Seed.fixed(number()), is_fixed=False)))
    made = closed_form.designed(closed_form_envelope())
    found = []
    for _ in range(2):
        _fixed_world()
        found.append(_numbers(secret.drawn(made, seed=None)))
    del found[0]["noise"], found[1]["noise"]
    assert found[0] == found[1]
