"""Forward and backward of any model by autograd, with layer rules standing in for the layers' own forward.

The backward pass goes to the outputs of the layers and stops there: parameters have no part in it, since a gradient of a
parameter would be a sum over the lot, and what a rule needs is each example's gradient of the layer's output.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from honestdp.gradients import inputs
from honestdp.gradients.forms import Params
from honestdp.gradients.grouped import scaled, slopes, start_of
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.rules import ONE_ROW, Call, Composite, Gradients, Ruled, Unruled
from honestdp.losses import Loss, one_each, slope_of

_STANDING_IN = threading.RLock()
"""One forward pass at a time: while it lasts the model's layers have another `forward`, whichever thread calls them."""
_unsafe_view = torch.ops.aten._unsafe_view.default


class ByAutograd:
    """The model run once on x `[runs, lot, ...]`. output: of all runs * lot examples; calls: the uses of its layers, in order."""

    def __init__(self, model: nn.Module, layers: Sequence[Ruled], params: Params, x: Inputs) -> None:
        self.calls: list[Call] = []
        self._edges: list[GradientEdge] = []
        modules = [ruled.layer for ruled in layers]
        runs, lot = inputs.first(x).shape[:2]
        with _STANDING_IN, torch.enable_grad():
            try:
                for module, ruled in zip(modules, layers, strict=True):
                    module.__dict__["forward"] = self._stand_in(ruled, params, runs, lot)
                self.output: Any = inputs.call(model, inputs.flat_runs(x))
            finally:
                for module in modules:
                    module.__dict__.pop("forward", None)

    def _stand_in(self, ruled: Ruled, params: Params, runs: int, lot: int) -> Callable[..., Any]:
        """A forward that reads every run's parameters and notes the call."""
        layer_params, rule = ruled.params_of(params, runs), ruled.rule
        if isinstance(rule, Composite):
            use = _Noted(self, ruled, layer_params, runs, lot)
            return lambda *args, **kwargs: rule.run(ruled.layer, use, *args, **kwargs)

        def forward(*args: Tensor, **kwargs: Tensor) -> Tensor:
            if len(args) + len(kwargs) != 1:
                raise Unruled(f"{ruled.path} is called with more than its input")
            x = _rows(*args, *kwargs.values(), examples=runs * lot)
            if x is None:
                raise Unruled(f"the first dimension of the input of {ruled.path} is not the examples", ONE_ROW)
            out, call = ruled.call(layer_params, x, runs=runs)
            return self.noted(_tracked(out, reads=rule.reads_output), call)

        return forward

    def noted(self, out: Tensor, call: Call) -> Tensor:
        """`out`, of whose gradient `call` makes that of parameters."""
        self.calls.append(call)
        assert out.grad_fn is not None
        # The edge, not the tensor: a model may change the output in place, and the tensor is then another's.
        self._edges.append(GradientEdge(out.grad_fn, out.output_nr))
        return out

    def output_gradients(self, loss: Loss, labels: Inputs, shares: Tensor | None = None) -> Sequence[Tensor | None]:
        """The gradient of the summed losses for the output of every call; None where they do not depend on it.

        Of the sum, because an example's loss depends on its own outputs alone: row i is the gradient of loss i, times its share
        where there are shares.
        """
        slope = slope_of(loss, self.output)
        if slope is None:
            with torch.enable_grad():
                result = one_each(loss(self.output, labels), len(inputs.first(labels)))
            start = start_of(result, shares)
        else:
            result, start = self.output, scaled(slope(self.output.detach(), labels), shares)
        if not self.calls or not result.requires_grad:
            return [None] * len(self.calls)
        return slopes(result, self._edges, start)


class _Noted:
    """The `Use` of a composite layer in a forward pass."""

    def __init__(self, forward: ByAutograd, ruled: Ruled, params: Params, runs: int, lot: int) -> None:
        self._forward, self._ruled, self._lot = forward, ruled, lot
        self.params, self.runs, self.wanted = params, runs, frozenset(ruled.trainable)

    def note(self, out: Tensor, gradients: Callable[[Tensor], Gradients], *kept: Tensor) -> Tensor:
        if len(out) != self.runs * self._lot:
            raise Unruled(f"the first dimension of the input of {self._ruled.path} is not the examples", ONE_ROW)
        return self._forward.noted(_tracked(out, reads=False), self._ruled.used(gradients, *kept))


def _rows(x: Tensor, *, examples: int) -> Tensor | None:
    """x with a row an example. What has one row for all, such as the numbers of the places in a text, is the same for each."""
    if x.dim() == 0 or len(x) == examples:
        return None if x.dim() == 0 else x
    return x.expand(examples, *x.shape[1:]) if len(x) == 1 and not x.requires_grad else None


def _tracked(out: Tensor, *, reads: bool) -> Tensor:
    """A layer's output as a tensor of the backward pass that a model may change in place: neither a leaf nor a view."""
    if reads:
        out = out.clone()
    # Parameters have no part in the backward pass, so it is at the outputs of the first layers that it ends.
    leaf = not out.requires_grad
    return _unsafe_view(out.requires_grad_(), out.shape) if leaf or out._is_view() else out
