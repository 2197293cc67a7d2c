"""Convolutions and max-pools as links of a chain, forward and back by formula; a convolution, its pool and ReLU may be one link.

Most numbers that a convolution gives are dropped by the pool after it. Kernels of a GPU take the largest of each pool while it is
in registers and never write the others (layers/implicit.py); elsewhere they are done one after the other. An activation between
them that never falls (ReLU, Tanh, Sigmoid) is applied to what is left: the largest of rising values is the value of the largest.

A ReLU is taken along too, while what it is applied to is in registers; on the way back by the next convolution, if that is what
follows: it sends nothing to where its input is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from honestdp.gradients.forms import Params
from honestdp.gradients.layers.convolution import Convolution, Geometry, convolved, mirrored, padded_before
from honestdp.gradients.layers.implicit import Implicit
from honestdp.gradients.ruled import Call, Part, Ruled
from honestdp.gradients.rules import Gradients

Back = Callable[[Tensor], Tensor]
_pool = torch.ops.aten.max_pool2d_with_indices.default
_pool_back = torch.ops.aten.max_pool2d_with_indices_backward.default
_relu_back = torch.ops.aten.threshold_backward.default


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
