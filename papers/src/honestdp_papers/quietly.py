"""`quietly`: without what honestdp says of data that were trained on before, which is the point of a benchmark."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quietly() -> Iterator[None]:
    """Warnings about kernels are said nevertheless: what is measured without them is another thing."""
    ours, kernels = logging.getLogger("honestdp"), logging.getLogger("honestdp.kernels")
    before = ours.level, kernels.level
    ours.setLevel(logging.ERROR)
    kernels.setLevel(logging.WARNING)
    try:
        yield
    finally:
        ours.setLevel(before[0])
        kernels.setLevel(before[1])
