"""Which engine a model goes to, and that both give the gradients of plain autograd."""

import copy
import gc
import importlib.util
import logging
import weakref
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp import gradients
from honestdp.gradients import Prepared, choice, materialised, per_example, rules
from honestdp.gradients.bookkeeping import BookKeeping
from honestdp.gradients.layers.linear import Linear as LinearRule
from honestdp.gradients.materialised import Materialised

from .plain_autograd import assert_agrees, drawn


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none")


def classes(runs: int, lot: int = 4) -> Tensor:
    return torch.randint(0, 3, (runs, lot))


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.out.weight = self.into.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.out(self.into(x).tanh()))


class Functional(nn.Module):
    """Uses the weight of a layer once more, outside the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x).tanh() @ self.first.weight)


class OwnParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift, self.head = nn.Parameter(torch.zeros(5)), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x + self.shift).tanh())


class Positions(nn.Module):
    """A table of positions that is looked up without a row of its own for the examples."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(4, 6), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x + self.table(torch.arange(4))).tanh().flatten(1))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(6, 2, batch_first=True, add_zero_attn=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x)[0].mean(1))


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.RNNBase], **settings: int) -> None:
        super().__init__()
        self.cell = cell(6, 4, batch_first=True, **settings)
        self.head = nn.Linear(settings.get("proj_size", 4), 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


class Cell(nn.Module):
    def __init__(self, cell: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.cell, self.head = cell(6, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for t in range(x.shape[1]):
            state = self.cell(x[:, t]) if state is None else self.cell(x[:, t], state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class InPlaceInput(nn.Module):
    """Changes what a layer has read after it has read it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        kept = self.second(x)
        x += kept.tanh()
        return self.head(x)


class Scaled(nn.Linear):
    """A subclass with another forward: the rule for Linear does not hold."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class PositionsFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.mix(x.transpose(0, 1)).tanh().transpose(0, 1).sum(1))


class Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight + weight.mT


def parametrised() -> nn.Module:
    layer = nn.Linear(5, 5)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(5, 3))


FALLING_BACK = {
    "tied weights": (Tied, (5,), "tied"),
    "a weight used outside its layer": (Functional, (5,), "outside their layers"),
    "a parameter of its own": (OwnParameter, (5,), "OwnParameter at '' has no layer rule, which its own"),
    "positions without a row": (Positions, (4, 6), "looked up by torch.arange(n)[None]"),
    "attention with a row for nothing": (Attention, (4, 6), "MultiheadAttention at 'attention'"),
    "LSTM with projections": (lambda: Recurrent(nn.LSTM, proj_size=2), (4, 6), "LSTM at 'cell'"),
    "LSTM cell": (lambda: Cell(nn.LSTMCell), (3, 6), "LSTMCell at 'cell'"),
    "GRU cell": (lambda: Cell(nn.GRUCell), (3, 6), "GRUCell at 'cell'"),
    "a subclass of a layer": (lambda: nn.Sequential(Scaled(5, 3)), (5,), "Scaled at '0'"),
    "examples not first": (PositionsFirst, (4, 6), "first dimension"),
    "a parametrised weight": (parametrised, (5,), "has no layer rule"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("name", FALLING_BACK)
def test_everything_else_is_materialised_with_one_line(
    name: str, runs: int, dtype: torch.dtype, lines: list[str]
) -> None:
    make, shape, why = FALLING_BACK[name]
    model = make().to(dtype)
    params, x, y = drawn(model, runs, dtype), normal(runs, 4, *shape, dtype=dtype), classes(runs)
    prepared = Prepared(model, cross_entropy)
    with torch.no_grad():
        for _ in range(2):
            result = prepared(params, x, y)
    assert isinstance(result, Materialised)
    assert len(lines) == 1
    assert why in lines[0]
    assert_agrees(result, model, cross_entropy, params, x, y)


@pytest.mark.parametrize(("runs", "positions"), [(1, 3), (3, 6)])
def test_positions_that_number_the_trials_examples_are_not_taken_for_examples(
    runs: int, positions: int, lines: list[str]
) -> None:
    model = PositionsFirst().double()
    params, x, y = drawn(model, runs), normal(runs, 4, positions, 6), classes(runs)
    result = per_example(model, cross_entropy, params, x, y)
    assert isinstance(result, Materialised)
    assert "a layer rule does not hold" in lines[0]
    assert_agrees(result, model, cross_entropy, params, x, y)


def test_outputs_whose_last_digits_differ_each_time_are_the_same() -> None:
    """A GPU adds up in another order each time: an autoencoder of stride 1, whose outputs are near 0, was materialised for it."""
    output = torch.tensor([[0.3, 1e-6], [-0.1, 0.2]])
    assert choice._same(output, output + torch.tensor([1e-7, -1e-7]))
    assert not choice._same(output, output + torch.tensor([0.0, 1e-3]))
    assert not choice._same(output, torch.where(output < 0, torch.nan, output))
    assert not choice._same(output * torch.inf, output * torch.inf)
    assert choice._same(torch.tensor([[3]]), torch.tensor([[3]]))
    assert not choice._same(torch.tensor([[3]]), torch.tensor([[4]]))


def test_an_input_changed_in_place_is_an_error_as_in_plain_autograd() -> None:
    model = InPlaceInput().double()
    with pytest.raises(RuntimeError, match="inplace"):
        per_example(model, cross_entropy, drawn(model, 2), normal(2, 4, 5), classes(2))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(inplace=True), nn.Linear(7, 3)).double()


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("memory", [1, 3000, 2**30])
def test_materialised_engine_is_the_same_in_chunks(runs: int, memory: int) -> None:
    model = perceptron()
    params, x, y = drawn(model, runs), normal(runs, 9, 5), classes(runs, 9)
    result = materialised.per_example(
        materialised.Batch(model, cross_entropy, params, x, y), bytes_per_example=500, memory=memory
    )
    assert result._chunks == {1: 9, 3000: -(-9 // (6 // runs)), 2**30: 1}[memory]
    assert_agrees(result, model, cross_entropy, params, x, y)


def test_memory_bound_reaches_the_materialised_engine() -> None:
    model = Tied().double()
    params, x, y = drawn(model, 2), normal(2, 9, 5), classes(2, 9)
    small = per_example(model, cross_entropy, params, x, y, memory=4000)
    large = per_example(model, cross_entropy, params, x, y)
    assert isinstance(small, Materialised)
    assert isinstance(large, Materialised)
    assert 1 < small._chunks <= 9
    assert large._chunks == 1
    torch.testing.assert_close(small.norms, large.norms)


def test_chunks_sum_the_gradients_whose_norms_were_taken_under_dropout() -> None:
    """With a dropout mask drawn anew for the sum, the sum of normed gradients would leave the unit ball."""
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(40, 1, bias=False)).double()
    params, x, y = {"1.weight": normal(2, 1, 40)}, normal(2, 6, 40), torch.zeros(2, 6)

    def output_itself(output: Tensor, y: Tensor) -> Tensor:
        return output.squeeze(1)

    result = materialised.per_example(
        materialised.Batch(model, output_itself, params, x, y), bytes_per_example=1, memory=4
    )
    assert result._chunks == 3
    before = torch.get_rng_state()
    for i in range(6):
        weights = torch.zeros(2, 6, dtype=torch.float64)
        weights[:, i] = 1 / result.norms[:, i]
        norms = result.weighted_sum(weights)["1.weight"].flatten(1).norm(dim=1)
        torch.testing.assert_close(norms, torch.ones(2, dtype=torch.float64))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("inplace", [False, True])
def test_activations_in_place_keep_book_keeping(inplace: bool) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(inplace), nn.Flatten(), nn.Linear(16, 6), nn.ReLU(inplace), nn.Linear(6, 3)
    ).double()
    for runs in (1, 3):
        params, x, y = drawn(model, runs), normal(runs, 4, 1, 4, 4), classes(runs)
        result = per_example(model, cross_entropy, params, x, y)
        assert isinstance(result, BookKeeping)
        assert_agrees(result, model, cross_entropy, params, x, y)


class Reused(nn.Module):
    """One layer of every kind of gradient, each used twice, on inputs of other sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix = nn.Embedding(9, 4), nn.Linear(4, 4)
        self.conv, self.norm = nn.Conv1d(4, 4, 3, padding=1), nn.LayerNorm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, words: Tensor) -> Tensor:
        long, short = self.table(words), self.table(words[:, :3]).tanh()
        long, short = self.mix(long).tanh(), self.mix(self.norm(short))
        long, short = (self.conv(x.mT).mT for x in (self.norm(long), short))
        return self.head(long.sum(1) + short.tanh().sum(1))


@pytest.mark.parametrize("runs", [1, 3])
def test_a_layer_used_twice_adds_its_gradients_before_the_norm(runs: int) -> None:
    model = Reused().double()
    params, x, y = drawn(model, runs), torch.randint(0, 9, (runs, 4, 7)), classes(runs)
    result = per_example(model, cross_entropy, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, cross_entropy, params, x, y)


@pytest.mark.parametrize("runs", [1, 3])
def test_a_layer_that_is_in_a_model_by_two_names_is_one_and_stays_as_it_was(runs: int) -> None:
    """torch would leave it with a tensor of a map that is over, and every later use of the model fails."""
    layer = nn.Linear(5, 5).double()
    model = nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(5, 3).double())
    before, apart = {name: value.clone() for name, value in model.state_dict().items()}, copy.deepcopy(model)
    params, x, y = drawn(model, runs), normal(runs, 4, 5), classes(runs)
    result = per_example(model, cross_entropy, params, x, y)
    assert_agrees(result, apart, cross_entropy, params, x, y)
    assert all(value.equal(before[name]) for name, value in copy.deepcopy(model).state_dict().items())
    assert model[0].weight is model[2].weight is layer.weight


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.spare, self.dead = nn.Linear(5, 3), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.dead(x)
        return self.head(x)


def test_layers_that_do_not_reach_the_loss_have_gradient_zero() -> None:
    model = Unused().double()
    params, x, y = drawn(model, 2), normal(2, 4, 5), classes(2)
    result = per_example(model, cross_entropy, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, cross_entropy, params, x, y)
    assert result.weighted_sum(torch.ones(2, 4, dtype=torch.float64))["dead.weight"].eq(0).all()


@pytest.mark.parametrize("frozen", ["0.weight", "0.bias", "2.weight", "2.bias", "0", "2"])
@pytest.mark.parametrize("runs", [1, 3])
def test_frozen_parameters_come_from_the_model_and_are_not_asked_about(frozen: str, runs: int) -> None:
    model = perceptron()
    for name, value in model.named_parameters():
        value.requires_grad_(not name.startswith(frozen))
    params, x, y = drawn(model, runs), normal(runs, 4, 5), classes(runs)
    result = per_example(model, cross_entropy, params, x, y)
    assert isinstance(result, BookKeeping)
    assert not any(name.startswith(frozen) for names in result.forms for name in names)
    assert_agrees(result, model, cross_entropy, params, x, y)


def test_freezing_a_layer_later_is_noticed() -> None:
    model = perceptron()
    x, y = normal(2, 4, 5), classes(2)
    per_example(model, cross_entropy, drawn(model, 2), x, y)
    model[0].requires_grad_(False)
    params = drawn(model, 2)
    assert (
        per_example(model, cross_entropy, params, x, y).weighted_sum(torch.ones(2, 4).double()).keys() == params.keys()
    )


@pytest.mark.parametrize("engine", ["book-keeping", "materialised"])
def test_dropout_draws_anew_for_every_run_and_example(engine: str) -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 3)).double()
    params = {name: value.expand(2, *value.shape[1:]).clone() for name, value in drawn(model, 1).items()}
    x, y = torch.ones(2, 5, 64, dtype=torch.float64), torch.zeros(2, 5, dtype=torch.long)
    result: gradients.PerExample = per_example(model, cross_entropy, params, x, y)
    assert isinstance(result, BookKeeping)
    if engine == "materialised":
        result = materialised.per_example(
            materialised.Batch(model, cross_entropy, params, x, y), bytes_per_example=1, memory=2**30
        )
    assert len(result.norms.flatten().unique()) == 10
    assert model[0].training


def test_trying_a_model_out_leaves_the_random_generators_alone() -> None:
    before = torch.get_rng_state()
    per_example(perceptron(), cross_entropy, drawn(perceptron(), 1), x := torch.ones(1, 2, 5).double(), classes(1, 2))
    torch.set_rng_state(before)
    first = torch.randn(3)
    model, params = perceptron(), drawn(perceptron(), 1)
    torch.set_rng_state(before)
    per_example(model, cross_entropy, params, x, torch.zeros(1, 2, dtype=torch.long))
    assert torch.equal(torch.randn(3), first)


def test_the_model_is_left_as_it_was() -> None:
    model = perceptron()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    per_example(model, cross_entropy, drawn(model, 2), normal(2, 4, 5), classes(2))
    assert all("forward" not in module.__dict__ for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(value.grad is None for value in model.parameters())


def test_the_model_is_left_as_it_was_when_it_fails() -> None:
    model = perceptron()
    params = drawn(model, 2)
    per_example(model, cross_entropy, params, normal(2, 4, 5), classes(2))
    with pytest.raises(IndexError):
        per_example(model, cross_entropy, params, normal(2, 4, 5), torch.full((2, 4), 3))
    assert all("forward" not in module.__dict__ for module in model.modules())


def test_nothing_keeps_a_model_alive() -> None:
    model: nn.Module | None = nn.Linear(5, 3).double()
    per_example(model, cross_entropy, drawn(model, 2), normal(2, 4, 5), classes(2))
    watch = weakref.ref(model)
    model = None
    gc.collect()
    assert watch() is None


def test_an_empty_lot_has_no_norms_and_a_sum_of_zero() -> None:
    model = perceptron()
    params = drawn(model, 2)
    result = per_example(model, cross_entropy, params, normal(2, 0, 5), classes(2, 0))
    assert result.norms.shape == (2, 0)
    total = result.weighted_sum(torch.zeros(2, 0, dtype=torch.float64))
    assert {name: value.shape for name, value in total.items()} == {name: value.shape for name, value in params.items()}
    assert all(value.eq(0).all() for value in total.values())


def test_works_without_gradients_enabled_and_returns_plain_tensors() -> None:
    model = perceptron()
    with torch.no_grad():
        result = per_example(model, cross_entropy, drawn(model, 2), normal(2, 4, 5), classes(2))
        total = result.weighted_sum(torch.ones(2, 4, dtype=torch.float64))
    assert not result.norms.requires_grad
    assert not any(value.requires_grad for value in total.values())


class HalfLinear(LinearRule):
    """A planted fault: half of the gradient of the weight."""

    def gradients(self, layer, params, kept, grad, wanted):  # type: ignore[no-untyped-def]
        return super().gradients(layer, params, kept, grad * 0.5, wanted)


def test_a_wrong_rule_is_found_out_before_it_is_used(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    monkeypatch.setitem(rules._RULES, nn.Linear, HalfLinear())
    model = perceptron()
    params, x, y = drawn(model, 2), normal(2, 4, 5), classes(2)
    result = per_example(model, cross_entropy, params, x, y)
    assert isinstance(result, Materialised)
    assert "a layer rule does not hold" in lines[0]
    assert_agrees(result, model, cross_entropy, params, x, y)


def test_the_example_adds_a_rule_that_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "layer_rule.py"
    spec = importlib.util.spec_from_file_location("layer_rule", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.main()
    assert "engine: BookKeeping" in capsys.readouterr().out
    for runs, shape in ((1, (6,)), (3, (2, 4, 6))):
        model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), example.Stretch(6), nn.Flatten(), nn.LazyLinear(3)).double()
        model(normal(2, *shape))
        params, x, y = drawn(model, runs), normal(runs, 4, *shape), classes(runs)
        result = per_example(model, cross_entropy, params, x, y)
        assert isinstance(result, BookKeeping)
        assert_agrees(result, model, cross_entropy, params, x, y)


def test_a_second_rule_for_a_layer_has_to_be_asked_for() -> None:
    with pytest.raises(ValueError, match="Linear has a rule already"):
        gradients.rule(nn.Linear)(HalfLinear)


class Weighted:
    """A loss of an object, given as a bound method; logs its calls, for it may keep nothing."""

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        logging.getLogger("tests").info("called")
        return cross_entropy(output, y)


def test_a_loss_is_tried_out_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    model, weighted = perceptron(), Weighted()
    params, x, y = drawn(model, 2), normal(2, 4, 5), classes(2)
    prepared = Prepared(model, weighted.loss)
    with torch.no_grad():
        prepared(params, x, y)
        caplog.clear()
        for _ in range(3):
            prepared(params, x, y)
    assert len(caplog.messages) == 3
