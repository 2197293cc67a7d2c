"""A temporary cache of epsilons, so that one search, or one plan, computes each of them once.

A search asks for the same numbers when it calibrates, compares, states and reports. They are functions of public values alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

from dp_accounting import DpEvent

from honestdp.accounting.pld import coarseness
from honestdp.accounting.rdp import AccountingWarning


class Spender(Protocol):
    """What a search spends if each of its runs is the event: a selection."""

    def epsilon(self, event: DpEvent, *, delta: float) -> float: ...


_known: ContextVar[dict[Any, tuple[float, list[warnings.WarningMessage]]] | None] = ContextVar("known", default=None)


@contextmanager
def once() -> Iterator[None]:
    """Remembers until it is left, and nothing beyond: a cache for a whole process would outlive changes of what it holds.
    Within another one it is that one.
    """
    if _known.get() is not None:
        yield
        return
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def epsilon_of(selection: Spender, event: DpEvent, *, delta: float) -> float:
    """The selection's epsilon, with the warnings that belong to it however often it is asked for."""
    known = _known.get()
    if known is None:
        return selection.epsilon(event, delta=delta)
    key = _name(selection), repr(event), delta, coarseness()  # some events hold lists, which have no hash
    if key not in known:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", AccountingWarning)
            known[key] = selection.epsilon(event, delta=delta), caught
    epsilon, caught = known[key]
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return epsilon


def _name(selection: Spender) -> tuple[object, ...]:
    """By all of its fields and not by its own word for equality, which may leave some out; else by the object itself."""
    if not is_dataclass(selection) or type(selection).__eq__ is object.__eq__:
        return (selection,)
    return type(selection), *(repr(getattr(selection, field.name)) for field in fields(selection))
