"""The layer rule for Linear, with any number of dimensions between the example and its features.

z_t = W a_t + b, so for one example dL/dW = sum_t (dL/dz_t) a_t^T and dL/db = sum_t dL/dz_t.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp.gradients.forms import Form, Outer, Params, Product, outer, prefers_gram
from honestdp.gradients.rules import Gradients, Rule, Wanted, rule

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
    out = torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)
    return out.view(*x.shape[:-1], out.shape[-1])


@rule(nn.Linear)
class Linear(Rule):
    def alone(self, layer: nn.Module, params: Params, x: Tensor) -> Tensor | None:
        weight, bias = params["weight"][0], params["bias"][0] if "bias" in params else None
        if _narrow(weight, x) and bias is not None and x.dim() == 2:
            return torch.addmm(bias.unsqueeze(1), weight, x.mT).mT
        return F.linear(x, weight, bias)

    def forward(self, layer: nn.Module, params: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = params["weight"], params.get("bias")
        rows = x.flatten(1, -2)
        if _narrow(weight, x):
            flat = torch.bmm(weight, rows.mT) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, rows.mT)
            return flat.mT.reshape(*x.shape[:-1], -1), x
        out = torch.bmm(rows, weight.mT)
        out = out if bias is None else out.add_(bias.unsqueeze(1))
        return out.view(*x.shape[:-1], out.shape[-1]), x

    def gradients(self, layer: nn.Module, params: Params, saved: Tensor, grad: Tensor, wanted: Wanted) -> Gradients:
        if len(wanted) == 2 and saved.dim() == 3:
            # One position: weight and bias share the norm of `grad`, so it is taken once for both.
            shape = grad.shape[-1], saved.shape[-1]
            return {("weight", "bias"): Product(grad.contiguous(), saved, shape, shift=True)}
        runs, lot = saved.shape[:2]
        inputs = saved.reshape(runs, lot, -1, saved.shape[-1])
        grad = grad.contiguous().view(runs, lot, -1, grad.shape[-1])
        if len(wanted) == 2 and prefers_gram(inputs, grad):
            return {("weight", "bias"): Outer(grad, inputs, (grad.shape[-1], inputs.shape[-1]), shift=True)}
        gradients: dict[str | tuple[str, ...], Tensor | Form] = {}
        if "weight" in wanted:
            gradients["weight"] = outer(grad, inputs)
        if "bias" in wanted:
            gradients["bias"] = grad.sum(2)
        return gradients

    def back(self, params: Params, grad: Tensor, *, runs: int) -> Tensor:
        weight = params["weight"]
        if runs == 1:
            return torch.matmul(grad, weight[0])
        rows = grad.reshape(runs, -1, grad.shape[-1])
        return torch.bmm(rows, weight).view(*grad.shape[:-1], weight.shape[-1])
