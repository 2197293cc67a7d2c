"""OSO-DPSGD (Galli et al. 2024, Algorithm 1): the clip and the step size follow the signs of two inner products.

Besides the clipped gradient a step releases q~, the sum of g_i/n_i over the records with n_i > C_t (sensitivity 1).
With noise nu_q on q and nu_g = (sigma^-2 - nu_q^-2)^-1/2 on the gradient, both together cost one Gaussian of multiplier
sigma; nu_q = 7.124 sigma. The noise on q is nu_q: line 13 of the printed algorithm, which says nu_g, is a misprint, for
it would overspend.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import LEAST_CLIP, Constants, Query, Release, State
from honestdp.optimizers.rule import WIDE_RATES, Number, Rule, check_clip, check_numbers, counter, per_run, scheduled

DIRECTION_NOISE = 7.124
"""nu_q over sigma (Galli et al. 2024): it leaves the gradient 1.01 sigma."""


@dataclass(frozen=True)
class OSO(Rule, name="oso", grid={"lr": WIDE_RATES}):
    """Learns the clip and the step size while it trains, from the signs of two inner products of releases. Take it
    where neither is known and runs are long: both move by a quarter of a per cent a step. It asks a second question of
    each lot, paid for by a little more noise on the gradient.

    lr: the step size to begin with, the one number that is searched. clip: to begin with. rho_c, rho_r: how fast both
    move, C *= exp(rho_c sign(g~_t . q~_{t-1})), lr *= exp(rho_r sign(g~_t . g~_{t-1})); neither moves at the first
    step. weight_decay: see `Rule`.

    >>> import honestdp
    >>> honestdp.optimizers.OSO(lr=0.1)
    OSO(lr=0.1, clip=0.1, rho_c=0.0025, rho_r=0.0025)
    """

    lr: Number
    clip: Number = 0.1
    rho_c: Number = 2.5e-3
    rho_r: Number = 2.5e-3

    def __post_init__(self) -> None:
        check_numbers(positive={"lr": self.lr, "rho_c": self.rho_c, "rho_r": self.rho_r})
        check_clip(self.clip, auto=False)

    def init(self, params: Tensor, constants: Constants) -> State:
        nothing = torch.zeros_like(params)
        return {
            "step": counter(params),
            "clip": per_run(self.clip, params),
            "lr": per_run(self.lr, params),
            "gradient": nothing,
            "direction": nothing.clone(),
        }

    def query(self, state: State, constants: Constants) -> Query:
        return Query(clip=state["clip"], extra="direction", extra_noise=DIRECTION_NOISE * constants.noise)

    def pace(self, state: State, constants: Constants) -> Tensor:
        return scheduled(state["lr"], state, constants)

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        assert release.direction is not None
        # Before the first step both memories are zero, so both signs are 0 and nothing moves.
        towards = (release.gradient * state["direction"]).sum(dim=1).sign()
        agreement = (release.gradient * state["gradient"]).sum(dim=1).sign()
        params = params - scheduled(state["lr"], state, constants) * release.gradient
        state = {
            "step": state["step"] + 1,
            "clip": (state["clip"] * torch.exp(self.rho_c * towards)).clamp(min=LEAST_CLIP),
            "lr": state["lr"] * torch.exp(self.rho_r * agreement),
            "gradient": release.gradient,
            "direction": release.direction,
        }
        return params, state
