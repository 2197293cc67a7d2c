"""A chain of layers is run without autograd, and its gradients are those of autograd."""

import gc
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp.checks import InvalidArgument
from honestdp.gradients import Prepared, Product, bookkeeping, by_autograd, by_formula, per_example
from honestdp.gradients.bookkeeping import BookKeeping
from honestdp.gradients.choice import ruled_layers
from honestdp.gradients.materialised import Materialised
from honestdp.gradients.rules import Unruled
from honestdp.losses import cross_entropy, slope_of

from .plain_autograd import assert_agrees, drawn


def plain(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none")


def weighed(output: Tensor, y: Tensor) -> Tensor:
    """A loss of another kind, for outputs of any shape."""
    return (output.flatten(1).tanh() * (1 + y[:, None])).sum(1)


class Renamed(nn.Sequential):
    """A subclass may run its parts in any way."""


def layers_of(model: nn.Module) -> tuple[by_formula.Link, ...] | None:
    return ruled_layers(model, frozenset(name for name, p in model.named_parameters() if p.requires_grad)).chain


def watched(model: nn.Module, where: nn.Module) -> nn.Module:
    where.register_forward_hook(lambda *_: None)
    return model


def hooked_by(kind: str) -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))
    getattr(model[1], kind)(lambda *_: None)
    return model


CHAINS = {
    "one layer": lambda: nn.Linear(6, 3),
    "narrow": lambda: nn.Sequential(nn.Linear(6, 3)),
    "without bias": lambda: nn.Sequential(nn.Linear(6, 3, bias=False)),
    "wide": lambda: nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 17)),
    "in place": lambda: nn.Sequential(nn.Linear(6, 20), nn.ReLU(inplace=True), nn.Linear(20, 3)),
    "within": lambda: nn.Sequential(
        nn.Sequential(nn.Identity(), nn.Linear(6, 5), nn.Tanh()), nn.Linear(5, 4), nn.Sigmoid()
    ),
    "deep": lambda: nn.Sequential(
        nn.Linear(6, 5, bias=False), nn.Sigmoid(), nn.Linear(5, 5), nn.Tanh(), nn.ReLU(), nn.Linear(5, 3)
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("loss", [plain, cross_entropy, weighed])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_gives_the_gradients_of_plain_autograd(
    name: str, loss: object, runs: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = CHAINS[name]().to(dtype)
    monkeypatch.setattr(by_autograd.ByAutograd, "__init__", None)  # autograd's way is not taken
    params, x, y = drawn(model, runs, dtype), torch.randn(runs, 4, 6).to(dtype), torch.randint(0, 3, (runs, 4))
    result = per_example(model, loss, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, loss, params, x, y)
    chain = layers_of(model)
    assert chain is not None
    with torch.no_grad():
        outputs = [
            torch.func.functional_call(model, {n: p[r] for n, p in params.items()}, (x[r],)) for r in range(runs)
        ]
        torch.testing.assert_close(by_formula.ByFormula(chain, params, x).output, torch.cat(outputs))


@pytest.mark.parametrize("runs", [1, 3])
def test_a_chain_may_have_dimensions_in_the_middle(runs: int) -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2), nn.Flatten(), nn.Linear(6, 3)).double()
    assert layers_of(model) is not None
    params, x, y = drawn(model, runs), torch.randn(runs, 4, 3, 4).double(), torch.randint(0, 3, (runs, 4))
    assert_agrees(per_example(model, plain, params, x, y), model, plain, params, x, y)


def test_layers_applied_once_are_products() -> None:
    model = CHAINS["deep"]().double()
    result = per_example(model, plain, drawn(model, 2), torch.randn(2, 4, 6).double(), torch.randint(0, 3, (2, 4)))
    assert sum(isinstance(form, Product) for form in result.forms.values()) == 2  # the third has no bias


class OwnReLU(nn.ReLU):
    """A subclass may compute anything."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 3


def frozen() -> nn.Module:
    model = CHAINS["wide"]()
    model[0].requires_grad_(False)
    return model


def patched() -> nn.Module:
    model = CHAINS["wide"]()
    model[1].forward = lambda x: x
    return model


NOT_CHAINS = {
    "a subclass": lambda: Renamed(nn.Linear(6, 3)),
    "a function that is not known": lambda: nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3)),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(), nn.Linear(5, 3)),
    "a rule that hands nothing back": lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3)),
    "another flattening": lambda: nn.Sequential(nn.Linear(6, 3), nn.Flatten(0)),
    "a frozen layer": frozen,
    "a forward of its own": patched,
    "a hook": lambda: watched(model := CHAINS["wide"](), model[1]),
    "a function of one's own": lambda: nn.Sequential(nn.Linear(6, 20), OwnReLU(), nn.Linear(20, 3)),
    "a hook before": lambda: hooked_by("register_forward_pre_hook"),
    "a hook of the way back": lambda: hooked_by("register_full_backward_hook"),
    "a hook before the way back": lambda: hooked_by("register_full_backward_pre_hook"),
    "a hook on a layer": lambda: watched(model := CHAINS["wide"](), model[0]),
    "a hook on the whole": lambda: watched(model := CHAINS["wide"](), model),
    "a hook within": lambda: watched(model := CHAINS["within"](), model[0]),
}


@pytest.mark.parametrize("name", NOT_CHAINS)
def test_what_is_no_chain_goes_by_autograd(name: str) -> None:
    assert layers_of(NOT_CHAINS[name]()) is None


def test_hooks_are_called() -> None:
    model, seen = CHAINS["wide"](), []
    model[1].register_forward_hook(lambda _m, _x, out: seen.append(len(out)))
    params, x, y = drawn(model, 2, torch.float32), torch.randn(2, 9, 6), torch.randint(0, 3, (2, 9))
    assert_agrees(per_example(model, plain, params, x, y), model, plain, params, x, y)
    assert 18 in seen


def test_a_hook_that_comes_later_is_called() -> None:
    """Also one for all modules; and once they are gone the model is a chain again."""
    model, seen = CHAINS["wide"](), []
    params, x, y = drawn(model, 2, torch.float32), torch.randn(2, 9, 6), torch.randint(0, 3, (2, 9))
    plainly = per_example(model, plain, params, x, y).norms

    def doubled(_m: nn.Module, _x: object, out: Tensor) -> Tensor:
        seen.append(len(out))
        return 2 * out

    for handle in (
        model[0].register_forward_hook(doubled),
        nn.modules.module.register_module_forward_hook(lambda _m, _x, out: seen.append(len(out))),
    ):
        seen.clear()
        result = per_example(model, plain, params, x, y)
        assert 18 in seen
        assert_agrees(result, model, plain, params, x, y)
        handle.remove()
    assert per_example(model, plain, params, x, y).norms.equal(plainly)


@pytest.mark.parametrize("layer", [nn.ReLU, nn.Tanh, nn.Sigmoid])
def test_a_wrong_formula_is_found_before_a_record_is_read(
    layer: type[nn.Module], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = by_formula._FUNCTIONS[layer]._replace(slope=lambda grad, x, out: grad)
    monkeypatch.setitem(by_formula._FUNCTIONS, layer, wrong)
    model = nn.Sequential(nn.Linear(6, 20), layer(), nn.Linear(20, 3)).double()
    params, x, y = drawn(model, 2), torch.randn(2, 4, 6).double(), torch.randint(0, 3, (2, 4))
    with caplog.at_level(logging.WARNING, "honestdp.gradients"):
        result = per_example(model, plain, params, x, y)
    assert isinstance(result, Materialised)
    assert_agrees(result, model, plain, params, x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [1, 100])
def test_the_slope_of_cross_entropy_is_autograds(scale: float, dtype: torch.dtype) -> None:
    output, y = (scale * torch.randn(200, 7)).to(dtype).requires_grad_(), torch.randint(0, 7, (200,))
    slope = slope_of(cross_entropy, output)
    assert slope is not None
    (expected,) = torch.autograd.grad(plain(output, y).sum(), output)
    torch.testing.assert_close(slope(output.detach(), y), expected)


def test_the_slope_of_what_is_no_number_is_none_for_that_example_alone() -> None:
    output = torch.tensor([[0.0, float("nan")], [float("inf"), 0.0], [1.0, 2.0]])
    slope = slope_of(cross_entropy, output)(output, torch.tensor([0, 1, 1]))
    assert slope.isnan().any(1).tolist() == [True, True, False]


def test_a_slope_is_at_hand_for_one_row_of_outputs_an_example_only() -> None:
    assert slope_of(cross_entropy, torch.zeros(3, 4, 5)) is None
    assert slope_of(plain, torch.zeros(3, 4)) is None
    assert slope_of(cross_entropy, (torch.zeros(3, 4),)) is None


class TwoOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 3), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.one(x), self.other(x)


def test_a_model_may_have_several_outputs() -> None:
    def loss(output: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        return plain(output[0], y) + output[1].square().sum(1)

    model = TwoOutputs()
    params, x, y = drawn(model, 2, torch.float32), torch.randn(2, 4, 6), torch.randint(0, 3, (2, 4))
    result = per_example(model, loss, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, loss, params, x, y)


@pytest.mark.parametrize("runs", [1, 3])
def test_the_default_loss_gives_autograds_gradients_for_what_is_no_chain_too(runs: int) -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3)).double()
    params, x, y = drawn(model, runs), torch.randn(runs, 4, 6).double(), torch.randint(0, 3, (runs, 4))
    assert_agrees(per_example(model, cross_entropy, params, x, y), model, plain, params, x, y)
    small = per_example(model, cross_entropy, params, x, y.to(torch.uint8))
    assert_agrees(small, model, plain, params, x, y)


@pytest.mark.parametrize("make", [CHAINS["wide"], NOT_CHAINS["a function that is not known"]], ids=["chain", "traced"])
def test_a_loss_that_does_not_depend_on_the_output_has_no_gradient(make: object) -> None:
    model = make()
    params, x, y = drawn(model, 2, torch.float32), torch.randn(2, 4, 6), torch.rand(2, 4)
    for loss in (lambda output, y: y, lambda output, y: y * y.clone().requires_grad_()):
        result = per_example(model, loss, params, x, y)
        assert result.norms.max() < 1e-15
        assert all(value.eq(0).all() for value in result.weighted_sum(torch.ones(2, 4)).values())


class WritesLater(nn.Module):
    """Changes a layer's input after the layer has read it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.one(x) * 1
        out = self.other(seen)
        seen.detach().mul_(5)
        return out


@pytest.mark.parametrize("runs", [1, 2])
def test_an_input_that_is_changed_after_its_layer_has_read_it_is_noticed(runs: int) -> None:
    model = WritesLater().double()
    layers = ruled_layers(model, frozenset(name for name, _ in model.named_parameters()))
    params, x, y = drawn(model, runs), torch.randn(runs, 4, 6).double(), torch.randint(0, 3, (runs, 4))
    with (
        torch.no_grad(),
        pytest.raises(Unruled, match=r"the input of other is changed in place|modified by an inplace"),
    ):
        bookkeeping.per_example(model, plain, layers, params, bookkeeping.Input(x), y)


@pytest.mark.parametrize("shift", [False, True])
def test_a_product_spelt_out_is_its_gradients(shift: bool) -> None:
    left, right = torch.randn(2, 3, 4).double(), torch.randn(2, 3, 5).double()
    found = Product(left, right, (4, 5), shift=shift).dense()
    torch.testing.assert_close(found[0], torch.einsum("rlj,rlk->rljk", left, right))
    assert len(found) == 1 + shift
    assert not shift or found[1].equal(left)


@pytest.mark.parametrize("make", [CHAINS["wide"], lambda: nn.LSTMCell(6, 3)], ids=["kept", "made"])
def test_weights_of_another_shape_are_refused(make: object) -> None:
    model = make()
    loss = weighed if isinstance(model, nn.Sequential) else lambda output, y: output[0].sum(1)
    result = per_example(model, loss, drawn(model, 2, torch.float32), torch.randn(2, 4, 6), torch.ones(2, 4))
    for weights in (torch.ones(4), torch.ones(1, 4), torch.ones(2, 5)):
        with pytest.raises(InvalidArgument, match=r"weights must be of shape \(2, 4\)"):
            result.weighted_sum(weights)


def test_a_layer_that_is_gone_is_named() -> None:
    model = CHAINS["wide"]()
    prepared = Prepared(model, plain)
    params, x, y = drawn(model, 1, torch.float32), torch.randn(1, 4, 6), torch.randint(0, 3, (1, 4))
    with torch.no_grad():
        prepared(params, x, y)
        prepared.model[0] = nn.Linear(6, 20)
        gc.collect()
        with pytest.raises(RuntimeError, match="layer at '0' is no longer there"):
            prepared(params, x, y)
