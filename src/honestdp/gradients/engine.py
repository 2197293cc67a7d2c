"""One call for any model: the plan for a model and a shape of example is made once, then used for every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from honestdp.checks import InvalidArgument
from honestdp.gradients import bookkeeping, materialised, plan

Loss = Callable[[Tensor, Tensor], Tensor]
MEMORY = 2**30

_PLANS: WeakKeyDictionary[nn.Module, dict[object, plan.Plan]] = WeakKeyDictionary()


class PerExample(Protocol):
    """The gradients of every example in every run, behind two verbs."""

    @property
    def losses(self) -> Tensor:
        """`[runs, lot]`, the loss of every example. Private: it must not leave."""

    @property
    def norms(self) -> Tensor:
        """`[runs, lot]`, the norm of every example's gradient over all trainable parameters.

        Infinite or not a number where the gradient is, or where its square leaves the range of the dtype: such an
        example has to get weight 0.
        """

    def weighted_sum(self, weights: Tensor) -> dict[str, Tensor]:
        """The sum over the lot of `weights` `[runs, lot]` times the gradients: name -> `[runs, ...]`.

        An example of weight 0 contributes nothing at all, even where its gradient is infinite or not a number.
        """


def per_example(
    model: nn.Module,
    loss: Loss,
    params: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    *,
    memory: int = MEMORY,
) -> PerExample:
    """The per-example gradients of a population: models of one architecture, each run with its own weights and lot.

    model: the architecture; its frozen parameters and its buffers are shared by all runs.
    loss: called as `loss(output, y)` on all examples of all runs in one batch, the first dimension the examples; gives
        one number an example.
    params: name -> `[runs, ...]`, for every parameter of the model with requires_grad.
    x, y: `[runs, lot, ...]`.
    memory: bytes that the materialised engine may use for gradients; more examples than fit are taken in chunks.

    The first call for a model and a shape of example tries the model out on random inputs (a few passes over 6
    examples). Make that call before a CUDA graph is captured.
    """
    _check(params, x, y)
    runs, lot = x.shape[:2]
    chosen = _plan(model, params, x)
    if chosen.layers is not None:
        return bookkeeping.per_example(model, loss, list(chosen.layers), params, x, y)
    needed = chosen.bytes_per_example
    return materialised.per_example(model, loss, params, x, y, bytes_per_example=needed, memory=memory)


def _plan(model: nn.Module, params: Mapping[str, Tensor], x: Tensor) -> plan.Plan:
    modules = tuple((id(module), module.training) for module in model.modules())
    trainable = tuple(name for name, value in model.named_parameters() if value.requires_grad)
    dtype = next(iter(params.values())).dtype
    key = (modules, trainable, x.shape[2:], x.dtype, dtype, x.device, len(x) == 1)
    plans = _PLANS.setdefault(model, {})
    if key not in plans:
        plans[key] = plan.make(model, params, x)
    return plans[key]


def _check(params: Mapping[str, Tensor], x: Tensor, y: Tensor) -> None:
    pass
