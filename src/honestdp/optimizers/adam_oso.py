"""OSO's clip with AdamWOSM's step (ours): the clip is learnt as in Galli et al. 2024, the step is that of Mohapatra et al. 2022.

Every release is measured in units of its own noise, u_t = g~_t / (nu_g C_t / L + xi), and theta -= lr m^ with m^ the
bias-corrected mean of u: AdamWOSM with the clip that was in force, and AdamWOSM itself where the clip does not move and nu_q is
large. The step size moves by the sign of g~_t . m_{t-1}, the derivative of the loss with respect to it.

Such a step does not grow with the clip, so that a clip that is learnt says which records are scaled down and no longer how far
a step goes. The derivative of u itself with respect to C, (q~ - g~/C) / (nu_g C / L), was tried in the place of q~: it mostly
shrinks the clip, and was no better.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release, State
from honestdp.optimizers.adam import XI
from honestdp.optimizers.adam_wosm import warn_without_noise
from honestdp.optimizers.learnt import ASKED, DIRECTION_NOISE, LearntClip
from honestdp.optimizers.rule import Number, bias_correction, column, scheduled


@dataclass(frozen=True)
class AdamOSO(LearntClip, name="adam-oso"):
    """AdamWOSM whose clip and step size are learnt while it trains, as in OSO: nothing is left that has to be searched.
    Take it in the place of AdamWOSM where no clip is known and runs are long enough to learn one.

    lr: the step size to begin with, in units of the noise. clip: to begin with. beta1: how slowly the mean gradient is
    forgotten. rho_c, rho_r, nu_q, proportional: as in `OSO`; rho_r=0 keeps AdamWOSM's step size. weight_decay: see
    `Rule`. Without noise it is undefined.

    >>> import honestdp
    >>> honestdp.optimizers.AdamOSO()
    AdamOSO(lr=0.001, clip=0.1, beta1=0.9, rho_c=0.0025, rho_r=0.0025)
    """

    asks = f"adam-oso: {ASKED}"

    lr: Number = 1e-3
    clip: Number = 0.1
    beta1: Number = 0.9
    rho_c: Number = 2.5e-3
    rho_r: Number = 2.5e-3
    nu_q: Number = DIRECTION_NOISE
    proportional: bool = False
    fractions = ("beta1",)

    def check(self, *, lot: float, noise: float) -> None:
        warn_without_noise(type(self).__name__, noise)

    def init(self, params: Tensor, constants: Constants) -> State:
        return super().init(params, constants) | {"first": torch.zeros_like(params)}

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        assert release.second is not None
        beta1 = column(self.beta1)
        spread = column(constants.noise * (1 - self.nu_q**-2) ** -0.5 * state["clip"] / constants.lot + XI)
        first = beta1 * state["first"] + (1 - beta1) * release.gradient / spread
        ahead = first / bias_correction(self.beta1, state["step"] + 1, params)
        params = params - scheduled(state["lr"], state, constants) * ahead
        state = {
            "step": state["step"] + 1,
            "clip": self.moved_clip(state, release.gradient, state["direction"]),
            "lr": self.moved(state["lr"], self.rho_r, release.gradient, state["first"]),
            "direction": release.second,
            "first": first,
        }
        return params, state
