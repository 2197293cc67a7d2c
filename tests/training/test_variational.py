"""Models that give a record's evidence bound: records without labels, draws inside a model or a loss, held-out log-likelihood."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import honestdp
from honestdp import GaussianDraw, LogLikelihood
from honestdp.checks import InvalidArgument
from honestdp.gradients import RefusedModel, per_example
from honestdp.gradients.bookkeeping import BookKeeping
from honestdp.gradients.materialised import Materialised
from honestdp.gradients.prepared import Prepared
from honestdp.losses import negative_bound
from honestdp.optimizers import SGD

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(1))
RUN = honestdp.Run(records=60, lot=10, steps=6, noise=1.0)
RULE = SGD(lr=0.5, clip=1.0)


class Centre(nn.Module):
    """Where normal records are, q(centre) = N(loc, scale^2), prior N(0, 1): a bound in training, a log-likelihood in eval()."""

    def __init__(self, draw: nn.Module | None = None) -> None:
        super().__init__()
        self.loc, self.log_scale = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.full((2,), -1.0))
        self.draw = GaussianDraw() if draw is None else draw

    def forward(self, x: Tensor) -> Tensor:
        centre = self.draw(self.loc, self.log_scale.exp())
        likelihood = -0.5 * ((x - centre) ** 2).sum(1)
        divergence = (0.5 * (self.loc**2 + (2 * self.log_scale).exp() - 1) - self.log_scale).sum()
        return likelihood - divergence / 60 if self.training else likelihood


class Autoencoder(nn.Module):
    """A draw of each record's own, between layers that have rules."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.back, self.draw = nn.Linear(2, 4), nn.Linear(2, 2), GaussianDraw()

    def forward(self, x: Tensor) -> Tensor:
        mean, log_scale = self.into(x).chunk(2, dim=-1)
        z = self.draw(mean, log_scale.exp())
        divergence = (0.5 * (mean**2 + (2 * log_scale).exp() - 1) - log_scale).sum(-1)
        return -0.5 * ((x - self.back(z)) ** 2).sum(-1) - divergence


def weights(data: Any = X, model: nn.Module | None = None, **more: Any) -> Tensor:
    given = {"run": RUN, "optimizer": RULE, "delta": 1e-5, "noise_seed": 3} | more
    torch.manual_seed(0)
    found = honestdp.train(model or Centre(), data, **given).model
    return torch.cat([value.detach().flatten() for value in found.parameters()])


def test_a_bound_is_a_loss_like_any_other() -> None:
    """No label, a label that nobody reads, the default loss and the same written out: the same weights to the last bit."""
    expected = weights()
    assert torch.equal(weights((X, torch.zeros(60)), loss=lambda output, y: -output), expected)
    assert torch.equal(weights((X, None)), expected)
    assert torch.equal(weights(torch.utils.data.TensorDataset(X)), expected)
    assert not torch.equal(weights(noise_seed=4), expected)


def test_a_model_of_several_outputs_is_no_bound() -> None:
    with pytest.raises(InvalidArgument, match="one number a record, its evidence bound"):
        honestdp.train(nn.Linear(2, 3), X, run=RUN, optimizer=RULE)


# ---- Draws inside a model


def gradients_of(model: nn.Module, x: Tensor, loss: Any = negative_bound) -> Any:
    """Per-example gradients of one run, of records x `[lot, ...]`."""
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    return per_example(model, loss, params, x[None], torch.zeros(1, len(x), 0))


@pytest.mark.parametrize(("model", "engine"), [(Centre(), Materialised), (Autoencoder(), BookKeeping)])
def test_every_record_and_step_has_a_draw_of_its_own(model: nn.Module, engine: type) -> None:
    alike = torch.ones(50, 2)
    first, second = gradients_of(model, alike), gradients_of(model, alike)
    assert isinstance(first, engine)
    assert len(first.norms.unique()) == 50
    assert not set(first.norms.flatten().tolist()) & set(second.norms.flatten().tolist())
    drawing = [module for module in model.modules() if isinstance(module, GaussianDraw)]
    assert all(module.drawn for module in drawing)  # a trial leaves it switched on
    for module in drawing:
        module.eval()
    assert len(gradients_of(model, alike).norms.unique()) == 1


@pytest.mark.parametrize("lot", [1, 7])
def test_a_bound_with_draws_has_the_gradients_of_autograd(lot: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same draws."""
    model, x, e = Autoencoder(), X[:lot], torch.randn(lot, 2, generator=torch.Generator().manual_seed(2))
    gradients_of(model, x)  # tried
    monkeypatch.setattr(torch, "randn_like", lambda mean: e.view(mean.shape))
    total = gradients_of(model, x).weighted_sum(torch.ones(1, lot))
    model(x).sum().neg().backward()
    for name, value in model.named_parameters():
        assert value.grad is not None
        torch.testing.assert_close(total[name][0], value.grad, rtol=1e-4, atol=1e-5)


class Mixing(nn.Module):
    """A draw whose scale is that of the whole lot."""

    def forward(self, mean: Tensor, scale: Tensor) -> Tensor:
        return mean + scale.mean(0) * torch.randn_like(mean)


def test_a_model_that_draws_and_mixes_is_refused() -> None:
    model = Autoencoder()
    model.draw = Mixing()
    with pytest.raises(honestdp.errors.RefusedModel, match="free of modules that mix examples"):
        gradients_of(model, X[:6])


class ByNumpy(nn.Module):
    """Draws that follow from no seed of a training."""

    def forward(self, mean: Tensor, scale: Tensor) -> Tensor:
        return mean + scale * torch.from_numpy(np.random.default_rng().normal(size=2)).float()


def test_a_model_that_draws_by_numpy_is_told_so() -> None:
    """It was told that it mixes examples, and to take GroupNorm."""
    with pytest.raises(RefusedModel, match=r"same examples changed when .* numpy.*honestdp.GaussianDraw") as refused:
        honestdp.train(Centre(ByNumpy()), X, run=RUN, optimizer=RULE, delta=1e-5)
    assert "GroupNorm" not in str(refused.value)


def test_draws_follow_from_the_seed_of_the_training_and_move_no_other() -> None:
    """The same whatever the user's generator does; and the user's goes on as if nothing had been drawn."""
    model = Autoencoder()
    found, after = [], []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(honestdp.train(model, X, run=RUN, optimizer=RULE, noise_seed=3).model.into.weight)
        after.append(float(torch.rand(())))
    assert torch.equal(*found)
    for seed, number in zip((1, 2), after, strict=True):
        torch.manual_seed(seed)
        assert float(torch.rand(())) == number


# ---- Draws inside a loss


def drawn_loss(output: Tensor, y: Tensor) -> Tensor:
    return ((output + 0.1 * torch.randn_like(output)) ** 2).sum(1)


def test_a_loss_may_draw_and_is_then_shown_one_record_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("tests")  # and not a list of its own, for a loss may keep nothing
    caplog.set_level(logging.INFO)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        log.info("%d", len(y))
        return drawn_loss(output, y) / len(y)  # in a lot of n, its gradients would tell of n

    model = nn.Linear(2, 2)
    prepared = Prepared(model, loss)
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    with torch.no_grad():
        prepared(params, X[None, :20], torch.zeros(1, 20))
        caplog.clear()
        result = prepared(params, X[None, :1].expand(1, 20, 2), torch.zeros(1, 20))
    assert isinstance(result, Materialised)
    assert set(caplog.messages) == {"1"}
    assert len(result.norms.unique()) == 20
    torch.testing.assert_close(result.norms.mean(), gradients_of(model, X[:1], loss).norms.mean(), rtol=0.5, atol=0)


def test_a_training_with_a_loss_that_draws_can_be_repeated() -> None:
    given = {"model": nn.Linear(2, 2), "loss": drawn_loss}
    assert torch.equal(weights((X, X), **given), weights((X, X), **given))
    assert not torch.equal(weights((X, X), **given), weights((X, X), **given, noise_seed=4))


@pytest.mark.parametrize(
    "loss",
    [
        lambda output, y: drawn_loss(output - output.mean(0), y),
        lambda output, y: drawn_loss(output, y) * (output.abs().max() > 5),
        lambda output, y: drawn_loss(output, y) + output[torch.randperm(len(output))].sum(1),
    ],
    ids=["the mean of a lot", "its largest", "another at random"],
)
def test_a_loss_that_draws_and_mixes_is_refused(loss: Any) -> None:
    with pytest.raises(InvalidArgument, match="a loss that mixes examples"):
        gradients_of(nn.Linear(2, 2), X[:6], loss)


def test_a_loss_that_keeps_something_is_not_taken_for_one_that_draws() -> None:
    calls: list[Tensor] = []

    def loss(output: Tensor, y: Tensor) -> Tensor:
        calls.append(output.detach().sum())
        return drawn_loss(output, y) + calls[-2:][0]

    with pytest.raises(InvalidArgument, match="nothing kept from call to call"):
        gradients_of(nn.Linear(2, 2), X[:6], loss)


def test_a_loss_that_draws_is_mapped_where_its_model_can_be() -> None:
    prepared, x = Prepared(nn.Linear(2, 2), drawn_loss), X[None, :6]
    params = {"weight": torch.zeros(1, 2, 2), "bias": torch.zeros(1, 2)}
    with torch.no_grad():
        choice = prepared.vet(params, x, torch.zeros(1, 6, 0), examples=6)
    assert (choice.layers, choice.mapped) == (None, "runs and examples go together")


# ---- Held-out log-likelihood


def tuned(model: Any = Centre, **more: Any) -> honestdp.TuneResult:
    given: dict[str, Any] = {
        "budget": honestdp.Budget(3.0, 1e-5),
        "optimizer": "sgd",
        "space": {"lr": [0.1, 0.5], "clip": 1.0},
        "selection": "compose",
        "lot": 10,
        "steps": 4,
        "metric": LogLikelihood(low=-6.0, high=0.0),
    }
    return honestdp.tune(model, X, **given | more)


def test_a_search_is_scored_by_the_log_likelihood_of_held_out_records() -> None:
    """With hardly any noise the score is that of the winner, in eval() mode, on all records, but for which of them are
    held out."""
    result = tuned(budget=honestdp.Budget(1e4, 1e-5), noise_seed=1, validation=0.5)
    with torch.no_grad():
        every = result.model.eval()(X).clamp(-6, 0)
    assert abs(result.score.value - float(every.mean())) < 4 * float(every.std()) / 30**0.5
    assert result.score.name == "log-likelihood"
    assert "log-likelihood" in str(result.statement)


def test_a_search_without_labels_asks_for_the_range_of_a_score() -> None:
    with pytest.raises(InvalidArgument, match=r"honestdp\.LogLikelihood\(low=, high=\)"):
        tuned(metric=None)


def test_accuracy_of_records_without_labels_is_refused_and_the_way_out_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"has no labels.*honestdp.LogLikelihood\(low=, high=\)"):
        honestdp.tune(
            lambda: Centre(), X, budget=honestdp.Budget(2.0, 1e-4), optimizer="sgd", space={"lr": [0.5], "clip": 1.0}, lot=10,
            steps=6, metric=honestdp.Accuracy(),
        )  # fmt: skip


def test_an_output_that_is_no_log_likelihood_is_refused_before_a_record_is_read() -> None:
    with pytest.raises(InvalidArgument, match="log-likelihood, must be one number a record"):
        tuned(lambda: nn.Linear(2, 3), loss=lambda output, y: output.sum(1))


# ---- The example


def example() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "variational.py"
    spec = importlib.util.spec_from_file_location("variational", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.slow
def test_the_example_finds_the_posterior(capsys: pytest.CaptureFixture[str]) -> None:
    """Within a budget of epsilon 2; the truth is 2, -1, 0, 1, -2. The noise of a mean is below 0.2, so that this fails
    one time in 10^5.
    """
    trained, searched = example().main(steps=100)
    truth = torch.tensor([2.0, -1.0, 0.0, 1.0, -2.0])
    assert float((trained.model.loc.detach() - truth).abs().max()) < 1.0
    assert trained.epsilon <= 2
    assert searched.epsilon <= 2
    assert -0.8 < searched.score.value <= 0
    assert "posterior, mean" in capsys.readouterr().out
