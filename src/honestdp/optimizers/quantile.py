"""Clip at a quantile of the gradient norms (Andrew et al. 2021; the FixedQuantile of Galli et al. 2024).

Besides the clipped gradient a step releases b~, the fraction of the lot with n_i <= C_t, measured as
(sum_i (1[n_i <= C_t] - 1/2) + N(0, s_b^2)) / L + 1/2. One record moves that sum by 1/2, so its multiplier is 2 s_b and
nu_g = (sigma^-2 - (2 s_b)^-2)^-1/2: both together cost one Gaussian of multiplier sigma. s_b = L/20.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp import checks
from honestdp.boundary.query import LEAST_CLIP, Constants, Query, Release, State, WithinClip
from honestdp.checks import InvalidArgument
from honestdp.optimizers.learnt import SHARED
from honestdp.optimizers.rule import (
    WIDE_RATES,
    Number,
    Rule,
    check_clip,
    counter,
    per_run,
    scheduled,
)

CLIP_PACE = 0.2
NOISE_SHARE = 20
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)  # Andrew et al. 2021


@dataclass(frozen=True)
class Quantile(Rule, name="quantile", grid={"lr": WIDE_RATES, "quantile": QUANTILES}):
    """SGD whose clip follows a quantile of the gradients' norms. Take it where the norms are unknown or change while it
    trains; the quantile is easier to guess than a clip. It asks a second question of each lot, how many norms are below
    the clip, and is defined where the noise is below lot/10.

    lr: the step size. quantile: the part of the records whose gradients are not clipped, 0.5 for the median. clip: to
    begin with; it moves by C *= exp(-0.2 (b~ - quantile)). clamped: b~, a fraction with noise on it, is held to [0, 1],
    so that no step moves the clip by more than exp(0.2); False takes it as it was released, with swings as large as its
    noise. weight_decay: see `Rule`.

    >>> import honestdp
    >>> honestdp.optimizers.Quantile(lr=0.1)
    Quantile(lr=0.1, quantile=0.5, clip=0.1)
    >>> honestdp.optimizers.Quantile(lr=0.1, clamped=False)
    Quantile(lr=0.1, quantile=0.5, clip=0.1, clamped=False)
    """

    asks = f"quantile: beside its gradient every step releases which part of its lot's gradients is within the clip; {SHARED}"

    lr: Number
    quantile: Number = 0.5
    clip: Number = 0.1
    clamped: bool = True
    positive, options = ("lr",), ("clamped",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.quantile, Tensor):
            checks.probability(quantile=self.quantile)
        check_clip(self.clip, auto=False)

    def check(self, *, lot: float, noise: float) -> None:
        if noise >= lot * 2 / NOISE_SHARE:
            wanted = f"below lot/10 = {lot / 10:g} for Quantile, whose count of the lot is released with noise lot/20"
            raise InvalidArgument("noise", noise, wanted)

    def init(self, params: Tensor, constants: Constants) -> State:
        return {"step": counter(params), "clip": per_run(self.clip, params)}

    def query(self, state: State, constants: Constants) -> Query:
        spread = torch.full_like(constants.noise, constants.lot / NOISE_SHARE)
        return Query(clip=state["clip"], second=WithinClip(spread))

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        assert release.second is not None
        params = params - scheduled(self.lr, state, constants) * release.gradient
        below = release.second.clamp(0, 1) if self.clamped else release.second
        clip = (state["clip"] * torch.exp(-CLIP_PACE * (below - self.quantile))).clamp(min=LEAST_CLIP)
        return params, {"step": state["step"] + 1, "clip": clip}
