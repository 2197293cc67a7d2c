"""The guard against a model that writes to its own tensors: weights are lent to a forward pass, and compared after it.

Nobody but the optimizer writes to a model.
A forward pass that writes to a trainable parameter (rows renormalised by `max_norm`, weights clipped under `no_grad`) would
carry what it read of the records past clip and noise. So a step's forward reads a copy of the weights, made for that step,
and the optimizer updates the original: whatever is written to the copy is thrown away with it. A write is an error all the
same, because an example would then be read with weights that another one has changed, and it ends the training. So is a write
to a frozen parameter or a buffer, which would carry something of a lot to later steps.

The same of a loss: one that keeps a mean of what it has seen would weigh a record by others, past the clip. It is compared by
all that it is made of (`identity`), numbers in plain attributes and what it closes over included.

What is looked at are a model's tensors' versions, which torch counts, and their bits: a write through `.data` is not counted, and
weights that are NaN are not equal to themselves. On a GPU bits are compared without waiting, into a flag that is
read once in a block of steps. An error says nothing of the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from honestdp import kernels
from honestdp.checks import HonestdpError
from honestdp.identity.values import identity
from honestdp.kernels.tensors import PLAIN

WAY_OUT = (
    "a forward pass must read the model and write nothing to it: give Embedding and EmbeddingBag max_norm=None and normalise the "
    "rows that were looked up, compute with a changed copy of a weight (w = self.weight.clamp(-1, 1)) in place of the weight "
    "itself, and keep no statistics, caches or counters in buffers"
)


NOTHING = "no running statistics, caches or counters"


class ModelWritten(HonestdpError):
    """A model was written to while it was trained, by something that is not the optimizer, or its loss has changed. It says
    nothing of the records."""

    def __init__(self, why: str = f"its forward pass wrote to the model's own tensors: {WAY_OUT}") -> None:
        super().__init__(f"the training was stopped, since {why}")


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by its name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def bits(value: Tensor) -> Tensor:
    """The memory of a tensor as whole numbers, `[n]`."""
    flat = value.detach().contiguous().view(-1)
    # The fewest numbers: a comparison costs by their number.
    return flat.view(next(kind for kind in (torch.int64, torch.int32, torch.uint8) if flat.nbytes % kind.itemsize == 0))


class TensorSnapshot:
    """Tensors as they were at one moment."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._bits = {name: bits(value).clone() for name, value in tensors.items()}

    def written(self, tensors: Mapping[str, Tensor], versions: Mapping[str, int]) -> str | None:
        """The name of one that has other bits, or another version than in `versions`; None where there is none."""
        for name, before in self._bits.items():
            now = tensors.get(name)
            if now is None or now._version != versions[name] or not torch.equal(bits(now), before):
                return name
        return next((name for name in tensors if name not in self._bits), None)


def versions_of(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """How often torch has counted a write to each."""
    return {name: value._version for name, value in tensors.items()}


def code_of(loss: object) -> str:
    """A digest of all that a loss is made of, the numbers in its tensors included. Not to be told."""
    return identity(loss, values=True).everything


class Untouched:
    """A model in training, and its loss. To be made before the first step."""

    def __init__(self, model: nn.Module, loss: object = None) -> None:
        self._model, self._loss = model, loss
        tensors = tensors_of(model)
        self._versions = versions_of(tensors)
        self._marks = _marks(tensors)
        self._flag = torch.zeros((), dtype=torch.bool, device=self._marks.device) if self._marks.is_cuda else None
        self._arriving: tuple[Tensor, torch.cuda.Event] | None = None

    @contextmanager
    def lent(self, params: Tensor) -> Iterator[Tensor]:
        """A copy of params `[runs, width]` for one step's forward passes; after it, an error if it was written to."""
        copy = params.clone()
        version = copy._version
        yield copy
        if copy._version != version:
            raise ModelWritten
        if self._flag is not None and copy.is_cuda:
            (kernels.on(copy.device) or PLAIN).differs(bits(copy), bits(params), self._flag)
        elif not torch.equal(bits(copy), bits(params)):
            raise ModelWritten

    @contextmanager
    def same_loss(self) -> Iterator[None]:
        """Around some steps: an error if the loss has changed in them. Between steps whoever sees the weights may change it."""
        before = code_of(self._loss)
        yield
        if code_of(self._loss) != before:
            raise ModelWritten(f"its loss has changed; a loss must keep nothing from call to call: {NOTHING}")

    def settle(self, *, wait: bool = True) -> None:
        """At the end of a block of steps: an error if the model was written to in it, or in an earlier one.

        wait: on a GPU, whether to wait for the steps under way; otherwise it is what the last call asked for that is read.
        """
        tensors = tensors_of(self._model)
        if versions_of(tensors) != self._versions:
            raise ModelWritten
        marks = _marks(tensors)
        if self._flag is None:
            if not torch.equal(marks, self._marks):
                raise ModelWritten
            return
        self._flag.logical_or_((marks != self._marks).any())
        if self._arriving is not None:
            flag, event = self._arriving
            event.synchronize()
            if flag.item():
                raise ModelWritten
        if wait and self._flag.item():
            raise ModelWritten
        self._send()

    def _send(self) -> None:
        """Have the flag copied to the host behind the steps under way; `settle` reads it once it has arrived."""
        assert self._flag is not None
        news = torch.empty((), dtype=self._flag.dtype, pin_memory=True)
        news.copy_(self._flag, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._arriving = news, event


_WEIGHTS = 2 * torch.randint(2**62, (2, 1 << 16), generator=torch.Generator().manual_seed(20261115)) + 1
"""Odd whole numbers by which bits are multiplied before they are summed, so that no two can change places unseen."""


def _marks(tensors: Mapping[str, Tensor]) -> Tensor:
    """Two sums of the weighted bits of every tensor, `[tensors, 2]`: frozen parts can be too large to keep a copy of each."""
    first = next(iter(tensors.values()))
    weights = _WEIGHTS.to(first.device)
    return torch.stack([_mark(bits(value), weights.to(value.device)).to(first.device) for value in tensors.values()])


def _mark(numbers: Tensor, weights: Tensor) -> Tensor:
    total = torch.zeros(2, dtype=torch.int64, device=numbers.device)
    for place, part in enumerate(torch.split(numbers, weights.shape[1])):
        total += (2 * place + 1) * (part.long() * weights[:, : len(part)]).sum(1)
    return total
