"""Layer rules, and their registry: how a layer runs for a population, and what its per-example gradients are.

A rule is found by the exact class of a layer. A subclass may have another forward, so it does not inherit the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from honestdp.checks import InvalidArgument
from honestdp.gradients.forms import Form, Params

Gradients = Mapping["str | tuple[str, ...]", "Tensor | Form"]
"""Per-example gradients `[runs, lot, *shape]` by the layer's name of the parameter, or by those of several that share a form."""

Wanted = frozenset[str]
"""The layer's names of its trainable parameters; the others are frozen."""

Together = tuple[Tensor, Callable[[Tensor], Gradients], tuple[Tensor, ...]]

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

    def alone(self, layer: nn.Module, params: Params, x: Tensor) -> Tensor | None:
        """The output `[lot, ...]` of a single run for x `[lot, ...]`, where that is simpler; x is then what is saved."""
        return None

    def gradients(self, layer: nn.Module, params: Params, saved: Tensor, grad: Tensor, wanted: Wanted) -> Gradients:
        """Per-example gradients of the `wanted` parameters, from what was kept and the output's gradient `[runs, lot, ...]`."""
        raise NotImplementedError

    def together(self, layer: nn.Module, params: Params, x: Tensor, wanted: Wanted) -> Together | None:
        """Where the way back through the layer makes the gradients of its parameters too: the output for x `[runs * lot, ...]`,
        as an operation of autograd; from its gradient `[runs, lot, ...]` those of parameters; and what of the model's it reads.
        """
        return None

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
