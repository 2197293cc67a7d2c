"""The layer rule for convolutions of one to three dimensions and their transposes, with all of their settings.

A convolution applies one matrix at every position to the window a_t of the input seen from there, so for one example
dL/dW = sum_t (dL/dz_t) a_t^T, as for Linear. A transposed convolution is the reverse: the window is taken from the
gradient of the output, and the input stands at the positions.

Why unfold: the windows laid out as rows `[positions, columns]` make a convolution the matrix product that Linear is, so its
gradient has the factors of an `Outer`, and its norm comes from Gram matrices without the gradient wherever the kernel is larger
than the positions are many. That costs the memory of every window, as many times the input as windows overlap.

So windows are laid out only for such norms, and on a GPU, where a convolution with a group for every example is slow, for all
gradients that kernels of our own (implicit.py), which need no windows, do not take. Forward and way back go run by run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from honestdp.gradients.forms import Form, Outer, Params, gram_is_cheaper
from honestdp.gradients.layers.implicit import Convolved, Implicit, Tracked
from honestdp.gradients.rules import Gradients, Rule, Unruled, Wanted, rule

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """The settings of a convolution, without its channels."""

    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    output_padding: Sizes
    transposed: bool
    groups: int

    @staticmethod
    def of(layer: _ConvNd) -> Geometry:
        padding = (0,) * len(layer.kernel_size) if padded_before(layer) else layer.padding
        assert not isinstance(padding, str)
        before, after = (layer.kernel_size, layer.stride), (layer.dilation, layer.output_padding)
        return Geometry(*before, padding, *after, layer.transposed, layer.groups)

    @property
    def _settings(self) -> tuple[Sizes, Sizes, Sizes, bool, Sizes]:
        """As torch's operations take them, without the groups."""
        return self.stride, self.padding, self.dilation, self.transposed, self.output_padding

    def implicit(self, x: Tensor, weight: Tensor, *, pool: int = 1) -> Implicit | None:
        """How kernels take this convolution of x `[examples, channels, ...]` with weight `[runs, ...]`, and a pool after it."""
        if len(self.kernel) != 2 or self.transposed or self.groups > 1:
            return None
        return Implicit.of(x, weight, (self.kernel, self.stride, self.padding, self.dilation), pool=pool)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution of x `[runs, lot, ...]`, run by run: faster than one of as many groups, on a GPU by far."""
        biases = [None] * len(x) if bias is None else bias
        each = zip(x, weight, biases, strict=True)
        outs = [torch.convolution(seen, own, shift, *self._settings, self.groups) for seen, own, shift in each]
        return outs[0].unsqueeze(0) if len(outs) == 1 else torch.stack(outs)

    def input_gradient(self, x: Tensor, weight: Tensor, grad: Tensor) -> Tensor:
        """The gradient of the input of `forward`, all `[runs, ...]`."""
        each = zip(x, weight, grad, strict=True)
        found = [self._back(seen, own, slope, 1, (True, False, False))[0] for seen, own, slope in each]
        return found[0].unsqueeze(0) if len(found) == 1 else torch.stack(found)

    def weight_gradient(self, x: Tensor, grad: Tensor, shape: torch.Size, *, times: int) -> Tensor:
        """The gradient of a weight of this shape, of as many independent convolutions side by side."""
        return self._back(x, x.new_empty(1).expand(shape), grad, times, (False, True, False))[1]

    def _back(self, x: Tensor, weight: Tensor, grad: Tensor, times: int, mask: tuple[bool, ...]) -> Sequence[Tensor]:
        """The gradients of the input, the weight and the bias, as the mask says."""
        groups, backward = self.groups * times, torch.ops.aten.convolution_backward
        gradients: Sequence[Tensor] = backward(grad, x, weight, None, *self._settings, groups, mask)
        return gradients

    def windows(self, values: Tensor, sizes: torch.Size) -> Tensor:
        """`[n, positions, groups, columns]`: what the kernel sees of `values` `[n, channels, ...]` from each position.

        sizes: how many positions there are along each dimension.
        """
        spatial = len(self.kernel)
        sides = [side for pad in reversed(self.padding) for side in (pad, pad)]
        seen = F.pad(values, sides) if any(sides) else values
        each = zip(self.kernel, self.stride, self.dilation, sizes, strict=True)
        for i, (kernel, stride, dilation, size) in enumerate(each):
            seen = seen.unfold(2 + i, dilation * (kernel - 1) + 1, stride)[..., ::dilation].narrow(2 + i, 0, size)
        n, channels = values.shape[:2]
        seen = seen.permute(0, *range(2, 2 + spatial), 1, *range(2 + spatial, 2 + 2 * spatial))
        columns = channels // self.groups * math.prod(self.kernel)
        return seen.reshape(n, math.prod(sizes), self.groups, columns)


def padded_before(layer: _ConvNd) -> bool:
    """Whether the padding is put on before the convolution: modes other than zeros, and 'same', which may be uneven."""
    return layer.padding_mode != "zeros" or isinstance(layer.padding, str)


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
class Convolution(Rule):
    def forward(self, layer: nn.Module, params: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        assert isinstance(layer, _ConvNd)
        if x.dim() != 3 + len(layer.kernel_size):
            raise Unruled(f"{type(layer).__name__} is given examples without a dimension for them")
        runs, lot = x.shape[:2]
        geometry = Geometry.of(layer)
        if padded_before(layer):
            mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
            padded = F.pad(x.flatten(0, 1), layer._reversed_padding_repeated_twice, mode=mode)
            x = padded.view(runs, lot, *padded.shape[1:])
        weight, bias = params["weight"], params.get("bias")
        if (how := geometry.implicit(x.flatten(0, 1), weight)) is not None:
            out = Tracked.apply(x.flatten(0, 1), weight, bias, how)  # type: ignore[no-untyped-call]
            return out.view(runs, lot, *out.shape[1:]), x
        return geometry.forward(x, weight, bias), x

    def gradients(self, layer: nn.Module, params: Params, saved: Tensor, grad: Tensor, wanted: Wanted) -> Gradients:
        assert isinstance(layer, _ConvNd)
        gradients: dict[str | tuple[str, ...], Tensor | Form] = {}
        if "weight" in wanted:
            geometry, shape = Geometry.of(layer), params["weight"].shape[1:]
            if (how := geometry.implicit(saved.flatten(0, 1), params["weight"])) is not None:
                return convolved(how, saved.flatten(0, 1), grad.flatten(0, 1), None, params, wanted)
            gradients["weight"] = _weight(geometry, saved, grad, shape)
        if "bias" in wanted:
            gradients["bias"] = grad.flatten(3).sum(3)
        return gradients


def convolved(
    how: Implicit, x: Tensor, grad: Tensor, chosen: Tensor | None, params: Params, wanted: Wanted
) -> dict[str | tuple[str, ...], Tensor | Form]:
    """The gradients of the weight, and with it of the bias where it is wanted, by kernels. x, grad: `[examples, ...]`.

    Where a wide layer has few positions they are made of its windows, which are then few: a kernel's product is of 32 or 64
    positions at least, most of them empty.
    """
    shift, shape, weight = "bias" in wanted, how.shape, params["weight"]
    sizes, form = torch.Size((shape.out_height, shape.out_width)), tuple(weight.shape[1:])
    names = ("weight", "bias") if shift else "weight"
    if chosen is not None or not gram_is_cheaper(sizes.numel(), shape.rows, shape.columns):
        return {names: Convolved(how, x, grad, chosen, len(weight), form, shift)}
    geometry = Geometry(shape.kernel, shape.stride, shape.padding, shape.dilation, (0, 0), transposed=False, groups=1)
    factors = (grad.flatten(2).mT, geometry.windows(x, sizes).squeeze(2))
    left, right = (each.reshape(len(weight), -1, *each.shape[1:]) for each in factors)
    return {names: Outer(left, right, form, shift)}


def _grouping_is_slow(values: Tensor) -> bool:
    """Whether convolutions of very many groups are slow where these values are."""
    return values.is_cuda


def _weight(geometry: Geometry, x: Tensor, grad: Tensor, shape: torch.Size) -> Tensor | Form:
    """The gradients of a weight of `shape`, for every example, from `x` and `grad` `[runs, lot, channels, ...]`."""
    at, through = (x, grad) if geometry.transposed else (grad, x)
    lots, sizes = x.shape[:2], at.shape[3:]
    ghost = geometry.groups == 1 and gram_is_cheaper(sizes.numel(), shape[0], shape[1:].numel())
    if not ghost and not _grouping_is_slow(x):
        # Every example of every run is a group of one convolution of a single, very wide example.
        inputs, outputs = (value.reshape(1, -1, *value.shape[3:]) for value in (x, grad))
        every = torch.Size([lots.numel() * shape[0], *shape[1:]])
        return geometry.weight_gradient(inputs, outputs, every, times=lots.numel()).view(*lots, *shape)
    windows = geometry.windows(through.flatten(0, 1), sizes)
    left = at.reshape(lots.numel(), geometry.groups, -1, sizes.numel())
    if ghost:
        return Outer(left.mT.view(*lots, sizes.numel(), -1), windows.view(*lots, sizes.numel(), -1), tuple(shape))
    return torch.matmul(left, windows.transpose(1, 2)).reshape(*lots, *shape)
