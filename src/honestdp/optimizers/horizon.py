"""Horizon: nothing to tune; every constant follows from the public T, sigma, L and the model's shape.

Clip 1. m = beta m + (1 - beta) g~, beta = 0.9, bias-corrected as in Adam. theta_l -= eta h(t) s_l m^_l with
eta = 42 / sqrt(T (0.2 + d sigma^2 / L^2)), h(t) = sqrt(1 - t/T) for t = 0..T-1, and for a layer of d_l parameters and
fan-in f_l the scale s_l = f_l^-1/2 sqrt(d / sum_k d_k/f_k), which is 1 for a single layer.

The release has signal of norm below about sqrt(0.2) and noise of norm sqrt(d) sigma / L, so eta fixes the total travel
of the weights in units of what moves them, whatever the horizon T: hence the name. `average=True` replaces the decay by
a running average of the iterates: 28 for 42, h = 1, and avg += 9/(t+8) (theta_t - avg) for t = 1..T is what leaves.
Decay and averaging touch releases only and cost nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release
from honestdp.optimizers.rule import FixedClip, State, bias_correction, column

BETA = 0.9
TRAVEL = 42.0
TRAVEL_AVERAGED = 28.0
SIGNAL = 0.2


@dataclass(frozen=True)
class Horizon(FixedClip, name="horizon"):
    """Nothing to tune: clip, step size and its decay follow from the steps, the noise, the lot and the model's shape.
    Take it for long runs of small models, or where outputs are no logits: there it is the default. It wants a few thousand
    steps, sets its own pace and takes no schedule.

    average: leave with a running average of the weights in the place of a decaying step. weight_decay: see `Rule`.

    >>> import honestdp
    >>> honestdp.optimizers.Horizon()
    Horizon(average=False)
    """

    average: bool = False
    clip = 1.0
    own_pace = True

    def memory(self, params: Tensor, constants: Constants) -> State:
        memory = {"first": torch.zeros_like(params)}
        scale = constants.layout.columns(layer_scales(constants)).to(params)
        memory["pace"] = column(self._eta(constants)) * scale
        if self.average:
            memory["average"] = params.clone()
        return memory

    def _eta(self, constants: Constants) -> Tensor:
        travel = TRAVEL_AVERAGED if self.average else TRAVEL
        spread = constants.layout.total * (constants.noise / constants.lot).square()
        return travel / (max(1, constants.steps) * (SIGNAL + spread)).sqrt()

    def pace(self, state: State, constants: Constants) -> Tensor:
        return self._ahead(state, constants) * state["pace"]

    def _ahead(self, state: State, constants: Constants) -> Tensor:
        """h(t), a column."""
        decay = (1 - state["step"].double() / constants.steps).clamp(min=0).sqrt().to(state["pace"].dtype)
        return (torch.ones_like(decay) if self.average else decay)[:, None]

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        first = BETA * state["first"] + (1 - BETA) * release.gradient
        step = state["step"] + 1
        ahead = self._ahead(state, constants)
        params = params - ahead / bias_correction(BETA, step, params) * state["pace"] * first
        memory = {"first": first, "pace": state["pace"]}
        if self.average:
            share = column((9 / (step.double() + 8)).to(params.dtype))
            memory["average"] = state["average"] + share * (params - state["average"])
        return params, memory

    def weights(self, params: Tensor, state: State) -> Tensor:
        return state["average"] if self.average else params


def layer_scales(constants: Constants) -> list[float]:
    """s_l for each parameter tensor of the model."""
    layout = constants.layout
    weight = sum(size / fan for size, fan in zip(layout.layer_sizes, layout.fan_in, strict=True))
    scales = [math.sqrt(layout.total / weight / fan) for fan in layout.fan_in]
    return [scales[layer] for layer in layout.layers]
