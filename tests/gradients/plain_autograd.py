"""Per-example gradients the slow way: plain autograd, one example of one run at a time."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from honestdp.gradients import PerExample

Loss = Callable[[Tensor, Tensor], Tensor]


def drawn(model: nn.Module, runs: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Random weights for every trainable parameter of the model, `[runs, ...]`."""
    return {
        name: torch.randn(runs, *value.shape, dtype=torch.float64).to(dtype) * 0.5
        for name, value in model.named_parameters()
        if value.requires_grad
    }


def one_at_a_time(
    model: nn.Module, loss: Loss, params: Mapping[str, Tensor], x: Tensor, y: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """The gradients `[runs, lot, ...]` by name and their norms `[runs, lot]`."""
    rows: dict[str, list[Tensor]] = {name: [] for name in params}
    for run in range(len(x)):
        own = {name: value[run].detach().requires_grad_() for name, value in params.items()}
        for i in range(x.shape[1]):
            output = functional_call(model, own, (x[run, i : i + 1],))
            value = loss(output, y[run, i : i + 1]).sum()
            found = torch.autograd.grad(value, list(own.values()), allow_unused=True, materialize_grads=True)
            for name, gradient in zip(own, found, strict=True):
                rows[name].append(gradient.to_dense())
    gradients = {name: torch.stack(values).unflatten(0, x.shape[:2]) for name, values in rows.items()}
    norms = torch.stack([g.reshape(*x.shape[:2], -1).square().sum(-1) for g in gradients.values()]).sum(0).sqrt()
    return gradients, norms


def assert_agrees(
    result: PerExample, model: nn.Module, loss: Loss, params: Mapping[str, Tensor], x: Tensor, y: Tensor
) -> None:
    """Norms and a weighted sum, against plain autograd: 1e-5 relative in float32, 1e-10 in float64."""
    gradients, norms = one_at_a_time(model, loss, params, x, y)
    relative = 1e-5 if norms.dtype == torch.float32 else 1e-10
    assert (norms > 1e-6).all(), "a gradient of nothing tests nothing"
    assert ((result.norms - norms).abs() / norms).max() <= relative
    weights = torch.randn(x.shape[:2], dtype=torch.float64).to(norms.dtype)
    total = result.weighted_sum(weights)
    assert total.keys() == params.keys()
    for name, value in gradients.items():
        expected = torch.einsum("rl,rl...->r...", weights, value)
        scale = torch.einsum("rl,rl->r", weights.abs(), value.reshape(*x.shape[:2], -1).norm(dim=-1)).clamp(min=1e-30)
        error = (total[name] - expected).reshape(len(x), -1).norm(dim=1)
        assert (error / scale).max() <= relative, name
