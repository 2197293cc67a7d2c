"""The global random states of Python, numpy and torch: seeded for user code, and restored after it.

What they draw serves no privacy, but it must follow from the seed of a training like the noise does: the same noise on two
different dropout masks, or on two crops of an image, would let whoever sees both results subtract the noise. And a user's own
draws must not be moved by a training. A generator that user code makes for itself is out of reach.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def lent() -> Iterator[None]:
    """Within, the global generators may be seeded and drawn from; after, they are as they were before."""
    python, array, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    ready = torch.cuda.is_initialized() and not torch.cuda._is_in_bad_fork()  # type: ignore[no-untyped-call]
    devices = torch.cuda.get_rng_state_all() if ready else []
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(array)  # noqa: NPY002
        torch.set_rng_state(cpu)
        if devices:
            torch.cuda.set_rng_state_all(devices)


def seed_all(number: int) -> None:
    """Seed them, of every device, with a number of up to 63 bits."""
    random.seed(number)
    np.random.seed([number & 0xFFFFFFFF, number >> 32])  # noqa: NPY002
    if torch.accelerator.is_available():
        torch.manual_seed(number)
    else:  # the same, without a note of who asked for every device that is not there, which takes longer than a small score
        torch.default_generator.manual_seed(number)
