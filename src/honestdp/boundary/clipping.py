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

from honestdp.boundary.query import ANSWERED, LEAST_CLIP, Query
from honestdp.checks import InvalidArgument

AUTO_SLACK = 0.01
"""gamma of automatic clipping, w = 1/(n + gamma) (Bu et al. 2023)."""


def within_bounds(query: Query, sigma: Tensor) -> Query:
    """What a rule asks, in sigma's precision, with a clip that norms and noise can be trusted at. sigma: `[runs]`.

    A rule is post-processing and may ask anything; what no release can be made of is refused in words.
    """
    second = query.second
    if second is not None and type(second) not in ANSWERED:  # a subclass would read private norms
        wanted = f"one of {', '.join(one.__name__ for one in ANSWERED)} (honestdp.boundary.query), or None"
        raise InvalidArgument("second", type(second).__name__, wanted)
    numbers = {"clip": query.clip} | ({} if second is None else {"second.noise": second.noise})
    for name, value in numbers.items():
        if not isinstance(value, Tensor) or value.shape != sigma.shape or value.is_complex():
            shape = tuple(value.shape) if isinstance(value, Tensor) else value
            raise InvalidArgument(name, shape, f"a tensor of shape {tuple(sigma.shape)}: one number for each run")
    clip = torch.ones_like(sigma) if query.automatic else query.clip.to(sigma).clamp(min=LEAST_CLIP)
    return Query(clip, query.automatic, None if second is None else type(second)(second.noise.to(sigma)))


def clipping_weights(norms: Tensor, present: Tensor, query: Query) -> Tensor:
    """w_i, `[runs, width]`: |w_i g_i| <= C (or < 1 for automatic clipping), and 0 for padding and non-finite norms."""
    fixed = not query.automatic
    weights = torch.minimum(query.clip[:, None] / norms, present) if fixed else present / (norms + AUTO_SLACK)
    # An infinite norm has given 0 and one that is not a number not a number.
    return weights.nan_to_num_(nan=0)


def gradient_multiplier(sigma: Tensor, query: Query) -> Tensor:
    """nu_g = (sigma^-2 - nu^-2)^-1/2, `[runs]`: what is left for the gradient when a second answer has noise nu.

    A second answer with noise of sigma or less would leave nothing: it is refused, and so is noise below zero, whose answers no
    grid would round. A step that is being captured, or rehearsed for it, cannot look at its numbers; there nu_g is NaN, and so
    is all that is released (`release`).
    """
    if query.second is None:
        return sigma
    spent = query.second.noise / query.second.sensitivity
    share = torch.where(sigma > 0, sigma / spent, 0)
    usable = (share >= 0) & (share < 1)
    if _may_look(sigma) and not bool(usable.all()):
        wanted = "noise above the run's own, or the second answer would take all the privacy of a step"
        raise InvalidArgument("second.noise", query.second.noise.tolist(), wanted)
    return torch.where(usable, sigma / (1 - share.square()).sqrt(), math.nan)


def _may_look(numbers: Tensor) -> bool:
    """Whether the host may wait for them: not while steps are captured, and not while that is rehearsed (`capture`)."""
    if not numbers.is_cuda:
        return True
    waiting_is_an_error = 2
    return not torch.cuda.is_current_stream_capturing() and torch.cuda.get_sync_debug_mode() != waiting_is_an_error
