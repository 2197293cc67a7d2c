"""The materialised engine: every per-example gradient is made, by `torch.func` where it can map the model.

Where all of them fit in the memory bound they are kept. Where they do not, they are made chunk by chunk, once for the
norms and once more for the sum, with the same random draws: the gradient that is summed has to be the one whose norm
was taken.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from honestdp.gradients.pieces import Dense, check_weights, is_counted, joined
from honestdp.losses import Loss, one_each

WAYS = ("runs and examples go together", "runs go one by one", "examples go one by one")
"""How a model is mapped, the fastest first: torch.func has no rule for some operations, and for others only one level deep."""
MAPPED = WAYS[:2]
"""The ways in which torch.func shows the model one example at a time."""


def throwaway(model: nn.Module) -> nn.Module:
    """A copy of the model over the same parameters and buffers: what its code keeps in it of one call, no later call sees."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(value): value for value in tensors})


@contextmanager
def mappable(model: nn.Module) -> Iterator[None]:
    """Recurrent layers made fit for torch.func: no fused kernel, and a first state that belongs to the example."""
    recurrent = [m for m in model.modules() if isinstance(m, nn.RNNBase | nn.RNNCellBase)]
    if not recurrent:
        yield
        return
    fused = torch.backends.mkldnn.enabled
    handles = [module.register_forward_pre_hook(_with_first_state) for module in recurrent]
    try:
        with torch.backends.cudnn.flags(enabled=False):
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
            yield
    finally:
        torch.backends.mkldnn.enabled = fused
        for handle in handles:
            handle.remove()


def _with_first_state(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The layer's default first state, zeros, but made from its input, so that torch.func knows whose it is."""
    if not isinstance(args[0], Tensor) or any(state is not None for state in args[1:]):
        return args
    x = args[0]
    if isinstance(module, nn.RNNCellBase):
        state = x.new_zeros(*x.shape[:-1], module.hidden_size)
        return (x, (state, state) if isinstance(module, nn.LSTMCell) else state)
    if not isinstance(module, nn.RNNBase):
        return args
    batch = [] if x.dim() == 2 else [x.shape[0 if module.batch_first else 1]]
    layers = module.num_layers * (2 if module.bidirectional else 1)
    hidden = x.new_zeros(layers, *batch, module.proj_size or module.hidden_size)
    if not isinstance(module, nn.LSTM):
        return (x, hidden)
    return (x, (hidden, x.new_zeros(layers, *batch, module.hidden_size)))


@dataclass(frozen=True)
class Batch:
    """What the gradients are of. strict: every call of the model is made on a copy that is then thrown away."""

    model: nn.Module
    loss: Loss
    params: Mapping[str, Tensor]
    x: Tensor
    y: Tensor
    mapped: str = WAYS[0]
    strict: bool = False

    def gradients(self, first: int, last: int) -> tuple[dict[str, Tensor], Tensor]:
        """The gradients `[runs, last - first, ...]` by name, and the losses, of the examples `first` to `last`."""
        model = throwaway(self.model) if self.strict else self.model

        def one(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            output = functional_call(model, params, (x.unsqueeze(0),))
            return one_each(self.loss(output, y.unsqueeze(0)), 1).squeeze(0)

        lot = vmap(grad_and_value(one), in_dims=(None, 0, 0), randomness="different")
        if self.mapped == WAYS[2]:
            lot = _one_by_one(one)
        runs = vmap(lot, randomness="different") if self.mapped == WAYS[0] else _run_by_run(lot)
        with mappable(model):
            # A copy: a model may write into its input, and gradients can be made twice.
            gradients, losses = runs(dict(self.params), self.x[:, first:last].clone(), self.y[:, first:last])
        return gradients, losses


Made = tuple[dict[str, Tensor], Tensor]


def _stacked(made: list[Made]) -> Made:
    gradients, losses = zip(*made, strict=True)
    return {name: torch.stack([each[name] for each in gradients]) for name in gradients[0]}, torch.stack(losses)


def _one_by_one(one: Callable[..., Tensor]) -> Callable[..., Made]:
    """The gradients by plain autograd, which takes whatever can be trained at all."""

    def made(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Made:
        own = {name: value.detach().requires_grad_() for name, value in params.items()}
        with torch.enable_grad():
            loss = one(own, x, y)
        found = torch.autograd.grad(loss, list(own.values()), allow_unused=True, materialize_grads=True)
        dense = (gradient.to_dense() if gradient.is_sparse else gradient for gradient in found)
        return dict(zip(own, dense, strict=True)), loss.detach()

    return lambda params, x, y: _stacked([made(params, *each) for each in zip(x, y, strict=True)])


def _run_by_run(lot: Callable[..., Made]) -> Callable[..., Made]:
    def runs(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Made:
        own = ({name: value[run] for name, value in params.items()} for run in range(len(x)))
        return _stacked([lot(*each) for each in zip(own, x, y, strict=True)])

    return runs


@dataclass
class Materialised:
    """The two verbs from the gradients themselves, kept whole or made again in chunks of `chunk` examples."""

    batch: Batch
    chunk: int
    norms: Tensor = field(init=False)
    losses: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._states = _random_states(self.batch.x.device) if self._chunks > 1 else None
        norms, losses = [], []
        for gradients, loss in self._made():
            norms.append(joined(Dense(value) for value in gradients.values()))
            losses.append(loss)
        self._kept = gradients if self._chunks == 1 else None
        self.norms, self.losses = torch.cat(norms, 1), torch.cat(losses, 1)

    @property
    def _chunks(self) -> int:
        return -(-self.batch.x.shape[1] // self.chunk)

    def _made(self) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        for first in range(0, self.batch.x.shape[1], self.chunk):
            yield self.batch.gradients(first, first + self.chunk)

    def weighted_sum(self, weights: Tensor) -> dict[str, Tensor]:
        totals = {name: torch.zeros_like(value) for name, value in self.batch.params.items()}
        self.add_weighted_sum(totals, weights)
        return totals

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor) -> None:
        check_weights(weights, self.norms)
        if self._kept is not None:
            _add(totals, self._kept, weights)
            return
        with _replayed(self._states, self.batch.x.device):
            for number, (gradients, _) in enumerate(self._made()):
                part = slice(number * self.chunk, (number + 1) * self.chunk)
                # Whatever a model draws outside torch, what is summed is no longer than what the weights were made for.
                again = joined(Dense(value) for value in gradients.values())
                fair = (self.norms[:, part] / again).clamp_(max=1).nan_to_num_(nan=0)
                _add(totals, gradients, weights[:, part] * fair)


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


def per_example(
    model: nn.Module,
    loss: Loss,
    params: Mapping[str, Tensor],
    x: Tensor,
    y: Tensor,
    *,
    bytes_per_example: int,
    memory: int,
    mapped: str = WAYS[0],
    strict: bool = False,
) -> Materialised:
    """`bytes_per_example`: what the gradient of one example in one run holds while it is made."""
    chunk = max(1, memory // max(1, bytes_per_example * len(x)))
    return Materialised(Batch(model, loss, params, x, y, mapped, strict), min(chunk, x.shape[1]))
