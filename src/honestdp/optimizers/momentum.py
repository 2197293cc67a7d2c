"""DPMomentum (Mohapatra et al. 2022): v = m v + g~, theta -= lr v."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Query, Release
from honestdp.optimizers.rule import (
    Clip,
    Number,
    Rule,
    State,
    check_clip,
    check_numbers,
    column,
    counter,
    fixed_query,
    scheduled,
)


@dataclass(frozen=True)
class Momentum(Rule):
    """Heavy-ball momentum over released gradients."""

    lr: Number
    momentum: Number
    clip: Clip

    def __post_init__(self) -> None:
        check_numbers(positive={"lr": self.lr}, fractions={"momentum": self.momentum})
        check_clip(self.clip)

    def init(self, params: Tensor, constants: Constants) -> State:
        return {"step": counter(params), "velocity": torch.zeros_like(params)}

    def query(self, state: State, constants: Constants) -> Query:
        return fixed_query(self.clip, constants)

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        velocity = column(self.momentum) * state["velocity"] + release.gradient
        params = params - scheduled(self.lr, state, constants) * velocity
        return params, {"step": state["step"] + 1, "velocity": velocity}
