"""Forward and backward of a chain of layers by formula, without autograd.

A chain is an nn.Sequential (within others, perhaps) of layers whose rule hands a gradient back to the layer's input, of
convolutions and max-pools (pooled.py), and of a few functions without parameters. Where a small model's operations take
microseconds, as on a CPU, making and following the graph of autograd costs as much as the model itself; and a convolution may be
computed together with what follows it. Any other model goes by autograd (by_autograd.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from honestdp.gradients.forms import Params
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.pooled import Convolve, Pool, Ran
from honestdp.gradients.ruled import Call, Part, Ruled
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

Link = Ruled | Function | Convolve | Pool
_RISING = (nn.ReLU, nn.Sigmoid, nn.Tanh)


def links(model: nn.Module, layers: Sequence[Ruled]) -> tuple[Link, ...] | None:
    """The model as a chain, if it is one and nobody watches its layers by hooks."""
    ruled = {id(layer.layer): layer for layer in layers}
    chain: list[Link] = []
    for module in in_order(model):
        link = _link(module, ruled.get(id(module)))
        if link is None or hooked(module):
            return None
        chain.append(link)
    return tuple(_joined(chain))


def _joined(chain: Sequence[Link]) -> list[Link]:
    """The chain with pools of squares taken along by the convolutions before them, also over a function that rises."""
    joined: list[Link] = []
    for link in chain:
        between = 1 if joined and any(joined[-1] is _FUNCTIONS[kind] for kind in _RISING) else 0
        before = joined[-1 - between] if len(joined) > between else None
        if isinstance(link, Pool) and link.side is not None and isinstance(before, Convolve) and before.pool is None:
            joined[-1 - between] = Convolve(before.ruled, link)
        else:
            joined.append(link)
    return _with_relu(joined)


def _with_relu(chain: Sequence[Link]) -> list[Link]:
    """The chain with every ReLU taken along by the convolution before it, and its way back by the convolution behind it."""
    joined: list[Link] = []
    for link in chain:
        before = joined[-1] if joined else None
        if link is _FUNCTIONS[nn.ReLU] and isinstance(before, Convolve) and not before.relu:
            joined[-1] = replace(before, relu=True)
        elif isinstance(link, Convolve) and isinstance(before, Convolve) and before.relu:
            joined[-1] = replace(before, relu_back=False)
            joined.append(replace(link, after_relu=True))
        elif link is _FLATTEN and isinstance(before, Convolve):
            joined[-1] = replace(before, flat=True)
            joined.append(link)
        else:
            joined.append(link)
    return joined


def _link(module: nn.Module, ruled: Ruled | None) -> Link | None:
    if ruled is None:
        return Pool.of(module) or _function(module)
    return ruled if type(ruled.rule).back is not Rule.back else Convolve.of(ruled)


def in_order(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of a Sequential, within others perhaps; any other module is a layer of its own."""
    if type(module) is nn.Sequential and not hooked(module):
        for part in module:
            yield from in_order(part)
    else:
        yield module


def _function(module: nn.Module) -> Function | None:
    # By exact class, as rules are: a subclass may compute something else.
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return _FLATTEN
    if type(module) is nn.Unflatten and module.dim == 1:
        return Function(module.forward, _FLATTEN.back)
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
        self._steps: list[tuple[Function | Call | Ran, Tensor, Tensor]] = []
        value = x.flatten(0, 1)
        for link in chain:
            step: Function | Call | Ran
            if isinstance(link, Ruled):
                out, step = link.call(link.params_of(params, self._runs), value, runs=self._runs)
            elif isinstance(link, Function):
                out, step = link.forward(value), link
            else:
                out, step = link.run(value) if isinstance(link, Pool) else link.run(params, value, runs=self._runs)
            self._steps.append((step, value, out))
            value = out
        self.output = value

    @property
    def calls(self) -> list[Call | Part]:
        used = (step.call if isinstance(step, Ran) else step for step, _, _ in self._steps)
        return [call for call in used if isinstance(call, Call | Part)]

    def output_gradients(self, loss: Loss, labels: Inputs, shares: Tensor | None = None) -> Sequence[Tensor | None]:
        """The gradient of the summed losses, by their shares, for the output of every call, each `[runs * lot, ...]`."""
        grad = _slope(loss, self.output, labels, shares)
        calls = len(self.calls)
        gradients: list[Tensor] = []
        for step, x, out in reversed(self._steps):
            if isinstance(step, Function):
                grad = step.back(grad, x, out)
                continue
            if isinstance(step, Ran) and step.at_call is not None:
                grad = step.at_call(grad)
            if not isinstance(step, Ran) or step.call is not None:
                gradients.append(grad)
                if len(gradients) == calls:  # nothing before the first layer with parameters needs a gradient
                    break
            grad = (
                step.back(grad) if isinstance(step, Ran) else step.ruled.rule.back(step.params, grad, runs=self._runs)
            )
        return gradients[::-1]


def _slope(loss: Loss, output: Tensor, labels: Inputs, shares: Tensor | None) -> Tensor:
    known = slope_of(loss, output)
    if known is not None:
        return scaled(known(output, labels), shares)
    with torch.enable_grad():
        leaf = output.detach().requires_grad_()
        losses = one_each(loss(leaf, labels), len(output))
    if not losses.requires_grad:
        return torch.zeros_like(output)
    (slope,) = torch.autograd.grad(losses, leaf, start_of(losses, shares), allow_unused=True, materialize_grads=True)
    return slope
