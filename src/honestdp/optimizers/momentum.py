"""DPMomentum (Mohapatra et al. 2022): v = m v + g~, theta -= lr v."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release
from honestdp.optimizers.rule import CLIPS, RATES, Clip, FixedClip, Number, State, column, scheduled

MOMENTA = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Momentum(FixedClip, name="momentum", grid={"lr": RATES, "momentum": MOMENTA, "clip": CLIPS}):
    """Heavy-ball momentum over released gradients: it averages the noise of about 1/(1 - momentum) steps. Take it in
    the place of SGD where many steps are made; it has three numbers to search, 280 candidates in the papers' grid.

    lr: the step size; a step with momentum m goes up to 1/(1 - m) times as far. momentum: from 0 (plain SGD) to below
    1. clip: the threshold of a record's gradient, or "auto". weight_decay: see `Rule`.

    >>> import honestdp
    >>> honestdp.optimizers.Momentum(lr=0.1, momentum=0.9, clip=1.0)
    Momentum(lr=0.1, momentum=0.9, clip=1.0)
    """

    lr: Number
    momentum: Number
    clip: Clip
    positive, fractions = ("lr",), ("momentum",)

    def memory(self, params: Tensor, constants: Constants) -> State:
        return {"velocity": torch.zeros_like(params)}

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        velocity = column(self.momentum) * state["velocity"] + release.gradient
        return params - scheduled(self.lr, state, constants) * velocity, {"velocity": velocity}
