"""DPAdam (Kingma & Ba 2015 over released gradients): both moments, both bias corrections, xi = 1e-8."""

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
    bias_correction,
    check_clip,
    check_numbers,
    column,
    counter,
    fixed_query,
    scheduled,
)

XI = 1e-8


@dataclass(frozen=True)
class Adam(Rule):
    """Adam; the published defaults need no tuning (Mohapatra et al. 2022, section 4.2)."""

    clip: Clip
    lr: Number = 1e-3
    beta1: Number = 0.9
    beta2: Number = 0.999

    def __post_init__(self) -> None:
        check_numbers(positive={"lr": self.lr}, fractions={"beta1": self.beta1, "beta2": self.beta2})
        check_clip(self.clip)

    def init(self, params: Tensor, constants: Constants) -> State:
        return {"step": counter(params), "first": torch.zeros_like(params), "second": torch.zeros_like(params)}

    def query(self, state: State, constants: Constants) -> Query:
        return fixed_query(self.clip, constants)

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        beta1, beta2 = column(self.beta1), column(self.beta2)
        first = beta1 * state["first"] + (1 - beta1) * release.gradient
        second = beta2 * state["second"] + (1 - beta2) * release.gradient.square()
        step = state["step"] + 1
        mean = first / bias_correction(self.beta1, step, params)
        spread = (second / bias_correction(self.beta2, step, params)).sqrt() + XI
        params = params - scheduled(self.lr, state, constants) * mean / spread
        return params, {"step": step, "first": first, "second": second}
