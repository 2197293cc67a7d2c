"""Predictions of rows: each row gets the same bits, whatever rows stand beside it and wherever it stands.

A floating-point product of matrices adds up in an order that depends on the processor, on the width of the batch and on a row's
place in it. So a row's prediction would change in its last digits with its company. Two ways prevent that.

*Exact sums*, for a chain of linear layers and pointwise activations, as tables and estimators build them. Before a product, the
inputs of a row are rounded to multiples of one power of two and the weights are cut into parts likewise (Ozaki et al. 2012,
Error-free transformations of matrix multiplication). All products and all partial sums are then whole multiples of one unit, at
most 2^53 of it: float64 holds each exactly, and an exact sum has no order. Rounding and addition look at one number, or at one
row, at a time. So do activations, on pieces that no thread divides, since the rest of a division takes another code.

*Blocks of one width*, for any other module: it gets the rows in float64, in batches of one public width filled up with zeros, and
its outputs are rounded to float32. A row's company is then without effect; its place in the block may change the last bits of a
float64 number, and so a float32 number in about one of 10^8 cases.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from honestdp.gradients import inputs
from honestdp.gradients.by_formula import hooked, in_order
from honestdp.gradients.inputs import Inputs
from honestdp.losses import prediction

Array = np.ndarray[Any, np.dtype[np.float64]]
Function = Callable[[Tensor], Tensor]

_WIDTH, _WIDTH_OF_OTHERS = 1024, 64  # rows of a block: of a chain, and of modules that may be large
_DIGITS = 26  # binary digits that the inputs of a layer keep, counted from the largest of its row
_WEIGHT_DIGITS = 30  # the least that weights keep
_PIECE = 1 << 14  # numbers that no thread divides: torch shares out 32768 and more
_WIDEST = 1 << 20  # inputs of a layer that is computed so
_SMALLEST = 2.0**-200  # what is smaller counts as zero beside it
_POINTWISE = (
    nn.ELU, nn.GELU, nn.Hardtanh, nn.Identity, nn.LeakyReLU, nn.ReLU, nn.Sigmoid, nn.SiLU, nn.Softplus, nn.Tanh
)  # fmt: skip


@torch.no_grad()
def predictions(model: nn.Module, x: Tensor) -> Array:
    """The model's outputs for rows, in eval mode: the same bits for a row in any company and place (see above).

    Args:
        model: it is not changed.
        x: `[rows, ...]`, floating-point numbers.

    Returns:
        `[rows, ...]`.

    >>> model, x = nn.Linear(3, 2), torch.rand(5, 3)
    >>> bool((predictions(model, x)[4:] == predictions(model, x[4:])).all())
    True
    """
    parameter = next(model.parameters())
    chain = exact(model)
    if chain is not None:
        return in_blocks(lambda block: chain(block.to(parameter.device)).cpu(), x).numpy()
    own, dtype = copy.deepcopy(model).double().eval(), torch.float64
    if not _takes(own, x[:0].to(parameter.device, dtype)):
        own, dtype = copy.deepcopy(model).eval(), parameter.dtype

    def outputs(block: Tensor) -> Tensor:
        return prediction(own(block.to(parameter.device, dtype))).float().double().cpu()

    return in_blocks(outputs, x, width=_WIDTH_OF_OTHERS).numpy()


def probabilities(outputs: Array) -> Array:
    """`[rows, classes]`: the softmax of each row."""
    return in_blocks(partial(torch.softmax, dim=1), torch.from_numpy(outputs).double()).numpy()


def forward(model: nn.Module) -> Callable[[Inputs], Any]:
    """What the model makes of batches of one public width: by exact sums where it is a chain, else as it does itself."""
    chain = exact(model)

    def outputs(x: Inputs) -> Any:
        if chain is not None and isinstance(x, Tensor) and x.is_floating_point():
            return chain(x).to(x.dtype)
        return inputs.call(model, x)

    return outputs


def in_blocks(function: Function, x: Tensor, *, width: int = _WIDTH) -> Tensor:
    """A function of rows, given them in blocks of one width, the last one filled up with zeros."""
    made = []
    for part in torch.split(x, width):
        missing = width - len(part)
        block = torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) if missing else part
        made.append(function(block)[: len(part)])
    return torch.cat(made)


def exact(model: nn.Module) -> Function | None:
    """The model by exact sums, from numbers `[rows, ...]` to float64; None where it is no chain that is known here."""
    layers = [_layer(module) for module in in_order(model)]
    known = [layer for layer in layers if layer is not None]
    return partial(_through, known) if known and len(known) == len(layers) else None


def _through(layers: list[Function], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x.double()


def _layer(module: nn.Module) -> Function | None:
    kind = type(module)  # exactly: a subclass may compute something else
    if hooked(module):
        return None
    if isinstance(module, nn.Linear):
        return _Linear(module) if kind is nn.Linear and 0 < module.in_features <= _WIDEST else None
    if isinstance(module, nn.Flatten):
        return module if kind is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1) else None
    if kind is nn.Dropout and not module.training:
        return nn.Identity()
    return partial(_pointwise, module) if kind in _POINTWISE else None


def _pointwise(function: nn.Module, x: Tensor) -> Tensor:
    # Copies, since an activation in place must not reach the rows themselves.
    whole = x.reshape(-1)
    pieces = [
        function(piece.to(torch.float64, copy=True))
        for piece in torch.split(whole, max(1, whole.numel()) if x.is_cuda else _PIECE)
    ]
    return torch.cat(pieces).reshape(x.shape)


class _Linear:
    """A linear layer whose sums are exact.

    With inputs of a digits and a part of the weights of b, the sum of n products is at most n 2^(a + b) units: below 2^53.
    """

    def __init__(self, layer: nn.Linear) -> None:
        left = layer.weight.detach().double()
        # An input is measured by its largest weight, so that none that counts is rounded away beside one of a larger scale.
        self._units = _power(left.abs().amax(dim=0))
        left = left / self._units  # exact, as every step with a power of two
        digits = 53 - _DIGITS - math.ceil(math.log2(layer.in_features))
        parts: list[Tensor] = []
        for _ in range(max(2, math.ceil(_WEIGHT_DIGITS / digits))):
            parts.append(_rounded(left.clone(), digits))
            left = left - parts[-1]
        self._parts, self._outputs = torch.cat(parts).mT, layer.out_features
        self._bias = None if layer.bias is None else layer.bias.detach().double()

    def __call__(self, x: Tensor) -> Tensor:
        rows, units = x.flatten(0, -2), self._units.expand(x.shape[-1])
        # Small pieces stay in a processor's cache; a GPU would wait for the start of each.
        pieces = torch.split(rows, max(1, len(rows) if x.is_cuda else 2 * _PIECE // len(units)))
        sums = torch.cat([_rounded(piece * units, _DIGITS) @ self._parts for piece in pieces])
        out, *others = torch.split(sums, self._outputs, dim=1)
        for other in [*others, *([] if self._bias is None else [self._bias])]:
            out = out + other
        return out.reshape(*x.shape[:-1], self._outputs)


def _rounded(rows: Tensor, digits: int) -> Tensor:
    """In place: each row as multiples of 2^-digits of the power of two above its largest number; NaN where that is infinite."""
    largest = torch.maximum(rows.amax(dim=1, keepdim=True), rows.amin(dim=1, keepdim=True).neg())
    # Beside 1.5 * 2^52 units a float64 number has no digit below the unit.
    large = _power(largest) * (3 * 2.0 ** (52 - digits))
    return rows.add_(large).sub_(large)


def _power(values: Tensor) -> Tensor:
    """The power of two at or below each of these numbers, by its bits: no logarithm rounds."""
    bits = values.clamp_min(_SMALLEST).view(torch.int64)
    return bits.bitwise_and_(0x7FF << 52).view(torch.float64)


def _takes(model: nn.Module, none: Tensor) -> bool:
    """Whether a model that was converted to float64 works in it: some mix in float32 numbers of their own."""
    try:
        model(none.new_zeros(2, *none.shape[1:]))
    except (RuntimeError, TypeError, ValueError):
        return False
    return True
