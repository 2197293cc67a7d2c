"""Every layer rule gives the gradients of plain autograd, one example at a time."""

import pytest
import torch
from torch import Tensor, nn

from honestdp.gradients import Dense, Outer, Rows, per_example
from honestdp.gradients.bookkeeping import BookKeeping
from honestdp.gradients.by_autograd import ByAutograd
from honestdp.gradients.choice import ruled_layers
from honestdp.gradients.layers import convolution

from .plain_autograd import assert_agrees, drawn


def weighed(output: Tensor, y: Tensor) -> Tensor:
    """A loss whose gradient differs at every position of the output, and depends on the output."""
    return ((output.flatten(1) + y.flatten(1)) ** 2).sum(1) / output[0].numel()


def after(layer: nn.Module, width: int) -> nn.Module:
    """The layer behind another one, so that its gradient has to travel on through it."""
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), layer)


LAYERS = {
    "linear": (lambda: nn.Linear(6, 4), (6,)),
    "linear without bias": (lambda: nn.Linear(6, 4, bias=False), (6,)),
    "linear, one middle dimension, outer product": (lambda: nn.Linear(6, 4), (9, 6)),
    "linear, one middle dimension, ghost norm": (lambda: nn.Linear(20, 30), (2, 20)),
    "linear, three middle dimensions": (lambda: nn.Linear(5, 7), (2, 1, 3, 5)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3), (3, 8)),
    "conv1d, stride, padding, dilation": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2), (4, 9)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 3), (2, 6, 6)),
    "conv2d, ghost norm": (lambda: nn.Conv2d(12, 14, 3), (12, 4, 4)),
    "conv2d without bias": (lambda: nn.Conv2d(2, 3, (3, 2), bias=False), (2, 6, 5)),
    "conv2d, stride, padding, dilation": (
        lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(1, 2)),
        (2, 7, 6),
    ),
    "conv2d, groups": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), (4, 5, 5)),
    "conv2d, depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4), (4, 5, 5)),
    "conv2d, same": (lambda: nn.Conv2d(2, 3, 4, padding="same"), (2, 5, 5)),
    "conv2d, valid": (lambda: nn.Conv2d(2, 3, 2, padding="valid"), (2, 5, 5)),
    "conv2d, reflect": (lambda: nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode="reflect"), (2, 5, 5)),
    "conv2d, replicate": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="replicate", stride=2), (2, 5, 5)),
    "conv2d, circular": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5, 5)),
    "conv2d, circular, ghost norm": (
        lambda: nn.Conv2d(12, 14, 3, padding=(0, 1), padding_mode="circular", stride=2),
        (12, 4, 4),
    ),
    "conv3d": (lambda: nn.Conv3d(2, 3, (2, 3, 2), padding=(1, 0, 1), stride=(1, 2, 1)), (2, 3, 5, 3)),
    "conv transpose1d": (lambda: nn.ConvTranspose1d(3, 4, 3, stride=2), (3, 5)),
    "conv transpose2d": (lambda: nn.ConvTranspose2d(3, 2, 3), (3, 4, 4)),
    "conv transpose2d, ghost norm": (lambda: nn.ConvTranspose2d(14, 12, 3, stride=2, padding=1), (14, 2, 2)),
    "conv transpose2d, stride, padding, dilation, groups": (
        lambda: nn.ConvTranspose2d(
            4, 6, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2), groups=2, dilation=(1, 2)
        ),
        (4, 4, 3),
    ),
    "conv transpose2d, output padding beyond the stride, ghost norm": (
        lambda: nn.ConvTranspose2d(14, 12, 3, stride=1, dilation=3, output_padding=2, padding=2),
        (14, 2, 2),
    ),
    "conv transpose3d": (lambda: nn.ConvTranspose3d(2, 3, 2, stride=2), (2, 2, 3, 2)),
    "layer norm": (lambda: nn.LayerNorm(6), (6,)),
    "layer norm, middle dimension": (lambda: nn.LayerNorm(6), (5, 6)),
    "layer norm, two dimensions": (lambda: nn.LayerNorm((3, 6)), (4, 3, 6)),
    "layer norm without bias": (lambda: nn.LayerNorm(6, bias=False), (5, 6)),
    "rms norm": (lambda: nn.RMSNorm(6), (5, 6)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (4, 5, 3)),
    "group norm, no positions": (lambda: nn.GroupNorm(2, 8), (8,)),
    "instance norm 1d": (lambda: nn.InstanceNorm1d(3, affine=True), (3, 7)),
    "instance norm 2d": (lambda: nn.InstanceNorm2d(3, affine=True), (3, 4, 5)),
    "instance norm 3d": (lambda: nn.InstanceNorm3d(2, affine=True), (2, 3, 2, 4)),
    "instance norm, fixed statistics": (
        lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True).eval(),
        (3, 7),
    ),
    "batch norm, fixed statistics": (lambda: nn.BatchNorm2d(3).eval(), (3, 4, 5)),
}


@pytest.mark.parametrize(
    ("runs", "dtype", "place"),
    [(3, torch.float32, "first"), (1, torch.float64, "last"), (3, torch.float64, "last")],
    ids=str,
)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore:Using padding=.same.:UserWarning")
def test_rule_gives_the_gradients_of_one_at_a_time_backward(
    name: str, runs: int, dtype: torch.dtype, place: str
) -> None:
    torch.manual_seed(7)
    make, shape = LAYERS[name]
    layer = make()
    model = layer if place == "first" else after(layer, shape[-1])
    model.to(dtype)
    params = drawn(model, runs, dtype)
    x = torch.randn(runs, 4, *shape, dtype=torch.float64).to(dtype)
    y = torch.randn(runs, 4, *model(x[0]).shape[1:], dtype=torch.float64).to(dtype)
    result = per_example(model, weighed, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, weighed, params, x, y)
    forward = ByAutograd(model, ruled_layers(model, frozenset(params)).ruled, params, x)
    expected = [torch.func.functional_call(model, {n: p[r] for n, p in params.items()}, (x[r],)) for r in range(runs)]
    torch.testing.assert_close(forward.output, torch.cat(expected), rtol=1e-4, atol=1e-5)


class Words(nn.Module):
    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 5, **settings)
        self.head = nn.Linear(5, 3)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.table(words).tanh().flatten(1, -2).cumsum(1))


@pytest.mark.parametrize(
    ("runs", "dtype", "whole"), [(3, torch.float32, torch.int64), (1, torch.float64, torch.int32)], ids=str
)
@pytest.mark.parametrize("shape", [(1,), (6,), (40,), (3, 4)])
@pytest.mark.parametrize("settings", [{}, {"padding_idx": 2}, {"padding_idx": -1}, {"sparse": True}], ids=str)
def test_embedding_rule(
    runs: int, dtype: torch.dtype, shape: tuple[int, ...], settings: dict, whole: torch.dtype
) -> None:
    torch.manual_seed(3)
    model = Words(**settings).to(dtype)
    params = drawn(model, runs, dtype)
    x = torch.randint(0, 11, (runs, 4, *shape)).to(whole)
    y = torch.randn(runs, 4, *model(x[0]).shape[1:], dtype=torch.float64).to(dtype)
    result = per_example(model, weighed, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, weighed, params, x, y)


def test_embedding_never_reads_the_table_of_another_run() -> None:
    torch.manual_seed(0)
    model = Words()
    x = torch.zeros(2, 1, 6, dtype=torch.long)
    y = torch.zeros(2, 1, 6, 3)
    per_example(model, weighed, drawn(model, 2, torch.float32), x, y)
    x[0, 0, 3] = 11
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        per_example(model, weighed, drawn(model, 2, torch.float32), x, y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using padding=.same.:UserWarning")
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("conv")])
@pytest.mark.parametrize("place", ["first", "last"])
def test_convolutions_by_windows_as_on_a_gpu(name: str, runs: int, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "_grouping_is_slow", lambda values: True)
    test_rule_gives_the_gradients_of_one_at_a_time_backward(name, runs, torch.float64, place)


class Bags(nn.Module):
    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.table, self.head = nn.EmbeddingBag(7, 5, **settings), nn.Linear(5, 3)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.table(words).tanh())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("settings", [{"mode": "sum"}, {"mode": "mean"}, {"mode": "mean", "sparse": True}], ids=str)
def test_embedding_bag_rule(runs: int, dtype: torch.dtype, padding: int | None, settings: dict) -> None:
    torch.manual_seed(3)
    model = Bags(padding_idx=padding, **settings).to(dtype)
    params = drawn(model, runs, dtype)
    x = torch.randint(0, 7, (runs, 4, 9))  # some words more than once
    x[:, 0] = 2  # one word alone, or nothing but padding
    y = torch.randn(runs, 4, 3, dtype=torch.float64).to(dtype)
    result = per_example(model, weighed, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, weighed, params, x, y)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_embedding_bag_without_a_rule_for_its_mode_is_materialised() -> None:
    model, x, y = Bags(mode="max").double(), torch.randint(0, 7, (1, 4, 9)), torch.randn(1, 4, 3).double()
    params = drawn(model, 1)
    result = per_example(model, weighed, params, x, y)
    assert not isinstance(result, BookKeeping)
    assert_agrees(result, model, weighed, params, x, y)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_words_of_a_bag_that_are_not_added_up_are_found_by_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rows, "added", property(lambda rows: (rows.index, rows.gradients)))
    model, x, y = Bags(mode="sum"), torch.randint(0, 7, (1, 4, 9)), torch.randn(1, 4, 3)
    assert not isinstance(per_example(model, weighed, drawn(model, 1, torch.float32), x, y), BookKeeping)


class Places(nn.Module):
    """A table of places in a text that is looked up once for all examples, as transformers do it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(7, 5), nn.Embedding(9, 5), nn.Linear(5, 3)

    def forward(self, ids: Tensor) -> Tensor:
        places = self.places(torch.arange(ids.shape[1]).unsqueeze(0))
        return self.head((self.words(ids) * places).tanh().sum(1))


@pytest.mark.parametrize("runs", [1, 3])
def test_one_row_for_all_examples_is_one_for_each(runs: int) -> None:
    torch.manual_seed(3)
    model, x, y = Places().double(), torch.randint(0, 7, (runs, 4, 9)), torch.randn(runs, 4, 3).double()
    params = drawn(model, runs)
    result = per_example(model, weighed, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, weighed, params, x, y)


class Repeated(nn.Module):
    """One layer at every step of a loop."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.step = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        state = x[:, 0]
        for t in range(x.shape[1]):
            state = self.step(state + x[:, t]).tanh()
        return state


@pytest.mark.parametrize(("width", "form"), [(30, Outer), (5, Dense)])
def test_uses_of_one_layer_are_laid_side_by_side_where_that_is_cheaper(width: int, form: type) -> None:
    torch.manual_seed(3)
    model, x, y = Repeated(width).double(), torch.randn(2, 4, 5, width).double(), torch.randn(2, 4, width).double()
    params = drawn(model, 2)
    result = per_example(model, weighed, params, x, y)
    assert isinstance(result, BookKeeping)
    assert all(isinstance(found, form) for found in result.forms.values())
    assert_agrees(result, model, weighed, params, x, y)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize(
    ("make", "way"),
    [
        (lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))), "take the parametrisation off"),
        (lambda: nn.LSTMCell(3, 2), "use LSTM in place of the cell"),
        (lambda: type("Own", (nn.Linear,), {})(3, 2), "use Linear itself, or write a rule for Own"),
    ],
)
def test_the_notice_of_the_slow_way_names_the_layer_and_the_fast_one(make: object, way: str, lines: list[str]) -> None:
    model = make()  # type: ignore[operator]
    x = torch.randn(1, 4, 3)
    loss = lambda output, y: (output[0] if isinstance(output, tuple) else output).sum(1)  # noqa: E731
    per_example(model, loss, drawn(model, 1, torch.float32), x, torch.zeros(1, 4))
    assert len(lines) == 1
    assert way in lines[0]
