"""Composition of many different charges, two at a time in a tree whose unchanged branches this process keeps.

Composing k kinds of queries at once takes k transforms, each of the length of the whole. Here the kinds are the leaves of a
tree. Each is composed by itself and put on a grid made for its own deviation, and two blocks are merged at a time: a merged
block needs no more cells than its parts. Queries that are alike are squared and not merged one by one. The tree is a trie over
the hashes of the kinds' names, so that it does not depend on the order of the charges, and one more charge changes one path
of it alone: this process keeps every other block. Another process composes them anew, to the same number.

Everything errs to the safe side. The masses of a sum are sums of products of positive numbers, taken directly: each is right
to a few thousand roundings, whatever its size, so that tails of any delta keep their digits, and they are raised by as much.
Grids are powers of two. A finer grid becomes the next coarser one by moving every second cell to its two neighbours so that
its masses under P and under R are kept, which raises every hockey-stick divergence (accounting/steps.py) and adds g^2 / 8 to
the variance of the losses, g the new grid. With CELLS cells or more to a deviation, that is less than 1e-5 of the variance at
a level of the tree, and at every other level alone. What is cut off at the ends is charged in full, as infinite losses.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from honestdp.accounting.discrete import AtomStep
from honestdp.accounting.pair import Pair
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.steps import Array, GaussianStep

CELLS = 160  # of the grid to a standard deviation of the losses, at least
MOST_CELLS = 2**14  # of a block; beyond, the grid is coarser, as it may be where rare losses are far from the rest
FARTHEST = 300.0  # a loss beyond it leaves no room for tails in a float
CUT = 1e-11  # the part of delta that may be cut off at an end of a block
DEEPER = 1e-5  # the part of delta that a leaf is followed to: many of them are composed
TOLERANCE = 2e-5  # the part of epsilon that the grid of a leaf may add
SPREAD = 1e-4  # the part of its variance that it may add
STEPS = 2**14  # composed at once by the accountant; more of them are powers of these
WORTH_KEEPING = 4  # leaves of a block that is kept
KEPT = 2048  # blocks of this process: those of some 4000 kinds


class BeyondNumbers(OverflowError):
    """Losses that no block can hold."""


@dataclass(frozen=True, eq=False)
class Block:
    """P-masses p at the losses (first + i) 2^exponent, R-masses p e^-loss; P has p_inf at +infinity, R r_inf at -infinity."""

    exponent: int
    first: int
    p: Array
    p_inf: float
    r_inf: float

    @property
    def losses(self) -> Array:
        return (self.first + np.arange(len(self.p), dtype=np.float64)) * 2.0**self.exponent

    @property
    def nothing(self) -> bool:
        return len(self.p) == 1 and self.first == 0 and self.p_inf == self.r_inf == 0

    def variance(self) -> float:
        """Of the finite losses under P."""
        cells, mass = np.arange(len(self.p), dtype=np.float64), float(self.p.sum())
        mean = float(self.p @ cells) / mass
        return float(self.p @ (cells - mean) ** 2) / mass * 4.0**self.exponent

    def pair(self) -> Pair:
        losses = self.losses
        return Pair(losses, self.p, self.p * np.exp(-losses), self.p_inf, self.r_inf)

    def coarser(self) -> Block:
        """On the next grid: an odd cell goes to its neighbours, by shares that keep its masses under P and R."""
        padded = np.concatenate((np.zeros(1 + self.first % 2), self.p, np.zeros(3)))
        first = self.first - 1 - self.first % 2  # odd, so that the cells alternate from here on
        odd, even = padded[0::2], padded[1::2]
        share = 1 / (1 + math.exp(-(2.0**self.exponent)))  # of the upper neighbour
        size = min(len(odd), len(even))
        p = even[:size].copy()
        p += odd[:size] * share
        p[: size - 1] += odd[1:size] * (1 - share)
        return Block(self.exponent + 1, (first + 1) // 2, p, self.p_inf, self.r_inf)

    def on(self, exponent: int) -> Block:
        block = self
        while block.exponent < exponent:
            block = block.coarser()
        return block

    def cut(self, least: float) -> Block:
        """Without the ends that hold at most `least` of P above and of R below: they count as infinite losses."""
        r = self.p * np.exp(-self.losses)
        low = int(np.searchsorted(np.cumsum(r), least, side="right"))
        high = len(self.p) - int(np.searchsorted(np.cumsum(self.p[::-1]), least, side="right"))
        low, high = min(low, len(self.p) - 1), max(high, min(low, len(self.p) - 1) + 1)
        p_out, r_out = (float(mass[:low].sum() + mass[high:].sum()) for mass in (self.p, r))
        kept = Block(self.exponent, self.first + low, self.p[low:high], self.p_inf + p_out, self.r_inf + r_out)
        if max(abs(kept.losses[0]), abs(kept.losses[-1])) > FARTHEST or not np.isfinite(p_out + r_out):
            raise BeyondNumbers("losses beyond what a block can hold")
        while len(kept.p) > MOST_CELLS:
            kept = kept.coarser()
        return kept


NOTHING = Block(-100, 0, np.ones(1), 0.0, 0.0)  # no loss at all


def merge(one: Block, other: Block, *, delta: float) -> Block:
    """The block of both together."""
    if one.nothing or other.nothing:
        return other if one.nothing else one
    wanted = _exponent(one.variance() + other.variance())
    exponent = max(wanted, one.exponent, other.exponent)
    one, other = one.on(exponent), other.on(exponent)
    # Each mass is a sum of at most so many products of positive numbers: its relative error is at most that many roundings.
    p = np.convolve(one.p, other.p) * (1 + (min(len(one.p), len(other.p)) + 4) * 2.0**-52)
    p_inf, r_inf = one.p_inf + other.p_inf, one.r_inf + other.r_inf
    return Block(exponent, one.first + other.first, p, p_inf, r_inf).cut(CUT * delta)


def power(block: Block, count: int, *, delta: float) -> Block:
    """`count` of the same, by squaring."""
    total = NOTHING
    while True:
        if count % 2:
            total = merge(total, block, delta=delta)
        count //= 2
        if count == 0:
            return total
        block = merge(block, block, delta=delta)


def _exponent(variance: float) -> int:
    """The coarsest grid with CELLS cells to a deviation."""
    if not 1e-200 < variance < math.inf:
        raise BeyondNumbers("losses that are next to nothing")
    return math.floor(math.log2(math.sqrt(variance) / CELLS))


def _block(losses: Array, p: Array, p_inf: float, r_inf: float, *, delta: float) -> Block:
    """Masses at any increasing losses, each moved to the two losses of the grid around it (accounting/discrete.py)."""
    mean = float(p @ losses) / float(p.sum())
    variance = float(p @ (losses - mean) ** 2) / float(p.sum())
    widest = max(abs(float(losses[0])), abs(float(losses[-1])))
    if not widest <= FARTHEST:
        raise BeyondNumbers("losses beyond what a block can hold")
    exponent = max(_exponent(variance), math.ceil(math.log2(max(widest, 1e-60) / 2**18)))
    grid = 2.0**exponent
    cell = np.floor(losses / grid).astype(np.int64)
    first, size = int(cell[0]), int(cell[-1] - cell[0]) + 2
    # Of a mass at the loss l in the cell [a, a + g], P keeps the share e^g expm1(l - a) / expm1(g) e^(a - l) above.
    share = np.clip(np.expm1(losses - cell * grid) / math.expm1(grid) * np.exp(grid + cell * grid - losses), 0.0, 1.0)
    upper = p * share
    at = cell - first
    masses: Array = np.bincount(at, weights=p - upper, minlength=size).astype(np.float64)
    masses += np.bincount(at + 1, weights=upper, minlength=size)
    return Block(exponent, first, masses * (1 + 2.0**-40), p_inf, r_inf).cut(CUT * delta)


def of_atoms(step: AtomStep, *, delta: float) -> Block:
    """One query of a step known by its losses."""
    return _block(step.losses, step.p, step.p_inf, step.r_inf, delta=delta)


def of_pair(pair: Pair, *, delta: float) -> Block:
    """A composed pair. What its numbers may lack is added where it may be lacking, a cell farther out."""
    above, below = pair.slack(pair.losses), pair.reversed.slack(-pair.losses)
    p = pair.p.copy()
    p[1:] += np.maximum(above[:-1] - above[1:], 0.0)
    p[:-1] += np.maximum(below[1:] - below[:-1], 0.0) * np.exp(pair.losses[:-1])
    p_inf, r_inf = pair.p_inf + float(above[-1]), pair.r_inf + float(below[0])
    kept = np.flatnonzero(p > 0)
    low, high = int(kept[0]), int(kept[-1]) + 1
    return _block(pair.losses[low:high], p[low:high], p_inf, r_inf, delta=delta)


def of_gaussians(rate: float, noise: float, count: int, *, delta: float) -> Block:
    """`count` Poisson-sampled Gaussian queries."""
    whole, rest = divmod(count, STEPS)
    total = NOTHING
    for steps, times in ((STEPS, whole), (rest, 1)):
        if steps * times:
            one = _gaussian(GaussianStep(rate, noise, steps), delta)
            total = merge(total, power(one, times, delta=delta), delta=delta)
    return total


def _gaussian(step: GaussianStep, delta: float) -> Block:
    """A step by the accountant, whose grid keeps to a part of the step's own epsilon. Where rare losses make that large, the
    grid is too coarse for the sum of many such steps: it adds `count` g^2 / 6 to the variance, which must be a small part of it.
    """
    tolerance = TOLERANCE
    for _ in range(2):
        pair = dominating_pair((step,), delta=DEEPER * delta, tolerance=tolerance)
        if pair is None or len(pair.losses) < 2:
            raise BeyondNumbers("losses beyond what the accountant can hold")
        block = of_pair(pair, delta=delta)
        added = step.count * float(pair.losses[1] - pair.losses[0]) ** 2 / 6
        if added <= SPREAD * block.variance():
            break
        tolerance *= max(SPREAD * block.variance() / added, 1 / 16)
    return block


@dataclass(frozen=True)
class Leaf:
    """Queries of one kind. name: what they are; amount: how much of it. Equal leaves make equal blocks."""

    name: str
    amount: Hashable
    make: Callable[[], Block] = field(compare=False)

    @functools.cached_property
    def place(self) -> bytes:
        return hashlib.sha256(self.name.encode()).digest()


def gaussian_leaves(counts: Mapping[tuple[float, float], int], *, delta: float) -> list[Leaf]:
    """A leaf for every rate and noise of Gaussian queries. Where nothing is sampled, precisions add up: one leaf for all."""
    leaves = [
        Leaf(f"gaussian {rate!r} {noise!r}", count, partial(of_gaussians, rate, noise, count, delta=delta))
        for (rate, noise), count in counts.items()
        if rate < 1
    ]
    precision = math.fsum(count * (1 / noise) ** 2 for (rate, noise), count in counts.items() if rate == 1)
    if precision > 0:
        noise = 1 / math.sqrt(precision * (1 + 2.0**-40))
        leaves.append(Leaf("gaussian 1.0", noise, partial(of_gaussians, 1.0, noise, 1, delta=delta)))
    return leaves


def merged(leaves: Sequence[Leaf], *, delta: float) -> Block:
    """All leaves together; a function of their names, amounts and delta, in whichever order they come."""
    return _tree(tuple(sorted(leaves, key=lambda leaf: leaf.place)), 0, delta)


def _tree(leaves: tuple[Leaf, ...], depth: int, delta: float) -> Block:
    """The leaves whose places agree in their first `depth` bits."""
    if len(leaves) == 1:
        return leaves[0].make()
    return (_kept_branch if len(leaves) >= WORTH_KEEPING else _branch)(leaves, depth, delta)


def _branch(leaves: tuple[Leaf, ...], depth: int, delta: float) -> Block:
    split = sum(1 for leaf in leaves if not leaf.place[depth // 8] >> (7 - depth % 8) & 1)
    if split in (0, len(leaves)):
        return _tree(leaves, depth + 1, delta)
    sides = (_tree(leaves[part], depth + 1, delta) for part in (slice(0, split), slice(split, None)))
    return merge(*sides, delta=delta)


_kept_branch = functools.lru_cache(maxsize=KEPT)(_branch)
