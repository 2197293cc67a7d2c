"""Forward and backward of a chain of layers by formula, without autograd.

A chain is an nn.Sequential (within others, perhaps) of layers whose rule hands a gradient back to the layer's input, of
convolutions and max-pools, and of a few functions without parameters. Where a small model's operations take microseconds, as on a
CPU, making and following the graph of autograd costs as much as the model itself. Any other model goes by autograd
(by_autograd.py).

A convolution, the pool after it and a ReLU may be one link (`Convolve`). The pool drops most numbers that the convolution gives.
Kernels of a GPU take the largest of each pool while it is in registers and never write the others (layers/implicit.py);
elsewhere the two are done one after the other. An activation between them that never falls (ReLU, Tanh, Sigmoid) is applied to
the output of the pool: the largest of rising values is the value of the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.module import _has_any_global_hook

from honestdp.gradients.forms import Params
from honestdp.gradients.grouped import scaled, slopes, start_of
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.layers.convolution import Convolution, Geometry, convolved, padded_before
from honestdp.gradients.layers.implicit import Implicit
from honestdp.gradients.rules import Call, Rule, Ruled
from honestdp.losses import Loss, one_each, slope_of

Back = Callable[[Tensor], Tensor]


class Ran(NamedTuple):
    """One use of a link. at_call: from the gradient of the link's output that of what the call's rule is asked about, if they
    differ; back: from the latter, or from the former where there is no call, the gradient of the input.
    """

    back: Back
    call: Call | None = None
    at_call: Back | None = None


class Function(NamedTuple):
    """A layer without parameters. slope: from the gradient of the output, the input and the output, that of the input."""

    forward: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor, Tensor, Tensor], Tensor]

    def run(self, params: Params, x: Tensor, *, runs: int) -> tuple[Tensor, Ran]:
        out = self.forward(x)
        return out, Ran(lambda grad: self.slope(grad, x, out))


class Layer(NamedTuple):
    """A layer whose rule hands a gradient back to its input."""

    ruled: Ruled

    def run(self, params: Params, x: Tensor, *, runs: int) -> tuple[Tensor, Ran]:
        ruled, own = self.ruled, self.ruled.params_of(params, runs)
        out, call = ruled.call(own, x, runs=runs)
        return out, Ran(lambda grad: ruled.rule.back(own, grad, runs=runs), call)


_aten = torch.ops.aten
_pool = _aten.max_pool2d_with_indices.default
_pool_back = _aten.max_pool2d_with_indices_backward.default
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


@dataclass(frozen=True)
class Pool:
    """nn.MaxPool2d by its settings: kernel, stride, padding, dilation, and whether the last pool may reach over the end."""

    settings: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], bool]

    @staticmethod
    def of(module: nn.Module) -> Pool | None:
        if type(module) is not nn.MaxPool2d or module.return_indices:
            return None
        kernel, stride = _pair(module.kernel_size), _pair(module.stride)
        return Pool((kernel, stride, _pair(module.padding), _pair(module.dilation), module.ceil_mode))

    @property
    def side(self) -> int | None:
        """Of a pool of squares that do not overlap and leave no room between them."""
        kernel, stride, padding, dilation, over = self.settings
        plain = not over and tuple(kernel) == tuple(stride) and tuple(padding) == (0, 0) and tuple(dilation) == (1, 1)
        return kernel[0] if plain and kernel[0] == kernel[1] and kernel[0] in _SIDES else None

    def run(self, params: Params, x: Tensor, *, runs: int) -> tuple[Tensor, Ran]:
        out, index = _pool(x, *self.settings)
        return out, Ran(lambda grad: _pool_back(grad, x, *self.settings, index))


_SIDES = (2, 4)
"""Sides of the pools that a convolution takes along: tiles of products hold whole pools."""


_SPREAD = 16
"""Channels of the input from which on the gradient of a pool is spread out once: it is then read that many times."""


def _pair(number: int | Sequence[int]) -> Sequence[int]:
    return (number, number) if isinstance(number, int) else tuple(number)


@dataclass(frozen=True)
class Convolve:
    """A convolution, and the pool and the ReLU that follow it."""

    ruled: Ruled
    pool: Pool | None = None
    relu: bool = False
    """Whether a ReLU follows, behind the pool if there is one."""

    @staticmethod
    def of(ruled: Ruled) -> Convolve | None:
        layer, known = ruled.layer, isinstance(ruled.rule, Convolution) and "weight" in ruled.trainable
        return Convolve(ruled) if known and isinstance(layer, _ConvNd) and not padded_before(layer) else None

    def run(self, params: Params, x: Tensor, *, runs: int) -> tuple[Tensor, Ran]:
        """x: `[runs * lot, ...]`."""
        layer, own = self.ruled.layer, self.ruled.params_of(params, runs)
        assert isinstance(layer, _ConvNd)
        geometry = Geometry.of(layer)
        how = geometry.implicit(x, own["weight"], pool=1 if self.pool is None else self.pool.side or 1)
        if how is not None:
            return self._implicit(how, own, x)
        if self.pool is not None and x.dim() == 4 and not x.is_cuda:
            # A CPU takes a pool several times faster where channels lie last in memory, and a convolution then too, or as fast.
            x = x.contiguous(memory_format=torch.channels_last) if runs == 1 else x
            out, call = self.ruled.call(own, x, runs=runs)
            out = out.contiguous(memory_format=torch.channels_last)
        else:
            out, call = self.ruled.call(own, x, runs=runs)

        def back(grad: Tensor) -> Tensor:
            seen, slopes = (value.view(runs, -1, *value.shape[1:]) for value in (x, grad))
            return geometry.input_gradient(seen, own["weight"], slopes).flatten(0, 1)

        spread: Back | None = None
        if self.pool is not None:
            out, ran = self.pool.run(params, out, runs=runs)
            spread = ran.back
        out = torch.relu(out) if self.relu else out
        return out, Ran(back, call, self._at_call(out, spread))

    def _at_call(self, out: Tensor, spread: Back | None) -> Back | None:
        """From the gradient of the link's output, `out`, that of the convolution's; spread: the way back through the pool."""
        if not self.relu:
            return spread
        if spread is None:
            return lambda grad: _relu_back(grad, out, 0)
        return lambda grad: spread(_relu_back(grad, out, 0))

    def _implicit(self, how: Implicit, own: Params, x: Tensor) -> tuple[Tensor, Ran]:
        out, chosen = how.forward(x, own["weight"], own.get("bias"), relu=self.relu)
        wanted = frozenset(self.ruled.trainable)
        spread: Back | None = None
        if chosen is not None and how.shape.channels >= _SPREAD:
            spread, how, chosen = how.spread(chosen), how.without_pool(), None
        call = self.ruled.used(lambda grad: convolved(how, x, grad.flatten(0, 1), chosen, own, wanted), x)
        back: Back = lambda grad: how.back(grad, chosen, own["weight"])  # noqa: E731
        return out, Ran(back, call, self._at_call(out, spread))


Link = Layer | Function | Convolve | Pool
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
    """The chain with pools of squares and ReLUs taken along by the convolutions before them, pools also over a function that
    rises.
    """
    joined: list[Link] = []
    for link in chain:
        place = -1
        if isinstance(link, Pool) and joined and any(joined[-1] is _FUNCTIONS[kind] for kind in _RISING):
            place = -2
        before = joined[place] if len(joined) >= -place else None
        if isinstance(before, Convolve) and isinstance(link, Pool) and link.side is not None and before.pool is None:
            joined[place] = replace(before, pool=link)
        elif isinstance(before, Convolve) and link is _FUNCTIONS[nn.ReLU]:
            joined[place] = replace(before, relu=True)
        else:
            joined.append(link)
    return joined


def _link(module: nn.Module, ruled: Ruled | None) -> Link | None:
    if ruled is None:
        return Pool.of(module) or _function(module)
    return Layer(ruled) if type(ruled.rule).back is not Rule.back else Convolve.of(ruled)


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
        return Function(module.forward, _FLATTEN.slope)
    return _FUNCTIONS.get(type(module))


def hooked(module: nn.Module) -> bool:
    """Whether somebody watches or changes what the module does, beside its own forward."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    everywhere = _has_any_global_hook()  # type: ignore[no-untyped-call]
    return any(hooks) or bool(everywhere) or "forward" in module.__dict__


class ByFormula:
    """The chain run once on x `[runs, lot, ...]`. output: `[runs * lot, ...]`; calls: the uses of its layers, in order."""

    def __init__(self, chain: Sequence[Link], params: Params, x: Tensor) -> None:
        self._steps: list[Ran] = []
        self.output = x.flatten(0, 1)
        for link in chain:
            self.output, ran = link.run(params, self.output, runs=x.shape[0])
            self._steps.append(ran)
        self.calls = [ran.call for ran in self._steps if ran.call is not None]

    def output_gradients(self, loss: Loss, labels: Inputs, shares: Tensor | None = None) -> Sequence[Tensor | None]:
        """The gradient of the summed losses, by their shares, for the output of every call, each `[runs * lot, ...]`."""
        grad = _slope(loss, self.output, labels, shares)
        gradients: list[Tensor] = []
        for step in reversed(self._steps):
            grad = grad if step.at_call is None else step.at_call(grad)
            if step.call is not None:
                gradients.append(grad)
                if len(gradients) == len(self.calls):  # nothing before the first layer with parameters needs a gradient
                    break
            grad = step.back(grad)
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
    (slope,) = slopes(losses, [leaf], start_of(losses, shares))
    return torch.zeros_like(output) if slope is None else slope
