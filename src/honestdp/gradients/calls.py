"""A layer of the model and its rule, and one use of it in a forward pass."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from honestdp.gradients import rules
from honestdp.gradients.pieces import Piece
from honestdp.gradients.rules import Rule, Unruled

Names = tuple[str, ...]


@dataclass(frozen=True)
class Ruled:
    """Where a layer with trainable parameters is in the model, its rule, and its parameters."""

    path: str
    layer: weakref.ref[nn.Module]
    rule: Rule
    trainable: Mapping[str, str]
    """Own name of a trainable parameter -> its name in the model."""
    frozen: tuple[str, ...]

    def own(self, params: Mapping[str, Tensor], runs: int) -> dict[str, Tensor]:
        """The layer's parameters `[runs, ...]` by its own names for them."""
        own = {name: params[full] for name, full in self.trainable.items()}
        for name in self.frozen:
            value = getattr(self.layer(), name)
            own[name] = value.expand(runs, *value.shape)
        return own

    def call(self, own: Mapping[str, Tensor], x: Tensor, *, runs: int) -> tuple[Tensor, Call]:
        """What the layer makes of x `[runs * lot, ...]`, of the same first dimension."""
        layer = self.layer()
        assert layer is not None
        given = x.view(runs, -1, *x.shape[1:])
        if runs == 1:
            alone = self.rule.alone(layer, own, x)
            if alone is not None:
                return alone, Call(self, layer, own, given, given._version)
        out, kept = self.rule.forward(layer, own, given)
        return out.flatten(0, 1), Call(self, layer, own, kept, kept._version)


class Call(NamedTuple):
    """One use of a layer in the forward pass."""

    ruled: Ruled
    layer: nn.Module
    own: Mapping[str, Tensor]
    kept: Tensor
    version: int

    def gradients(self, grad: Tensor, *, runs: int) -> Iterator[tuple[Names, Piece]]:
        """The pieces of this layer with the parameters' names in the model, from `grad` `[runs * lot, ...]`."""
        if self.kept._version != self.version:
            raise Unruled(f"the input of {self.ruled.path} is changed in place after the layer has read it")
        grad = grad.view(runs, -1, *grad.shape[1:])
        names = self.ruled.trainable
        for own, found in self.ruled.rule.gradients(self.layer, self.own, self.kept, grad, frozenset(names)).items():
            yield tuple(names[name] for name in ((own,) if isinstance(own, str) else own)), rules.as_piece(found)
