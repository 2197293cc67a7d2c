"""What trainings took on one H200, beside what `setting` reckons for them: how long a part takes decides none of its numbers.

`setting` is among the files that the numbers of a part rest on, and another `price` there would make every kept part stale. So
what was measured since stands here, where the paper's front alone reads it. Measured beside other work on the same GPU, without
what the first part of a process takes to compile: `mnist/k7/seed1/FixedThreshold` 62 s and `heavy/mnist/seeds0-1` 65 where 100
are reckoned, `honest/mnist/seed0/FixedQuantile` 45 (67), `mnist-standardised/k7/seeds0-4/Online` 56 (72);
`clamped/fashion/seeds0-4` 53 (35), `ours/fashion/seeds0-4` 78 (42). The seconds of each, compiling included, are in its file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from honestdp_papers.parts import Part
from honestdp_papers.registry import Item

TAKEN = {"convolutional": 0.8, "autoencoder": 1.05}
"""Network -> seconds that were measured, over those that are reckoned."""


def paced(item: Item) -> Item:
    """The same with parts that weigh what was measured."""
    return replace(item, parts=_weighed(item.parts))


def _weighed(parts: Callable[[bool], Sequence[Part]]) -> Callable[[bool], Sequence[Part]]:
    def later(quick: bool) -> Sequence[Part]:
        return [
            replace(part, weight=part.weight * TAKEN.get(part.identity.get("network", ""), 1.0))
            for part in parts(quick)
        ]

    return later
