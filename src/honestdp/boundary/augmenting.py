"""The variants of a lot's records: drawn from a generator of their own, made by an augmentation, tried before any record is read.

A record's variant is a function of that record and of numbers drawn for it, so its clipped gradient bounds what it adds to the
sum, as without augmentation. How many numbers are drawn in a step follows from the width of a lot's pieces, never from a record.
"""

from __future__ import annotations

import torch
from torch import Tensor

from honestdp.augment import Augmentation, variants
from honestdp.boundary.noise import torch_generator
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs

_TRIED = 5


class Variants:
    """Draws and makes the variants of one population's lots."""

    def __init__(self, augment: Augmentation, device: torch.device, seed: Seed, *, width: int) -> None:
        """width: of the pieces of a lot. As many numbers are drawn for a shorter one, so that steps that are captured, which have
        one shape alone, read the same variants as those that are not."""
        self._augment, self._width = augment, width
        self._generator = torch_generator(device, seed)

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        return (self._generator,)

    def of(self, x: Inputs) -> Inputs:
        """The variants of a piece of a lot, x `[runs, examples, ...]`."""
        runs, examples = inputs.first(x).shape[:2]
        shape = (runs, self._width, self._augment.draws)
        u = torch.rand(shape, generator=self._generator, device=self._generator.device)[:, :examples]
        return varied(self._augment, x, u)

    def state(self) -> list[Tensor]:
        return [self._generator.get_state()]

    def restore(self, state: list[Tensor]) -> None:
        self._generator.set_state(state[0])


def varied(augment: Augmentation, x: Inputs, u: Tensor) -> Inputs:
    """x `[runs, examples, ...]` and u `[runs, examples, draws]` -> the variants, of the same first dimensions."""
    lots = u.shape[:2]
    flat = variants(augment, inputs.flat_runs(x), u.flatten(0, 1))
    made: Inputs = inputs.each(lambda part: part.view(*lots, *part.shape[1:]), flat)
    return made


def blank_variants(augment: Augmentation | None, x: Inputs) -> Inputs:
    """Those of made-up records x `[n, ...]`: what a model will be given."""
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
