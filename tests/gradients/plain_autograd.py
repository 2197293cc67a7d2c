"""Per-example gradients the slow way: those of the reference, one example of one run at a time."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from honestdp.gradients import PerExample
from honestdp.reference import gradient

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
    runs = [torch.cat([value[run].flatten() for value in params.values()]) for run in range(len(x))]
    flat = torch.stack(
        [
            torch.stack([gradient(model, loss, own, [record]) for record in zip(x[run], y[run], strict=True)])
            for run, own in enumerate(runs)
        ]
    )
    parts = flat.split([value[0].numel() for value in params.values()], 2)
    gradients = {
        name: part.view(*x.shape[:2], *params[name].shape[1:]) for name, part in zip(params, parts, strict=True)
    }
    return gradients, flat.norm(dim=2)


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
