"""The space of a search with its lots and steps: named by the user, or chosen from public numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from honestdp.budget import Budget
from honestdp.planner.shapes import chosen_shape
from honestdp.search.space import Optimizer, Space, constants_of, space_of

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
    model: Any = None,
) -> tuple[Space, str]:
    """The space, and in words how lot and steps were chosen; empty where nothing was.

    records: those that train. The others: see `tune`. Where the space has several lots or steps of its own, what is left to
    choose goes by the smallest of them. model: whose arguments the space may hold.
    """

    def made(lot: float, steps: int) -> Space:
        length = steps if epochs is None else None
        return space_of(optimizer, space, lot=lot, steps=length, epochs=epochs, records=records, model=model)

    counted = made(lot or UNNAMED[0], steps or UNNAMED[1])
    passes = [each for _, values in counted.dimensions for each in constants_of(values, "epochs") if each is not None]
    one = counted.finite and len(counted.candidates()) == 1
    listed = counted.shapes()
    if steps is None and epochs is None and _has(space, "steps"):
        steps, passes = min(each for _, each in listed), []
    chosen = chosen_shape(
        budget,
        records=records,
        candidates=1 if one else 2,
        lot=min(each for each, _ in listed) if lot is None and _has(space, "lot") else lot,
        steps=steps,
        epochs=min(passes) if steps is None and passes else epochs,
    )
    return made(chosen.lot, chosen.steps), chosen.how


def _has(space: Mapping[str, Any] | None, name: str) -> bool:
    """Whether a space, or that of one of several optimizers, names this constant of the run."""
    return space is not None and any(
        key == name or (isinstance(values, Mapping) and name in values) for key, values in space.items()
    )
