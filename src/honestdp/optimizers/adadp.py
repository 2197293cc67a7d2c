"""ADADP (Koskela & Honkela 2020, Algorithm 2): step sizes from the difference between one full and two half steps.

Release 1 at theta gives G1, release 2 at theta_half = theta - eta/2 G1 gives G2. With
theta_full = theta - eta G1 and theta_two = theta_half - eta/2 G2,
err = || |theta_full - theta_two| / max(1, |theta_full|) ||_2, and eta *= clamp(tau / err, 0.9, 1.1).
An iteration is two steps, each one release, so the rule is accounted like any other. An odd last step leaves
theta_half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release
from honestdp.checks import InvalidArgument
from honestdp.optimizers.rule import CLIPS, Clip, FixedClip, Number, State, check_numbers, column, per_run


@dataclass(frozen=True)
class ADADP(FixedClip, name="adadp", grid={"clip": CLIPS}):
    """Finds its step size by itself: it compares one full step with two half steps and goes on faster where they agree.
    Take it where no step size is known and steps are plenty, for an iteration takes two. It sets its own pace and takes
    no schedule.

    clip: the threshold of a record's gradient, or "auto". lr: eta_0, the first step size. tau: the tolerance, by
    default sqrt(d / T) for T releases (T/2 iterations). accept: restore theta when err > tau. keep: "half" keeps
    theta_two, "full" keeps theta_full (the letter of Algorithm 2). weight_decay: see `Rule`.

    >>> import honestdp
    >>> honestdp.optimizers.ADADP(clip=1.0).lr
    0.1
    """

    clip: Clip
    lr: Number = 0.1
    tau: Number | None = None
    accept: bool = False
    keep: Literal["half", "full"] = "half"
    own_pace = True

    def __post_init__(self) -> None:
        check_numbers(positive={"lr": self.lr} | ({} if self.tau is None else {"tau": self.tau}))
        super().__post_init__()
        if self.keep not in ("half", "full"):
            raise InvalidArgument("keep", self.keep, "'half' or 'full'")

    def memory(self, params: Tensor, constants: Constants) -> State:
        return {"eta": per_run(self.lr, params), "start": params.clone(), "full": params.clone()}

    def _tolerance(self, constants: Constants) -> Number:
        if self.tau is not None:
            return self.tau
        iterations = max(1, constants.steps // 2)
        return math.sqrt(constants.layout.total / (2 * iterations))

    def pace(self, state: State, constants: Constants) -> Tensor:
        """eta for an iteration, whose two steps begin with the first: the two ways that are compared start at one place."""
        return torch.where(state["step"] % 2 == 0, state["eta"], torch.zeros_like(state["eta"]))[:, None]

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        second = state["step"] % 2 == 1
        turn = second[:, None]
        eta, start = state["eta"], torch.where(turn, state["start"], params)
        half_step = params - column(eta / 2) * release.gradient
        full = torch.where(turn, state["full"], params - column(eta) * release.gradient)

        err = ((full - half_step).abs() / full.abs().clamp(min=1)).norm(dim=1)
        tau = self._tolerance(constants)
        accepted = half_step if self.keep == "half" else full
        if self.accept:
            accepted = torch.where((err > tau)[:, None], start, accepted)
        eta = torch.where(second, eta * (tau / err).clamp(0.9, 1.1), eta)
        return torch.where(turn, accepted, half_step), {"eta": eta, "start": start, "full": full}
