"""One secret of 256 bits from which everything random of a training or a search follows.

Noise, lots, dropout, initial weights and retries each take a child of it, named by its purpose. A child is SHAKE-256 of its
parent and its name, so children betray neither each other nor the parent, and whoever holds the secret gets all draws
again: a training that is killed and resumed, or copied and resumed twice, draws the same numbers and says the same thing.
Whoever has read it can subtract the noise, so it is as secret as the records.

User code draws from the global generators of Python, numpy and torch. Their numbers serve no privacy, but they must follow from
the seed like the noise does: the same noise on two different dropout masks, or on two crops of an image, would let whoever sees
both results subtract the noise. And a training must not move a user's own draws. So these generators are `lent`, and seeded by
`seed_all`. A generator that user code makes for itself is out of reach.
"""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

BITS = 256


@dataclass(frozen=True)
class Seed:
    """A secret key, or, where `is_fixed`, a user's number, whose results are NOT PRIVATE."""

    key: bytes = field(repr=False)
    is_fixed: bool = False

    def __post_init__(self) -> None:
        if len(self.key) != BITS // 8:
            raise ValueError(f"a seed has {BITS} bits")

    @staticmethod
    def fresh() -> Seed:
        """From the operating system's randomness, and from nothing else."""
        return Seed(secrets.token_bytes(BITS // 8))

    @staticmethod
    def fixed(number: int) -> Seed:
        """From a user's number, to repeat a result."""
        return Seed(hashlib.sha256(f"honestdp fixed seed {number}".encode()).digest(), is_fixed=True)

    def child(self, *purpose: int | str) -> Seed:
        """An independent seed for one purpose. Different names give different children: "1" is not 1."""
        return Seed(_stream(self.key, f"child {purpose!r}", BITS // 8), self.is_fixed)

    def bytes(self, count: int) -> bytes:
        """The first `count` bytes of this seed's stream."""
        return _stream(self.key, "bytes", count)

    def number(self, bits: int) -> int:
        """A whole number below 2^bits; of a multiple of eight bits, the same as those bytes."""
        return int.from_bytes(self.bytes(-(-bits // 8)), "little") % (1 << bits)


def _stream(key: bytes, name: str, count: int) -> bytes:
    return hashlib.shake_256(key + name.encode()).digest(count)


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
