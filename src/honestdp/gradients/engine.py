"""One call for any model: the plan for a model and a shape of example is made once, then used for every step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MethodType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.gradients import bookkeeping, materialised, plan
from honestdp.gradients.bookkeeping import BookKeeping, Input
from honestdp.gradients.chain import hooked
from honestdp.gradients.trial import Trial
from honestdp.gradients.vetting import refuse_by_name, refuse_mixing_loss

Loss = Callable[[Any, Tensor], Tensor]
MEMORY = 2**30


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

        An example of weight 0 contributes nothing at all, even where its gradient is infinite or not a number. Any
        other example that is not finite has to get weight 0: what it would give is not defined.
        """

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor) -> None:
        """Add that sum to `totals` in place: name -> `[runs, ...]`."""


def per_example(
    model: nn.Module,
    loss: Loss,
    params: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    *,
    memory: int = MEMORY,
    finite_input: bool = False,
    input_norms: Tensor | None = None,
) -> PerExample:
    """The per-example gradients of a population: models of one architecture, each run with its own weights and lot.

    model: the architecture; its frozen parameters and its buffers are shared by all runs.
    loss: called as `loss(output, y)` on examples of all runs in one batch, the first dimension the examples; gives one
        number an example.
    params: name -> `[runs, ...]`, for every parameter of the model with requires_grad.
    x, y: `[runs, lot, ...]`; not to be changed in place until the result has been used.
    finite_input: a promise that x holds finite numbers only, which spares a pass over it.
    input_norms: `[runs, lot]`, the norm of every example's x where the caller knows it, which spares another.
    memory: bytes that the materialised engine may take; more examples than fit are taken in chunks.

    The first call for a model and a shape of example tries the model out on random inputs (a few passes over at most
    6 examples). Make that call before a CUDA graph is captured.
    """
    prepared = Prepared(model, loss, memory=memory)
    with torch.no_grad():
        return prepared(params, x, y, finite_input=finite_input, input_norms=input_norms)


class Prepared:
    """`per_example` for a model and a loss that stay as they are: they are looked at once for each shape of example.

    To be called within `torch.no_grad()`.
    """

    def __init__(self, model: nn.Module, loss: Loss, *, memory: int = MEMORY) -> None:
        checks.whole(least=1, memory=memory)
        self._model, self._loss, self._memory = model, loss, memory
        self._plans: dict[object, plan.Plan] = {}

    def __call__(
        self,
        params: Mapping[str, Tensor],
        x: Tensor,
        y: Tensor,
        *,
        finite_input: bool = False,
        input_norms: Tensor | None = None,
    ) -> PerExample:
        shape = (x.shape[2:], y.shape[2:], x.dtype, y.dtype, x.device, len(x) == 1)
        found = self._plans.get(shape)
        if found is None:
            found = self._plans[shape] = _vetted(self._model, self._loss, params, x, y)
        if x.shape[1] == 0:
            nothing = next(iter(params.values())).new_zeros(x.shape[:2])
            return BookKeeping(nothing.clone, nothing, {}, params)
        if found.layers is not None:
            known = Input(x, finite=finite_input, norms=input_norms)
            return bookkeeping.per_example(self._model, self._loss, found.layers, params, known, y)
        return materialised.per_example(
            self._model,
            self._loss,
            params,
            x,
            y,
            bytes_per_example=found.bytes_per_example,
            memory=self._memory,
            mapped=found.mapped,
        )


def _vetted(model: nn.Module, loss: Loss, params: Mapping[str, Tensor], x: Tensor, y: Tensor) -> plan.Plan:
    """The plan for this model and shape of example, once model, loss and arguments are found fit for each other."""
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if any(is_lazy(value) for value in trainable.values()):
        refuse_by_name(model)
    _check(trainable, params, x, y)
    known = _known(model, tuple(trainable), params, x)
    known.vet_loss(loss, y)
    return known.plan


class _Known:
    """What has been found out about a model for one shape of example."""

    def __init__(self, model: nn.Module, params: Mapping[str, Tensor], x: Tensor) -> None:
        self.plan = plan.make(model, params, x)
        self._model = weakref.ref(model)
        self._params = {name: value.new_empty(1).expand(value.shape) for name, value in params.items()}
        self._x = x.new_empty(1).expand(x.shape)
        self._losses: set[object] = set()

    def vet_loss(self, loss: Loss, y: Tensor) -> None:
        same = _identity(loss)
        if same in self._losses:
            return
        model = self._model()
        assert model is not None
        _not_capturing()
        with _all_digits(y.device), torch.random.fork_rng(devices=[y.device] if y.is_cuda else []):
            refuse_mixing_loss(Trial(model, self._params, self._x), loss, y)
        self._losses.add(same)


def _identity(loss: Loss) -> object:
    """What stays equal for as long as the loss lives; a bound method is a new object each time it is named."""
    if isinstance(loss, MethodType):
        return weakref.ref(loss.__self__), loss.__func__
    return weakref.ref(loss)


_KNOWN: weakref.WeakKeyDictionary[nn.Module, dict[object, _Known]] = weakref.WeakKeyDictionary()


def _known(model: nn.Module, trainable: tuple[str, ...], params: Mapping[str, Tensor], x: Tensor) -> _Known:
    modules = tuple((weakref.ref(module), module.training, hooked(module)) for module in model.modules())
    dtype = next(iter(params.values())).dtype
    key = (modules, trainable, x.shape[2:], x.dtype, dtype, x.device, len(x) == 1)
    known = _KNOWN.setdefault(model, {})
    if key not in known:
        _not_capturing()
        with _all_digits(x.device):
            known[key] = _Known(model, params, x)
    return known[key]


@contextmanager
def _all_digits(device: torch.device) -> Iterator[None]:
    """A trial compares two ways to the same numbers, whatever precision the training itself is given."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _not_capturing() -> None:
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("per_example must be called once with this model, loss and shape before a graph is captured")


def _check(trainable: Mapping[str, Tensor], params: Mapping[str, Tensor], x: Tensor, y: Tensor) -> None:
    if not trainable:
        wanted = "a module with at least one parameter that requires grad"
        raise InvalidArgument("model", "one with zero trainable parameters", wanted)
    if params.keys() != trainable.keys():
        wanted = f"named as the trainable parameters of the model, {sorted(trainable)}"
        raise InvalidArgument("params", sorted(params), wanted)
    if x.dim() < 2 or y.shape[:2] != x.shape[:2]:
        wanted = "of shape [runs, lot, ...], both with the same runs and lot"
        raise InvalidArgument("x and y", (tuple(x.shape), tuple(y.shape)), wanted)
    for name, value in params.items():
        shape = (len(x), *trainable[name].shape)
        if value.shape != shape:
            raise InvalidArgument(f"params[{name!r}]", tuple(value.shape), f"of shape {shape}: [runs, ...]")
        if value.dtype not in (torch.float32, torch.float64):
            raise InvalidArgument(f"params[{name!r}]", value.dtype, "float32 or float64")
