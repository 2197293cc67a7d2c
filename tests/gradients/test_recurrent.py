"""LSTM, GRU and RNN keep books: norms and sums are those of plain autograd, and outputs those of torch's own layers."""

import pytest
import torch
from torch import Tensor, nn

from honestdp.gradients import per_example
from honestdp.gradients.bookkeeping import BookKeeping
from honestdp.gradients.by_autograd import ByAutograd
from honestdp.gradients.choice import ruled_layers
from honestdp.gradients.layers import recurrent
from honestdp.gradients.materialised import Materialised

from .plain_autograd import assert_agrees, drawn
from .test_layers import weighed


class Sequences(nn.Module):
    """A recurrent layer behind another, all of whose outputs are used; the states too, and a first state if it is `given`."""

    def __init__(self, kind: type[nn.RNNBase], *, given: bool = False, **settings: object) -> None:
        super().__init__()
        self.first, self.layer = nn.Linear(6, 6), kind(6, 5, **{"batch_first": True, **settings})
        self.given, self.head = given, nn.Linear(10 if self.layer.bidirectional else 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        state = x[:, 0, :5].tanh().unsqueeze(0).contiguous()
        pair = (state, state.cos()) if isinstance(self.layer, nn.LSTM) else state
        x = x if self.layer.batch_first else x.transpose(0, 1)
        out, last = self.layer(x, pair) if self.given else self.layer(x)
        out = out if self.layer.batch_first else out.transpose(0, 1)
        lasts = torch.cat(last) if isinstance(last, tuple) else last
        return torch.cat([self.head(out).flatten(1), lasts.transpose(0, 1).flatten(1)], 1)


SETTINGS = {
    "plain": {},
    "two layers, two ways": {"num_layers": 2, "bidirectional": True},
    "no bias": {"bias": False},
    "positions first": {"batch_first": False},
    "a first state": {"given": True},
}
KINDS = {
    "lstm": (nn.LSTM, {}), "gru": (nn.GRU, {}), "rnn": (nn.RNN, {}), "rnn, relu": (nn.RNN, {"nonlinearity": "relu"}),
}  # fmt: skip


@pytest.mark.parametrize(("runs", "dtype"), [(3, torch.float32), (1, torch.float64)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETTINGS)
def test_recurrent_layers_give_the_gradients_of_one_at_a_time_backward(
    name: str, kind: str, runs: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(7)
    model = Sequences(KINDS[kind][0], **KINDS[kind][1], **SETTINGS[name]).to(dtype)
    params = drawn(model, runs, dtype)
    x = torch.randn(runs, 4, 7, 6, dtype=torch.float64).to(dtype)
    y = torch.randn(runs, 4, *model(x[0]).shape[1:], dtype=torch.float64).to(dtype)
    result = per_example(model, weighed, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, weighed, params, x, y)
    forward = ByAutograd(model, ruled_layers(model, frozenset(params)).ruled, params, x)
    expected = [torch.func.functional_call(model, {n: p[r] for n, p in params.items()}, (x[r],)) for r in range(runs)]
    torch.testing.assert_close(forward.output, torch.cat(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("frozen", ["weight_ih", "weight_hh", "bias_hh"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_of_which_a_part_is_frozen(kind: type[nn.RNNBase], frozen: str) -> None:
    torch.manual_seed(7)
    model = Sequences(kind).double()
    for name, value in model.layer.named_parameters():
        value.requires_grad_(not name.startswith(frozen))
    params, x = drawn(model, 2), torch.randn(2, 4, 7, 6).double()
    y = torch.randn(2, 4, *model(x[0]).shape[1:]).double()
    result = per_example(model, weighed, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, weighed, params, x, y)


def test_dropout_between_layers_does_not_keep_a_layer_from_its_rule() -> None:
    model = Sequences(nn.LSTM, num_layers=2, dropout=0.5)
    x, params = torch.randn(1, 4, 7, 6), drawn(model, 1, torch.float32)
    y = torch.zeros(1, 4, *model(x[0]).shape[1:])
    first, second = (per_example(model, weighed, params, x, y) for _ in range(2))
    assert isinstance(first, BookKeeping)
    assert not torch.equal(first.norms, second.norms), "nothing is dropped"


@pytest.mark.parametrize("kind", ["_Lstm", "_Gru"])
def test_a_wrong_way_back_is_found_by_the_trial(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = getattr(recurrent, kind)
    right = function.backward

    def halved(ctx: object, *grads: Tensor) -> tuple:
        found = right(ctx, *grads)
        return (found[0] / 2, *found[1:])

    monkeypatch.setattr(function, "backward", staticmethod(halved))
    model = Sequences({"_Lstm": nn.LSTM, "_Gru": nn.GRU}[kind])
    x, params = torch.randn(1, 4, 7, 6), drawn(model, 1, torch.float32)
    y = torch.zeros(1, 4, *model(x[0]).shape[1:])
    assert isinstance(per_example(model, weighed, params, x, y), Materialised)


def test_a_reset_gate_that_is_left_out_of_the_gradient_is_found_by_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    right = recurrent.Gru.recur
    monkeypatch.setattr(recurrent.Gru, "recur", lambda *args: (*right(*args)[:2], None))
    model = Sequences(nn.GRU)
    x, params = torch.randn(1, 4, 7, 6), drawn(model, 1, torch.float32)
    y = torch.zeros(1, 4, *model(x[0]).shape[1:])
    assert isinstance(per_example(model, weighed, params, x, y), Materialised)
