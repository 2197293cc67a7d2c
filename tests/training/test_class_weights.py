"""Class weights: public constants that a loss is multiplied by, for the fast way and the slow, and noticed by a checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import honestdp
from honestdp import Run
from honestdp.checks import InvalidArgument
from honestdp.losses import cross_entropy, slope_of
from honestdp.losses.class_weights import ClassWeighted, with_class_weights
from honestdp.optimizers import SGD
from tests.tiny_search import clouds, linear

WEIGHTS = (1.0, 5.0)
RUN = Run(records=400, lot=40, steps=3, noise=1.0)


def trained(**more: Any) -> torch.Tensor:
    start = linear()
    torch.nn.init.zeros_(start.weight)
    torch.nn.init.zeros_(start.bias)
    settings: dict[str, Any] = {"run": RUN, "optimizer": SGD(lr=0.5, clip=100.0), "noise_seed": 1}
    return next(honestdp.train(start, clouds(), **{**settings, **more}).model.parameters()).detach()


def own(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The same in a user's words, without the slope that is at hand."""
    return functional.cross_entropy(output, y, reduction="none") * torch.where(y == 1, 5.0, 1.0)


@pytest.mark.slow
def test_weights_multiply_the_loss_of_each_class() -> None:
    weighted = trained(class_weights=WEIGHTS)
    torch.testing.assert_close(weighted, trained(loss=own))
    torch.testing.assert_close(weighted, trained(loss=cross_entropy, class_weights=list(WEIGHTS)))
    torch.testing.assert_close(weighted, trained(class_weights=WEIGHTS, strict=True), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(weighted, trained())
    torch.testing.assert_close(trained(class_weights=[1, 1]), trained())


def test_balanced_weights_follow_from_the_declared_prevalence_and_not_from_the_labels() -> None:
    """Whatever the data are: clouds have as many of each class, and are weighted as declared."""
    balanced = with_class_weights(None, "balanced", [0.9, 0.1])
    assert isinstance(balanced, ClassWeighted)
    assert balanced.weights == pytest.approx((1 / 9, 1.0))
    found = trained(class_weights="balanced", prevalence=[0.9, 0.1])
    torch.testing.assert_close(found, trained(class_weights=balanced.weights))
    with pytest.raises(InvalidArgument, match="prevalence must be given with class_weights='balanced'"):
        trained(class_weights="balanced")


def test_balanced_weights_find_the_rare_class_though_gradients_are_clipped() -> None:
    """Weights with a mean of 1 do not: the clip cuts those above 1 back, and balanced accuracy stays near that without any."""
    drawn = torch.Generator().manual_seed(0)
    y = (torch.rand(3000, generator=drawn) < 0.1).long()
    data = (torch.randn(3000, 3, generator=drawn) + y[:, None], y)

    def balanced_accuracy(**more: Any) -> float:
        run = Run(records=3000, lot=300, steps=100, noise=1.0)
        torch.manual_seed(0)
        found = honestdp.train(linear(), data, run=run, optimizer=SGD(lr=0.5, clip=1.0), noise_seed=1, **more)
        right = found.model(data[0]).argmax(1) == y
        return float(right[y == 1].float().mean() + right[y == 0].float().mean()) / 2

    of_mean_one = balanced_accuracy(class_weights=[1 / 1.8, 5.0])
    assert balanced_accuracy(class_weights="balanced", prevalence=[0.9, 0.1]) > of_mean_one + 0.1


def test_the_slope_at_hand_is_that_of_the_loss() -> None:
    output = torch.randn(7, 2, requires_grad=True, generator=torch.Generator().manual_seed(0))
    y, loss = torch.arange(7) % 2, ClassWeighted(WEIGHTS)
    slope = slope_of(loss, output)
    assert slope is not None
    (expected,) = torch.autograd.grad(loss(output, y).sum(), output)
    torch.testing.assert_close(slope(output.detach(), y), expected)


def test_positions_and_other_losses_are_weighted_too() -> None:
    output, y = torch.randn(3, 2, 4), torch.randint(2, (3, 4))
    each = functional.cross_entropy(output, y, reduction="none") * torch.tensor(WEIGHTS)[y]
    torch.testing.assert_close(ClassWeighted(WEIGHTS)(output, y), each.sum(dim=1))
    logit, label = torch.randn(5, 1), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    bce = lambda out, y: functional.binary_cross_entropy_with_logits(out[:, 0], y, reduction="none")  # noqa: E731
    torch.testing.assert_close(
        ClassWeighted(WEIGHTS, bce)(logit, label), bce(logit, label) * torch.tensor(WEIGHTS)[label.long()]
    )
    with pytest.raises(InvalidArgument, match="several labels an example"):
        ClassWeighted(WEIGHTS, lambda out, y: out.flatten(1).sum(1))(output, y)


@pytest.mark.parametrize(
    "weights", [[1], [1, 0], [1, -1], [1, math.inf], "heavy", torch.ones(2), [1, True], 3], ids=str
)
def test_weights_that_are_none_are_refused(weights: Any) -> None:
    with pytest.raises(InvalidArgument, match="class_weights must be"):
        trained(class_weights=weights)
    with pytest.raises(InvalidArgument, match=r"class_weights must be of 2 classes, as many as the model has outputs"):
        trained(class_weights=[1, 2, 3])


def test_a_checkpoint_is_not_resumed_with_other_weights(tmp_path: Path) -> None:
    compute = honestdp.Compute(device="cpu", checkpoint=tmp_path / "checkpoint")
    first = trained(class_weights=WEIGHTS, compute=compute)
    assert torch.equal(trained(class_weights=WEIGHTS, compute=compute), first)
    for other in ({"class_weights": [1, 6]}, {}):
        with pytest.raises(InvalidArgument, match="loss"):
            trained(compute=compute, **other)


def test_the_statement_says_that_they_were_declared() -> None:
    words = "declared, public, and not counted from these records"
    for weights, said in ((WEIGHTS, True), (None, False)):
        result = honestdp.train(linear(), clouds(), run=RUN, optimizer="horizon", delta=1e-5, class_weights=weights)
        assert (words in str(result.statement)) is said
