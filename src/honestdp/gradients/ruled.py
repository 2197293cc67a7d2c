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
    reference: weakref.ref[nn.Module]
    rule: Rule
    trainable: Mapping[str, str]
    """Own name of a trainable parameter -> its name in the model."""
    frozen: tuple[str, ...]

    @property
    def layer(self) -> nn.Module:
        layer = self.reference()
        if layer is None:
            raise RuntimeError(f"the layer at {self.path!r} is no longer there: a changed model needs a new Prepared")
        return layer

    def own(self, params: Mapping[str, Tensor], runs: int) -> dict[str, Tensor]:
        """The layer's parameters `[runs, ...]` by its own names for them."""
        own = {name: params[full] for name, full in self.trainable.items()}
        for name in self.frozen:
            value = getattr(self.layer, name)
            own[name] = value.expand(runs, *value.shape)
        return own

    def call(self, own: Mapping[str, Tensor], x: Tensor, *, runs: int) -> tuple[Tensor, Call]:
        """What the layer makes of x `[runs * lot, ...]`, of the same first dimension."""
        given = x.view(runs, -1, *x.shape[1:])
        alone = self.rule.alone(self.layer, own, x) if runs == 1 else None
        if alone is not None:
            return alone, Call(self, own, given, given._version)
        out, kept = self.rule.forward(self.layer, own, given)
        return out.flatten(0, 1), Call(self, own, kept, kept._version)


class Call(NamedTuple):
    """One use of a layer in the forward pass."""

    ruled: Ruled
    own: Mapping[str, Tensor]
    kept: Tensor
    version: int

    def gradients(self, grad: Tensor, *, runs: int) -> Iterator[tuple[Names, Piece]]:
        """The pieces of this layer with the parameters' names in the model, from `grad` `[runs * lot, ...]`."""
        if self.kept._version != self.version:
            raise Unruled(f"the input of {self.ruled.path} is changed in place after the layer has read it")
        grad = grad.view(runs, -1, *grad.shape[1:])
        names = self.ruled.trainable
        answer = self.ruled.rule.gradients(self.ruled.layer, self.own, self.kept, grad, frozenset(names))
        for own, found in answer.items():
            yield tuple(names[name] for name in ((own,) if isinstance(own, str) else own)), rules.as_piece(found)
