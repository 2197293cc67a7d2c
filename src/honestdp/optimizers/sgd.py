"""DPSGD (Abadi et al. 2016): theta -= lr g~."""

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
    counter,
    fixed_query,
    scheduled,
)


@dataclass(frozen=True)
class SGD(Rule):
    """Plain steps against the released gradient."""

    lr: Number
    clip: Clip

    def __post_init__(self) -> None:
        check_numbers(positive={"lr": self.lr})
        check_clip(self.clip)

    def init(self, params: Tensor, constants: Constants) -> State:
        return {"step": counter(params)}

    def query(self, state: State, constants: Constants) -> Query:
        return fixed_query(self.clip, constants)

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        params = torch.addcmul(params, scheduled(self.lr, state, constants), release.gradient, value=-1)
        return params, {"step": state["step"] + 1}
