"""Forward and backward of a chain of layers by formula, without autograd.

A chain is an nn.Sequential (within others, perhaps) of layers whose rule hands a gradient back to the layer's input, and of
a few functions without parameters. Where a small model's operations take microseconds, as on a CPU, making and following the
graph of autograd costs as much as the model itself. Any other model goes by autograd (by_autograd.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from honestdp.gradients.forms import Params
from honestdp.gradients.ruled import Call, Ruled
from honestdp.gradients.rules import Rule
from honestdp.gradients.shares import scaled, start_of
from honestdp.losses import Loss, one_each, slope_of


class Function(NamedTuple):
    """A layer without parameters. back: from the gradient of the output, the input and the output, that of the input."""

    forward: Callable[[Tensor], Tensor]
    back: Callable[[Tensor, Tensor, Tensor], Tensor]


_aten = torch.ops.aten
_relu_back = _aten.threshold_backward.default
_sigmoid_back = _aten.sigmoid_backward.default
_tanh_back = _aten.tanh_backward.default
_FUNCTIONS: dict[type[nn.Module], Function] = {
    nn.Identity: Function(lambda x: x, lambda grad, x, out: grad),
    nn.ReLU: Function(torch.relu, lambda grad, x, out: _relu_back(grad, out, 0)),
    nn.Sigmoid: Function(torch.sigmoid, lambda grad, x, out: _sigmoid_back(grad, out)),
    nn.Tanh: Function(torch.tanh, lambda grad, x, out: _tanh_back(grad, out)),
}
_FLATTEN = Function(lambda x: x.flatten(1), lambda grad, x, out: grad.reshape(x.shape))

Link = Ruled | Function


def links(model: nn.Module, layers: Sequence[Ruled]) -> tuple[Link, ...] | None:
    """The model as a chain, if it is one and nobody watches its layers by hooks."""
    ruled = {id(layer.layer): layer for layer in layers}
    chain: list[Link] = []
    for module in _in_order(model):
        link = ruled.get(id(module)) or _function(module)
        if link is None or hooked(module) or (isinstance(link, Ruled) and type(link.rule).back is Rule.back):
            return None
        chain.append(link)
    return tuple(chain)


def _in_order(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential and not hooked(module):
        for part in module:
            yield from _in_order(part)
    else:
        yield module


def _function(module: nn.Module) -> Function | None:
    # By exact class, as rules are: a subclass may compute something else.
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return _FLATTEN
    return _FUNCTIONS.get(type(module))


def hooked(module: nn.Module) -> bool:
    """Whether somebody watches or changes what the module does, beside its own forward."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    everywhere = _has_any_global_hook()  # type: ignore[no-untyped-call]
    return any(hooks) or bool(everywhere) or "forward" in module.__dict__


class ByFormula:
    """The chain run once on x `[runs, lot, ...]`. output: `[runs * lot, ...]`; calls: the uses of its layers, in order."""

    def __init__(self, chain: Sequence[Link], params: Params, x: Tensor) -> None:
        self._runs = x.shape[0]
        self._steps: list[tuple[Function | Call, Tensor, Tensor]] = []
        value = x.flatten(0, 1)
        for link in chain:
            step: Function | Call
            if isinstance(link, Ruled):
                out, step = link.call(link.params_of(params, self._runs), value, runs=self._runs)
            else:
                out, step = link.forward(value), link
            self._steps.append((step, value, out))
            value = out
        self.output = value

    @property
    def calls(self) -> list[Call]:
        return [step for step, _, _ in self._steps if isinstance(step, Call)]

    def output_gradients(self, loss: Loss, labels: Tensor, shares: Tensor | None = None) -> Sequence[Tensor | None]:
        """The gradient of the summed losses, by their shares, for the output of every call, each `[runs * lot, ...]`."""
        grad = _slope(loss, self.output, labels, shares)
        calls = len(self.calls)
        gradients: list[Tensor] = []
        for step, x, out in reversed(self._steps):
            if isinstance(step, Function):
                grad = step.back(grad, x, out)
                continue
            gradients.append(grad)
            if len(gradients) == calls:  # nothing before the first layer with parameters needs a gradient
                break
            grad = step.ruled.rule.back(step.params, grad, runs=self._runs)
        return gradients[::-1]


def _slope(loss: Loss, output: Tensor, labels: Tensor, shares: Tensor | None) -> Tensor:
    known = slope_of(loss, output)
    if known is not None:
        return scaled(known(output, labels), shares)
    with torch.enable_grad():
        leaf = output.detach().requires_grad_()
        losses = one_each(loss(leaf, labels), len(labels))
    if not losses.requires_grad:
        return torch.zeros_like(output)
    (slope,) = torch.autograd.grad(losses, leaf, start_of(losses, shares), allow_unused=True, materialize_grads=True)
    return slope
