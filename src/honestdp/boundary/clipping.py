"""Clipping as weights of records, computed from norms alone, and the split of the noise between two queries of one lot.

A weight w_i keeps |w_i g_i| within the sensitivity of the query, and is 0 for padding and for norms that are not finite.

A query that asks for two things shares one Gaussian of multiplier sigma between them: sums of sensitivities c_1, c_2 with noises
nu_1 c_1, nu_2 c_2 are together one Gaussian query of multiplier sigma when 1/nu_1^2 + 1/nu_2^2 = 1/sigma^2, for the
concatenation, each part divided by its own scale, has sensitivity sqrt(1/nu_1^2 + 1/nu_2^2) against unit noise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from honestdp.boundary.query import HALF_RANGE, LEAST_CLIP, Query
from honestdp.checks import InvalidArgument

AUTO_SLACK = 0.01
"""gamma of automatic clipping, w = 1/(n + gamma) (Bu et al. 2023)."""
_FINE = 2.0**16
"""Logarithms are rounded to multiples of its inverse, so that their sums are exact in float64, whatever their order."""
MOVES = {"direction": 1.0, "quantile": 0.5, "norm": HALF_RANGE}
"""By how much one record moves the sum of a second question."""


def within_bounds(query: Query, sigma: Tensor) -> Query:
    """What a rule asks, in sigma's precision, with a clip that norms and noise can be trusted at. sigma: `[runs]`.

    A rule is post-processing and may ask anything; what no release can be made of is refused in words.
    """
    if query.extra is not None and query.extra not in MOVES:
        raise InvalidArgument("extra", query.extra, f"one of {', '.join(MOVES)}, or None")
    numbers = {"clip": query.clip} | ({} if query.extra is None else {"extra_noise": query.extra_noise})
    for name, value in numbers.items():
        if not isinstance(value, Tensor) or value.shape != sigma.shape or value.is_complex():
            shape = tuple(value.shape) if isinstance(value, Tensor) else value
            raise InvalidArgument(name, shape, f"a tensor of shape {tuple(sigma.shape)}: one number for each run")
    clip = torch.ones_like(sigma) if query.automatic else query.clip.to(sigma).clamp(min=LEAST_CLIP)
    extra_noise = None if query.extra_noise is None or query.extra is None else query.extra_noise.to(sigma)
    return Query(clip, query.automatic, query.extra, extra_noise)


def _finite(norms: Tensor) -> Tensor:
    """Neither infinite nor NaN, in one operation: a norm is never negative."""
    return norms < math.inf


def clipping_weights(norms: Tensor, present: Tensor, query: Query) -> Tensor:
    """w_i, `[runs, width]`: |w_i g_i| <= C (or < 1 for automatic clipping), and 0 for padding and non-finite norms."""
    fixed = not query.automatic
    weights = torch.minimum(query.clip[:, None] / norms, present) if fixed else present / (norms + AUTO_SLACK)
    # An infinite norm has given 0 and one that is not a number not a number.
    return weights.nan_to_num_(nan=0)


def direction_weights(norms: Tensor, present: Tensor, query: Query) -> Tensor:
    """1[n > C]/n: the unit vectors of the clipped records."""
    usable = present.bool() & _finite(norms) & (norms > query.clip[:, None])
    return torch.where(usable, 1 / norms, 0)


def centred_count(norms: Tensor, present: Tensor, query: Query) -> Tensor:
    """sum_i (1[n_i <= C] - 1/2), `[runs]`: one record moves it by 1/2."""
    usable = present.bool() & _finite(norms)
    return torch.where(usable, (norms <= query.clip[:, None]).to(norms.dtype) - 0.5, 0).sum(dim=1)


def centred_logarithms(norms: Tensor, present: Tensor, shares: Tensor | None = None) -> Tensor:
    """sum_i (ln sqrt(1 + |x_i|^2) - HALF_RANGE), `[runs]`, float64, each term clipped: one record moves it by HALF_RANGE.

    norms: |x|, `[runs, width]`. With shares `[runs, width, rows]` they are those of people's rows, `[runs, width * rows]`, and a
    person's term is the mean over their rows. A norm that is not finite adds nothing.
    """
    usable, norms = _finite(norms), norms.double()
    terms = torch.log1p(torch.where(usable, norms, 0).clamp(max=1e100).square()) / 2 - HALF_RANGE
    terms = torch.where(usable, terms.clamp(-HALF_RANGE, HALF_RANGE), 0)
    if shares is not None:
        terms = (terms.view(shares.shape) * shares).sum(2)
    terms = (terms * _FINE).round() / _FINE
    return torch.where(present.bool(), terms.clamp(-HALF_RANGE, HALF_RANGE), 0).sum(dim=1)


def gradient_multiplier(sigma: Tensor, query: Query) -> Tensor:
    """nu_g = (sigma^-2 - nu^-2)^-1/2, `[runs]`: what is left for the gradient when a second answer has noise nu.

    A second answer with noise of sigma or less would leave nothing: it is refused, and so is noise below zero, whose answers no
    grid would round. A step that is being captured, or rehearsed for it, cannot look at its numbers; there nu_g is NaN, and so
    is all that is released (`release`).
    """
    if query.extra is None:
        return sigma
    assert query.extra_noise is not None
    spent = query.extra_noise / MOVES[query.extra]
    share = torch.where(sigma > 0, sigma / spent, 0)
    usable = (share >= 0) & (share < 1)
    if _may_look(sigma) and not bool(usable.all()):
        wanted = "noise above the run's own on the second question, which would take all the privacy of a step"
        raise InvalidArgument("extra_noise", query.extra_noise.tolist(), wanted)
    return torch.where(usable, sigma / (1 - share.square()).sqrt(), math.nan)


def _may_look(numbers: Tensor) -> bool:
    """Whether the host may wait for them: not while steps are captured, and not while that is rehearsed (`capture`)."""
    if not numbers.is_cuda:
        return True
    waiting_is_an_error = 2
    return not torch.cuda.is_current_stream_capturing() and torch.cuda.get_sync_debug_mode() != waiting_is_an_error
