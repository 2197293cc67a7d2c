"""ADADP as in the code that Mohapatra et al. ran for it (github.com/mshubhankar/ADADP, `MNIST_tests/adadp.py`).

It differs from Koskela & Honkela 2020, and so from `honestdp.optimizers.ADADP`, in four ways: the step size moves with
sqrt(tau / err) and not tau / err; a step whose err is above tau is taken back; err sums over the 10 copies of the weights that
their way of computing gradients keeps, so that it is sqrt(10) times the error of the weights; and the tolerance is a constant,
0.1 for logistic regression and 1 for the network, with a first step size of 0.001. Only these facts are theirs, the code is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release
from honestdp.optimizers.rule import Clip, FixedClip, Number, State, column, per_run

COPIES = 10


@dataclass(frozen=True)
class PublishedADADP(FixedClip):
    """lr: the first step size. tau: the tolerance. An iteration is two releases, as in ADADP."""

    clip: Clip
    lr: Number = 1e-3
    tau: Number = 1.0
    own_pace = True

    def memory(self, params: Tensor, constants: Constants) -> State:
        return {"eta": per_run(self.lr, params), "start": params.clone(), "full": params.clone()}

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        second = state["step"] % 2 == 1
        turn = second[:, None]
        eta = state["eta"]
        start = torch.where(turn, state["start"], params)
        half = params - column(eta / 2) * release.gradient
        full = torch.where(turn, state["full"], params - column(eta) * release.gradient)
        apart = ((full - half).square() / full.square().clamp(min=1)).sum(dim=1)
        error = (COPIES * apart).sqrt()
        kept = torch.where((error > self.tau)[:, None], start, half)
        eta = torch.where(second, eta * (self.tau / error).sqrt().clamp(0.9, 1.1), eta)
        return torch.where(turn, kept, half), {"eta": eta, "start": start, "full": full}
