"""Layer rules, and their registry: how a layer runs for a population, and what its per-example gradients are.

A rule is found by the exact class of a layer. A subclass may have another forward, so it does not inherit the rule. `Ruled` is a
layer of a model with its rule, and `Call` one use of it, or of a part of it, in a forward pass.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from honestdp.checks import InvalidArgument
from honestdp.gradients.forms import Dense, Form, Params

Gradients = Mapping["str | tuple[str, ...]", "Tensor | Form"]
"""Per-example gradients `[runs, lot, *shape]` by the layer's name of the parameter, or by those of several that share a form."""

Wanted = frozenset[str]
"""The layer's names of its trainable parameters; the others are frozen."""

Formula = Callable[[nn.Module, Params, Tensor, Tensor], Mapping[str, "Tensor | Form"]]


class Unruled(Exception):
    """This model or input is not covered by layer rules; the message says why, and `way` what would change it, for the log."""

    def __init__(self, why: str, way: str = "docs/gradients.md lists the layers that keep books") -> None:
        super().__init__(why)
        self.way = way


ONE_ROW = "examples first, or one row for all of them: a table of positions is looked up by torch.arange(n)[None]"


class Rule:
    """What the engine needs to know of a layer. Tensors carry `[runs, lot, ...]`, parameters `[runs, ...]`."""

    reads_output = False
    """Whether autograd keeps the output of `forward` for its backward, so that it must not be changed in place."""

    def covers(self, layer: nn.Module) -> bool:
        """Whether the rule holds for the settings of this layer."""
        return True

    def forward(self, layer: nn.Module, params: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's output `[runs, lot, ...]` and the tensor to keep for `gradients`."""
        raise NotImplementedError

    def gradients(self, layer: nn.Module, params: Params, saved: Tensor, grad: Tensor, wanted: Wanted) -> Gradients:
        """Per-example gradients of the `wanted` parameters, from what was kept and the output's gradient `[runs, lot, ...]`."""
        raise NotImplementedError

    def back(self, params: Params, grad: Tensor, *, runs: int) -> Tensor:
        """The gradient of the input, from that of the output; the first dimension of both is the examples of all runs.

        A layer whose rule has this can be part of a chain.
        """
        raise NotImplementedError


class Use(Protocol):
    """One call of a layer that applies several matrices, as its rule sees it. runs: how many; params: the layer's, `[runs, ...]`.

    wanted: the layer's names of its trainable parameters.
    """

    runs: int
    params: Params
    wanted: Wanted

    def note(self, out: Tensor, gradients: Callable[[Tensor], Gradients], *kept: Tensor) -> Tensor:
        """`out` `[runs * lot, ...]` as the rule has to go on with it. gradients: from its gradient `[runs, lot, ...]` those of
        parameters; kept: the model's tensors that this will read, which nobody may change until then.
        """


class Composite(Rule):
    """A layer that applies several matrices to one or more inputs: its forward is written out, and notes what each gave."""

    def run(self, layer: nn.Module, use: Use, *args: Any, **kwargs: Any) -> Any:
        """What the layer's own forward gives for these arguments, whose first dimension is the examples of all runs."""
        raise NotImplementedError


class FormulaRule(Rule):
    """A rule made of a formula for the gradients alone: the layer's own forward is mapped over the runs."""

    reads_output = True

    def __init__(self, formula: Formula) -> None:
        self.formula = formula

    def covers(self, layer: nn.Module) -> bool:
        """Hooks would be called once more, for the mapped forward, and with other shapes."""
        return not layer._forward_hooks and not layer._forward_pre_hooks

    def forward(self, layer: nn.Module, params: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        def run(values: dict[str, Tensor], inputs: Tensor) -> Tensor:
            output: Tensor = functional_call(layer, values, (inputs,))
            return output

        # Rules stand in for the layer's forward; the class's own is what has to run here.
        standing_in = layer.__dict__.pop("forward", None)
        try:
            return torch.func.vmap(run, randomness="different")(dict(params), x), x
        finally:
            if standing_in is not None:
                layer.__dict__["forward"] = standing_in

    def gradients(self, layer: nn.Module, params: Params, saved: Tensor, grad: Tensor, wanted: Wanted) -> Gradients:
        gradients = self.formula(layer, params, saved, grad)
        if missing := sorted(wanted - set(gradients)):
            raise Unruled(f"the rule for {type(layer).__name__} gives no gradient for {', '.join(missing)}")
        return {name: gradients[name] for name in wanted}


_RULES: dict[type[nn.Module], Rule] = {}

RuleOrFormula = TypeVar("RuleOrFormula", Formula, type[Rule])


def rule(*layers: type[nn.Module], replace: bool = False) -> Callable[[RuleOrFormula], RuleOrFormula]:
    """Register a rule for these layer classes: a function or a subclass of `Rule`.

    A function takes `(layer, params, x, grad)`: the layer, its parameters `[runs, ...]`, the input it saw
    `[runs, lot, ...]` and the gradient of its output `[runs, lot, ...]`. It returns the per-example gradients
    `[runs, lot, *shape]` by parameter name. Every use of a rule is checked against autograd before it is trusted.

    layers: classes of layers, by themselves: a subclass needs a rule of its own.
    replace: whether the rule may take the place of another.
    Returns a decorator that gives the function or class back as it is.
    Raises InvalidArgument for what is no class of layers, ValueError for a layer that has a rule already.

    >>> from honestdp import gradients
    >>> class Scale(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = torch.nn.Parameter(torch.ones(()))
    ...     def forward(self, x):
    ...         return self.factor * x
    >>> @gradients.rule(Scale)
    ... def scale(layer, params, x, grad):
    ...     return {"factor": (grad * x).flatten(2).sum(2)}
    """

    for layer in layers:
        if not (isinstance(layer, type) and issubclass(layer, nn.Module)):
            raise InvalidArgument("layers", layer, "classes of layers: @rule(nn.Linear), with the rule below it")

    def register(rule_or_formula: RuleOrFormula) -> RuleOrFormula:
        layer_rule = rule_or_formula() if isinstance(rule_or_formula, type) else FormulaRule(rule_or_formula)
        for layer in layers:
            if layer in _RULES and not replace:
                raise ValueError(f"{layer.__name__} has a rule already; pass replace=True to put another in its place")
            _RULES[layer] = layer_rule
        return rule_or_formula

    return register


def has_rule(kind: type) -> bool:
    """Whether some settings of a class of layers are covered."""
    return kind in _RULES


def find(layer: nn.Module) -> Rule | None:
    """The rule for this layer, if there is one that covers its settings."""
    layer_rule = _RULES.get(type(layer))
    # A layer whose forward was replaced computes something that the rule does not know of.
    if layer_rule is None or "forward" in layer.__dict__ or not layer_rule.covers(layer):
        return None
    return layer_rule


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
        layer, rule, wanted = self.layer, self.rule, frozenset(self.trainable)
        out, saved = rule.forward(layer, params, by_run)
        return out.flatten(0, 1), self.used(lambda grad: rule.gradients(layer, params, saved, grad, wanted), saved)

    def used(self, gradients: Callable[[Tensor], Gradients], *kept: Tensor) -> Call:
        """A use of the layer. gradients: from the gradient of the output `[runs, lot, ...]` those of parameters; kept: the
        model's tensors that this will read.
        """
        return Call(self, gradients, kept, tuple(value._version for value in kept))


class Call(NamedTuple):
    """One use of a layer in the forward pass, or one matrix that a `Composite` applied. versions: torch's counts of writes to
    the tensors that are kept, when they were read.
    """

    ruled: Ruled
    formula: Callable[[Tensor], Gradients]
    kept: tuple[Tensor, ...]
    versions: tuple[int, ...]

    def gradients(self, grad: Tensor, *, runs: int) -> Iterator[tuple[Names, Form]]:
        """The forms of this use with the parameters' names in the model, from `grad` `[runs * lot, ...]`."""
        if tuple(value._version for value in self.kept) != self.versions:
            raise Unruled(f"the input of {self.ruled.path} is changed in place after the layer has read it")
        yield from _named(self.formula(grad.reshape(runs, -1, *grad.shape[1:])), self.ruled.trainable)


def _named(answer: Gradients, full: Mapping[str, str]) -> Iterator[tuple[Names, Form]]:
    """Forms by the parameters' names in the model."""
    for names, gradients in answer.items():
        form = Dense(gradients) if isinstance(gradients, Tensor) else gradients
        yield tuple(full[name] for name in named(names)), form


def named(names: str | Names) -> Names:
    """The names of the parameters that share a form."""
    return (names,) if isinstance(names, str) else names
