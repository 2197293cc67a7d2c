"""Made-up lots with something unusual in them: holes, examples longer than the others, examples that are masked as a whole or
blank.

A model may look at the other examples of a lot only then: to fill in what is missing, to cut to the longest, to weigh by what
counts. What is unusual is in an example that stays while another moves, since it is there that the other would be seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs


def unusual_pools(model: nn.Module, pool: Inputs, usual: int) -> Iterator[Inputs]:
    """Pools of as many examples, unusual each in its way, and of others that one of them may become."""
    roles = inputs.roles(model, pool)
    padding = _padding_of(model, several=inputs.several(pool))
    for made in (
        _holed(pool, usual),
        _short(pool, roles, usual, padding=padding),
        _masked(pool, roles, usual),
        _masked(pool, roles, usual, every_second=0),
        _masked(pool, roles, usual, every_second=1),  # a mask may say what does not count
        _blank(pool, roles, usual, padding=padding),
    ):
        if made is not None:
            yield made


def _padding_of(model: nn.Module, *, several: bool) -> int:
    """What pads whole numbers. Of several inputs it must be a row of every table, for who looks up which is not known: on a GPU a
    row that is not there takes the whole process with it.
    """
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
    number = next((table.padding_idx for table in tables if table.padding_idx is not None), 0)
    return 0 if several and any(number >= table.num_embeddings for table in tables) else number


def _holed(pool: Inputs, usual: int) -> Inputs | None:
    """Every third number of the usual examples is missing; then as before, and examples of NaN and of infinity."""
    if not any(leaf.is_floating_point() for leaf in inputs.leaves(pool)):
        return None

    def holed(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return torch.cat([x, x[usual, None].expand(2, *x.shape[1:])])
        place = torch.arange(x[:usual].numel(), device=x.device).view(x[:usual].shape)
        strange = torch.stack([torch.full_like(x[0], value) for value in (torch.nan, torch.inf)])
        return torch.cat([torch.where(place % 3 == 1, torch.nan, x[:usual]), x[usual:], strange])

    made: Inputs = inputs.each(holed, pool)
    return made


def _short(pool: Inputs, roles: list[str], usual: int, *, padding: int) -> Inputs | None:
    """The usual examples end in padding; another one does not."""
    every = inputs.leaves(pool)
    if not any(x.dim() > 1 and x.shape[1] > 1 for x in every):
        return None

    def short(x: Tensor, role: str) -> Tensor:
        made = x[: usual + 1].clone()
        if role == inputs.LENGTH:
            made[:-1] = 1
            made[-1] = x.max()
        elif x.dim() > 1 and x.shape[1] > 1:
            tail = -(-2 * x.shape[1] // 3)
            made[:-1, tail:] = padding if role == inputs.NUMBER and not x.is_floating_point() else 0
            if role == inputs.MASK:
                made[:-1, 0] = 1
                made[-1] = 1
            elif not x.is_floating_point() and (x != padding).any():
                made[-1] = torch.where(made[-1] == padding, x[x != padding][:1], made[-1])
        return made

    made: Inputs = inputs.like(pool, [short(x, role) for x, role in zip(every, roles, strict=True)])
    return made


def _masked(pool: Inputs, roles: list[str], usual: int, *, every_second: int | None = None) -> Inputs | None:
    """The usual examples, every second with masks of this number alone; then another one, and one with masks of zeros."""
    if inputs.MASK not in roles:
        return None
    made = [torch.cat([x[: usual + 1], x[usual, None]]) for x in inputs.leaves(pool)]
    for x, role in zip(made, roles, strict=True):
        if role == inputs.MASK:
            x[-1] = 0
            if every_second is not None:
                x[1:usual:2] = every_second
    masked: Inputs = inputs.like(pool, made)
    return masked


def _blank(pool: Inputs, roles: list[str], usual: int, *, padding: int) -> Inputs:
    """Every second usual example is of zeros, or padding, but for what says how much of it counts; then another usual one."""

    def blank(x: Tensor, role: str) -> Tensor:
        made = x[: usual + 1].clone()
        if role == inputs.NUMBER:
            made[1:usual:2] = 0 if x.is_floating_point() else padding
        return made

    made: Inputs = inputs.like(pool, [blank(x, role) for x, role in zip(inputs.leaves(pool), roles, strict=True)])
    return made
