"""Loggers that fall silent while a search runs.

How often a line is logged tells how many populations were trained, and a line on memory tells how many runs were in one: under
random stopping both are secret. So whatever the package logs goes through loggers made here, and a search silences them, together
with warnings, which come from the same places. What is worth saying is said before, when model and rules are rehearsed.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_silent: ContextVar[bool] = ContextVar("honestdp_silent", default=False)


def _heard(record: logging.LogRecord) -> bool:
    return not _silent.get()


def logger(name: str) -> logging.Logger:
    """The logger of this name. It is a filter of its own that silences it, which no level or handler overrules."""
    found = logging.getLogger(name)
    found.addFilter(_heard)  # once: the same filter is not added twice
    return found


@contextmanager
def silence() -> Iterator[None]:
    """Within, the package logs nothing and no warning is shown or raised."""
    before = _silent.set(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _silent.reset(before)
