"""Augmentation: every record of a lot is read in a variant that is drawn anew for each step, as a random crop of an image.

An augmentation is a function of one record and of random numbers that were drawn for it, and of nothing else. So the gradient
of the variant is a function of one record, is clipped as any other, and adding or removing a record still moves the sum by at
most the clip: the guarantee is what it was. The random numbers come from a generator of their own, which follows from the seed
of the training, so that a training that is resumed reads the same variants. Records that score a run are read as they are.

`CropAndFlip` is for images. `PerRecord` makes an augmentation of a function of your own, which is shown one record at a time
(torch.func.vmap), so that it cannot mix them.

>>> import honestdp, torch
>>> honestdp.augment.CropAndFlip(pad=4)
CropAndFlip(pad=4, flip=True)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs

__all__ = ["Augmentation", "CropAndFlip", "PerRecord"]
_TRIED = 5


class Augmentation(ABC):
    """How the records of a lot are varied, from step to step: `one` makes the variant of one record. Take `CropAndFlip`, or
    `PerRecord` for a function of your own.

    >>> import honestdp
    >>> isinstance(honestdp.augment.CropAndFlip(), honestdp.augment.Augmentation)
    True
    """

    draws: int
    """How many random numbers a record needs."""

    @abstractmethod
    def one(self, x: Any, u: Tensor) -> Any:
        """The variant of one record x, one tensor or a tuple or a dict of them, by u `[draws]`, uniform in [0, 1)."""

    def __call__(self, x: Any, u: Tensor) -> Any:
        """The variants of records x `[n, ...]` by u `[n, draws]`, each made by itself."""
        return torch.func.vmap(self.one)(x, u)


@dataclass(frozen=True)
class CropAndFlip(Augmentation):
    """Images padded with black, cropped to their size at a random place, and mirrored left to right half of the time.

    pad: pixels of black on every side. flip: whether to mirror. Both are public constants. x: images `[channels, height,
    width]` or `[height, width]` as the model reads them, where black is 0: bytes scaled to [0, 1].

    >>> import honestdp, torch
    >>> shift = honestdp.augment.CropAndFlip(pad=1, flip=False)
    >>> image = torch.arange(9.0).view(1, 1, 3, 3)
    >>> shift(image, torch.tensor([[0.0, 0.5]]))[0, 0]  # a row of black from above
    tensor([[0., 0., 0.],
            [0., 1., 2.],
            [3., 4., 5.]])
    """

    pad: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        checks.whole(least=0, pad=self.pad)

    @property
    def draws(self) -> int:  # type: ignore[override]
        return 3 if self.flip else 2

    def one(self, x: Any, u: Tensor) -> Tensor:
        return self(x[None], u[None])[0]

    def __call__(self, x: Any, u: Tensor) -> Tensor:
        if not isinstance(x, Tensor) or x.dim() not in (3, 4):
            shape = f"a record of shape {list(x.shape[1:])}" if isinstance(x, Tensor) else "a record of several inputs"
            wanted = "used with images, [channels, height, width] or [height, width]: reshape x before it is trained on"
            raise InvalidArgument("augment", f"CropAndFlip with {shape}", wanted)
        height, width = x.shape[-2:]
        padded = F.pad(x, (self.pad,) * 4) if self.pad else x
        down, right = ((2 * self.pad + 1) * u[:, :2]).floor().long().clamp(max=2 * self.pad).unbind(1)
        rows = torch.arange(height, device=x.device) + down[:, None]
        columns = torch.arange(width, device=x.device).expand(len(x), -1)
        if self.flip:
            columns = torch.where(u[:, 2:3] < 0.5, width - 1 - columns, columns)
        places = rows[:, :, None] * padded.shape[-1] + (columns + right[:, None])[:, None, :]
        if x.dim() == 3:
            return padded.flatten(1).gather(1, places.flatten(1)).view(x.shape)
        places = places.flatten(1)[:, None].expand(-1, x.shape[1], -1)
        return padded.flatten(2).gather(2, places).view(x.shape)


@dataclass(frozen=True)
class PerRecord(Augmentation):
    """An augmentation of your own: a function of one record and of random numbers for it.

    function: function(x, u) -> the variant of x, of the same shape and kind; x: one record, as the model reads it; u: so many
        numbers, uniform in [0, 1), the only randomness that it may use. It is mapped over the records of a lot by
        torch.func.vmap, so that it sees one alone: choose by torch.where, not by if.
    draws: how many numbers it needs.

    >>> import honestdp, torch
    >>> brighter = honestdp.augment.PerRecord(lambda x, u: x * (0.8 + 0.4 * u[0]), draws=1)
    >>> brighter(torch.ones(2, 3), torch.tensor([[0.0], [1.0]]))
    tensor([[0.8000, 0.8000, 0.8000],
            [1.2000, 1.2000, 1.2000]])
    """

    function: Callable[[Any, Tensor], Any]
    draws: int = 1

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidArgument("function", self.function, "a function of one record and its random numbers")
        checks.whole(least=0, draws=self.draws)

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return f"PerRecord({name}, draws={self.draws})"

    def one(self, x: Any, u: Tensor) -> Any:
        return self.function(x, u)


def variants(augment: Augmentation, x: Any, u: Tensor) -> Any:
    """Those of records x `[n, ...]` by u `[n, draws]`, each a function of its own record alone: whatever is not written here is
    shown one record at a time, also where its class has another way for many."""
    whole_lots = type(augment) is CropAndFlip
    return augment(x, u) if whole_lots else Augmentation.__call__(augment, x, u)


def varied(augment: Augmentation, x: Inputs, u: Tensor) -> Inputs:
    """x `[runs, examples, ...]` and u `[runs, examples, draws]` -> the variants, of the same first dimensions."""
    lots = u.shape[:2]
    flat = variants(augment, inputs.flat_runs(x), u.flatten(0, 1))
    made: Inputs = inputs.each(lambda part: part.view(*lots, *part.shape[1:]), flat)
    return made


def blank_variants(augment: Augmentation | None, x: Inputs) -> Inputs:
    """Variants of synthetic records x `[n, ...]`, in the shapes that a model will be given."""
    if augment is None:
        return x
    first = inputs.first(x)
    made: Inputs = variants(augment, x, torch.full((len(first), augment.draws), 0.5, device=first.device))
    return made


def check_augment(augment: object, x: Inputs | None) -> Augmentation | None:
    """An augmentation that can be used for records such as x `[0, ...]`, tried on made-up ones; None where there is none.

    Tried are the shape and the kind of what it makes, and that a record's variant is the same in any company.
    """
    if augment is None:
        return None
    if not isinstance(augment, Augmentation):
        wanted = "one of honestdp.augment, such as CropAndFlip(pad=4), or PerRecord(function) for one of your own"
        raise InvalidArgument("augment", augment, wanted)
    if x is not None:
        try:
            _try(augment, inputs.each(_made_up, x))
        except InvalidArgument:
            raise
        except Exception as trouble:  # a user's function may do anything
            why = " ".join(str(trouble).split())
            how = "it is given one record, without a dimension for others, and is mapped by torch.func.vmap"
            wanted = f"one that takes {inputs.in_words(x)} ({why}; {how})"
            raise InvalidArgument("augment", augment, wanted) from trouble
    return augment


def _made_up(part: Tensor) -> Tensor:
    """Some records of random numbers of this kind, as a model reads them."""
    shape, generator = (_TRIED, *part.shape[1:]), torch.Generator().manual_seed(0)
    if part.dtype.is_floating_point or part.dtype in (torch.uint8, torch.bool):
        return torch.rand(shape, generator=generator)
    return torch.zeros(shape, dtype=part.dtype)


def _try(augment: Augmentation, x: Inputs) -> None:
    u = torch.rand(_TRIED, augment.draws, generator=torch.Generator().manual_seed(1))
    together = variants(augment, x, u)
    for part, made in zip(inputs.leaves(x), inputs.leaves(together), strict=True):
        if made.shape != part.shape or made.dtype != part.dtype:
            given = f"{list(part.shape[1:])} {part.dtype}, of which it makes {list(made.shape[1:])} {made.dtype}"
            wanted = "one that keeps the shape and the kind of a record, which is scored as it is"
            raise InvalidArgument("augment", f"{augment} of {given}", wanted)
    for at in range(_TRIED):
        alone = variants(augment, inputs.rows(x, slice(at, at + 1)), u[at : at + 1])
        for one, made in zip(inputs.leaves(alone), inputs.leaves(together), strict=True):
            if not torch.allclose(one[0], made[at], rtol=1e-5, atol=1e-6, equal_nan=True):
                wanted = (
                    "a function of one record at a time: this one makes another variant of a record in other company"
                )
                raise InvalidArgument("augment", augment, wanted)
