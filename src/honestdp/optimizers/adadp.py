"""ADADP (Koskela & Honkela 2020, Algorithm 2): step sizes from the difference between one full and two half steps.

Release 1 at theta gives G1, release 2 at theta_half = theta - eta/2 G1 gives G2. With
theta_full = theta - eta G1 and theta_two = theta_half - eta/2 G2,
err = || |theta_full - theta_two| / max(1, |theta_full|) ||_2, and eta *= clamp(tau / err, 0.9, 1.1).
An iteration is two steps, each one release, so the rule is accounted like any other. An odd last step leaves
theta_half. An error that is not finite is larger than any tolerance: the step size shrinks by 0.9, and where steps are
rejected this one is.

From a declared step on (`switch`) the step size that was found is held and decays by 1 / (1 + 0.1 k) in the k-th epoch after
it, one release a step as in DPSGD (their equation 5.1): a function of releases and public numbers alone.

The published code of the authors computes something else than Algorithm 2 (`published`): it moves the step size by
sqrt(tau / err), takes steps back where err > tau, and sums the error over the ten copies of the weights that it keeps, so that
it is sqrt(10) times as large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal

import torch
from torch import Tensor

from honestdp import checks
from honestdp.boundary.query import Constants, Release
from honestdp.checks import InvalidArgument
from honestdp.optimizers.rule import CLIPS, Clip, FixedClip, Number, State, column, per_run

SLOWER, FASTER = 0.9, 1.1
COPIES = 10
"""Of the weights, in the published code."""


@dataclass(frozen=True)
class ADADP(FixedClip, name="adadp", grid={"clip": CLIPS}):
    """Finds its step size by itself: it compares one full step with two half steps and goes on faster where they agree.
    Take it where no step size is known and steps are plenty, for an iteration takes two. It sets its own pace and takes
    no schedule.

    clip: the threshold of a record's gradient, or "auto". lr: eta_0, the first step size. tau: the tolerance, by
    default sqrt(d / T) for T releases (T/2 iterations). accept: restore theta when err > tau. keep: "half" keeps
    theta_two, "full" keeps theta_full (the letter of Algorithm 2). switch: an even number of steps after which the step
    size is no longer sought: the one that was found decays, by 1 / (1 + decay * k) in the k-th epoch (N/L steps) after
    them. published: as the authors' published code computes it, whose numbers are lr=0.001 and tau=1. weight_decay: see
    `Rule`.

    >>> import honestdp
    >>> honestdp.optimizers.ADADP(clip=1.0).lr
    0.1
    """

    clip: Clip
    lr: Number = 0.1
    tau: Number | None = None
    accept: bool = False
    keep: Literal["half", "full"] = "half"
    switch: Number | None = None
    decay: Number = 0.1
    published: bool = False
    positive, options, own_pace = ("lr", "tau"), ("switch", "decay", "published"), True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep not in ("half", "full"):
            raise InvalidArgument("keep", self.keep, "'half' or 'full'")
        if self.published and self.keep == "full":
            raise InvalidArgument("keep", self.keep, "'half' with published=True: their code keeps the two half steps")
        if not isinstance(self.decay, Tensor):
            checks.non_negative(decay=self.decay)
        even = isinstance(self.switch, Real) and not isinstance(self.switch, bool) and self.switch % 2 == 0
        if not (self.switch is None or isinstance(self.switch, Tensor)) and not (even and self.switch >= 0):
            wanted = "an even number of steps, after which the step size is held and decays: an iteration takes two"
            raise InvalidArgument("switch", self.switch, wanted)

    def memory(self, params: Tensor, constants: Constants) -> State:
        return {"eta": per_run(self.lr, params), "start": params.clone(), "full": params.clone()}

    def _tolerance(self, constants: Constants) -> Number:
        if self.tau is not None:
            return self.tau
        iterations = max(1, constants.steps // 2)
        return math.sqrt(constants.layout.total / (2 * iterations))

    def pace(self, state: State, constants: Constants) -> Tensor:
        """eta for an iteration, whose two steps begin with the first: the two ways that are compared start at one place.

        After the switch every step has its own.
        """
        sought = torch.where(state["step"] % 2 == 0, state["eta"], torch.zeros_like(state["eta"]))
        if self.switch is None:
            return sought[:, None]
        return torch.where(state["step"] >= self.switch, self._decayed(state, constants), sought)[:, None]

    def _decayed(self, state: State, constants: Constants) -> Tensor:
        """The step size that was found, as it is after the switch."""
        assert self.switch is not None
        since = (state["step"] - self.switch).to(torch.float64)
        # A thousandth of a step is added, for epochs whose steps no float divides by.
        epoch = ((since + 1e-3) * (constants.lot / constants.records)).floor() + 1
        return state["eta"] / (1 + self.decay * epoch.to(state["eta"].dtype))

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        second = state["step"] % 2 == 1
        turn = second[:, None]
        eta, start = state["eta"], torch.where(turn, state["start"], params)
        half_step = params - column(eta / 2) * release.gradient
        full = torch.where(turn, state["full"], params - column(eta) * release.gradient)

        accepted, ratio = self._judged(start, half_step, full, constants)
        moved, sought = torch.where(turn, accepted, half_step), torch.where(second, eta * ratio, eta)
        if self.switch is not None:
            over = state["step"] >= self.switch
            alone = torch.addcmul(params, self._decayed(state, constants)[:, None], release.gradient, value=-1)
            moved, sought = torch.where(over[:, None], alone, moved), torch.where(over, eta, sought)
        return moved, {"eta": sought, "start": start, "full": full}

    def _judged(self, start: Tensor, two: Tensor, full: Tensor, constants: Constants) -> tuple[Tensor, Tensor]:
        """What is kept of an iteration, `[runs, d]`, and by how much the step size changes, `[runs]`."""
        err = ((full - two).abs() / full.abs().clamp(min=1)).norm(dim=1)
        tau = self._tolerance(constants)
        if self.published:
            err = err * math.sqrt(COPIES)
        ratio = (tau / err).sqrt() if self.published else tau / err
        ratio = torch.where(err.isfinite(), ratio.clamp(SLOWER, FASTER), torch.full_like(err, SLOWER))
        kept = two if self.keep == "half" else full
        if self.accept or self.published:
            kept = torch.where((err <= tau)[:, None], kept, start)  # NaN is not at most tau
        return kept, ratio
