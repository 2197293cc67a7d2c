"""`LocalSteps`: the local steps of many clients side by side, on lots that are given, by the rules' own updates. NOT PRIVATE.

The federated experiments of the paper have no noise and clip nothing, so a step needs the mean gradient of a lot and none of a
single record: that is all that is computed here, and why it is fast. It belongs to the papers alone. It takes arrays of public
images and not private data, knows neither noise nor budget, and makes no statement; whoever trains on private records has
`honestdp.federated`, which draws its own lots, and of which a test shows that it makes the same weights of the same lots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from honestdp.boundary.query import Constants, Release
from honestdp.gradients.layout import layout_of
from honestdp.optimizers import Rule, State
from honestdp.optimizers.rule import kind, stack_rules


@dataclass(frozen=True)
class Side:
    """Runs of one kind of rule, which lie side by side. rule: with numbers `[runs]`."""

    rule: Rule
    rows: slice


def sides_of(rules: Sequence[Rule], device: torch.device, dtype: torch.dtype = torch.float32) -> list[Side]:
    """Rules of one kind beside each other, as one rule."""
    found: list[Side] = []
    begin = 0
    for end in range(1, len(rules) + 1):
        if end == len(rules) or kind(rules[end]) != kind(rules[begin]):
            stacked = stack_rules(list(rules[begin:end]), dtype=dtype, device=device)
            found.append(Side(stacked, slice(begin, end)))
            begin = end
    return found


class LocalSteps:
    """Runs of one model, one rule each, on images that all of them share.

    images: `[N, ...]`, float or half precision; classes: `[N]`. lot: images of a step. steps: of all rounds, at most.
    """

    def __init__(
        self, model: nn.Module, rules: Sequence[Rule], images: Tensor, classes: Tensor, *, lot: int, steps: int
    ) -> None:
        place = images.device
        self._dtype = next(model.parameters()).dtype
        self.layout, self.sides, self.lot = layout_of(model), sides_of(rules, place, self._dtype), lot
        self._images, self._classes = images, classes
        self._model = model.to(place)
        self._gradient = vmap(grad(self._loss))
        self.weights = torch.zeros(len(rules), self.layout.width, dtype=self._dtype, device=place)
        none = torch.zeros(len(rules), dtype=self._dtype, device=place)
        self._constants = Constants(
            len(images), lot, steps, none, self.layout, torch.ones(steps, dtype=self._dtype, device=place)
        )
        self._states: list[State] = [side.rule.init(self.weights[side.rows], self._constants) for side in self.sides]

    def _loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(self._model, parameters, (x,)), y)

    def make(self, lots: Tensor) -> None:
        """Local steps from the weights as they are. lots: which images, `[steps, runs, lot]`."""
        for lot in lots:
            self.update(self.gradient(lot))

    @torch.no_grad()
    def gradient(self, lot: Tensor) -> Tensor:
        """The mean gradient of every run's lot, `[runs, d]`. lot: `[runs, lot]`."""
        rows = lot.long()
        views = self._gradient(self.layout.views(self.weights), self._images[rows].to(self._dtype), self._classes[rows])
        return torch.cat([views[name].flatten(1) for name in self.layout.names], dim=1)

    @torch.no_grad()
    def update(self, gradient: Tensor) -> None:
        """The weights after a gradient, by every run's rule."""
        after = []
        for number, side in enumerate(self.sides):
            release, before = Release(gradient[side.rows]), self.weights[side.rows]
            moved, self._states[number] = side.rule.update(before, self._states[number], release, self._constants)
            after.append(moved)
        self.weights = torch.cat(after)

    @property
    def step_sizes(self) -> Tensor:
        """Those that rules have found, `[runs]`; NaN for rules that seek none."""
        nothing = torch.full((len(self.weights),), torch.nan, device=self.weights.device)
        found = [state.get("eta", nothing[side.rows]) for side, state in zip(self.sides, self._states, strict=True)]
        return torch.cat(found)
