"""DPAdam without the second moment (Mohapatra et al. 2022, Algorithm 2).

Under DP noise Adam's second moment converges to the noise's variance (sigma C / L)^2, which is public. The rule divides
by that from the first step and keeps the bias-corrected first moment alone: theta -= lr m^ / (sigma C / L + xi), xi =
1e-8.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release, State
from honestdp.logs import logger
from honestdp.optimizers.adam import XI
from honestdp.optimizers.rule import CLIPS, Clip, FixedClip, Number, bias_correction, column, scheduled

_log = logger(__name__)


@dataclass(frozen=True)
class AdamWOSM(FixedClip, name="adam-wosm", grid={"clip": CLIPS}):
    """Adam's first moment with the step size that Adam converges to under noise. Take it in the place of Adam, most of
    all in short runs, which Adam spends finding that step size; with clip="auto" nothing is left to tune.

    clip: the threshold of a record's gradient, or "auto". lr: the step size. beta1: how slowly the mean gradient is
    forgotten. weight_decay: see `Rule`. Without noise it is undefined.

    >>> import honestdp
    >>> honestdp.optimizers.AdamWOSM(clip="auto")
    AdamWOSM(clip='auto', lr=0.001, beta1=0.9)
    """

    clip: Clip
    lr: Number = 1e-3
    beta1: Number = 0.9
    positive, fractions = ("lr",), ("beta1",)

    def check(self, *, lot: float, noise: float) -> None:
        warn_without_noise("AdamWOSM", noise)

    def memory(self, params: Tensor, constants: Constants) -> State:
        return {"first": torch.zeros_like(params)}

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        beta1 = column(self.beta1)
        first = beta1 * state["first"] + (1 - beta1) * release.gradient
        step = state["step"] + 1
        clip = 1.0 if isinstance(self.clip, str) else self.clip
        spread = column(constants.noise * clip / constants.lot + XI)
        pace = scheduled(self.lr, state, constants) / (spread * bias_correction(self.beta1, step, params))
        return params - pace * first, {"first": first}


def warn_without_noise(rule: str, noise: float) -> None:
    if noise == 0:
        _log.warning(f"{rule} divides by the noise: at noise 0 its step size is lr / 1e-8; SGD or Adam suit better")
