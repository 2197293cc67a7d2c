"""The space of a search with its lots and steps: named by the user, or chosen from public numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from honestdp.budget import Budget
from honestdp.planner.shapes import chosen_shape
from honestdp.search.space import Optimizer, Space, space_of

UNNAMED: tuple[float, int] = (1.0, 1)  # lot and steps that stand in while candidates are counted


def shaped_space(
    optimizer: Optimizer | Sequence[Optimizer],
    space: Mapping[str, Any] | None,
    *,
    budget: Budget,
    records: int,
    lot: float | None,
    steps: int | None,
    epochs: float | None = None,
) -> tuple[Space, str]:
    """The space, and in words how lot and steps were chosen; empty where nothing was.

    records: those that train. The others: see `tune`. Where the space has several lots or steps of its own, what is left to
    choose goes by the smallest of them.
    """
    counted = space_of(optimizer, space, lot=lot or UNNAMED[0], steps=steps or UNNAMED[1])
    one = counted.finite and len(counted.candidates()) == 1
    listed = counted.shapes()
    chosen = chosen_shape(
        budget,
        records=records,
        candidates=1 if one else 2,
        lot=min(each for each, _ in listed) if lot is None and _has(space, "lot") else lot,
        steps=min(each for _, each in listed) if steps is None and epochs is None and _has(space, "steps") else steps,
        epochs=epochs,
    )
    return space_of(optimizer, space, lot=chosen.lot, steps=chosen.steps), chosen.how


def _has(space: Mapping[str, Any] | None, name: str) -> bool:
    """Whether a space, or that of one of several optimizers, names this constant of the run."""
    return space is not None and any(
        key == name or (isinstance(values, Mapping) and name in values) for key, values in space.items()
    )
