"""Forward and backward of a chain of layers by formula, without autograd.

A chain is an nn.Sequential (within others, perhaps) of layers whose rule hands a gradient back to the layer's input, of
convolutions and max-pools, and of a few functions without parameters. Where a small model's operations take microseconds, as on a
CPU, making and following the graph of autograd costs as much as the model itself. Any other model goes by autograd
(by_autograd.py).

A convolution, the pool after it and a ReLU may be one link (`Convolve`). The pool drops most numbers that the convolution gives.
Kernels of a GPU take the largest of each pool while it is in registers and never write the others (layers/implicit.py);
elsewhere the two are done one after the other. An activation between them that never falls (ReLU, Tanh, Sigmoid) is applied to
the output of the pool: the largest of rising values is the value of the largest. A ReLU is applied while its input is in
registers; its way back is made by the next convolution, if one follows: it sends nothing to where its input is zero.
"""

from __future__ import annotations

import math
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
from honestdp.gradients.layers.convolution import Convolution, Geometry, convolved, mirrored, padded_before
from honestdp.gradients.layers.implicit import Implicit
from honestdp.gradients.rules import Call, Gradients, Part, Rule, Ruled
from honestdp.losses import Loss, one_each, slope_of

Back = Callable[[Tensor], Tensor]


class Function(NamedTuple):
    """A layer without parameters. back: from the gradient of the output, the input and the output, that of the input."""

    forward: Callable[[Tensor], Tensor]
    back: Callable[[Tensor, Tensor, Tensor], Tensor]


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


class Ran(NamedTuple):
    """One use of a link. at_call: from the gradient of the link's output that of what the call's rule is asked about, if they
    differ; back: from the latter, or from the former where there is no call, the gradient of the input.
    """

    back: Back
    call: Call | Part | None = None
    at_call: Back | None = None


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

    def run(self, x: Tensor) -> tuple[Tensor, Ran]:
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
    relu_back: bool = True
    """Whether the way back through that ReLU is this link's, and not the next one's."""
    after_relu: bool = False
    """Whether the way back through the ReLU that gave the input is this link's."""
    flat: bool = False
    """Whether the output is flattened next."""

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
        if self.pool is None and (how := geometry.mirrored(x, own["weight"])) is not None:
            return self._mirrored(how, own, x)
        x, out, call = self._one_after_the_other(geometry, own, x, runs)

        def back(grad: Tensor) -> Tensor:
            beside, slopes = (
                value.view(runs, -1, *value.shape[1:]).transpose(0, 1).flatten(1, 2) for value in (x, grad)
            )
            found = geometry.input_gradient(beside, own["weight"].flatten(0, 1), slopes, times=runs)
            found = found.view(-1, runs, *x.shape[1:]).transpose(0, 1).flatten(0, 1)
            return _relu_back(found, x, 0) if self.after_relu else found

        spread: Back | None = None
        if self.pool is not None:
            out, ran = self.pool.run(out)
            spread = ran.back
        out = torch.relu(out) if self.relu else out
        return out, Ran(back, call, self._at_call(out, spread))

    def _one_after_the_other(
        self, geometry: Geometry, own: Params, x: Tensor, runs: int
    ) -> tuple[Tensor, Tensor, Call | Part]:
        """The convolution without its pool: the input, the output and the use.

        A CPU takes a pool several times faster where channels lie last in memory, and a convolution then too, or as fast. Of a
        single channel torch cannot tell how it lies: it goes by its windows, whose product with the weight lies so.
        """
        if self.pool is None or x.dim() != 4 or x.is_cuda:
            return x, *self.ruled.call(own, x, runs=runs)
        sizes = geometry.positions(x[None])
        if x.shape[1] == 1 and not geometry.transposed and sizes.numel() >= math.prod(geometry.kernel):
            return x, *self._by_windows(geometry.windows(x, sizes).squeeze(2), sizes, own, runs)
        x = x.contiguous(memory_format=torch.channels_last) if runs == 1 else x
        return x, *self.ruled.call(own, x, runs=runs)

    def _by_windows(self, windows: Tensor, sizes: torch.Size, own: Params, runs: int) -> tuple[Tensor, Part]:
        """windows: `[examples, positions, columns]`. The output lies with its channels last."""
        weight, bias, wanted = own["weight"], own.get("bias"), frozenset(self.ruled.trainable)
        seen, matrix = windows.view(runs, -1, windows.shape[-1]), weight.flatten(2).mT
        out = torch.bmm(seen, matrix) if bias is None else torch.baddbmm(bias.unsqueeze(1), seen, matrix)

        def gradients(grad: Tensor) -> Gradients:
            rows = grad.flatten(0, 1).permute(0, 2, 3, 1).flatten(1, 2)
            made = torch.bmm(windows.mT, rows).mT.reshape(*grad.shape[:2], *weight.shape[1:])
            return {"weight": made, "bias": rows.sum(1).view(grad.shape[:3])} if "bias" in wanted else {"weight": made}

        placed = out.view(len(windows), *sizes, -1).permute(0, 3, 1, 2)
        return placed, Part(self.ruled, gradients, (windows,), (windows._version,))

    def _at_call(self, out: Tensor, spread: Back | None) -> Back | None:
        """From the gradient of the link's output, `out`, that of the convolution's; spread: the way back through the pool."""
        if not (self.relu and self.relu_back):
            return spread
        if spread is None:
            return lambda grad: _relu_back(grad, out, 0)
        return lambda grad: spread(_relu_back(grad, out, 0))

    def _implicit(self, how: Implicit, own: Params, x: Tensor) -> tuple[Tensor, Ran]:
        out, chosen = how.forward(x, own["weight"], own.get("bias"), relu=self.relu, first=self.flat)
        wanted = frozenset(self.ruled.trainable)
        spread: Back | None = None
        if chosen is not None and how.shape.channels >= _SPREAD:
            spread, how, chosen = how.spread(chosen), how.without_pool(), None
        before = x if self.after_relu else None

        def gradients(grad: Tensor) -> Gradients:
            return convolved(how, x, grad.flatten(0, 1), chosen, own, wanted)

        call = Part(self.ruled, gradients, (x,), (x._version,))
        back: Back = lambda grad: how.back(grad, chosen, own["weight"], x=before)  # noqa: E731
        if self.flat and self.pool is None:
            # The gradient comes with its channels first: one pass for that and the ReLU.
            return out, Ran(back, call, lambda grad: how.channels_last(grad, out if self.relu else None))
        return out, Ran(back, call, self._at_call(out, spread))

    def _mirrored(self, how: Implicit, own: Params, x: Tensor) -> tuple[Tensor, Ran]:
        """A transposed convolution: `how`'s way back, and on the way back that convolution itself."""
        weight, wanted = own["weight"], frozenset(self.ruled.trainable)
        out = how.transposed(x, weight, own.get("bias"), relu=self.relu)

        def back(grad: Tensor) -> Tensor:
            found = how.forward(grad, weight, None)[0]
            return _relu_back(found, x, 0) if self.after_relu else found

        call = Part(self.ruled, lambda grad: mirrored(how, x, grad, own, wanted), (x,), (x._version,))
        return out, Ran(back, call, self._at_call(out, None))


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
    (slope,) = slopes(losses, [leaf], start_of(losses, shares))
    return torch.zeros_like(output) if slope is None else slope
