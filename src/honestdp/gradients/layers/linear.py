"""The layer rule for Linear, with any number of dimensions between the example and its features.

z_t = W a_t + b, so for one example dL/dW = sum_t (dL/dz_t) a_t^T and dL/db = sum_t dL/dz_t.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp.gradients.forms import Form, Outer, Params, Product, outer, prefers_gram
from honestdp.gradients.rules import Gradients, Rule, Use, Wanted, named, rule

NARROW = 16
"""On a CPU, a product with so few output features is twice as fast the other way round. By autograd its gradient would then
reach the layer before with the examples last in memory, where everything costs more than was gained, so there this is for
the first layer with parameters alone; in a chain it is for all."""


def _narrow(weight: Tensor, x: Tensor) -> bool:
    return weight.shape[-2] <= NARROW and not x.requires_grad and not x.is_cuda


def linear(params: Params, x: Tensor, *, runs: int) -> Tensor:
    """x `[runs * lot, ..., features]` times every run's weight, and its bias where there is one."""
    weight, bias = params["weight"], params.get("bias")
    if runs == 1:
        return F.linear(x, weight[0], None if bias is None else bias[0])
    rows = x.reshape(runs, -1, x.shape[-1])
    out = torch.bmm(rows, weight.mT)
    out = out if bias is None else out.add_(bias.unsqueeze(1))
    return out.view(*x.shape[:-1], out.shape[-1])


def linear_gradients(x: Tensor, grad: Tensor, wanted: Wanted) -> Gradients:
    """Per-example gradients of a weight and a bias, from the input and the gradient of the output, both `[runs, lot, ...]`."""
    if len(wanted) == 2 and x.dim() == 3:
        # One position: weight and bias share the norm of `grad`, so it is taken once for both.
        return {("weight", "bias"): Product(grad.contiguous(), x, (grad.shape[-1], x.shape[-1]), shift=True)}
    runs, lot = x.shape[:2]
    inputs = x.reshape(runs, lot, -1, x.shape[-1])
    grad = grad.contiguous().view(runs, lot, -1, grad.shape[-1])
    if len(wanted) == 2 and prefers_gram(inputs, grad):
        return {("weight", "bias"): Outer(grad, inputs, (grad.shape[-1], inputs.shape[-1]), shift=True)}
    gradients: dict[str | tuple[str, ...], Tensor | Form] = {}
    if "weight" in wanted:
        gradients["weight"] = outer(grad, inputs)
    if "bias" in wanted:
        gradients["bias"] = grad.sum(2)
    return gradients


def gradients_of(use: Use, names: Mapping[str, str], x: Tensor, grad: Tensor) -> Gradients:
    """The same by a composite layer's names of "weight" and "bias", without those that are frozen or not there."""
    full = {part: name for part, name in names.items() if name in use.wanted}
    answer = linear_gradients(x, grad, frozenset(full)) if full else {}
    return {tuple(full[part] for part in named(parts)): form for parts, form in answer.items()}


@rule(nn.Linear)
class Linear(Rule):
    def forward(self, layer: nn.Module, params: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = params["weight"], params.get("bias")
        if not _narrow(weight, x):
            return linear(params, x.flatten(0, 1), runs=len(x)).view(*x.shape[:-1], -1), x
        rows = x.flatten(1, -2).mT
        out = torch.bmm(weight, rows) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, rows)
        return out.mT.reshape(*x.shape[:-1], -1), x

    def gradients(self, layer: nn.Module, params: Params, saved: Tensor, grad: Tensor, wanted: Wanted) -> Gradients:
        return linear_gradients(saved, grad, wanted)

    def back(self, params: Params, grad: Tensor, *, runs: int) -> Tensor:
        weight = params["weight"]
        if runs == 1:
            return torch.matmul(grad, weight[0])
        rows = grad.reshape(runs, -1, grad.shape[-1])
        return torch.bmm(rows, weight).view(*grad.shape[:-1], weight.shape[-1])
