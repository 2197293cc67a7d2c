"""The materialised engine: every per-example gradient as a tensor, by `torch.func` where it can map the model.

Where all of them fit in the memory bound they are kept. Where they do not, they are made chunk by chunk, once for the
norms and once more for the sum, with the same random draws: the gradient that is summed has to be the one whose norm
was taken.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from honestdp.gradients import inputs
from honestdp.gradients.forms import Dense, Params, PerExample, check_weights, is_counted, joint_norms
from honestdp.gradients.grouped import shared
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.layers.attention import MappableAttention
from honestdp.losses import Loss, one_each

WAYS = ("runs and examples go together", "runs go one by one", "examples go one by one")
"""How a model is mapped, the fastest first: torch.func has no rule for some operations, and for others only one level deep."""
MAPPED = WAYS[:2]
"""The ways in which torch.func shows the model one example at a time."""


Gradients = dict[str, Tensor]
"""By the parameter's name, `[..., *shape]`."""


def throwaway(model: nn.Module) -> nn.Module:
    """A copy of the model over the same parameters and buffers: what its code keeps in it of one call, no later call sees."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(value): value for value in tensors})


@contextmanager
def mappable(model: nn.Module) -> Iterator[None]:
    """Attention and recurrent layers made fit for torch.func: no fused kernels, for which it has no rule or a loop alone, and a
    first state that belongs to the example.
    """
    with sdpa_kernel(SDPBackend.MATH), MappableAttention(), _recurrent_unfused(model):
        yield


@contextmanager
def _recurrent_unfused(model: nn.Module) -> Iterator[None]:
    recurrent = [m for m in model.modules() if isinstance(m, nn.RNNBase | nn.RNNCellBase)]
    if not recurrent:
        yield
        return
    fused, fused_gpu = torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled
    handles = [module.register_forward_pre_hook(_with_first_state) for module in recurrent]
    try:
        # one by one: `cudnn.flags` also asks for one TensorFloat-32 flag of all layers, and fails where they differ
        torch.backends.cudnn.enabled = False
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        yield
    finally:
        torch.backends.cudnn.enabled = fused_gpu
        torch.backends.mkldnn.enabled = fused
        for handle in handles:
            handle.remove()


def _with_first_state(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The layer's default first state, zeros, but made from its input, so that torch.func knows whose it is."""
    if not isinstance(args[0], Tensor) or any(state is not None for state in args[1:]):
        return args
    x = args[0]
    if isinstance(module, nn.RNNCellBase):
        state = x.new_zeros(*x.shape[:-1], module.hidden_size)
        return (x, (state, state) if isinstance(module, nn.LSTMCell) else state)
    batch = [] if x.dim() == 2 else [x.shape[0 if module.batch_first else 1]]
    layers = module.num_layers * (2 if module.bidirectional else 1)
    hidden = x.new_zeros(layers, *batch, module.proj_size or module.hidden_size)
    if not isinstance(module, nn.LSTM):
        return (x, hidden)
    return (x, (hidden, x.new_zeros(layers, *batch, module.hidden_size)))


@dataclass(frozen=True)
class Batch:
    """What the gradients are of: params name -> `[runs, ...]`, x and y `[runs, lot, ...]`.

    mapped: one of WAYS. strict: every call of the model is made on a copy that is then thrown away. shares: `[runs, lot, rows]`
    where x and y are rows of records, `[runs, lot * rows, ...]`, whose gradients they then are (`grouped`).
    """

    model: nn.Module
    loss: Loss
    params: Params
    x: Inputs
    y: Inputs
    mapped: str = WAYS[0]
    strict: bool = False
    shares: Tensor | None = None

    @property
    def lot(self) -> int:
        return int(inputs.first(self.y).shape[1]) if self.shares is None else self.shares.shape[1]

    @property
    def rows(self) -> int:
        """Of every record; 1 where an example is the record."""
        return 1 if self.shares is None else self.shares.shape[2]

    def gradients(self, first: int, last: int) -> Gradients:
        """The gradients `[runs, last - first, ...]` of the examples, or records, `first` to `last`."""
        if self.shares is None:
            return self._gradients(first, last)
        of_rows = self._gradients(first * self.rows, last * self.rows)
        return {name: shared(values, self.shares[:, first:last]) for name, values in of_rows.items()}

    def _gradients(self, first: int, last: int) -> Gradients:
        model = throwaway(self.model) if self.strict else self.model

        def loss_of(params: dict[str, Tensor], x: Inputs, y: Inputs) -> Tensor:
            output = inputs.call_with(model, params, inputs.alone(x))
            return one_each(self.loss(output, inputs.alone(y)), 1).squeeze(0)

        lot: Callable[..., Gradients] = vmap(grad(loss_of), in_dims=(None, 0, 0), randomness="different")
        if self.mapped == WAYS[2]:
            lot = _one_by_one(loss_of)
        runs = vmap(lot, randomness="different") if self.mapped == WAYS[0] else _run_by_run(lot)
        with mappable(model):
            # A copy: a model may write into its input, and gradients can be made twice.
            x = inputs.each(lambda leaf: leaf[:, first:last].clone(), self.x)
            return runs(dict(self.params), x, inputs.rows(self.y, (slice(None), slice(first, last))))


def _stacked(gradients: list[Gradients]) -> Gradients:
    return {name: torch.stack([each[name] for each in gradients]) for name in gradients[0]}


def _one_by_one(loss_of: Callable[..., Tensor]) -> Callable[..., Gradients]:
    """The gradients by plain autograd, which takes whatever can be trained at all."""

    def example(params: dict[str, Tensor], x: Inputs, y: Inputs) -> Gradients:
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        with torch.enable_grad():
            loss = loss_of(leaves, x, y)
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
        dense = (gradient.to_dense() if gradient.is_sparse else gradient for gradient in gradients)
        return dict(zip(leaves, dense, strict=True))

    def lot(params: dict[str, Tensor], x: Inputs, y: Inputs) -> Gradients:
        places = range(len(inputs.first(y)))
        return _stacked([example(params, inputs.rows(x, place), inputs.rows(y, place)) for place in places])

    return lot


def _run_by_run(lot: Callable[..., Gradients]) -> Callable[..., Gradients]:
    def runs(params: dict[str, Tensor], x: Inputs, y: Inputs) -> Gradients:
        of_each = ({name: value[run] for name, value in params.items()} for run in range(len(inputs.first(y))))
        return _stacked([lot(own, inputs.rows(x, run), inputs.rows(y, run)) for run, own in enumerate(of_each)])

    return runs


class Materialised(PerExample):
    """The two verbs from the gradients themselves, kept whole or made again in chunks of examples. norms: `[runs, lot]`."""

    def __init__(self, batch: Batch, chunk: int) -> None:
        self.batch, self.params, self.chunk = batch, batch.params, chunk
        self._states = _random_states(inputs.first(batch.y).device) if self._chunks > 1 else None
        norms = []
        for gradients in self._by_chunk():
            norms.append(_norms(gradients))
        self._whole = gradients if self._chunks == 1 else None
        self.norms = torch.cat(norms, 1)

    @property
    def _chunks(self) -> int:
        return -(-self.batch.lot // self.chunk)

    def _by_chunk(self) -> Iterator[Gradients]:
        for first in range(0, self.batch.lot, self.chunk):
            yield self.batch.gradients(first, first + self.chunk)

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor) -> None:
        check_weights(weights, self.norms)
        if self._whole is not None:
            _add(totals, self._whole, weights)
            return
        with _replayed(self._states, inputs.first(self.batch.y).device):
            for number, gradients in enumerate(self._by_chunk()):
                part = slice(number * self.chunk, (number + 1) * self.chunk)
                # Whatever a model draws outside torch, what is summed is no longer than what the weights were made for.
                ratio = (self.norms[:, part] / _norms(gradients)).clamp_(max=1).nan_to_num_(nan=0)
                _add(totals, gradients, weights[:, part] * ratio)


def _norms(gradients: Gradients) -> Tensor:
    return joint_norms(Dense(value) for value in gradients.values())


def _add(totals: Mapping[str, Tensor], gradients: Mapping[str, Tensor], weights: Tensor) -> None:
    for name, value in gradients.items():
        Dense(value).add_weighted_sum([totals[name]], weights, counted=is_counted(weights))


RandomStates = tuple[Tensor, Tensor | None]


def _random_states(device: torch.device) -> RandomStates:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


@contextmanager
def _replayed(states: RandomStates | None, device: torch.device) -> Iterator[None]:
    """Draw again what was drawn from `states` on, then go on from where the generators are now."""
    if states is None:
        yield
        return
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.set_rng_state(states[0])
        if states[1] is not None:
            torch.cuda.set_rng_state(states[1], device)
        yield


def per_example(batch: Batch, *, bytes_per_example: int, memory: int) -> Materialised:
    """The gradients of a batch, in chunks that fit in `memory` bytes.

    bytes_per_example: what the gradient of one example in one run holds while it is made.
    """
    chunk = max(1, memory // max(1, bytes_per_example * batch.rows * len(inputs.first(batch.y))))
    return Materialised(batch, min(chunk, batch.lot))
