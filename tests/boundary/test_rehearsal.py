"""What cannot score is refused before the charge, in words: metrics that fit no labels, fail, or remember, and models that mix
the records of a validation batch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import honestdp
from honestdp import Accuracy, Budget, ClippedLoss, DeclaredMetric, LogUniform
from honestdp.boundary import scores as validation
from honestdp.boundary import vetted
from honestdp.boundary.vetted import rehearse
from honestdp.checks import InvalidArgument
from honestdp.ledger import Ledger
from honestdp.losses import cross_entropy, squared_error
from honestdp.training.spec import Compute
from tests.tiny_search import WHOLE, clouds, hidden, linear


def logits(output: Tensor, y: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(
        output.reshape(len(y)), y.reshape(len(y)).float(), reduction="none"
    )


def one_logit() -> nn.Module:
    return nn.Linear(3, 1)


def probability() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())


def of_probability(output: Tensor, y: Tensor) -> Tensor:
    return functional.binary_cross_entropy(output[:, 0], y.float(), reduction="none")


def huber(output: Tensor, y: Tensor) -> Tensor:
    return functional.huber_loss(output[:, 0], y, reduction="none")


def first_label(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y.reshape(len(y), -1)[:, 0].long(), reduction="none")


X, Y = clouds()
MANY = np.stack([Y, 1 - Y, Y], axis=1)
FLOATS = Y.astype(np.float32)


class Remembers:
    """A metric that counts its calls, or keeps the highest output so far, or goes wrong from the 40th call on."""

    def __init__(self, how: str) -> None:
        self.how, self.calls, self.most = how, 0, -1e9

    def __call__(self, output: Tensor, y: Tensor) -> float:
        self.calls += 1
        if self.how == "calls":
            return self.calls / 1000
        if self.how == "late":
            return 0.5 + (self.calls > 40) * 0.1
        self.most = max(self.most, float(output.max()))
        return float(float(output.max()) >= self.most)


def declared(function: Callable[[Tensor, Tensor], Any]) -> DeclaredMetric:
    return DeclaredMetric(function, low=0.0, high=1.0, name="mine")


def raising(output: Tensor, y: Tensor) -> float:
    raise RuntimeError("no such thing")


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "multi-label by default": (
        r"metric must be another than accuracy.*shape .3. a record.*ClippedLoss",
        {"data": (X, MANY), "loss": first_label},
    ),
    "multi-label, one output each": (
        r"metric must be another than accuracy",
        {"data": (X, MANY[:, :2]), "loss": first_label},
    ),
    "real labels under accuracy": (
        r"metric must be another than accuracy",
        {"data": (X, FLOATS), "loss": first_label, "metric": Accuracy()},
    ),
    "regression under accuracy": (
        r"metric must be another than accuracy for one output",
        {"data": (X, FLOATS), "model": one_logit, "metric": Accuracy()},
    ),
    "regression by an own loss": (
        r"Accuracy reads one output as a logit",
        {"data": (X, FLOATS), "model": one_logit, "loss": huber, "metric": Accuracy()},
    ),
    "a probability": (
        r"or the output is a probability",
        {"data": (X, Y), "model": probability, "loss": of_probability},
    ),
    "one output for classes": (r"outputs must be one for each class", {"model": one_logit}),
    "raises": (
        r"metric must be one that makes a number of one record, an output of shape .2. and torch.int64 labels of "
        r"shape .. .no such thing., got 'mine'",
        {"metric": declared(raising)},
    ),
    "NaN": (
        r"metric must be one that gives finite numbers; of a made-up record it is nan",
        {"metric": declared(lambda out, y: out[0] * float("nan"))},
    ),
    "a vector": (
        r"metric must be one number for one record, got 'a result of shape .2.",
        {"metric": declared(lambda out, y: out)},
    ),
    "of the whole lot": (
        r"metric must be one that makes a number",
        {"metric": declared(lambda out, y: (out.argmax(1) == y).double().mean())},
    ),
    "nothing": (r"metric must be one that makes a number", {"metric": declared(lambda out, y: None)}),
    "counts its calls": (
        r"metric must be one that gives a record the same number whenever",
        {"metric": declared(Remembers("calls"))},
    ),
    "keeps the highest": (
        r"metric must be one that gives a record the same number whenever",
        {"metric": declared(Remembers("highest"))},
    ),
    "remembers late": (
        r"metric must be one that gives a record the same number whenever",
        {"metric": declared(Remembers("late"))},
    ),
    "is drawn": (
        r"metric must be one that gives a record the same number whenever",
        {"metric": declared(lambda out, y: torch.rand(()))},
    ),
    "not a metric": (r"metric must be honestdp.Accuracy", {"metric": lambda out, y: 0.0}),
    "no compute": (r"compute must be a honestdp.Compute", {"compute": {"device": "cpu"}}),
    "a checkpoint": (r"checkpoint must be left out for a search", {"compute": Compute(checkpoint="kept")}),
    "loss": (r"loss must be a function", {"loss": nn.MSELoss}),
}


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_score_is_refused_before_the_charge(name: str, tmp_path: Path) -> None:
    words, changes = REFUSED[name]
    Ledger(tmp_path / "ledger.db").set_budget("a", Budget(5.0, 1e-5))
    settings = {**WHOLE, "ledger": tmp_path / "ledger.db", "dataset": "a", **changes}
    with pytest.raises(InvalidArgument, match=words):
        honestdp.tune(settings.pop("model", linear), settings.pop("data", clouds()), **settings)
    assert Ledger(tmp_path / "ledger.db").balance("a").charges == 0


class Odd(nn.Module):
    """hidden(width), whose metric fits its output only at width 4."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = hidden(width)
        self.many = width != 4

    def forward(self, x: Tensor) -> Tensor:
        output = self.layers(x)
        return torch.cat([output, output], dim=1) if self.many else output


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("rates", [[0.1], LogUniform(0.1, 1.0)], ids=["grid", "random search"])
def test_a_metric_is_tried_on_the_models_of_every_width(rates: Any) -> None:
    def two_outputs(output: Tensor, y: Tensor) -> Tensor:
        return output.reshape(2).softmax(0)[1]

    for widths in ([4, 5], [5, 4]):
        settings = {**WHOLE, "space": {"lr": rates, "clip": [1.0], "width": widths}}
        settings["candidates"] = 2 if isinstance(rates, LogUniform) else None
        with pytest.raises(InvalidArgument, match="metric must be one that makes a number of one record"):
            honestdp.tune(lambda width: Odd(width), clouds(), metric=declared(two_outputs), **settings)


# ---- Models that mix the records of a validation batch


class InEval(nn.Module):
    """A linear model that behaves in training, and does something of its own in eval()."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.linear, self.how = nn.Linear(3, 2), how
        self.mean: Tensor | None = None
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return self.linear(x)
        if self.how == "test-time normalisation":
            return self.linear((x - x.mean(0)) / (1 + x.std(0)))
        if self.how == "initialised from the first batch":
            self.mean = x.mean(0) if self.mean is None else self.mean
            return self.linear(x - self.mean)
        if self.how == "only wide batches":
            return self.linear(x - x.mean(0)) if len(x) >= 16 else self.linear(x)
        if self.how == "a neighbour":
            return self.linear(x + 0.1 * x.roll(1, 0))
        if self.how == "counts batches":
            self.calls += 1
            return self.linear(x) + self.calls
        return self.linear(x)[:-1] if self.how == "a row too few" else self.linear(x).sum()


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    "how",
    [
        "test-time normalisation",
        "initialised from the first batch",
        "only wide batches",
        "a neighbour",
        "counts batches",
        "a row too few",
        "a scalar",
    ],
)
def test_a_model_that_mixes_records_in_eval_is_refused_before_the_charge(how: str) -> None:
    with pytest.raises(InvalidArgument, match="model"):
        honestdp.tune(lambda: InEval(how), clouds(), **WHOLE)


def test_a_model_that_draws_in_eval_but_keeps_records_apart_is_taken() -> None:
    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return functional.dropout(self.linear(x), 0.5, training=True)

    x, y = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
    rehearse(Accuracy(), Drawing(), loss=cross_entropy, x=x, y=y)


def test_a_rehearsal_leaves_no_trace() -> None:
    model = InEval("nothing")
    model.forward = lambda x: model.linear(x)  # type: ignore[method-assign]
    before = torch.random.get_rng_state()
    rehearse(Accuracy(), model, loss=cross_entropy, x=torch.zeros(2, 3), y=torch.zeros(2, dtype=torch.long))
    assert torch.equal(before, torch.random.get_rng_state())
    assert model.training


# ---- What is meant is taken

TAKEN: dict[str, dict[str, Any]] = {
    "one logit": {"model": one_logit, "loss": logits},
    "one logit, floating labels": {"model": one_logit, "loss": logits, "data": (X, FLOATS), "metric": Accuracy()},
    "one logit without a dimension": {"model": lambda: nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), "loss": logits},
    "labels of one column": {"data": (X, Y[:, None]), "loss": first_label},
    "an own loss": {"loss": first_label, "metric": ClippedLoss(2.0)},
    "an own metric": {"metric": declared(lambda out, y: out.softmax(0)[y])},
    "an own metric that cannot be mapped": {"metric": declared(lambda out, y: float(out[int(y)] > 0))},
    "regression": {"data": (X, FLOATS), "model": one_logit, "metric": ClippedLoss(1.0), "loss": squared_error},
    "multi-label by an own metric": {
        "data": (X, MANY[:, :2]),
        "loss": lambda out, y: functional.binary_cross_entropy_with_logits(out, y.float(), reduction="none").sum(1),
        "metric": declared(lambda out, y: ((out > 0) == (y > 0)).double().mean()),
    },
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_can_be_meant_is_scored(name: str) -> None:
    settings = {**WHOLE, "budget": Budget(200.0, 1e-5), "steps": 15, "space": {"lr": [2.0], "clip": [1.0]}}
    settings |= TAKEN[name]
    result = honestdp.tune(settings.pop("model", linear), settings.pop("data", clouds()), noise_seed=1, **settings)
    assert result.score is not None
    if result.score.name == "accuracy":
        assert result.score.value > 0.7


# ---- The statement


@pytest.mark.slow
def test_the_assumptions_follow_from_what_the_metric_is_and_not_from_its_name() -> None:
    given = {**WHOLE, "space": {"lr": [0.1], "clip": [1.0]}}

    def assumed(**changes: Any) -> str:
        return " ".join(honestdp.tune(linear, clouds(), **{**given, **changes}).statement.assumptions)

    remembers_none = "the user's function: it was shown one record at a time, and remembers none"
    for name in ("accuracy", "loss", "anything"):
        assert remembers_none in assumed(metric=DeclaredMetric(lambda out, y: out[0] > 0, low=0, high=1, name=name))
        assert remembers_none not in assumed(metric=Accuracy(name=name))
        assert remembers_none not in assumed(metric=ClippedLoss(1.0, name=name))
        assert remembers_none in assumed(metric=ClippedLoss(1.0, name=name), loss=first_label)
        assert remembers_none not in assumed(metric=Accuracy(name=name), loss=first_label)


# ---- Planted faults


def test_without_the_rehearsal_a_mixing_model_would_be_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vetted, "vet_forward", lambda *_, examples, **__: examples)
    rehearse(
        Accuracy(),
        InEval("test-time normalisation"),
        loss=cross_entropy,
        x=torch.zeros(2, 3),
        y=torch.zeros(2, dtype=torch.long),
    )


def test_a_model_that_reads_numbers_to_choose_its_way_is_shown_one_record_at_a_time() -> None:
    class Choosing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.seen = nn.Linear(3, 2), set()

        def forward(self, x: Tensor) -> Tensor:
            self.seen.add(len(x))
            return self.linear(x) if bool(torch.isfinite(x).all()) else torch.zeros(len(x), 2)

    x, y, model = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), Choosing()
    forward = rehearse(Accuracy(), model, loss=cross_entropy, x=x, y=y)
    forward(model)(torch.ones(5, 3))
    assert model.seen == {1}


def test_a_model_that_draws_in_eval_is_shown_one_record_at_a_time_and_none_that_looks_at_the_last() -> None:
    class Drawing(nn.Module):
        def __init__(self, looks: bool) -> None:
            super().__init__()
            self.linear, self.looks = nn.Linear(3, 2), looks

        def forward(self, x: Tensor) -> Tensor:
            made = self.linear(x) + 0.01 * torch.randn(len(x), 2)
            return made - 100 * made[-1:] if self.looks else made

    x, y = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
    assert rehearse(Accuracy(), Drawing(False), loss=cross_entropy, x=x, y=y) is validation.one_by_one
    with pytest.raises(InvalidArgument, match="mix"):
        rehearse(Accuracy(), Drawing(True), loss=cross_entropy, x=x, y=y)
