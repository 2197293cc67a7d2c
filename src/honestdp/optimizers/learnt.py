"""The base of rules that learn their clip online (Galli et al. 2024): the second question, and how clip and step size move.

Besides the clipped gradient g~ a step releases q~, the sum of g_i/n_i over the records with n_i > C_t: the derivative of the
clipped sum with respect to C, of sensitivity 1. With noise nu_q sigma on q~ the mechanism leaves the gradient
nu_g = sigma (1 - nu_q^-2)^-1/2, so that both together cost one Gaussian of multiplier sigma for every nu_q above 1: the split
is made by the mechanism (`boundary.clipping.gradient_multiplier`), never here, and a rule that asks for less noise gets no
cheaper gradient. Everything that moves here moves by released vectors and public numbers alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from honestdp.boundary.query import LEAST_CLIP, Constants, Direction, Query, State
from honestdp.checks import InvalidArgument, non_negative
from honestdp.optimizers.rule import Number, Rule, check_clip, counter, per_run, scheduled

DIRECTION_NOISE = 7.124
"""nu_q over sigma (Galli et al. 2024): it leaves the gradient 1.01 sigma."""
LEAST_DIRECTION_NOISE = 1.0001
"""Leaves the gradient 71 sigma. What is nearer to 1 may be 1 in float32, and nothing would be left."""
SHARED = "both share the noise of the step, as one Gaussian, and are in its cost"
"""What a statement says of two answers of one lot."""
ASKED = (
    "beside its gradient every step releases the sum of the gradients of its lot that are longer than the clip, each scaled to "
    f"length 1; {SHARED}"
)
"""What a statement says of such a rule."""
LEAST_FACTOR = 0.1
"""By which a clip or a step size shrinks at most in one proportional update: 1 + rho cos is 0 or less where rho is large."""


class LearntClip(Rule):
    """A rule whose clip follows the derivative of the loss with respect to it. Its fields: `OSO` has them all."""

    lr: Number
    clip: Number
    rho_c: Number
    rho_r: Number
    nu_q: Number
    proportional: bool

    positive = ("lr", "rho_c", "nu_q")
    options = ("momentum", "nu_q", "proportional", "automatic")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clip(self.clip, auto=False)
        if not isinstance(self.rho_r, Tensor):
            non_negative(rho_r=self.rho_r)
        if not isinstance(self.nu_q, Tensor) and self.nu_q < LEAST_DIRECTION_NOISE:
            least = f"at least {LEAST_DIRECTION_NOISE}, times the run's noise"
            wanted = f"{least}: at 1 the second answer would take all the privacy of a step"
            raise InvalidArgument("nu_q", self.nu_q, wanted)

    def init(self, params: Tensor, constants: Constants) -> State:
        return {
            "step": counter(params),
            "clip": per_run(self.clip, params),
            "lr": per_run(self.lr, params),
            "direction": torch.zeros_like(params),
        }

    def query(self, state: State, constants: Constants) -> Query:
        return Query(clip=state["clip"], second=Direction(self.nu_q * constants.noise))

    def pace(self, state: State, constants: Constants) -> Tensor:
        return scheduled(state["lr"], state, constants)

    def moved(self, value: Tensor, pace: Number, gradient: Tensor, before: Tensor) -> Tensor:
        """A clip or a step size after a release: up where the gradient agrees with `before`, down where it does not.

        By exp(pace sign(g . b)), or proportionally by 1 + pace cos(g, b), their equations (20) and (19). Before the first
        step there is nothing to agree with, `before` is 0 and nothing moves.
        """
        agreement = (gradient * before).sum(dim=1)
        if not self.proportional:
            return value * torch.exp(pace * agreement.sign())
        sizes = gradient.norm(dim=1) * before.norm(dim=1)
        cosine = torch.where(sizes > 0, agreement / sizes, torch.zeros_like(sizes))
        return value * (1 + pace * cosine).clamp(min=LEAST_FACTOR)

    def moved_clip(self, state: State, gradient: Tensor, before: Tensor) -> Tensor:
        return self.moved(state["clip"], self.rho_c, gradient, before).clamp(min=LEAST_CLIP)
