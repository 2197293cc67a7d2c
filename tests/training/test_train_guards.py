"""What must be refused is refused where it comes in, and what must be checked is checked by more than luck."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from honestdp import Budget, Compute, Run
from honestdp import optimizers as rules
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.gradients import Dense, Outer, Prepared, RefusedModel, per_example
from honestdp.gradients import rules as layer_rules
from honestdp.gradients.bookkeeping import BookKeeping
from honestdp.gradients.materialised import Materialised
from honestdp.reference import gradient
from honestdp.training.spec import TrainSpec
from honestdp.training.train import assemble, train, train_population
from tests.toy_training import CPU, constants_of, toy_data, toy_model

RUN = Run(records=60, lot=10, steps=5, noise=1.0)
RULE = rules.SGD(lr=0.1, clip=1.0)
ALARM = 1e-9
"""The chance of a false alarm of each statistical comparison here."""


@pytest.mark.parametrize("change", [{"records": 61}, {"lot": 20}, {"lot": 10.5}, {"steps": 6}])
def test_runs_trained_together_differ_in_their_noise_alone(change: dict[str, float]) -> None:
    for runs in ([RUN, replace(RUN, **change)], [replace(RUN, **change), RUN]):
        with pytest.raises(InvalidArgument, match="differ in their noise alone"):
            train_population(toy_model(), toy_data(), run=runs, optimizers=[RULE] * 2)


@pytest.mark.parametrize("noises", [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])
def test_no_run_may_bring_a_noise_where_a_budget_sets_it(noises: tuple[float, ...]) -> None:
    runs = [RUN.with_noise(noise) for noise in noises]
    with pytest.raises(InvalidArgument, match="0 when a budget is given"):
        train_population(toy_model(), toy_data(), run=runs, optimizers=[RULE] * 2, budget=Budget(3.0, 1e-5))


def test_a_rule_that_is_undefined_for_its_own_run_is_refused() -> None:
    """Quantile's count takes noise lot/20, the whole privacy of a step where sigma is lot/10."""
    rule = rules.Quantile(lr=0.1)
    for noise in (1.0, 2.0):
        with pytest.raises(InvalidArgument, match="below lot/10"):
            train(toy_model(), toy_data(), run=RUN.with_noise(noise), optimizer=rule)
    with pytest.raises(InvalidArgument, match="below lot/10"):
        train_population(
            toy_model(), toy_data(), run=[RUN.with_noise(0.5), RUN], optimizers=[rules.Quantile(lr=0.1)] * 2
        )
    train(toy_model(), toy_data(), run=RUN.with_noise(0.99), optimizer=rule)


@pytest.mark.parametrize("present", [59, 61, 1])
def test_the_number_of_records_is_the_declared_one_unless_a_coin_chose_them(present: int) -> None:
    """Then each that is there has the declared rate, and none that is not there is drawn."""
    x, y = (part.repeat(2, *[1] * (part.dim() - 1))[:present] for part in toy_data())
    given = {"records": 60, "loss": None, "device": CPU, "workers": 0}
    with pytest.raises(InvalidArgument, match="records"):
        take_in(toy_model(), PrivateData((x, y)), **given)
    with pytest.raises(InvalidArgument, match="records"):
        train(toy_model(), (x, y), run=RUN, optimizer=RULE)
    intake = take_in(toy_model(), PrivateData((x, y)), by_coin=True, **given)
    constants = constants_of(intake, records=60, lot=30.0, steps=8, noise=[1.0])
    mechanism = intake.mechanism(constants, seed=Seed.fresh(), secure=False)
    mechanism._start(4000)
    lots = mechanism._lots()
    assert max(lots.longest) <= present
    assert lots.indices.max() < present
    deviation = math.sqrt(present * 0.25 / 4000)
    assert abs(lots.counts.double().mean().item() - present / 2) < stats.norm.isf(ALARM / 2) * deviation


def half_frozen() -> nn.Module:
    model = toy_model()
    model[0].weight.requires_grad_(False)
    return model


def another_frozen() -> nn.Module:
    model = half_frozen()
    model[0].weight.data[1, 2] += 1e-9
    return model


def doubled(output: Tensor, y: Tensor) -> Tensor:
    return 2 * nn.functional.cross_entropy(output, y, reduction="none")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"model": another_frozen()}, "frozen parameters"),
        ({"model": toy_model()}, "parameters"),
        ({"loss": doubled}, "loss"),
        ({"secure": True}, "secure"),
    ],
    ids=["frozen", "parameters", "loss", "secure"],
)
def test_a_checkpoint_of_another_question_is_refused(tmp_path: Path, changed: dict[str, object], named: str) -> None:
    pytest.importorskip("safetensors")
    given = {
        "model": half_frozen(),
        "data": toy_data(),
        "run": RUN,
        "optimizer": RULE,
        "compute": Compute(checkpoint=tmp_path / "kept"),
    }
    train(**given)
    train(**given)
    with pytest.raises(InvalidArgument, match=f"the file differs in ([a-z ]+, )?{named}"):
        train(**(given | changed))


def test_a_checkpoint_of_another_device_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    compute = Compute(checkpoint=tmp_path / "kept")
    train_population(toy_model(), toy_data(), run=RUN, optimizers=[RULE], compute=compute)
    job = assemble(toy_model(), toy_data(), run=RUN, optimizers=[RULE], spec=TrainSpec(compute=compute))
    job.initial = SimpleNamespace(device=torch.device("cuda"))
    with pytest.raises(InvalidArgument, match="the file differs in device"):
        job.work(False)


def test_no_chunk_is_measured_where_a_seed_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draws hang on the chunks, and a measured choice would differ from day to day."""
    measured: list[int] = []

    def quickest(rehearse: object, *, most: int, runs: int, steps: int) -> int:
        measured.append(runs)
        return 1

    monkeypatch.setattr("honestdp.training.loop.quickest_chunk", quickest)
    monkeypatch.setattr("honestdp.training.loop.largest_chunk", lambda *_: 3)
    for seed in (0, 1):
        job = assemble(toy_model(), toy_data(), run=RUN, optimizers=[RULE] * 5, spec=TrainSpec(noise_seed=seed))
        assert [len(chunk) for chunk in job.chunks()] == [2, 3]
    assert measured == []
    assert len(assemble(toy_model(), toy_data(), run=RUN, optimizers=[RULE] * 5).chunks()) == 5
    assert measured == [5]


def total(output: Tensor, y: Tensor) -> Tensor:
    return output.square().flatten(1).sum(1)


def stacked(model: nn.Module, runs: int) -> dict[str, Tensor]:
    return {name: value.detach().expand(runs, *value.shape).clone() for name, value in model.named_parameters()}


def norms_by_autograd(model: nn.Module, x: Tensor) -> Tensor:
    """`[lot]` for x `[lot, ...]`, one example at a time."""
    own = torch.cat([value.detach().flatten() for value in model.parameters()])
    return torch.stack([gradient(model, total, own, [(example, example)]).norm() for example in x])


class Gain(nn.Module):
    """A layer of the user's own: every feature times a number."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.arange(1.0, 6.0, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


class Mapped(Gain):
    """Computes something else where torch.func maps it."""

    def forward(self, x: Tensor) -> Tensor:
        own = super().forward(x)
        return 0.5 * own if torch._C._functorch.is_functorch_wrapped_tensor(own) else own


def test_a_model_that_is_another_one_under_torch_func_is_refused() -> None:
    """The norms of the other one would let examples past the clip."""
    x, model = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), Mapped()
    with pytest.raises(RefusedModel, match=r"gradient under torch\.func"):
        per_example(model, total, stacked(model, 2), x, x)
    plain = Gain()
    found = per_example(plain, total, stacked(plain, 2), x, x)
    assert isinstance(found, Materialised)
    torch.testing.assert_close(found.norms[1], norms_by_autograd(plain, x[1]))


class Understated(Dense):
    """The right gradients, of which it tells half the norm."""

    def square_norms(self) -> Tensor:
        return super().square_norms() / 4


@pytest.mark.parametrize("piece", [Dense, Understated])
def test_a_layer_rule_with_right_sums_and_wrong_norms_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, piece: type[Dense]
) -> None:
    def formula(layer: nn.Module, params: object, x: Tensor, grad: Tensor) -> dict[str, Dense]:
        return {"gain": piece(grad * x)}

    monkeypatch.setitem(layer_rules._RULES, Gain, layer_rules.FormulaRule(formula))
    x, model = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), Gain()
    found = per_example(model, total, stacked(model, 2), x, x)
    assert isinstance(found, BookKeeping if piece is Dense else Materialised)
    torch.testing.assert_close(found.norms[1], norms_by_autograd(model, x[1]))


class Sometimes(nn.Module):
    """Changes what a layer has read, after it has read it, but only later on: no trial meets that."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.later = nn.Linear(5, 5).double(), False

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        return out + 0 * x.mul_(0.0) if self.later else out


def test_a_layers_input_changed_after_it_was_read_stops_the_training_where_the_trial_could_not_see_it() -> None:
    """The gradients would be made of what the input has become: here a norm far too small, and no clipping."""
    x = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = Sometimes()
    prepared = Prepared(model, total)
    with torch.no_grad():
        found = prepared(stacked(model, 2), x, x)
    assert isinstance(found, BookKeeping)
    torch.testing.assert_close(found.norms[1], norms_by_autograd(model, x[1]))
    prepared.model.later = True
    with torch.no_grad(), pytest.raises(layer_rules.Unruled, match="layer is changed in place"):
        prepared(stacked(model, 2), x, x)


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("small", ["left", "right"])
@pytest.mark.parametrize(("tiny", "huge"), [(2e-23, 1e18), (1e-30, 1e30), (0.0, 1e18), (1e-30, 1e-30)])
def test_a_factor_too_small_to_square_does_not_make_a_norm_too_small(
    tiny: float, huge: float, small: str, shift: bool
) -> None:
    """Over 10,000 numbers the squares of 2e-23 vanish in float32, while the product with 1e18 does not."""
    many, one = torch.full((1, 1, 1, 10_000), tiny), torch.full((1, 1, 1, 1), huge)
    left, right = (many, one) if small == "left" else (one, many)
    norm = Outer(left, right, (1, 10_000), shift=shift).square_norms().double().sqrt().item()
    true = (left.double().norm() * torch.hypot(right.double().norm(), torch.tensor(float(shift)))).item()
    least = true * (1 - 1e-5) - 1e-22  # whose square float32 does not hold
    assert norm >= least or math.isnan(norm)
