"""Poisson lots, one independent lot for every run and step.

A lot of rate q contains each of N records independently with probability q. Walking through the records, the number of
records skipped before the next member is geometric: P(gap = k) = q (1 - q)^k. Drawing the gaps costs O(qN) in place of
O(N), and the law of the lot is the same (Devroye 1986, chapter X.2; Fan, Muller & Rezucha 1962 for the idea of
skipping).

Exactness. gap = floor(ln U / ln(1 - q)) in float64, with U built from 106 random bits so that its lower tail is as
finely resolved as the rest. Rounding moves the edges between neighbouring gaps by a relative 2^-51 or less, so every
P(gap = k) is right to a relative (k + 1/q) 2^-51: below 1e-11 for every gap up to 40/q at q = 1/500. A record's
presence changes at most two gaps of a step, so the privacy loss of a step is moved by the same tiny amount. In float32
the same formula would be wrong by k 2^-22, which at q = 1e-5 is a change of several per cent: `_gaps` never works in
float32.

Lots are drawn for a block of steps at once: they do not depend on the weights. Enough gaps are drawn for L plus twelve
standard deviations; if a lot is still not finished (the gaps have not walked past record N), more gaps are drawn until
it is. Nothing is truncated.

The choice of the records is part of the mechanism (amplification by sampling needs secret lots), so its generator is
seeded like the noise's (honestdp.boundary.noise), apart from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

_BLOCK_ELEMENTS = 1 << 22
_BLOCK_STEPS = 64
_WHOLE = 8  # blocks are made of whole groups of so many steps, which a GPU replays together


@dataclass(frozen=True)
class Lots:
    """The lots of a block of steps.

    indices: [steps, runs, width], record numbers in rising order; entries from `counts` on are padding.
    counts: [steps, runs], how many records each lot has.
    longest: the largest count of each step, on the host.
    """

    indices: Tensor
    counts: Tensor
    longest: list[int]

    @cached_property
    def _steps(self) -> list[tuple[Tensor, Tensor]]:
        present = presence(self.counts, self.indices.shape[-1])
        return list(zip(self.indices.unbind(), present.unbind(), strict=True))

    def part(self, step: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        """`[runs, last - first]` of a step: the indices, and 1 where they are members of the lot, 0 where padding."""
        indices, present = self._steps[step]
        return indices.narrow(1, first, last - first), present.narrow(1, first, last - first)


def presence(counts: Tensor, width: int) -> Tensor:
    """counts `[...]` -> `[..., width]`: 1 for entries that are members of a lot, 0 for padding."""
    return (torch.arange(width, device=counts.device) < counts[..., None]).float()


def expected_width(*, records: int, rate: float, deviations: float) -> int:
    """Room for a lot of mean qN plus `deviations` standard deviations, never more than N."""
    mean = records * rate
    return min(records, math.ceil(mean + deviations * math.sqrt(mean * (1 - rate)) + 1))


def block_steps(*, records: int, rate: float, runs: int) -> int:
    """How many steps' lots are drawn at once: a bounded amount of memory, and a function of public constants alone."""
    width = expected_width(records=records, rate=rate, deviations=12)
    steps = max(1, min(_BLOCK_STEPS, _BLOCK_ELEMENTS // (runs * width)))
    return steps - steps % _WHOLE if steps > _WHOLE else steps


class PendingLots:
    """Lots being drawn. Making one queues the work; `finish` waits for it, and only for it, so that a GPU never idles.

    `before` is the generator's state from which the same lots can be drawn again.
    """

    def __init__(
        self, generator: torch.Generator, *, records: int, rate: float, steps: int, runs: int, gaps: int | None = None
    ) -> None:
        """gaps: how many are drawn before the first look, where that is not to follow from the rate."""
        self.before = generator.get_state()
        self._generator, self._records, self._rate = generator, records, rate
        self._shape = (steps, runs)
        if rate >= 1:
            return
        width = gaps or expected_width(records=records, rate=rate, deviations=12) + 16
        self._positions = torch.cumsum(_gaps(generator, records, rate, (steps, runs, width)) + 1, dim=-1) - 1
        self._look()

    def _look(self) -> None:
        """Count the lots, and send what the host must know on its way: the longest of each step, whether all are done."""
        self._counts = (self._positions < self._records).sum(dim=-1)
        done = (self._positions[..., -1] >= self._records).all()
        news = torch.cat([self._counts.amax(dim=1), done.long()[None]])
        self._arrived: torch.cuda.Event | None = None
        if news.is_cuda:
            self._news = torch.empty(news.shape, dtype=news.dtype, pin_memory=True)
            self._news.copy_(news, non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()
        else:
            self._news = news

    def _read(self) -> list[int]:
        if self._arrived is not None:
            self._arrived.synchronize()
        return [int(number) for number in self._news.tolist()]

    def finish(self) -> Lots:
        """Independent Poisson lots for every step of every run."""
        steps, runs = self._shape
        if self._rate >= 1:
            every = torch.arange(self._records, device=self._generator.device).expand(steps, runs, self._records)
            return Lots(every, torch.full((steps, runs), self._records, device=every.device), [self._records] * steps)
        *longest, done = self._read()
        while not done:
            more = torch.cumsum(_gaps(self._generator, self._records, self._rate, self._positions.shape) + 1, dim=-1)
            self._positions = torch.cat([self._positions, self._positions[..., -1:] + more], dim=-1)
            self._look()
            *longest, done = self._read()
        return Lots(self._positions.clamp_(max=self._records - 1), self._counts, longest)


def _gaps(generator: torch.Generator, records: int, rate: float, shape: tuple[int, ...]) -> Tensor:
    """Geometric gaps, cut at N (a gap of N already leaves the data)."""
    fine = torch.rand(shape, dtype=torch.float64, device=generator.device, generator=generator)
    uniform = torch.rand(shape, dtype=torch.float64, device=generator.device, generator=generator)
    uniform.add_(fine, alpha=2.0**-53)
    return uniform.log_().div_(math.log1p(-rate)).clamp_(max=float(records)).long()
