"""Epsilons that one search of the tests has computed and the next need not, for as long as nothing of the accounting is patched.

Hundreds of tests make the same small search, and most of its time is its price: a function of public numbers and of the code.
Here the product's memory of one search (`honestdp.accounting.calibration.once`) outlives it. A test that puts a fault, a counter
or another constant into a module or a class that prices is priced by what it put there: see `prices`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from honestdp import accounting, selection
from honestdp.accounting import calibration

_kept: dict[Any, Any] = {}
_honest: list[list[tuple[int, str, int]]] = []
_names: set[str] = set()
"""The modules that were there at the start: one that is imported later was patched by nobody, and prices nothing of ours."""


class _Kept:
    """In the place of the context variable that `once` sets to an empty memory."""

    def __init__(self) -> None:
        self._now: list[dict[Any, Any]] = []

    def get(self) -> dict[Any, Any] | None:
        return self._now[-1] if self._now else None

    def set(self, empty: dict[Any, Any]) -> None:
        self._now.append(_kept if prices() == _honest[0] else empty)

    def reset(self, token: None) -> None:
        self._now.pop()


def prices() -> list[tuple[int, str, int]]:
    """Every name of every module and class that prices, and which object it stands for: other objects, other prices."""
    found, classes = [], {}
    for module in _modules():
        for name, value in list(vars(module).items()):
            attached = inspect.ismodule(value) and value.__name__ == f"{module.__name__}.{name}"  # by a later import
            if value is not calibration._known and not attached:
                found.append((id(module), name, id(value)))
            if inspect.isclass(value) and value.__module__.startswith("honestdp"):
                classes[id(value)] = value
    for one in classes.values():
        found += [(id(one), name, id(value)) for name, value in list(vars(one).items())]
    return found


def _modules() -> list[Any]:
    tops = ("honestdp.accounting", "honestdp.selection", "dp_accounting")
    return [
        module for name, module in sorted(sys.modules.items()) if name.startswith(tops) and name in (_names or {name})
    ]


@contextmanager
def known_epsilons() -> Iterator[None]:
    if not _honest:  # before the first test that could have patched anything
        for package in (accounting, selection):
            for inner in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
                importlib.import_module(inner.name)
        _honest.append(prices())
        _names.update(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "_known", _Kept())
        yield
