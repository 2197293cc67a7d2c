"""A layer of a model with its rule (`Ruled`), and one use of it in a forward pass (`Call`), or of a part of it (`Part`)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from honestdp.gradients.forms import Dense, Form, Params
from honestdp.gradients.rules import Gradients, Rule, Unruled

Names = tuple[str, ...]


@dataclass(frozen=True)
class Ruled:
    """Where a layer with trainable parameters is in the model, its rule, and its parameters."""

    path: str
    reference: weakref.ref[nn.Module]
    """Weak, because what is known of a model is kept for as long as the model lives, and must not make it live longer."""
    rule: Rule
    trainable: Mapping[str, str]
    """The layer's name of a trainable parameter -> its name in the model."""
    frozen: tuple[str, ...]

    @property
    def layer(self) -> nn.Module:
        layer = self.reference()
        if layer is None:
            raise RuntimeError(f"the layer at {self.path!r} is no longer there: a changed model needs a new Prepared")
        return layer

    def params_of(self, params: Params, runs: int) -> dict[str, Tensor]:
        """The layer's parameters `[runs, ...]` by the layer's names, from those of the model. Frozen ones are shared by all."""
        layer_params = {name: params[full] for name, full in self.trainable.items()}
        for name in self.frozen:
            value = getattr(self.layer, name)
            layer_params[name] = value.expand(runs, *value.shape)
        return layer_params

    def call(self, params: Params, x: Tensor, *, runs: int) -> tuple[Tensor, Call]:
        """What the layer makes of x `[runs * lot, ...]`, of the same first dimension."""
        by_run = x.view(runs, -1, *x.shape[1:])
        alone = self.rule.alone(self.layer, params, x) if runs == 1 else None
        if alone is not None:
            return alone, Call(self, params, by_run, by_run._version)
        out, saved = self.rule.forward(self.layer, params, by_run)
        return out.flatten(0, 1), Call(self, params, saved, saved._version)

    def together(self, params: Params, x: Tensor, *, runs: int) -> tuple[Tensor, Part] | None:
        """The same where the rule makes the gradients of its parameters on the way back through the layer (`Rule.together`)."""
        made = self.rule.together(self.layer, params, x, frozenset(self.trainable))
        if made is None:
            return None
        out, formula, kept = made
        return out, Part(self, formula, kept, tuple(value._version for value in kept))


class Call(NamedTuple):
    """One use of a layer in the forward pass. saved: what its rule asked to keep; version: torch's count of writes to it then."""

    ruled: Ruled
    params: Params
    saved: Tensor
    version: int

    def gradients(self, grad: Tensor, *, runs: int) -> Iterator[tuple[Names, Form]]:
        """The forms of this layer with the parameters' names in the model, from `grad` `[runs * lot, ...]`."""
        if self.saved._version != self.version:
            raise Unruled(f"the input of {self.ruled.path} is changed in place after the layer has read it")
        grad = grad.view(runs, -1, *grad.shape[1:])
        wanted = frozenset(self.ruled.trainable)
        answer = self.ruled.rule.gradients(self.ruled.layer, self.params, self.saved, grad, wanted)
        yield from _named(answer, self.ruled.trainable)


class Part(NamedTuple):
    """One thing that a `Composite` noted: from the gradient of its output, `formula` gives those of some of the parameters."""

    ruled: Ruled
    formula: Callable[[Tensor], Gradients]
    kept: tuple[Tensor, ...]
    versions: tuple[int, ...]

    def gradients(self, grad: Tensor, *, runs: int) -> Iterator[tuple[Names, Form]]:
        if tuple(value._version for value in self.kept) != self.versions:
            raise Unruled(f"the input of {self.ruled.path} is changed in place after the layer has read it")
        yield from _named(self.formula(grad.reshape(runs, -1, *grad.shape[1:])), self.ruled.trainable)


def _named(answer: Gradients, full: Mapping[str, str]) -> Iterator[tuple[Names, Form]]:
    """Forms by the parameters' names in the model."""
    for names, gradients in answer.items():
        form = Dense(gradients) if isinstance(gradients, Tensor) else gradients
        yield tuple(full[name] for name in ([names] if isinstance(names, str) else names)), form
