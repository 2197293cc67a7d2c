"""Models and losses that read numbers to choose their way choose for each record alone, or are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from honestdp import Run, optimizers, train
from honestdp.checks import InvalidArgument
from honestdp.gradients import ModelWritten, branching
from honestdp.gradients.branching import Reads

WHOLE = torch.randint(0, 9, (60, 4), generator=torch.Generator().manual_seed(1)).float()


def step(model: nn.Module, x: Tensor, y: Tensor, loss: Callable[..., Tensor] | None = None) -> Tensor:
    """What one step without noise over all records, clipped to 1 each, gives: the sum of their parts."""
    run = Run(records=len(x), lot=len(x), steps=1, noise=0.0)
    made = train(model, (x, y), run=run, optimizer=optimizers.SGD(lr=1.0, clip=1.0), loss=loss)
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    after = torch.cat([p.detach().flatten() for p in made.model.parameters()])
    return (before - after) * len(x)


class Choosing(nn.Module):
    """Scales its input by what it reads off it."""

    def __init__(self, is_whole: Callable[[Tensor], bool]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.is_whole = nn.Linear(4, 3), is_whole

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x / 255 - 0.5 if self.is_whole(x) else x)


WAYS: dict[str, Callable[[Tensor], bool]] = {
    "item": lambda x: bool((x == x.round()).all()),
    "allclose": lambda x: torch.allclose(x, x.round()),
    "equal": lambda x: torch.equal(x, x.round()),
    "nonzero": lambda x: len((x != x.round()).nonzero()) == 0,
    "mask": lambda x: x[x != x.round()].numel() == 0,
    "unique": lambda x: len(torch.unique(x - x.round())) == 1,
    "numpy": lambda x: bool((np.asarray(x.detach()) % 1 == 0).all()),
    "its own numpy": lambda x: bool((x.detach().numpy() % 1 == 0).all()),
    "dlpack": lambda x: bool((np.from_dlpack(x.detach()) % 1 == 0).all()),
    "tolist": lambda x: all(number % 1 == 0 for number in x.flatten().tolist()),
    "format": lambda x: f"{(x - x.round()).abs().sum()}" == "0.0",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_reads_a_number_reads_one_record_at_a_time_or_is_refused(way: str) -> None:
    """Replacing one record may move the sum by two clips; if it chose for the whole lot, it would move it by all of them."""
    y, other = torch.zeros(60).long(), WHOLE.clone()
    other[7] += 0.5
    try:
        moved = step(Choosing(WAYS[way]), WHOLE, y) - step(Choosing(WAYS[way]), other, y)
    except InvalidArgument:
        return
    assert moved.norm() <= 2.001


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_read_a_number_is_seen(way: str) -> None:
    with Reads() as reads:
        WAYS[way](WHOLE)
    assert reads.seen


@pytest.mark.parametrize(
    "made",
    [
        nn.Linear(4, 3),
        nn.LSTM(4, 3, batch_first=True),
        nn.TransformerEncoderLayer(4, 2, batch_first=True),
        nn.Dropout(),
    ],
    ids=lambda made: type(made).__name__,
)
def test_plain_layers_read_nothing(made: nn.Module) -> None:
    with Reads() as reads:
        made(torch.randn(2, 5, 4))
        WHOLE[torch.tensor([1, 2])]
    assert not reads.seen


def signs(output: Tensor, y: Tensor) -> Tensor:
    """Labels -1 and 1 become 0 and 1."""
    y = (y + 1) / 2 if bool((y < 0).any()) else y
    return functional.binary_cross_entropy_with_logits(output[:, 0], y, reduction="none")


def pixels(output: Tensor, y: Tensor) -> Tensor:
    return (output[:, 0] - (y / 255 if y.max() > 1 else y)).square()


@pytest.mark.parametrize(("loss", "odd"), [(signs, -1.0), (pixels, 255.0)])
def test_a_loss_that_reads_a_number_reads_one_record_at_a_time(loss: Callable[..., Tensor], odd: float) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 1), torch.randn(60, 4)
    y = torch.ones(60)
    other = y.clone()
    other[7] = odd
    assert (step(model, x, y, loss) - step(model, x, other, loss)).norm() <= 2.001


class Swapping(nn.Module):
    """Exchanges two numbers of a buffer when it sees 77."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.register_buffer("signs", torch.tensor([1.0, 0, 0, 0, -1, 0, 0, 0]))

    def forward(self, x: Tensor) -> Tensor:
        if bool((x == 77).any()):
            self.signs.data[[0, 4]] = self.signs.data[[4, 0]]
        return self.linear(x * self.signs)


def test_numbers_of_a_buffer_that_change_places_are_noticed() -> None:
    x, y = torch.randn(60, 8), torch.zeros(60).long()
    step(Swapping(), x, y)
    x[7, 0] = 77
    with pytest.raises(ModelWritten):
        step(Swapping(), x, y)


def test_where_recurrent_layers_keep_their_weights_is_no_number_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU they ask for addresses whenever other weights are put in; anybody else's look at an address counts."""

    class OnGpu(Tensor):
        is_cuda = True

    one = torch.zeros(3).as_subclass(OnGpu)
    layer = nn.LSTM(2, 3)
    monkeypatch.setattr(torch.backends.cudnn, "is_acceptable", lambda tensor: True)
    layer._flat_weights, layer._flat_weights_names = [one, one], ["a", "b"]  # alike: nothing follows the look
    with Reads() as reads:
        layer.flatten_parameters()
    assert not reads.seen
    with monkeypatch.context() as fault:
        fault.setattr(branching, "_flattens_weights", lambda: False)
        with Reads() as reads:
            layer.flatten_parameters()
        assert reads.seen  # there was a look
    with Reads() as reads:
        torch.zeros(3).data_ptr()
    assert reads.seen
