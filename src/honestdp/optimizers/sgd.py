"""DPSGD (Abadi et al. 2016): theta -= lr g~."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release
from honestdp.optimizers.rule import CLIPS, RATES, Clip, FixedClip, Number, State, scheduled


@dataclass(frozen=True)
class SGD(FixedClip, name="sgd", grid={"lr": RATES, "clip": CLIPS}):
    """Plain steps against the released gradient: the simplest rule, and the one whose numbers the papers know best.
    Take it where lr and clip are known or searched for; a good lr depends on both clip and noise, so search them
    together.

    lr: the step size. clip: the threshold C that a record's gradient is scaled down to, or "auto" for automatic
    clipping. weight_decay: see `Rule`.

    >>> import honestdp
    >>> honestdp.optimizers.SGD(lr=0.5, clip=1.0)
    SGD(lr=0.5, clip=1.0)
    """

    lr: Number
    clip: Clip
    positive = ("lr",)

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        return torch.addcmul(params, scheduled(self.lr, state, constants), release.gradient, value=-1), {}
