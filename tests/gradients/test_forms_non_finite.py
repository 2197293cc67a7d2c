"""What is not finite never reaches a sum, and a norm is never too small."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp import kernels
from honestdp.gradients import bookkeeping, materialised, per_example
from honestdp.gradients.choice import ruled_layers
from honestdp.gradients.forms import Dense, Form, Outer, Product, Rows, is_counted
from honestdp.kernels.tensors import Passes

from .plain_autograd import drawn, one_at_a_time


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none")


def weighted_sum(form: Form, weights: Tensor, *, finite: bool) -> list[Tensor]:
    totals = [torch.zeros_like(gradients[:, 0]) for gradients in form.dense()]
    form.add_weighted_sum(totals, weights, counted=None if finite else is_counted(weights))
    return totals


class EveryPiece(nn.Module):
    """One position, ghost norm, dense gradients and looked-up rows in one model; the first input is a word."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.ghost = nn.Embedding(5, 30), nn.Linear(30, 40)
        self.conv, self.norm, self.head = nn.Conv1d(40, 4, 1), nn.LayerNorm(2), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        looked = self.table(x[:, :2].nan_to_num(0, 0, 0).long().clamp(0, 4)) + x[:, 2:].unsqueeze(2)
        return self.head(self.norm(self.conv(self.ghost(looked).tanh().mT)).flatten(1))


MODELS = {
    "every form": (EveryPiece, (4,)),
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "recurrent": (lambda: nn.Sequential(nn.GRU(4, 3, batch_first=True), First()), (2, 4)),
    "materialised": (lambda: nn.GRUCell(4, 3), (4,)),
    "bag": (lambda: Bag(), (4,)),
}


class Bag(nn.Module):
    """Words in twos, and what is not finite reaches the bag from behind."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.bag(x.nan_to_num(0, 0, 0).long().clamp(0, 4)) * x[:, -1:]


class First(nn.Module):
    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        return pair[0][:, -1]


def lots(shape: tuple[int, ...], runs: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(runs, 5, *shape).abs()
    return x, torch.randint(0, 3, (runs, 5))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e38], ids=str)
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_an_example_that_is_not_finite_is_seen_and_weighs_nothing(name: str, runs: int, bad: float) -> None:
    make, shape = MODELS[name]
    model = make()
    params = drawn(model, runs, torch.float32)
    x, y = lots(shape, runs)
    clean = x.clone()
    x[0, 1, ..., -1] = bad
    result = per_example(model, cross_entropy, params, x, y)
    expected = per_example(model, cross_entropy, params, clean, y)
    seen = ~torch.isfinite(result.norms)
    weights = torch.where(seen, 0.0, torch.rand(runs, 5) + 0.1)
    if name == "linear" or bad != 1e38:
        assert seen.sum() == 1
        assert seen[0, 1]
    weights[0, 1] = 0
    total, wanted = result.weighted_sum(weights), expected.weighted_sum(weights)
    for key, value in total.items():
        assert torch.isfinite(value).all(), key
        torch.testing.assert_close(value, wanted[key])


def test_zeros_are_put_in_even_where_finite_norms_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU nobody looks whether the norms are finite; all examples of weight 0 are silenced there."""
    model = EveryPiece()
    params = drawn(model, 2, torch.float32)
    x, y = lots((4,), 2)
    weights = torch.rand(2, 5)
    weights[:, 3] = 0
    result = per_example(model, cross_entropy, params, x, y)
    assert isinstance(result, bookkeeping.BookKeeping)
    kinds = {type(form) for form in result.forms.values()}
    assert kinds == {Dense, Outer, Product, Rows}
    assert any(isinstance(form, Outer) and form.left.shape[2] > 1 for form in result.forms.values())
    for form in result.forms.values():
        torch.testing.assert_close(weighted_sum(form, weights, finite=False), weighted_sum(form, weights, finite=True))


def test_chunked_gradients_that_are_not_finite_weigh_nothing() -> None:
    model = nn.Linear(4, 3)
    params = drawn(model, 2, torch.float32)
    x, y = lots((4,), 2)
    x[1, 4] = float("inf")
    result = materialised.per_example(
        materialised.Batch(model, cross_entropy, params, x, y), bytes_per_example=1, memory=4
    )
    assert result._chunks == 3
    assert not torch.isfinite(result.norms[1, 4])
    weights = torch.ones(2, 5)
    weights[1, 4] = 0
    assert all(torch.isfinite(value).all() for value in result.weighted_sum(weights).values())


def test_a_gradient_of_1e30_has_its_norm_or_none_that_is_finite() -> None:
    model = nn.Linear(2, 1, bias=False)
    x = torch.tensor([[[1e30, 0.0], [1e15, 0.0], [1.0, 0.0]]])

    def output_itself(output: Tensor, y: Tensor) -> Tensor:
        return output.squeeze(1)

    result = per_example(model, output_itself, {"weight": torch.ones(1, 1, 2)}, x, torch.zeros(1, 3))
    huge, large, small = result.norms[0].tolist()
    assert not 0 <= huge < 0.999e30
    assert large == pytest.approx(1e15)
    assert small == pytest.approx(1.0)


def test_a_tiny_factor_does_not_hide_a_huge_one() -> None:
    """The square of 1e-24 is zero in float32; with an input of 1e19 the gradient is 1e-5 all the same."""
    tiny, huge = torch.full((1, 1, 1), 1e-24), torch.full((1, 1, 1), 1e19)
    for shift in (False, True):
        assert Product(tiny, huge, (1, 1), shift=shift).square_norms().sqrt().item() >= 1e-5
        outer = Outer(tiny[..., None], huge[..., None], (1, 1), shift=shift)
        assert outer.square_norms().sqrt().item() == pytest.approx(1e-5)
    for nothing in (
        Product(torch.zeros(1, 1, 3), torch.ones(1, 1, 4), (3, 4)),
        Outer(torch.zeros(1, 1, 1, 3), torch.ones(1, 1, 1, 4), (3, 4)),
    ):
        assert nothing.square_norms().item() < 1e-30


@pytest.mark.parametrize("left_over", [0.1, 1e-4])
def test_a_ghost_norm_is_not_lost_where_the_terms_cancel(left_over: float) -> None:
    """Two positions whose gradients cancel but for a part. Float32 Gram matrices would lose one part in ten thousand; the
    norm is exact where the sum can be trusted to cancel as well, and a 32nd of the terms where it cannot.
    """
    left = torch.ones(1, 1, 2, 40)
    right = torch.ones(1, 1, 2, 40)
    right[0, 0, 1] = -(1 - left_over)
    form = Outer(left, right, (40, 40))
    exact = torch.matmul(left.double().mT, right.double()).flatten(2).norm(dim=-1)
    terms = (left.double().norm(dim=-1) * right.double().norm(dim=-1)).sum(-1)
    expected = exact if left_over == 0.1 else terms / 32
    torch.testing.assert_close(form.square_norms().sqrt().double(), expected, rtol=1e-5, atol=0)
    assert (expected >= exact).all()


def test_norms_of_wild_inputs_are_those_of_plain_autograd() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    params = drawn(model, 2)
    scale = 10.0 ** torch.arange(-8, 8, dtype=torch.float64).reshape(1, 16, 1)
    x, y = torch.randn(2, 16, 6, dtype=torch.float64) * scale, torch.randint(0, 3, (2, 16))
    result = per_example(model, cross_entropy, params, x, y)
    _, norms = one_at_a_time(model, cross_entropy, params, x, y)
    torch.testing.assert_close(result.norms, norms, rtol=1e-10, atol=1e-300)


def test_a_finite_input_needs_no_zeros_for_a_silenced_example() -> None:
    """Zeros on the left are enough where the right is known to be finite, whatever the left held."""
    left = torch.tensor([[[[float("nan"), 1.0]], [[2.0, 3.0]]]])
    right = torch.ones(1, 2, 1, 3)
    form = Outer(left, right, (2, 3), right_finite=True)
    (found,) = weighted_sum(form, torch.tensor([[0.0, 1.0]]), finite=False)
    assert torch.equal(found, torch.tensor([[[2.0] * 3, [3.0] * 3]]))


@pytest.mark.parametrize("positions", [1, 3])
@pytest.mark.parametrize("finite", [True, False])
def test_a_shift_shares_the_piece_of_its_matrix(positions: int, finite: bool) -> None:
    """Norms and sums of the two parameters together are those of their gradients one by one."""
    left, right = torch.randn(2, 4, positions, 5).double(), torch.randn(2, 4, positions, 6).double()
    form = Outer(left, right, (5, 6), shift=True)
    alone = [torch.einsum("rltj,rltk->rljk", left, right), left.sum(2)]
    weights = torch.rand(2, 4).double()
    expected = sum(gradients.flatten(2).square().sum(2) for gradients in alone)
    torch.testing.assert_close(form.square_norms(), expected)
    for found, gradients in zip(weighted_sum(form, weights, finite=finite), alone, strict=True):
        torch.testing.assert_close(found, torch.einsum("rl,rl...->r...", weights, gradients))
    for found, gradients in zip(form.dense(), alone, strict=True):
        torch.testing.assert_close(found, gradients)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), torch.finfo(torch.float32).max], ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_what_has_weight_0_reaches_neither_matrix_nor_shift(side: str, bad: float) -> None:
    """In the mode of a GPU, which does not look at the norms first."""
    factors = {"left": torch.ones(1, 2, 1, 2), "right": torch.ones(1, 2, 1, 3)}
    factors[side][0, 0] = bad
    form = Outer(factors["left"], factors["right"], (2, 3), shift=True)
    found = weighted_sum(form, torch.tensor([[0.0, 2.0]]), finite=False)
    assert found[0].eq(2).all()
    assert found[1].eq(2).all()


# ---- What is known of the input


def test_known_norms_stand_in_for_the_inputs_own() -> None:
    """They are used for the layer that reads the whole input, and for no other: told twice as large, they show."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    params, x, y = drawn(model, 2), torch.randn(2, 4, 2, 3).double(), torch.randint(0, 3, (2, 4))
    norms = x.flatten(2).norm(dim=2)
    plain = per_example(model, cross_entropy, params, x, y).norms
    torch.testing.assert_close(per_example(model, cross_entropy, params, x, y, input_norms=norms).norms, plain)
    told = per_example(model, cross_entropy, params, x, y, input_norms=2 * norms).norms
    assert (told > 1.01 * plain).all()


def test_norms_of_the_input_are_not_taken_for_those_of_a_part_of_it() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x[:, :3])

    model = Half().double()
    params, x, y = drawn(model, 2), torch.randn(2, 4, 6).double(), torch.randint(0, 3, (2, 4))
    plain = per_example(model, cross_entropy, params, x, y).norms
    assert torch.equal(per_example(model, cross_entropy, params, x, y, input_norms=x.norm(dim=2) / 100).norms, plain)


class Writes(nn.Module):
    """A model that changes its input before its layer reads it, openly or behind autograd's back."""

    def __init__(self, *, openly: bool) -> None:
        super().__init__()
        self.layer, self.openly = nn.Linear(6, 3), openly

    def forward(self, x: Tensor) -> Tensor:
        (x if self.openly else x.data).mul_(100)
        return self.layer(x)


@pytest.mark.parametrize("openly", [True, False])
def test_what_is_known_of_an_input_that_the_model_changes_is_not_used(openly: bool) -> None:
    model = Writes(openly=openly).double()
    params, x, y = drawn(model, 2), torch.randn(2, 4, 6).double(), torch.randint(0, 3, (2, 4))
    told = per_example(model, cross_entropy, params, x.clone(), y, input_norms=x.norm(dim=2), finite_input=True)
    _, norms = one_at_a_time(
        nn.Sequential(model.layer), cross_entropy, {f"0.{n[6:]}": p for n, p in params.items()}, 100 * x, y
    )
    torch.testing.assert_close(told.norms, norms, rtol=1e-4, atol=0)


@pytest.mark.parametrize("openly", [True, False])
def test_book_keeping_itself_goes_by_nothing_that_is_known_of_an_input_that_was_written_to(openly: bool) -> None:
    model = Writes(openly=openly).double()
    params, x, y = drawn(model, 2), torch.randn(2, 4, 6).double(), torch.randint(0, 3, (2, 4))
    layers = ruled_layers(model, frozenset(params))
    given = bookkeeping.Input(x.clone(), norms=x.norm(dim=2))
    plain = bookkeeping.Input(x.clone())
    told, own = (bookkeeping.per_example(model, cross_entropy, layers, params, each, y) for each in (given, plain))
    assert torch.equal(told.norms, own.norms)


class Standing(Passes):
    """Tensor operations that stand in for the kernels of wide sums, and which were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def widened(self, rows: Tensor, weights: Tensor) -> Tensor:
        self.asked.append("widened")
        assert rows.is_contiguous()
        assert weights.is_contiguous()
        return super().widened(rows, weights)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(4, 5), (64, 1024)])
def test_by_kernels_a_wide_sum_has_nothing_of_an_example_of_weight_zero(
    rows: int, columns: int, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a wide sum multiplies is silenced and converted on the way."""
    plain = Standing()
    monkeypatch.setattr(kernels, "on", lambda device: plain)
    left, right, weights = torch.randn(2, 3, rows), torch.randn(2, 3, columns), torch.rand(2, 3)
    weights[:, 1] = 0
    wanted = torch.einsum("rl,rlo,rlc->roc", weights.double(), left.double(), right.double())
    left[0, 1], right[:, 1, 2] = math.nan, math.inf
    if turned:  # the same numbers, which lie in another order
        left, right, weights = (each.mT.contiguous().mT for each in (left, right, weights))
    totals = [torch.zeros(2, *size, dtype=torch.float64) for size in ((rows, columns), (rows,))]
    Product(left, right, (rows, columns), shift=True).add_weighted_sum(totals, weights, counted=is_counted(weights))
    torch.testing.assert_close(totals[0], wanted, rtol=1e-6, atol=1e-6)
    assert totals[1].isfinite().all()
    assert plain.asked == ["widened"]
