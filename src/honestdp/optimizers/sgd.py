"""DPSGD (Abadi et al. 2016): theta -= lr g~."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release
from honestdp.optimizers.rule import CLIPS, RATES, Clip, FixedClip, Number, State, check_numbers, scheduled


@dataclass(frozen=True)
class SGD(FixedClip, name="sgd", grid={"lr": RATES, "clip": CLIPS}):
    """Plain steps against the released gradient. lr: step size. clip: threshold C of a record's gradient, or "auto"."""

    lr: Number
    clip: Clip

    def __post_init__(self) -> None:
        check_numbers(positive={"lr": self.lr})
        super().__post_init__()

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        return torch.addcmul(params, scheduled(self.lr, state, constants), release.gradient, value=-1), {}
