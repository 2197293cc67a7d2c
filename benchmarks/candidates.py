"""Variants of Echo that are tried on the suite and are not in the package.

    python benchmarks/suite.py --seed A --rules echo still half still-more --define benchmarks/candidates.py

Echo has momentum 0.9 and a step that no release but the records' size has a say in. These differ in the momentum, in a constant
factor of the step, and in what inner products of the run's own releases do to it (docs/notes/tuning-free.md, "What a run's
releases tell"). All of it is a function of public numbers and of releases, so none of it costs privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release
from honestdp.optimizers.echo import Echo
from honestdp.optimizers.learnt import DIRECTION_NOISE
from honestdp.optimizers.outlook import _ahead
from honestdp.optimizers.rule import State, bias_correction


class Varied(Echo):
    """Echo with another momentum and another multiple of its step."""

    momentum: ClassVar[float] = 0.0
    factor: ClassVar[float] = 1.0

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        step = state["step"] + 1
        size = state["size"] if release.norm is None else state["size"] + release.norm
        eta = self._level(size, step, state, constants) * _ahead(state, constants)
        first, moved = release.gradient, release.gradient
        if self.momentum:
            first = self.momentum * state["first"] + (1 - self.momentum) * release.gradient
            moved = first / bias_correction(self.momentum, step, params)
        memory = {**state, "first": first, "size": size}
        del memory["step"]
        return params - eta * moved, memory

    def pace(self, state: State, constants: Constants) -> Tensor:
        return self._level(state["size"], state["step"], state, constants) * _ahead(state, constants)

    def _level(self, size: Tensor, count: Tensor, state: State, constants: Constants) -> Tensor:
        return self.factor * self._eta(size, count, state["allowed"], constants)


class Listening(Varied):
    """No momentum, and a step that inner products of the run's releases have a say in: most^share times Echo's.

    `turned` is the sum of the products of each release with the one before it: positive while gradients go on in one direction,
    negative where each takes back the one before. `squares` is that of the releases' squares less their noise. Both are taken
    for sums over a fifth of the run more, of nothing, so that the first releases say little.
    """

    most: ClassVar[float] = 2.0

    def memory(self, params: Tensor, constants: Constants) -> State:
        zero = torch.zeros_like(params[:, 0])
        return {**super().memory(params, constants), "turned": zero, "squares": zero.clone()}

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        gradient = release.gradient
        params, memory = super().move(params, state, release, constants)
        memory["turned"] = state["turned"] + (gradient * state["first"]).sum(1)
        memory["squares"] = (
            state["squares"] + gradient.square().sum(1) - constants.layout.total * self._variance(constants)
        )
        return params, memory

    def _level(self, size: Tensor, count: Tensor, state: State, constants: Constants) -> Tensor:
        share = self._share(count + constants.steps / 5, state, constants).to(size.dtype)
        grown = (math.log(self.most) * share).exp()
        return grown[:, None] * super()._level(size, count, state, constants)

    def _share(self, count: Tensor, state: State, constants: Constants) -> Tensor:
        """What of the products is in the squares, between -1 and 1, times the evidence z^2 / (1 + z^2), z in known deviations."""
        unsure = self._variance(constants) * (count * constants.layout.total).sqrt()
        evidence = (state["turned"] / unsure).square()
        share = state["turned"] / state["squares"].maximum(state["turned"].abs()).maximum(unsure)
        return share * evidence / (1 + evidence)

    def _variance(self, constants: Constants) -> Tensor:
        """Of the noise in one number of a release; what asking for the size takes of it is 2 %, and is in it."""
        asked = 1 / (1 - DIRECTION_NOISE**-2) if constants.layout.entering else 1.0
        return asked * (constants.noise / constants.lot).square()


@dataclass(frozen=True)
class Half(Varied, name="half"):
    """Momentum .5, Echo's step."""

    momentum = 0.5


@dataclass(frozen=True)
class Still(Varied, name="still"):
    """No momentum, Echo's step."""


@dataclass(frozen=True)
class StillMore(Varied, name="still-more"):
    """No momentum, 1.2 times the step."""

    factor = 1.2


@dataclass(frozen=True)
class StillMost(Varied, name="still-most"):
    """No momentum, 1.4 times the step."""

    factor = 1.4


@dataclass(frozen=True)
class Agreeing(Listening, name="agreeing"):
    """No momentum; up to twice the step where releases agree, down to half where they turn: as the slope in the step has it."""


@dataclass(frozen=True)
class Turning(Listening, name="turning"):
    """No momentum; up to twice the step where releases turn, and Echo's where they agree."""

    def _share(self, count: Tensor, state: State, constants: Constants) -> Tensor:
        return -super()._share(count, state, constants).clamp(max=0)


@dataclass(frozen=True)
class Visible(Listening, name="visible"):
    """No momentum; up to twice the step where gradients are seen in the noise: x^2 / (1 + x^2), and x is 1 where the square of a
    gradient is 1/200 of its noise's.
    """

    seen: ClassVar[float] = 1 / 200

    def _share(self, count: Tensor, state: State, constants: Constants) -> Tensor:
        noise = count * constants.layout.total * self._variance(constants)
        found = (state["squares"] / (self.seen * noise)).clamp(min=0).square()
        return found / (1 + found)


@dataclass(frozen=True)
class VisibleMild(Visible, name="visible-mild"):
    """The same, up to 1.4 times the step."""

    most = 1.4


@dataclass(frozen=True)
class VisibleSooner(Visible, name="visible-sooner"):
    """As `visible`, where the square of a gradient is 1/400 of its noise's."""

    seen = 1 / 400
