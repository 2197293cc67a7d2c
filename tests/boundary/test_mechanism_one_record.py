"""Whatever a record is, it moves the sum by no more than the clip: records, models and queries made to break that."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from honestdp.boundary.query import LEAST_CLIP, Query, WithinClip
from honestdp.checks import InvalidArgument
from honestdp.gradients import Dense, Outer, Prepared, Product, Rows, bookkeeping, outer, per_example, rule
from honestdp.gradients.choice import ruled_layers
from honestdp.gradients.materialised import Materialised
from honestdp.losses import cross_entropy
from honestdp.optimizers import OSO, SGD, Quantile
from tests.toy_training import MeanOfTokens, moved, opposite_tokens, squared, total

ROUNDING = 1 + 2e-3


# ---- Terms that cancel


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e8, 1e12])
def test_positions_that_cancel_do_not_erase_the_other_records(size: float) -> None:
    """A record of two opposite tokens has a gradient near zero, but its terms round what the others gave."""
    torch.manual_seed(0)
    assert moved(MeanOfTokens(), squared, *opposite_tokens(size)) <= ROUNDING


class Difference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        rows = self.table(tokens)
        return (rows[:, 0] - rows[:, 1]).sum(1)


@pytest.mark.parametrize("size", [1e3, 1e8, 1e12])
def test_a_row_looked_up_twice_with_opposite_gradients_does_not_erase_the_others(size: float) -> None:
    tokens = torch.stack([torch.zeros(51, dtype=torch.int64), torch.arange(51) % 49 + 1], 1)
    y = torch.ones(51)
    tokens[50], y[50] = 0, size
    assert moved(Difference(), lambda output, label: output * label, tokens, y) <= ROUNDING


# ---- Long sums and numbers too small to square


class Wide(nn.Module):
    """The gradient is the input: a few large coordinates, then millions of small ones."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).sum(1)


@pytest.mark.slow
def test_the_norm_of_millions_of_small_coordinates_is_not_lost_beside_a_large_one() -> None:
    width = 2_000_000
    x = torch.full((1, width), 2.5e-4)
    x[0, :1] = 1.0
    assert moved(Wide(width), lambda output, y: output, x, torch.zeros(1)) <= 1 + 1e-4


LONG = [(131_073, 1.3), (200_000, 0.1), (1 << 20, 0.7), (1 << 22, 0.7), (5_000_000, 0.1)]
"""Lengths and numbers for which a sum of squares in float32 comes out too small: equal terms are rounded down over and over."""


def test_the_lengths_and_numbers_below_are_those_at_which_float32_errs_to_the_unsafe_side() -> None:
    """How far it errs hangs on how many numbers the processor adds at once, so it is asked of most of them."""
    errors = [
        torch.linalg.vector_norm(torch.full((length,), number)).item()
        / torch.linalg.vector_norm(torch.full((length,), number).double()).item()
        for length, number in LONG
    ]
    assert sum(error < 1 - 1e-5 for error in errors) >= 3


@pytest.mark.parametrize(("length", "number"), LONG)
def test_the_norm_of_a_long_gradient_is_not_too_small(length: int, number: float) -> None:
    long, one = torch.full((1, 1, length), number), torch.ones(1, 1, 1)
    true = torch.linalg.vector_norm(long.double()).item()
    pieces = {
        "gradients": Dense(long),
        "left factor": Product(long, one, (length, 1)),
        "right factor": Product(one, long, (1, length)),
        "rows": Rows(torch.zeros(1, 1, 1, dtype=torch.int64), long[:, :, None], 1),
    }
    for name, piece in pieces.items():
        assert piece.square_norms().double().sqrt().item() >= true * (1 - 3e-7), name


@pytest.mark.slow
@pytest.mark.parametrize(("length", "number"), LONG[:3])
def test_a_long_gradient_is_clipped_to_the_clip_and_not_to_more(length: int, number: float) -> None:
    x = torch.full((1, length), number)
    assert moved(Wide(length), lambda output, y: output, x, torch.zeros(1)) <= 1 + 1e-6


@pytest.mark.parametrize("clip", [1e-10, 1e-20, 1e-30, 1e-40, 0.0, -1.0])
def test_a_tiny_clip_gets_the_noise_of_the_least_one(clip: float) -> None:
    """A gradient of 1e-24 has a norm of zero in float32; the noise has to be far above it all the same."""
    model, x, y = Wide(4), torch.full((2, 4), 1e-24), torch.zeros(2)
    query = Query(clip=torch.tensor([clip]))
    loss = lambda output, y: output  # noqa: E731
    sums = [total(model, loss, x[:count], y[:count], query) for count in (1, 2)]
    bound = max(clip, LEAST_CLIP)
    assert (sums[1] - sums[0]).norm() <= bound
    noise = total(model, loss, x[:1], y[:1], query, noise=1.0) - sums[0]
    assert 0.1 * bound < noise.abs().max() < 10 * bound


@pytest.mark.parametrize("clip", [1e-13, 1e-44, 1e-60])
def test_a_clip_too_small_to_measure_is_refused(clip: float) -> None:
    for make in (lambda: SGD(lr=0.1, clip=clip), lambda: OSO(lr=0.1, clip=clip), lambda: Quantile(lr=0.1, clip=clip)):
        with pytest.raises(InvalidArgument, match="clip"):
            make()


# ---- What a rule may ask


def test_an_automatic_query_has_noise_for_sensitivity_one_whatever_its_clip() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(3, 2), 100 * torch.randn(2, 3), torch.zeros(2, 2)
    spreads = [
        total(model, squared, x[:0], y[:0], Query(clip=torch.tensor([clip]), automatic=True), noise=1.0)
        for clip in (1.0, 0.01)
    ]
    assert torch.equal(*spreads)


@pytest.mark.parametrize("shape", [(), (2,), (1, 1)])
def test_a_query_has_one_number_for_each_run(shape: tuple[int, ...]) -> None:
    x, y = torch.ones(2, 3), torch.zeros(2, 2)
    for query in (Query(clip=torch.ones(shape)), Query(torch.ones(1), second=WithinClip(torch.ones(shape)))):
        with pytest.raises(InvalidArgument, match="one number for each run"):
            total(nn.Linear(3, 2), squared, x, y, query)


# ---- Gradients that are made twice


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(10)
        return x @ self.weight


class Drawn(Writes):
    """Draws outside torch, so that its second gradient can be another one."""

    draw = False

    def forward(self, x: Tensor) -> Tensor:
        scale = 100 if self.draw and random.random() < 0.5 else 1
        return (x * scale) @ self.weight


@pytest.mark.parametrize("kind", [Writes, Drawn])
def test_a_gradient_made_twice_is_no_longer_than_its_norm_was(kind: type[Writes]) -> None:
    torch.manual_seed(0)
    random.seed(0)
    model = kind()
    params = {"weight": model.weight.detach()[None]}
    x, y = torch.randn(1, 40, 8), torch.zeros(1, 40, 4)
    prepared = Prepared(model, squared, memory=3000)
    with torch.no_grad():
        prepared(params, x.clone(), y)  # the trial, before the model draws
    Drawn.draw = True
    try:
        with torch.no_grad():
            found = prepared(params, x, y)
        for example in range(40):
            weights = torch.zeros(1, 40)
            weights[0, example] = (0.1 / found.norms[0, example]).clamp(max=1)
            assert found.weighted_sum(weights)["weight"].norm() <= 0.1 * ROUNDING
    finally:
        Drawn.draw = False


# ---- Models and losses that look at the rest of the lot


class Imputes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.where(x.isnan(), x.nanmean(0), x))


class Rescales(Imputes):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * torch.where(x.abs().amax() > 10, 0.1, 1.0))


class Hides(Imputes):
    """Looks at the others where one of them is all zeros."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x + (x == 0).all(1).any())


@pytest.mark.parametrize("kind", [Imputes, Rescales, Hides])
def test_a_model_that_looks_at_the_lot_for_unusual_examples_alone_is_refused(kind: type[nn.Module]) -> None:
    model = kind()
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    with pytest.raises(InvalidArgument, match="mix examples"):
        per_example(model, squared, params, torch.randn(1, 4, 3), torch.zeros(1, 4, 2))


class LeavesEarly(nn.Module):
    """Which way a whole lot goes would depend on all of its examples."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        out = self.first(x)
        return out if out.mean() > 1000 else self.second(out)


def test_a_model_that_chooses_its_way_by_a_number_does_so_for_every_example_alone() -> None:
    torch.manual_seed(0)
    model = LeavesEarly()
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    x, y = torch.randn(1, 3, 3), torch.zeros(1, 3, 2)
    x[0, 1] = 1e6 * model.first.weight.detach().sum(0).sign()
    found = per_example(model, squared, params, x, y)
    alone = [per_example(model, squared, params, x[:, i : i + 1], y[:, i : i + 1]).norms[0] for i in range(3)]
    torch.testing.assert_close(found.norms[0], torch.cat(alone))


def counted(output: Tensor, y: Tensor) -> Tensor:
    weights = 1 / torch.bincount(y, minlength=2).clamp(min=1)
    return F.cross_entropy(output, y, reduction="none") * weights[y]


def standardised(output: Tensor, y: Tensor) -> Tensor:
    return (output[:, 0] - (y - y.mean()) / (y.std() + 1e-6)).square()


def balanced(output: Tensor, y: Tensor) -> Tensor:
    weight = (y == 0).sum() / (y == 1).sum().clamp(min=1)
    return F.binary_cross_entropy_with_logits(output[:, 0], y, reduction="none", pos_weight=weight)


def hardest(output: Tensor, y: Tensor) -> Tensor:
    losses = F.cross_entropy(output, y, reduction="none")
    return losses * (losses >= losses.detach().median())


def divided(output: Tensor, y: Tensor) -> Tensor:
    losses = F.cross_entropy(output, y, reduction="none")
    return losses / losses.detach().max()


def steered(output: Tensor, y: Tensor) -> Tensor:
    """Its numbers are each example's own, its gradients are not."""
    strength = output.square().mean()
    return F.cross_entropy(output, y, reduction="none") + (strength - strength.detach()) * strength.detach()


@pytest.mark.parametrize("loss", [counted, standardised, balanced, hardest, divided, steered])
def test_a_loss_that_looks_at_the_lot_is_refused(loss: Callable[..., Tensor]) -> None:
    model = nn.Linear(3, 2)
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    y = torch.zeros(1, 4) if loss in (standardised, balanced) else torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(InvalidArgument, match="mixes examples"):
        per_example(model, loss, params, torch.randn(1, 4, 3), y)


def smooth(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none", label_smoothing=0.1, weight=torch.tensor([1.0, 3.0]))


def dropping(output: Tensor, y: Tensor) -> Tensor:
    return (output.squeeze()[:, 0] - y).abs()


def focal(output: Tensor, y: Tensor) -> Tensor:
    losses = F.cross_entropy(output, y, reduction="none")
    return (1 - torch.exp(-losses)) ** 2 * losses


def logits(output: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output[:, 0], y.to(output.dtype), reduction="none")


@pytest.mark.parametrize("loss", [smooth, dropping, focal, logits, nn.CrossEntropyLoss(reduction="none")])
@pytest.mark.parametrize("scale", [1.0, math.pi * 100])
def test_a_loss_of_each_example_alone_is_taken(loss: Callable[..., Tensor], scale: float) -> None:
    model = nn.Linear(3, 2)
    params = {name: scale * value.detach()[None] for name, value in model.named_parameters()}
    y = torch.rand(1, 4) if loss is dropping else torch.zeros(1, 4, dtype=torch.int64)
    assert per_example(model, loss, params, torch.randn(1, 4, 3), y).norms.isfinite().all()


# ---- One layer in several places, fewer digits


class Shared(nn.Module):
    """One layer on the first token by itself and on all others at once: its rule answers the two in different ways."""

    def __init__(self, width: int = 1200) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[:, 0]) + self.layer(x[:, 1:]).mean(1)


@pytest.mark.parametrize("tokens", [3, 9, 65])
def test_the_uses_of_one_layer_add_before_their_norm_is_taken(tokens: int) -> None:
    torch.manual_seed(0)
    x = torch.rand(4, 1, 1200).repeat(1, tokens, 1)
    assert moved(Shared(), cross_entropy, x, torch.zeros(4, dtype=torch.long)) <= 1 + 1e-4


@pytest.mark.parametrize("runs", [1, 2])
def test_uses_that_are_not_added_are_found_by_the_trial(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random examples of many dimensions would hide it: their gradients are nearly at right angles."""
    monkeypatch.setattr(bookkeeping, "_merged", dict)
    model = Shared()
    params = {name: value.detach()[None].repeat(runs, *[1] * value.dim()) for name, value in model.named_parameters()}
    x, y = torch.rand(runs, 2, 9, 1200), torch.zeros(runs, 2, dtype=torch.long)
    assert isinstance(per_example(model, cross_entropy, params, x, y), Materialised)


class FewDigits(nn.Module):
    """Computes in bfloat16 whatever it is told."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(sizes[0], sizes[1]), nn.Tanh(), nn.Linear(sizes[1], sizes[2]))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layers(x).float()


@pytest.mark.parametrize("sizes", [(784, 64, 10), (30, 40, 5), (20, 20, 20)])
def test_a_model_of_few_digits_is_measured_with_all(sizes: tuple[int, int, int]) -> None:
    """Norms in bfloat16 are off by up to half a per cent; the sum is not in bfloat16."""
    torch.manual_seed(0)
    model = FewDigits(*sizes)
    params = {name: value.detach()[None].clone() for name, value in model.named_parameters()}
    layers = ruled_layers(model, frozenset(params))
    for seed in range(20):
        torch.manual_seed(seed)
        x, y = torch.rand(1, 1, sizes[0]), torch.zeros(1, 1, dtype=torch.long)
        with torch.no_grad():
            found = bookkeeping.per_example(model, cross_entropy, layers, params, bookkeeping.Input(x), y)
        assert found.norms.dtype == torch.float32
        length = torch.cat([part.flatten() for part in found.weighted_sum(torch.ones(1, 1)).values()]).double().norm()
        assert length <= found.norms.item() * (1 + 1e-5)


class Squares(nn.Module):
    """W [x, x^2]: what stands on the right of its gradient is made of the input, and may overflow where that is finite."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 6))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x.square()], -1) @ self.weight.T


def test_what_is_made_of_a_finite_input_is_not_taken_for_finite() -> None:
    @rule(Squares)
    def squares(layer: nn.Module, params: dict[str, Tensor], x: Tensor, grad: Tensor) -> dict[str, object]:
        return {"weight": outer(grad.unsqueeze(2), torch.cat([x, x.square()], -1).unsqueeze(2))}

    x = torch.rand(1, 3, 3)
    x[0, 1] = 1e20
    params = {"weight": torch.ones(1, 2, 6)}
    found = per_example(Squares(), lambda output, y: output.sum(1), params, x, torch.zeros(1, 3), finite_input=True)
    assert isinstance(found, bookkeeping.BookKeeping)
    assert found.norms.isfinite().tolist() == [[True, False, True]]
    assert found.weighted_sum(torch.tensor([[1.0, 0.0, 1.0]]))["weight"].isfinite().all()


def test_only_the_input_itself_is_told_what_is_known_of_it() -> None:
    x = torch.rand(2, 3, 4)
    given = bookkeeping.Input(x, finite=True, norms=x.norm(dim=2))
    left = torch.rand(2, 3, 5)
    whole, part, other = (
        given.inform(Product(left, right, (5, right.shape[2]))) for right in (x, x[:, :, :2], x.clone())
    )
    assert whole.right_finite
    assert torch.equal(whole.right_norms, given.norms)
    assert part.right_finite
    assert part.right_norms is None
    assert not other.right_finite
    assert other.right_norms is None
    spread = given.inform(Product(left, x[:, :, :1].expand(-1, -1, 4), (5, 4)))
    assert spread.right_norms is None
    for finite in (True, False):
        positions = Outer(left[:, :, None], x[:, :, None], (5, 4))
        assert bookkeeping.Input(x, finite=finite).inform(positions).right_finite is finite


@pytest.fixture
def flushing() -> Iterator[None]:
    """The processor makes zeros of what is too small to be a normal number."""
    assert torch.set_flush_denormal(True)
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("flushing")
@pytest.mark.parametrize("bias", [True, False])
def test_numbers_too_small_to_square_do_not_hide_behind_a_huge_input(bias: bool) -> None:
    model = nn.Linear(1, 65_536, bias=bias)
    nn.init.zeros_(model.weight)
    x = torch.ones(3, 1)
    x[-1] = 1e21
    assert moved(model, lambda output, y: (output * 1e-19).sum(1), x, torch.zeros(3, 1)) <= ROUNDING


@pytest.mark.usefixtures("flushing")
def test_an_input_too_small_to_square_does_not_hide_behind_a_huge_derivative() -> None:
    """The last record's gradient has a norm of 26, of 65536 inputs whose squares are all 0."""
    model = nn.Linear(65_536, 1, bias=False)
    x, y = torch.full((3, 65_536), 1e-19), torch.ones(3, 1)
    y[-1] = 1e18
    assert moved(model, lambda output, y: (output * y).sum(1), x, y) <= ROUNDING


class Centred(nn.Module):
    """Less their mean, tokens that are alike cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.centre = nn.Linear(256, 256), nn.InstanceNorm1d(256)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.centre(self.layer(x).mT)).flatten(1)


def test_terms_that_cancel_where_tokens_are_alike_do_not_send_a_model_away() -> None:
    model = Centred()
    params = {name: value.detach()[None].clone() for name, value in model.named_parameters()}
    x, y = torch.rand(1, 2, 30, 256), torch.zeros(1, 2, dtype=torch.long)
    assert isinstance(per_example(model, cross_entropy, params, x, y), bookkeeping.BookKeeping)
