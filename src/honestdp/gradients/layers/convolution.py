"""Convolutions of one, two and three dimensions and their transposes: stride, padding, dilation, groups, padding modes.

A convolution applies one matrix at every position to the window a_t of the input seen from there, so for one example
dL/dW = sum_t (dL/dz_t) a_t^T, as for Linear. A transposed convolution is the reverse: the window is taken from the
gradient of the output, and the input stands at the positions.

The runs of a population are the groups of one grouped convolution, and so are the examples when their gradients are
made on a CPU. On a GPU the windows are laid out and the gradients are one batched product.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from honestdp.gradients.pieces import Outer, Piece
from honestdp.gradients.rules import Rule, Unruled, rule


@dataclass(frozen=True)
class Geometry:
    """The settings of a convolution, without its channels."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    transposed: bool
    groups: int

    @staticmethod
    def of(layer: _ConvNd) -> Geometry:
        padding = (0,) * len(layer.kernel_size) if _padded_before(layer) else layer.padding
        assert not isinstance(padding, str)
        return Geometry(
            layer.kernel_size,
            layer.stride,
            padding,
            layer.dilation,
            layer.output_padding,
            layer.transposed,
            layer.groups,
        )

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, times: int) -> Tensor:
        """The convolution of `x` `[n, times * channels, ...]`, `times` independent ones side by side."""
        settings = (self.stride, self.padding, self.dilation, self.transposed, self.output_padding)
        return torch.convolution(x, weight, bias, *settings, self.groups * times)

    def weight_gradient(self, x: Tensor, grad: Tensor, shape: torch.Size, *, times: int) -> Tensor:
        """The gradient of the weight of `apply`, of the given `shape`."""
        settings = (self.stride, self.padding, self.dilation, self.transposed, self.output_padding)
        weight = x.new_empty(1).expand(shape)
        found: Tensor = torch.ops.aten.convolution_backward(
            grad, x, weight, None, *settings, self.groups * times, (False, True, False)
        )[1]
        return found

    def windows(self, values: Tensor, sizes: torch.Size) -> Tensor:
        """`[n, positions, groups, columns]`: what the kernel sees of `values` `[n, channels, ...]` from each position.

        sizes: how many positions there are along each dimension.
        """
        spatial = len(self.kernel)
        sides = [side for pad in reversed(self.padding) for side in (pad, pad)]
        seen = F.pad(values, sides) if any(sides) else values
        for i, (kernel, stride, dilation, size) in enumerate(
            zip(self.kernel, self.stride, self.dilation, sizes, strict=True)
        ):
            seen = seen.unfold(2 + i, dilation * (kernel - 1) + 1, stride)[..., ::dilation].narrow(2 + i, 0, size)
        n, channels = values.shape[:2]
        seen = seen.permute(0, *range(2, 2 + spatial), 1, *range(2 + spatial, 2 + 2 * spatial))
        columns = channels // self.groups * math.prod(self.kernel)
        return seen.reshape(n, math.prod(sizes), self.groups, columns)


def _padded_before(layer: _ConvNd) -> bool:
    """Whether the padding is put on before the convolution: modes other than zeros, and 'same', which may be uneven."""
    return layer.padding_mode != "zeros" or isinstance(layer.padding, str)


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
class Convolution(Rule):
    def forward(self, layer: nn.Module, params: Mapping[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        assert isinstance(layer, _ConvNd)
        if x.dim() != 3 + len(layer.kernel_size):
            raise Unruled(f"{type(layer).__name__} is given examples without a dimension for them")
        runs, lot = x.shape[:2]
        geometry = Geometry.of(layer)
        if _padded_before(layer):
            mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
            padded = F.pad(x.flatten(0, 1), layer._reversed_padding_repeated_twice, mode=mode)
            x = padded.view(runs, lot, *padded.shape[1:])
        weight, bias = params["weight"], params.get("bias")
        if runs == 1:
            out = geometry.apply(x[0], weight[0], None if bias is None else bias[0], times=1)
            return out.unsqueeze(0), x
        beside = x.transpose(0, 1).flatten(1, 2)
        out = geometry.apply(beside, weight.flatten(0, 1), None if bias is None else bias.flatten(), times=runs)
        return out.view(lot, runs, -1, *out.shape[2:]).transpose(0, 1), x

    def gradients(
        self, layer: nn.Module, params: Mapping[str, Tensor], kept: Tensor, grad: Tensor, wanted: frozenset[str]
    ) -> Mapping[str, Tensor | Piece]:
        assert isinstance(layer, _ConvNd)
        found: dict[str, Tensor | Piece] = {}
        if "weight" in wanted:
            found["weight"] = _weight(Geometry.of(layer), kept, grad, params["weight"].shape[1:])
        if "bias" in wanted:
            found["bias"] = grad.flatten(3).sum(3)
        return found


def _weight(geometry: Geometry, x: Tensor, grad: Tensor, shape: torch.Size) -> Tensor | Piece:
    """The gradients of a weight of `shape`, for every example, from `x` and `grad` `[runs, lot, channels, ...]`."""
    at, through = (x, grad) if geometry.transposed else (grad, x)
    sizes = at.shape[3:]
    positions, rows, columns = math.prod(sizes), shape[0], math.prod(shape[1:])
    lots = x.shape[:2]
    ghost = geometry.groups == 1 and rows * columns > 2 * positions * (rows + columns)
    if not ghost and not x.is_cuda:
        examples = lots.numel()
        inputs, outputs = (value.reshape(1, -1, *value.shape[3:]) for value in (x, grad))
        every = torch.Size([examples * shape[0], *shape[1:]])
        return geometry.weight_gradient(inputs, outputs, every, times=examples).view(*lots, *shape)
    windows = geometry.windows(through.flatten(0, 1), sizes)
    left = at.flatten(0, 1).reshape(lots.numel(), geometry.groups, -1, positions)
    if ghost:
        return Outer(left.mT.view(*lots, positions, rows), windows.view(*lots, positions, columns), tuple(shape))
    return torch.matmul(left, windows.transpose(1, 2)).reshape(*lots, *shape)
