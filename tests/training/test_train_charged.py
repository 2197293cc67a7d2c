"""A training is charged before it reads a record, for the very runs that it makes, and once, however often it is interrupted."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import honestdp
from honestdp import Budget, Compute, Ledger, Run
from honestdp.checks import InvalidArgument
from honestdp.errors import BudgetExceeded, KeyEnded, NoBudget, NotPrivate, StaleCopy
from honestdp.ledger.paying import Payment
from honestdp.ledger.spending import Spending
from honestdp.optimizers import SGD
from honestdp.selection import Compose
from honestdp.training import charging
from honestdp.training.loop import Interrupted
from honestdp.training.population import Population
from tests.search import closed_form_search as closed_form
from tests.search.test_charged_first import noting_dataset, noting_memmap, noting_tensors

N = len(closed_form.records()[0])
RUN = Run(records=N, lot=N, steps=3, noise=30.0)  # lots of all records: quick to account
RULE = SGD(lr=0.1, clip=1.0)
HOMES = [noting_dataset, noting_tensors, noting_memmap]


def model() -> torch.nn.Module:
    x, y = closed_form.records()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Linear(x[0].numel(), int(y.max()) + 1)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a ledger in which the dataset tiny has a budget."""
    monkeypatch.delenv("HONESTDP_LEDGER", raising=False)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    Ledger(tmp_path / "ledger.db").set_budget("tiny", Budget(5.0, 1e-4))
    return tmp_path / "ledger.db"


def train(ledger: Path | None, **rest: Any) -> honestdp.Result:
    named: dict[str, Any] = {"run": RUN, "optimizer": RULE, "dataset": None if ledger is None else "tiny", **rest}
    named = {"compute": Compute(device="cpu", workers=0), "data": closed_form.records(), **named}
    return honestdp.train(model(), named.pop("data"), ledger=ledger, **named)


def kept(path: Path) -> dict[str, Any]:
    return {"compute": Compute(device="cpu", workers=0, checkpoint=path.with_name("checkpoint"), checkpoint_seconds=0)}


def kinds(path: Path) -> Counter[str]:
    return Counter(entry.kind for entry in Ledger(path).entries())


class Interruption:
    """Ctrl-C at the second block of steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, at: int = 1) -> None:
        self.blocks, honest = 0, Population.block

        def block(population: Population, *args: Any, **named: Any) -> None:
            self.blocks += 1
            if self.blocks == at:
                raise KeyboardInterrupt
            honest(population, *args, **named)

        monkeypatch.setattr(Population, "block", block)


# ---- Before a record is read


def reads(path: Path, home: Callable[[Path], tuple[Any, list[int]]]) -> list[int]:
    """How many charges there were at each read of a training."""
    data, charges = home(path)
    train(path, data=data)
    return charges


@pytest.mark.parametrize("home", HOMES)
def test_the_ledger_holds_the_charge_at_the_first_read(home: Any, path: Path) -> None:
    assert set(reads(path, home)) == {1}


@pytest.mark.parametrize("home", HOMES)
def test_a_refused_training_reads_nothing_and_leaves_nothing_behind(home: Any, path: Path) -> None:
    Ledger(path).set_budget("poor", Budget(0.01, 1e-4))
    before = Ledger(path).entries()
    for dataset, refusal in (("unknown", NoBudget), ("poor", BudgetExceeded)):
        data, charges = home(path)
        with pytest.raises(refusal):
            train(path, data=data, dataset=dataset, **kept(path))
        assert charges == []
        assert not path.with_name("checkpoint").exists()
    assert Ledger(path).entries() == before


SLIPS: dict[str, dict[str, Any]] = {
    "a fixed seed": {"noise_seed": 3},
    "another number of records": {"run": replace(RUN, records=N + 1)},
    "a loss that does not fit": {"loss": lambda output, y: output[:, 7]},
    "a delta beside the budget's": {"budget": Budget(1.0, 1e-5), "delta": 1e-6},
    "a callback that fails": {"on_step": lambda step, model: 1 / 0},
    "a callback for nobody": {"every": 3},
    "a schedule that fails": {"schedule": lambda step: 1 / 0},
    "no noise": {"run": replace(RUN, noise=0.0)},
    "a ledger and no dataset": {"dataset": None},
}


@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS)
def test_a_slip_is_not_charged(slip: dict[str, Any], path: Path) -> None:
    data, charges = noting_tensors(path)
    with pytest.raises((InvalidArgument, ZeroDivisionError, NotPrivate)):
        train(path, data=data, **slip)
    assert (charges, kinds(path)) == ([], {"budget": 1})


# ---- What is charged


def test_the_charge_is_of_the_run_that_is_made(path: Path) -> None:
    result = train(path, note="the first")
    (charge,) = Ledger(path).charges("tiny")
    assert charge.spending == Spending(Compose(candidates=1), ((result.run, 1),))
    assert result.balance is not None
    assert (result.balance.entry, result.balance.head) == (charge.entry.number, charge.entry.hash)
    assert result.key == charge.entry.key
    assert result.balance.spent == pytest.approx(result.epsilon, rel=1e-9)
    assert "the first" in charge.entry.what
    assert result.delta == 1e-4  # the ledger's, for none was given
    assert charge.entry.hash in result._page()


def test_noise_from_a_budget_is_the_noise_that_is_charged(path: Path) -> None:
    result = train(path, run=replace(RUN, noise=0.0), budget=Budget(1.0, 1e-4))
    (charge,) = Ledger(path).charges("tiny")
    assert charge.spending.runs == ((result.run, 1),)
    assert 0.9 < charge.spending.epsilon(delta=1e-4) <= 1.0


def test_all_runs_of_a_population_are_one_charge(path: Path) -> None:
    runs = [replace(RUN, noise=noise) for noise in (30.0, 30.0, 40.0)]
    results = honestdp.train_population(
        model(), closed_form.records(), run=runs, optimizers=[RULE] * 3, ledger=Ledger(path), dataset="tiny"
    )
    (charge,) = Ledger(path).charges("tiny")
    assert charge.spending.runs == ((runs[0], 2), (runs[2], 1))
    assert {result.key for result in results} == {charge.entry.key}
    assert results[0].balance is not None
    assert results[0].balance.spent == pytest.approx(results[0].epsilon, rel=1e-3)


# ---- Once


def test_an_interrupted_training_goes_on_under_its_charge(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Interruption(monkeypatch)
    with pytest.raises(Interrupted, match="stays charged"):
        train(path, **kept(path))
    monkeypatch.undo()
    monkeypatch.delenv("HONESTDP_LEDGER", raising=False)
    assert kinds(path) == {"budget": 1, "charge": 1, "resume": 1}
    result = train(path, **kept(path))
    assert kinds(path) == {"budget": 1, "charge": 1, "resume": 2, "over": 1}
    again = train(path, **kept(path))
    assert kinds(path) == {"budget": 1, "charge": 1, "resume": 2, "over": 1}
    assert torch.equal(again.model.weight, result.model.weight)  # type: ignore[arg-type]
    assert (again.balance, again.key) == (result.balance, result.key)


@pytest.mark.parametrize("after", [False, True], ids=["before the charge", "after it"])
def test_a_kill_around_the_charge_costs_nothing_more(after: bool, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    charge = Ledger.charge

    def killed(self: Ledger, *args: Any, **named: Any) -> Any:
        if after:
            charge(self, *args, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "charge", killed)
    with pytest.raises(KeyboardInterrupt):
        train(path, **kept(path))
    monkeypatch.setattr(Ledger, "charge", charge)
    train(path, **kept(path))
    assert kinds(path)["charge"] == 1


def test_one_charge_pays_for_one_training_whenever_its_checkpoint_was_copied(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies from just after the charge, which have no seed yet, and from the first step on, which another has overtaken."""
    checkpoint, copies = path.with_name("checkpoint"), []
    start = charging.Charging.start

    def copied(self: charging.Charging, progress: Any) -> None:
        copies.append(shutil.copy(checkpoint, path.with_name("begun")))
        start(self, progress)

    monkeypatch.setattr(charging.Charging, "start", copied)
    Interruption(monkeypatch)
    with pytest.raises(Interrupted):
        train(path, **kept(path))
    monkeypatch.undo()
    shutil.copy(checkpoint, path.with_name("older"))
    again = {name: Compute(device="cpu", workers=0, checkpoint=path.with_name(name)) for name in ("begun", "older")}
    with pytest.raises(StaleCopy):
        train(path, compute=again["begun"])
    Interruption(monkeypatch)
    with pytest.raises(Interrupted):
        train(path, **kept(path))
    monkeypatch.undo()
    with pytest.raises(StaleCopy):
        train(path, compute=again["older"])
    train(path, **kept(path))
    with pytest.raises(KeyEnded):
        train(path, compute=again["older"])


def test_a_checkpoint_is_of_a_charged_training_or_it_is_not(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Interruption(monkeypatch)
    with pytest.raises(Interrupted):
        train(path, **kept(path))
    with pytest.raises(InvalidArgument, match="ledger must be given with dataset='tiny'"):
        train(None, **kept(path))
    other = path.with_name("other.db")
    Ledger(other).set_budget("tiny", Budget(5.0, 1e-4))
    with pytest.raises(InvalidArgument, match="in this one the charge is missing"):
        train(other, **kept(path))
    path.with_name("checkpoint").unlink()
    Interruption(monkeypatch)
    with pytest.raises(Interrupted):
        train(None, **kept(path))
    with pytest.raises(InvalidArgument, match="checkpoint must be one of a training that was charged"):
        train(path, **kept(path))
    assert kinds(path)["charge"] == 1


def test_a_checkpoint_that_was_charged_to_one_dataset_is_not_charged_to_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was killed before its first step: one training would be paid for twice."""
    Ledger(path).set_budget("other", Budget(5.0, 1e-4))
    with monkeypatch.context() as patched:
        patched.setattr(charging.Charging, "start", _die)
        with pytest.raises(RuntimeError, match="killed"):
            train(path, **kept(path))
    with pytest.raises(
        InvalidArgument, match="dataset must be 'tiny', which the training in this checkpoint was charged"
    ):
        train(path, **{**kept(path), "dataset": "other"})
    assert kinds(path)["charge"] == 1
    train(path, **kept(path))
    assert kinds(path)["charge"] == 1


def _die(*_: Any) -> None:
    raise RuntimeError("killed")


def test_another_run_under_the_same_checkpoint_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Interruption(monkeypatch)
    with pytest.raises(Interrupted):
        train(path, **kept(path))
    with pytest.raises(honestdp.errors.KeyReused):
        train(path, run=replace(RUN, noise=25.0), **kept(path))
    assert kinds(path)["charge"] == 1


def test_labels_that_are_no_classes_are_not_told_of(path: Path) -> None:
    x, y = closed_form.records()
    train(path, data=(x, y + 57))
    assert kinds(path)["charge"] == 1


# ---- What can go wrong without a record


@pytest.mark.parametrize("rule", [None, "horizon", "oso", RULE])
def test_records_of_one_number_are_trained_by_every_rule(rule: Any, path: Path) -> None:
    class Line(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x[:, None])

    rule = honestdp.optimizers.OSO(lr=0.1) if rule == "oso" else rule
    x, y = closed_form.records()
    data = (torch.as_tensor(x).reshape(len(y), -1)[:, 0].float(), y)
    honestdp.train(Line(1, int(y.max()) + 1), data, run=RUN, optimizer=rule, ledger=path, dataset="tiny")
    assert kinds(path)["charge"] == 1


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused_before_the_charge(number: float, path: Path) -> None:
    broken = model()
    with torch.no_grad():
        broken.bias[0] = number
    for ledger in (path, None):
        with pytest.raises(InvalidArgument, match="'bias' holds NaN or infinite numbers"):
            honestdp.train(
                broken,
                closed_form.records(),
                run=RUN,
                optimizer=RULE,
                ledger=ledger,
                dataset="tiny" if ledger else None,
            )
    how: dict[str, Any] = {"records": N, "lot": N / 2, "steps": 2, "ledger": path, "dataset": "tiny"}
    with pytest.raises(InvalidArgument, match="'bias' holds NaN or infinite numbers"):
        honestdp.tune(broken, closed_form.records(), budget=Budget(1.0, 1e-5), **how)
    assert kinds(path)["charge"] == 0


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_frozen_weights_and_statistics_that_are_not_finite_are_refused_too(number: float) -> None:
    """A pretrained body that diverged; an infinite buffer, such as a mask of attention, is trained with."""
    frozen, averaged = model(), torch.nn.Sequential(torch.nn.BatchNorm1d(model().in_features, affine=False), model())
    frozen.bias.requires_grad_(False)[0] = number
    averaged[0].eval().running_mean[0] = torch.nan
    how: dict[str, Any] = {"records": N, "lot": N / 2, "steps": 2}
    for broken, name in ((frozen, "bias"), (averaged, "0.running_mean")):
        with pytest.raises(InvalidArgument, match=f"'{name}' holds NaN or infinite numbers"):
            honestdp.train(broken, closed_form.records(), run=RUN, optimizer=RULE)
        with pytest.raises(InvalidArgument, match=f"'{name}' holds NaN or infinite numbers"):
            honestdp.tune(broken, closed_form.records(), budget=Budget(1.0, 1e-5), **how)
    masked = model()
    masked.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    honestdp.train(masked, closed_form.records(), run=RUN, optimizer=RULE)


def test_a_step_is_rehearsed_before_the_charge_with_its_second_question(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise IndexError("no such dimension")

    monkeypatch.setattr("honestdp.boundary.query.input_norms", fails)
    with pytest.raises(InvalidArgument, match=r"makes a step of training on made-up records.*no such dimension"):
        train(path, optimizer="echo")
    assert kinds(path)["charge"] == 0
    train(path, optimizer="horizon")
    assert kinds(path)["charge"] == 1


# ---- The environment


def test_the_environment_names_the_ledger_and_never_the_dataset(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONESTDP_LEDGER", str(path))
    noted = train(None, delta=1e-5)
    assert kinds(path) == {"budget": 1}
    assert any("was not charged to the ledger" in note for note in noted.statement.notes)
    charged = train(None, dataset="tiny")
    assert kinds(path)["charge"] == 1
    assert not any("was not charged" in note for note in charged.statement.notes)


# ---- Planted faults


@pytest.mark.parametrize("home", HOMES)
def test_a_charge_after_reading_is_noticed(home: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pay = charging.Charging.pay
    late: list[Any] = []
    monkeypatch.setattr(charging.Charging, "pay", lambda self, *args: late.append((self, args)))
    monkeypatch.setattr(charging.Charging, "end", lambda self: pay(late[0][0], *late[0][1]))
    assert 0 in reads(path, home)


def test_a_second_charge_on_resume_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Interruption(monkeypatch)
    with pytest.raises(Interrupted):
        train(path, **kept(path))
    monkeypatch.undo()
    of = Payment.of.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(Payment, "of", classmethod(lambda cls, books, key: of(cls, books, key[::-1])))
    with pytest.raises(InvalidArgument, match="the charge is missing"):
        train(path, **kept(path))


def test_events_of_another_training_are_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Spending

    def cheaper(selection: Any, runs: Any, **rest: Any) -> Spending:
        return real(selection, tuple((replace(run, noise=2 * run.noise), count) for run, count in runs), **rest)

    monkeypatch.setattr("honestdp.ledger.spending.Spending", cheaper)
    result = train(path)
    (charge,) = Ledger(path).charges("tiny")
    assert charge.spending != real(Compose(candidates=1), ((result.run, 1),))


def test_a_resumed_population_begins_its_later_runs_with_the_weights_of_the_first_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed is in the checkpoint: another start under the same noise would betray the difference between the two."""
    made = [0]

    def another() -> torch.nn.Module:
        made[0] += 1
        linear = model()
        torch.nn.init.constant_(linear.weight, made[0])  # type: ignore[arg-type]
        return linear

    def final(**rest: Any) -> list[torch.Tensor]:
        rules = [RULE, honestdp.optimizers.Adam(clip=1.0)]  # of two kinds, which are trained one after the other
        named = {"run": RUN, "optimizers": rules, "noise_seed": 3, **rest}
        results = honestdp.train_population(another, closed_form.records(), **named)
        return [result.model.weight for result in results]  # type: ignore[misc]

    expected, made[0] = final(), 0
    Interruption(monkeypatch)
    with pytest.raises(Interrupted):
        final(**kept(path))
    monkeypatch.undo()
    found = final(**kept(path))
    assert made[0] == 4
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
