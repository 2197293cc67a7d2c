"""Outlook: nothing to tune; Horizon with step sizes that are set in function space.

It was an optimizer of the library until Echo: kept results name it, and Echo is ahead of it in every family of the suite
(seed A: +.04 beside the oracle, and Outlook -3.22). Importing this module makes the name known.

What hurts is not the noise in a layer's weights but the noise that it makes in the layer's outputs: a deviation of the
weights times n_l, the norm of what enters the layer (with the 1 of the bias). So every layer has a step of its own,

    eta_l = n^0.4 / (D n_l) / sqrt((sigma sqrt(T) / (1.5 L))^2 + 1/150^2)

with clip 1, momentum 0.9 with bias correction and the decay h(t) = sqrt(1 - t/T), as in Horizon. D counts the layers that are
matrices, whose noises add up; n is the norm of a record as it enters the model. n_l is that of the initial weights and, for
a layer behind another, its geometric mean with sqrt(fan-in), which it grows towards. Initial weights give n_l by their mean
squares, from n on. papers/docs/notes/tuning-free.md says where the constants come from, and where the rule fails.

n belongs to the data, and is released (`honestdp.optimizers.echo`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release
from honestdp.optimizers.echo import ASKED, GUESS, Sized, ahead, known, mixing
from honestdp.optimizers.rule import State, bias_correction

BETA = 0.9
TRAVEL = 1.5
FLOOR = 1 / 150
POWER = 0.4
_LEAST, _MOST = 0.1, 4.0
"""Of the factor by which a layer's initial weights change the mean square of what passes."""


@dataclass(frozen=True)
class Outlook(Sized, name="outlook"):
    """Nothing to tune: step sizes follow from the steps, the noise, the lot, the model's shape, and how large the records are,
    which every step releases beside the gradient, out of the same noise. Take it in the place of Horizon for wide and deep
    models, and for inputs that are sparse or not scaled. It sets its own pace and takes no schedule.

    weight_decay: see `Rule`.

    >>> Outlook()
    Outlook()
    """

    asks = f"outlook: {ASKED}"

    def memory(self, params: Tensor, constants: Constants) -> State:
        return {
            "first": torch.zeros_like(params),
            "size": torch.zeros_like(params[:, 0]),
            "through": _mean_squares(params, constants),
        }

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        first = BETA * state["first"] + (1 - BETA) * release.gradient
        step = state["step"] + 1
        size = state["size"] if release.second is None else state["size"] + release.second
        moved = first / bias_correction(BETA, step, params)
        paces = self._paces(size, step, state["through"], constants) * ahead(state, constants)
        for view, pace in zip(constants.layout.views(moved).values(), paces.unbind(1), strict=True):
            view.mul_(pace.view(-1, *[1] * (view.dim() - 1)))
        return params - moved, {"first": first, "size": size, "through": state["through"]}

    def pace(self, state: State, constants: Constants) -> Tensor:
        paces = self._paces(state["size"], state["step"], state["through"], constants) * ahead(state, constants)
        spread = torch.zeros_like(state["first"])
        for view, pace in zip(constants.layout.views(spread).values(), paces.unbind(1), strict=True):
            view.add_(pace.view(-1, *[1] * (view.dim() - 1)))
        return spread

    def _paces(self, size: Tensor, count: Tensor, through: Tensor, constants: Constants) -> Tensor:
        """eta_l of each parameter tensor, `[runs, tensors]`, after so many releases of the size that add up to `size`."""
        layout, noise = constants.layout, constants.noise
        log_norm = known(size, count, constants)
        norms = torch.stack(_entering(log_norm, through, constants), 1)
        spread = (noise * (math.sqrt(max(1, constants.steps)) / (TRAVEL * constants.lot))).square() + FLOOR**2
        depth = max(1, sum(mixing(constants.layout)))
        etas = ((POWER * log_norm).exp() / (depth * spread.sqrt()))[:, None] / norms
        return torch.stack([etas[:, layer] for layer in layout.layers], 1)


def _mean_squares(params: Tensor, constants: Constants) -> Tensor:
    """Of each layer's initial weights and of its biases, `[runs, layers, 2]`."""
    layout = constants.layout
    found = params.new_zeros(len(params), len(layout.fan_in), 2)
    for view, layer, shape in zip(layout.views(params).values(), layout.layers, layout.shapes, strict=True):
        kind = 0 if len(shape) > 1 else 1
        found[:, layer, kind] = torch.maximum(found[:, layer, kind], view.flatten(1).square().mean(1))
    return found


def _entering(log_norm: Tensor, through: Tensor, constants: Constants) -> list[Tensor]:
    """n_l of each layer, `[runs]`, of records of this norm at the initial weights. through: their mean squares."""
    layout, matrix = constants.layout, mixing(constants.layout)
    square = torch.expm1(2 * log_norm) / layout.entering if layout.entering else torch.full_like(log_norm, GUESS**2)
    norms: list[Tensor] = []
    for layer, fan_in in enumerate(layout.fan_in):
        norm = (1 + fan_in * square).sqrt()
        if norms and fan_in > 1:
            norm = (norm * math.sqrt(fan_in)).sqrt()
        norms.append(norm)
        weights, biases = through[:, layer].unbind(1)
        if not matrix[layer]:  # what is scaled was normalised
            square = torch.ones_like(square)
        elif fan_in == 1:  # a row that is looked up
            square = weights
        else:
            gain = torch.where(weights > 0, fan_in * weights, 1 / 3).clamp(_LEAST, _MOST)
            square = gain * square + biases
    return norms
