"""DPAdam (Kingma & Ba 2015 over released gradients): both moments, both bias corrections, xi = 1e-8."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release, State
from honestdp.optimizers.rule import CLIPS, Clip, FixedClip, Number, bias_correction, column, scheduled

XI = 1e-8


@dataclass(frozen=True)
class Adam(FixedClip, name="adam", grid={"clip": CLIPS}):
    """Adam over released gradients. Take it where only the clip is to be searched: the published defaults of the rest
    need no tuning (Mohapatra et al. 2022, section 4.2). With weight_decay it is AdamW.

    clip: the threshold of a record's gradient, or "auto". lr: the step size. beta1, beta2: how slowly the mean and the
    spread of the gradient are forgotten. weight_decay: see `Rule`.

    >>> import honestdp
    >>> honestdp.optimizers.Adam(clip=1.0, weight_decay=0.01)
    Adam(clip=1.0, lr=0.001, beta1=0.9, beta2=0.999, weight_decay=0.01)
    """

    clip: Clip
    lr: Number = 1e-3
    beta1: Number = 0.9
    beta2: Number = 0.999
    positive, fractions = ("lr",), ("beta1", "beta2")

    def memory(self, params: Tensor, constants: Constants) -> State:
        return {"first": torch.zeros_like(params), "second": torch.zeros_like(params)}

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        beta1, beta2 = column(self.beta1), column(self.beta2)
        first = beta1 * state["first"] + (1 - beta1) * release.gradient
        second = beta2 * state["second"] + (1 - beta2) * release.gradient.square()
        step = state["step"] + 1
        mean = first / bias_correction(self.beta1, step, params)
        spread = (second / bias_correction(self.beta2, step, params)).sqrt() + XI
        params = params - scheduled(self.lr, state, constants) * mean / spread
        return params, {"first": first, "second": second}
