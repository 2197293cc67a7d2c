"""OSO-DPSGD (Galli et al. 2024, Algorithm 1): the clip and the step size follow the signs of two inner products.

The second question and its price are in `learnt`. The noise on q is nu_q: line 13 of the printed algorithm, which says nu_g,
is a misprint, for it would overspend.

With momentum, v = m v + g~ and theta -= lr v. The derivative of the loss with respect to C gets a factor that depends on how
momentum is written, 1 as it is here, so the clip moves as without; that with respect to the step size is g~_t . v_{t-1}.

With automatic clipping (ours) a record's gradient is scaled by C / (n + 0.01). The derivative of that sum with respect to C is
the sum itself over C: q~ = g~ / C is known from the gradient's release, no second question is asked, and the gradient has noise
sigma. Clip and step size then are one number, their product.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Query, Release, State
from honestdp.optimizers.learnt import ASKED, DIRECTION_NOISE, LearntClip
from honestdp.optimizers.rule import WIDE_RATES, Number, column, scheduled


@dataclass(frozen=True)
class OSO(LearntClip, name="oso", grid={"lr": WIDE_RATES}):
    """Learns the clip and the step size while it trains, from the signs of two inner products of releases. Take it
    where neither is known and runs are long: both move by a quarter of a per cent a step. It asks a second question of
    each lot, paid for by a little more noise on the gradient.

    lr: the step size to begin with, the one number that is searched. clip: to begin with. rho_c, rho_r: how fast both
    move, C *= exp(rho_c sign(g~_t . q~_{t-1})), lr *= exp(rho_r sign(g~_t . g~_{t-1})); neither moves at the first
    step, and rho_r=0 keeps the step size. momentum: v = momentum v + g~ in the place of g~. nu_q: the noise of the
    second answer, times the run's; above 1, and the less it has the more has the gradient. proportional: both move by
    1 + rho times the cosine in the place of the sign. automatic: automatic clipping scaled by the clip, and no second
    question. weight_decay: see `Rule`.

    >>> import honestdp
    >>> honestdp.optimizers.OSO(lr=0.1)
    OSO(lr=0.1, clip=0.1, rho_c=0.0025, rho_r=0.0025)
    >>> honestdp.optimizers.OSO(lr=0.1, rho_r=0.0, momentum=0.9, proportional=True)
    OSO(lr=0.1, clip=0.1, rho_c=0.0025, rho_r=0.0, momentum=0.9, proportional=True)
    >>> honestdp.optimizers.OSO(lr=1.5, automatic=True).numbers
    {'lr': 1.5, 'clip': 0.1, 'rho_c': 0.0025, 'rho_r': 0.0025, 'automatic': True}
    """

    asks = f"oso: {ASKED}; with automatic clipping it asks nothing"

    lr: Number
    clip: Number = 0.1
    rho_c: Number = 2.5e-3
    rho_r: Number = 2.5e-3
    momentum: Number = 0.0
    nu_q: Number = DIRECTION_NOISE
    proportional: bool = False
    automatic: bool = False
    fractions = ("momentum",)

    def query(self, state: State, constants: Constants) -> Query:
        if self.automatic:
            return Query(clip=torch.ones_like(constants.noise), automatic=True)
        return super().query(state, constants)

    def init(self, params: Tensor, constants: Constants) -> State:
        return super().init(params, constants) | {"gradient": torch.zeros_like(params)}

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        gradient, direction = release.gradient, release.second
        if self.automatic:
            gradient, direction = column(state["clip"]) * release.gradient, release.gradient
        assert direction is not None
        velocity = column(self.momentum) * state["gradient"] + gradient
        params = params - scheduled(state["lr"], state, constants) * velocity
        state = {
            "step": state["step"] + 1,
            "clip": self.moved_clip(state, gradient, state["direction"]),
            "lr": self.moved(state["lr"], self.rho_r, gradient, state["gradient"]),
            "gradient": velocity,
            "direction": direction,
        }
        return params, state
