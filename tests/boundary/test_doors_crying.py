"""The doors, tried: no frame outside the boundary touches a record or what is computed from it, and none of it is given out."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import honestdp
from honestdp import optimizers as rules
from honestdp.boundary import capture, data, intake, mechanism, scores
from honestdp.boundary.query import Constants
from honestdp.boundary.seed import Seed
from honestdp.selection import Compose, Winner
from tests.boundary.crying_records import CriedOut, crying, planted

RECORDS = 60


def records() -> tuple[Tensor, Tensor]:
    maker = torch.Generator().manual_seed(0)
    return torch.randn(RECORDS, 4, generator=maker), torch.randint(0, 3, (RECORDS,), generator=maker)


class Pairs(Dataset[Any]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._x[index], self._y[index]


class Strange(nn.Module):
    """A layer that no rule knows, so that every example is mapped."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) @ self.weight


RULES: list[rules.Rule] = [
    rules.SGD(lr=0.1, clip=1.0),
    rules.AdamWOSM(clip=1.0),
    rules.OSO(lr=0.1),
    rules.OSO(lr=0.1, momentum=0.5, proportional=True),
    rules.OSO(lr=0.1, automatic=True),
    rules.AdamOSO(),
    rules.Quantile(lr=0.1),
    rules.ADADP(clip=1.0),
    rules.Horizon(),
    rules.Echo(),
]


def train(
    wrap: Callable[[Tensor, Tensor], Any] = lambda x, y: (x, y), model: nn.Module | None = None, **more: Any
) -> set[str]:
    x, y = records()
    run = honestdp.Run(records=RECORDS, lot=10, steps=5, noise=0.9)
    with crying(x, y) as watch:
        given = {"optimizers": RULES, "delta": 1e-5, "run": run} | more
        honestdp.train_population(model or nn.Linear(4, 3), wrap(x, y), **given)
    return watch.touched


def search(
    model: nn.Module | None = None, wrap: Callable[[Tensor, Tensor], Any] = lambda x, y: (x, y), **more: Any
) -> set[str]:
    x, y = records()
    settings: dict[str, Any] = {
        "budget": honestdp.Budget(3.0, 1e-3),
        "optimizer": "sgd",
        "space": {"lr": [0.1, 1.0], "clip": 1.0},
        "selection": Winner(candidates=2),
        "lot": 10,
        "steps": 5,
    }
    with crying(x, y) as watch:
        honestdp.tune(model or nn.Linear(4, 3), wrap(x, y), **settings | more)
    return watch.touched


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [nn.Linear(4, 3), Strange(), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 3))]
)
def test_a_training_touches_records_inside_the_boundary_alone(model: nn.Module) -> None:
    touched = train(model=model)
    assert {"honestdp.boundary.records", "honestdp.boundary.release", "honestdp.boundary.clipping"} <= touched
    assert all(
        module.startswith(("honestdp.boundary.", "honestdp.gradients.", "honestdp.losses")) for module in touched
    )


@pytest.mark.slow
def test_a_strict_training_with_a_checkpoint_does_too(tmp_path: Any) -> None:
    assert train(strict=True, **checkpointed(tmp_path / "kept"))


def test_a_training_that_is_watched_does_too() -> None:
    seen: list[tuple[int, nn.Module]] = []
    assert train(optimizers=RULES[:1], on_step=lambda step, model: seen.append((step, model)))
    assert [step for step, _ in seen] == [0, 1, 2, 3, 4, 5]


def checkpointed(path: Any) -> dict[str, Any]:
    return {"compute": honestdp.Compute(checkpoint=path)} if hasattr(honestdp, "Compute") else {"checkpoint": path}


def here() -> dict[str, Any]:
    """Decoding in this process, where it is watched."""
    return {"compute": honestdp.Compute(workers=0)} if hasattr(honestdp, "Compute") else {"workers": 0}


def test_a_training_on_a_dataset_does_too() -> None:
    assert train(wrap=Pairs, **here())


def of_people(x: Tensor, y: Tensor) -> Any:
    return honestdp.by_person((x, y), torch.arange(RECORDS) // 2, rows=1)


@pytest.mark.slow
def test_a_training_and_a_search_of_people_do_too() -> None:
    run = honestdp.Run(records=RECORDS // 2, lot=10, steps=3, noise=0.9)
    touched = train(wrap=of_people, run=run, optimizers=RULES[:1])
    assert {"honestdp.boundary.records", "honestdp.boundary.release"} <= touched
    searched = search(wrap=of_people, **SEARCHES["one run"])
    assert {"honestdp.boundary.scores", "honestdp.boundary.people"} <= searched


def named(x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """The same memory as two inputs, so that what is watched of x is watched of both."""
    return {"table": x[:, :3], "more": x[:, 3:]}, y


class OfTwo(nn.Module):
    """A model of two inputs by name, whose output is a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.more = nn.Linear(3, 3), nn.Linear(1, 3)

    def forward(self, table: Tensor, more: Tensor) -> dict[str, Tensor | None]:
        return {"hidden": more, "logits": self.table(table) + self.more(more), "cache": None}


class NamedPairs(Pairs):
    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return {"table": x[:3], "more": x[3:], "labels": y}


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [named, NamedPairs])
@pytest.mark.parametrize("strict", [False, True])
def test_a_training_on_several_inputs_does_too(wrap: Any, strict: bool) -> None:
    assert train(wrap=wrap, model=OfTwo(), strict=strict, **here())


@pytest.mark.slow
@pytest.mark.parametrize(
    "metric",
    [
        honestdp.Accuracy(),
        honestdp.DeclaredMetric(lambda output, y: (output["logits"].argmax() == y).float(), low=0, high=1),
    ],
)
def test_a_search_on_several_inputs_does_too(metric: Any, tmp_path: Any) -> None:
    touched = search(OfTwo(), named, metric=metric, out=tmp_path / "out")
    assert {"honestdp.boundary.scores", "honestdp.boundary.data", "honestdp.boundary.release"} <= touched


SEARCHES = {
    "winner": {},
    "compose": {"selection": Compose(candidates=2)},
    "envelope": {"selection": "envelope", "max_runs": 3.0},
    "own metric": {"metric": honestdp.DeclaredMetric(lambda output, y: (output.argmax() == y).float(), low=0, high=1)},
    "loss": {"metric": honestdp.ClippedLoss(2.0)},
    "one run": {"optimizer": None, "space": None, "selection": "auto"},
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", SEARCHES.values(), ids=SEARCHES)
def test_a_search_touches_records_inside_the_boundary_alone(settings: dict[str, Any], tmp_path: Any) -> None:
    touched = search(out=tmp_path / "out", **settings)
    assert {"honestdp.boundary.scores", "honestdp.boundary.data", "honestdp.boundary.release"} <= touched


# ---- Planted faults: each cries out


def test_a_record_returned_by_the_mechanism_cries(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (
        "return last - first, params, state",
        'return last - first, params, {**state, "lot": self._records.fetch(lots.indices[0]).x}',
    )
    planted(monkeypatch, mechanism, mechanism.Mechanism, "steps", before, after)
    with pytest.raises(CriedOut, match=r"steps returns a record to honestdp\.training\.population"):
        train()


def test_one_of_several_inputs_returned_by_the_mechanism_cries(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (
        "return last - first, params, state",
        'return last - first, params, {**state, "lot": self._records.fetch(lots.indices[0]).x["more"]}',
    )
    planted(monkeypatch, mechanism, mechanism.Mechanism, "steps", before, after)
    with pytest.raises(CriedOut, match=r"steps returns a record to honestdp\.training\.population"):
        train(wrap=named, model=OfTwo())


def test_a_lot_that_is_handed_to_a_rule_cries(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = "return rule.update(", "lot = [*lot]\n    params = params + lot[0].x.sum()\n    return rule.update("
    planted(monkeypatch, mechanism, mechanism.Mechanism, "_step", before, after)
    with pytest.raises(CriedOut):
        train()


def test_a_record_that_is_handed_to_on_step_cries(monkeypatch: pytest.MonkeyPatch) -> None:
    from honestdp.training import loop

    before, after = "population.weights()[0]", "self.intake._records.fetch(torch.zeros(1, 1).long()).x[0, 0]"
    planted(monkeypatch, loop, loop.Job, "_train", before, after)
    with pytest.raises(CriedOut):
        train(optimizers=RULES[:1], on_step=lambda step, model: None)


def test_a_gradient_without_noise_cries(monkeypatch: pytest.MonkeyPatch) -> None:
    from honestdp.boundary import release

    before, after = "_noisy(gradient, deviation, params, constants, noise, ranks)", "gradient"
    planted(monkeypatch, release, release, "release", before, after)
    monkeypatch.setattr(mechanism, "release", release.release)
    with pytest.raises(CriedOut, match=r"honestdp\.optimizers"):
        train()


@pytest.mark.slow
@pytest.mark.parametrize(
    "after",
    [
        "return tuple(int(total) for z in noise)",
        "return (total,)",
        "return tuple(total + z for z in noise)",
    ],
)
def test_an_exact_total_returned_by_the_score_door_cries(after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(
        monkeypatch,
        scores,
        scores.ScoreDoor,
        "score",
        "return tuple(_noisy(total, z) for z in noise)",
        after,
    )
    with pytest.raises(CriedOut):
        search()


def test_the_noise_of_a_score_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the watch cannot see: a number that leaves the one way out without its noise."""
    x, y = records()
    door = scores.ScoreDoor(x, y, loss=nn.functional.cross_entropy, metric=honestdp.Accuracy(), noise=[(0,), (10**6,)])
    model = nn.Linear(4, 3)
    assert door.score(1, model)[0] - door.score(0, model)[0] == 10**6


@pytest.mark.slow
def test_records_read_outside_the_boundary_cry(monkeypatch: pytest.MonkeyPatch) -> None:
    from honestdp.training import loop

    planted(
        monkeypatch,
        loop,
        loop.Job,
        "population",
        "seed = ",
        "self.intake._records.fetch(torch.zeros(1, 1).long()).x.sum()\n    seed = ",
    )
    with pytest.raises(CriedOut, match=r"honestdp\.training\.loop"):
        train()


def test_what_is_public_of_the_doors_is_no_more_than_this() -> None:
    """A new way out has to be written down here."""
    public = {
        kind.__name__: {name for name in dir(kind) if not name.startswith("_")}
        for kind in (data.PrivateData, intake.Intake, mechanism.Mechanism, scores.ScoreDoor, capture.Captured)
    }
    assert public == {
        "PrivateData": {
            "augmented",
            "decoders",
            "drawn",
            "fingerprint",
            "guarded",
            "read",
            "scan",
            "shapes",
            "split",
        },
        "Intake": {
            "augment",
            "blank",
            "bytes_per_run",
            "compare",
            "decoding",
            "dtype",
            "fingerprint",
            "layout",
            "mechanism",
            "ranks",
            "rehearsal",
            "unit",
        },
        "Mechanism": {"begin", "between_blocks", "check_alike", "random_state", "restore", "settle", "steps"},
        "ScoreDoor": {"score"},
        "Captured": {"replay"},
    }


def test_every_attribute_of_the_doors_is_private_but_what_is_listed() -> None:
    """What a door remembers must not be read from outside (test_doors_imports denies private names)."""
    public = {
        f"{kind.__name__}.{node.attr}"
        for kind in (data.PrivateData, intake.Intake, mechanism.Mechanism, scores.ScoreDoor)
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind))))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not node.attr.startswith("_")
    }
    declared = {f"PrivateData.{name}" for name in ("augment", "classes", "exact", "known", "unit")}
    assert public == {"Mechanism.constants", *declared}
    assert {field.name for field in fields(intake.Intake) if not field.name.startswith("_")} == {
        "vetted", "fingerprint", "ranks", "unit",
    }  # fmt: skip


def test_no_more_steps_are_made_than_are_accounted() -> None:
    """Nor more than a caller asks for: what it was told to make beyond that stays unmade."""
    x, y = records()
    taken = intake.take_in(
        nn.Linear(4, 3), data.PrivateData((x, y)), records=RECORDS, loss=None, device=torch.device("cpu"), workers=0
    )
    constants = Constants(RECORDS, 10.0, 5, torch.ones(1), taken.layout, torch.ones(5))
    door = taken.mechanism(constants, seed=Seed.fixed(1), secure=False)
    rule, params = rules.SGD(lr=0.1, clip=1.0), torch.zeros(1, taken.layout.width)
    state = rule.init(params, constants)
    with pytest.raises(RuntimeError, match="than are accounted"):
        door.steps(rule, params, state, left=100)
    door = taken.mechanism(constants, seed=Seed.fixed(1), secure=False)
    made, params, state = door.steps(rule, params, state, left=5)
    assert made == 5
    with pytest.raises(RuntimeError, match="than are accounted"):
        door.steps(rule, params, state, left=1)


def test_what_is_known_of_the_shapes_is_no_way_to_the_records() -> None:
    x, y = records()
    shapes = data.PrivateData((x, y)).shapes
    assert shapes is not None
    assert shapes.x.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert shapes.y.untyped_storage().data_ptr() != y.untyped_storage().data_ptr()
