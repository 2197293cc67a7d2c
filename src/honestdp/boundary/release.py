"""One step of a population: clip, sum, add noise, release. The mechanism of the privacy argument, as one function.

One step of a run (Abadi et al. 2016, Algorithm 1, with the divisor a constant): draw a Poisson lot of rate q = L/N;
with n_i the norm of record i's gradient g_i, weigh it by w_i so that |w_i g_i| <= C; release g~ = (sum_i w_i g_i + N(0,
(sigma C)^2 I)) / L. Adding or removing one record moves the sum by at most C, so each step is a Poisson-sampled
Gaussian of multiplier sigma, and that is what is accounted. The rules that make it so:
- L, N, sigma and q are declared constants. The realised size of a lot is used for nothing but to know which rows are
  padding.
- An empty lot is a step like any other: pure noise.
- Padding and records with a non-finite norm have weight 0, and weight 0 contributes exactly 0 whatever the gradient.
- The clip is read once, before the lot is touched; the rule cannot change it until the release is made.
- A second question about the same lot (`query`: OSO's direction, the quantile's count, the inputs' norm) takes part of
  the noise budget: with multiplier nu_x on the second answer, the gradient gets nu_g = (sigma^-2 - nu_x^-2)^-1/2. Two
  Gaussians on one lot with these multipliers are together one Gaussian of multiplier sigma, because their noise can be
  rotated into each other. The split is made here, never by a rule.
- Every run has lots and noise of its own (`mechanism` draws them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from honestdp.boundary.clipping import clipping_weights, gradient_multiplier, within_bounds
from honestdp.boundary.noise import NoiseSource
from honestdp.boundary.query import Constants, Query, Release
from honestdp.boundary.ranks import ALONE, Ranks
from honestdp.boundary.records import Examples
from honestdp.boundary.rounding import noisy
from honestdp.boundary.sampling import expected_width
from honestdp.gradients import PerExample, inputs
from honestdp.gradients.forms import SHORT
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.precision import products

if TYPE_CHECKING:
    from honestdp.boundary.vetted import Vetted

PIECE = 4096
"""Examples of a run that go through the model and into one sum together, at most."""
_MOST_MARGIN = 1 / 64
"""Of the clip, that rounding in float32 may take: enough for lots of 256."""

_USUAL = 5
"""Standard deviations that a captured lot has room for. A wider one makes eight steps run eagerly, ten times slower; at 4
deviations that befell one in a hundred of forty runs, and cost more than the room for a fifth does."""
_EXAMPLES_BYTES = 1 << 30
_KEPT_BYTES = {True: 160 << 20, False: 1 << 40}
"""Of a run on a GPU, or of a population elsewhere, that a part of a lot may keep until its gradients are summed."""
_BUSY = 2048
"""Records of all runs that a GPU is given at a time, at least."""


def at_a_time(width: int, runs: int, bytes_each: int, device: torch.device) -> int:
    """How many of a lot's `width` records of each run go through the model at a time, by public constants alone: all, or parts of
    nearly equal size where what is kept of them would fill the memory.

    On a GPU a part has enough records of all runs together to keep it busy.
    """
    room = _KEPT_BYTES[device.type == "cuda"] * (runs if device.type == "cuda" else 1)
    most = max(room // max(1, bytes_each), _BUSY if device.type == "cuda" else 1) // runs
    return -(-width // -(-width // max(1, most)))


@torch.no_grad()
def release(
    lot: Iterable[Examples],
    params: Tensor,
    query: Query,
    *,
    vetted: Vetted,
    constants: Constants,
    noise: NoiseSource,
    width: int = PIECE,
    at_a_time: int | None = None,
    ranks: Ranks = ALONE,
) -> Release:
    """One step of a population: the lot to what may leave. params: `[runs, d]`.

    lot: in as many pieces as it takes, of at most `width` examples of each run; that number is public.
    at_a_time: examples of a piece that go through the model together, all unless told; clipped one by one they add up to the
        same in any parts.
    ranks: over which the lot is spread; this is the part of it that is here, and what is released is of the whole.
    """
    query = within_bounds(query, constants.noise)
    terms = _terms(constants, width)
    share, dtype = (1 - _margin(params, terms)) / constants.lot, _summed_in(params, terms)
    gradient: Tensor | None = None
    other: Tensor | None = None
    second = query.second
    with vetted.untouched.lent(params) as lent:
        views = constants.layout.views(lent)
        for examples in _parts(lot, width, at_a_time or width, vetted.rows):
            with products("high" if params.is_cuda else "highest", params.device):
                found = vetted.gradients(
                    views,
                    examples.x,
                    examples.y,
                    finite_input=examples.finite,
                    input_norms=examples.norms,
                    shares=examples.shares,
                    present=examples.present,
                )
                weights = clipping_weights(found.norms, examples.present, query).mul_(share)
                gradient = _plus(gradient, _sum(found, weights, params, constants, dtype))
                if second is not None:
                    weights = second.terms(found.norms, examples, query.clip)
                    if second.weighs_gradients:
                        part = _sum(found, weights.mul_(share), params, constants, dtype)
                    else:
                        part = weights.double().sum(1, keepdim=True)  # of halves, or of logarithms on a grid: exact
                    other = _plus(other, part)
                del found  # what it keeps makes room for the next part
    deviation = gradient_multiplier(constants.noise, query) * query.clip
    answer = _noisy(gradient, deviation, params, constants, noise, ranks)
    if second is None:
        return Release(answer)
    # NaN where the split leaves the gradient nothing: neither answer is then released.
    spread = second.noise + 0 * deviation
    if second.weighs_gradients:
        return Release(answer, _noisy(other, spread, params, constants, noise, ranks))
    total = torch.zeros(len(params), 1, dtype=torch.float64, device=params.device) if other is None else other
    mean = noisy(total / constants.lot, spread / constants.lot, noise, dtype=params.dtype, ranks=ranks)
    return Release(answer, mean[:, 0] + second.centre)


def _parts(lot: Iterable[Examples], width: int, most: int, rows: int) -> Iterator[Examples]:
    """The pieces of a lot in parts of at most so many records of each run. rows: of every record."""
    for piece in lot:
        if any(leaf.shape[1] > width * rows for leaf in inputs.leaves(piece.x)):
            raise RuntimeError("a piece of a lot is wider than was declared")
        for first in range(0, piece.present.shape[1], most) if piece.present.shape[1] > most else ():
            some, each = slice(first, first + most), slice(first * rows, (first + most) * rows)
            yield Examples(
                inputs.rows(piece.x, (slice(None), each)),
                inputs.rows(piece.y, (slice(None), each)),
                piece.present[:, some],
                piece.finite,
                None if piece.norms is None else piece.norms[:, each],
                None if piece.shares is None else piece.shares[:, some],
            )
        if piece.present.shape[1] <= most:
            yield piece


def _margin(params: Tensor, terms: int) -> float:
    """The part of a record's weight that is held back, for what rounding may add to it in the sum.

    A sum of n numbers of at most one clip is off by n u of the sum of their sizes at most, n^2 u clips, in whatever order it
    is made (u half of eps: Higham 2002, section 4.2; tensor cores may cut where others round, which doubles it). One record
    more or less moves every later partial sum, so that two such errors count: n^2 eps clips, which data made for it do reach
    within a factor of four. In pieces of w it is n w eps. That much is held back where it is small; wider lots are summed in
    float64.

    Norms of up to 1024 numbers are summed in float32 and may come out too small by 512 eps. On a GPU products are taken in
    TensorFloat-32, which keeps 11 digits of each factor and may enlarge a record's part of the sum by (1 + 2^-11)^2 at most,
    while its norm was taken with all digits. The model may be computed with any precision: any function may be clipped.
    """
    norms = 512 * torch.finfo(params.dtype).eps
    rounding = (2 if params.is_cuda else 1) * terms * torch.finfo(_summed_in(params, terms)).eps
    return rounding + norms + (SHORT if params.is_cuda else 0.0)


def _terms(constants: Constants, width: int) -> int:
    """n w: the examples of a lot, at most but for one in 10^9 lots of a few records and fewer of many, times those of a piece."""
    rate = min(1.0, constants.lot / constants.records)
    return width * max(width, expected_width(records=constants.records, rate=rate, deviations=8))


def _summed_in(params: Tensor, terms: int) -> torch.dtype:
    """The precision in which lots are summed: the model's own while that costs little of the clip."""
    return params.dtype if terms * torch.finfo(params.dtype).eps <= _MOST_MARGIN else torch.float64


def _sum(found: PerExample, weights: Tensor, params: Tensor, constants: Constants, dtype: torch.dtype) -> Tensor:
    """The weighted sum over a piece of a lot, in the shape of `params`."""
    total = torch.zeros_like(params, dtype=dtype)
    found.add_weighted_sum(constants.layout.views(total), weights)
    return total


def _plus(total: Tensor | None, piece: Tensor) -> Tensor:
    return piece if total is None else total.double().add_(piece)


def _noisy(
    total: Tensor | None,
    deviation: Tensor,
    params: Tensor,
    constants: Constants,
    noise: NoiseSource,
    ranks: Ranks,
) -> Tensor:
    """total + deviation / L * N(0, I) in the shape and precision of `params`, and 0 in its gaps."""
    total = torch.zeros_like(params) if total is None else total
    answer = noisy(total, deviation / constants.lot, noise, dtype=params.dtype, ranks=ranks)
    for gap in constants.layout.gaps:
        answer[:, gap] = 0
    return answer


def width_of(x: Inputs, *, runs: int, records: int, lot: float, rows: int = 1) -> int:
    """How many records of each run go through the model at once, by public constants and the shape of x `[2, ...]` alone.

    Model and loss are tried at this width, and no piece of a lot is wider. rows: of every record, each an example.
    """
    bound = max(1, _EXAMPLES_BYTES // (runs * rows * inputs.bytes_each(x)))
    return min(bound, max(1, PIECE // rows), expected_width(records=records, rate=lot / records, deviations=_USUAL))
