"""The book-keeping engine: one forward and one backward for the whole population, and no parameter gradient in it.

The model is run once on all runs times lot examples as one batch. Examples do not interact, so only the layers with
trainable parameters need to know which run an example belongs to: their rule stands in for their forward. Every such
layer's input is kept, the backward pass goes to the layers' outputs only, and the two together hold every per-example
gradient (Bu et al. 2023, "Differentially Private Optimization on Large Model at Small Cost", for one model; here for a
population). Layers that are frozen run as they are, on the whole batch.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from honestdp.checks import InvalidArgument
from honestdp.gradients import rules
from honestdp.gradients.pieces import Dense, Outer, Piece, is_counted, joined
from honestdp.gradients.rules import Rule, Unruled
from honestdp.losses import slope_of

_STANDING_IN = threading.RLock()
_unsafe_view = torch.ops.aten._unsafe_view.default

Names = tuple[str, ...]


@dataclass(frozen=True)
class Ruled:
    """Where a layer with trainable parameters is in the model, its rule, and its parameters."""

    path: str
    layer: weakref.ref[nn.Module]
    rule: Rule
    trainable: Mapping[str, str]
    """Own name of a trainable parameter -> its name in the model."""
    frozen: tuple[str, ...]


class Call(NamedTuple):
    """One use of a layer in the forward pass."""

    ruled: Ruled
    layer: nn.Module
    own: Mapping[str, Tensor]
    kept: Tensor
    version: int
    output: GradientEdge

    def gradients(self, grad: Tensor, *, runs: int) -> Iterator[tuple[Names, Piece]]:
        """The pieces of this layer with the parameters' names in the model, from `grad` `[runs * lot, ...]`."""
        if self.kept._version != self.version:
            raise Unruled(f"the input of {self.ruled.path} is changed in place after the layer has read it")
        grad = grad.view(runs, -1, *grad.shape[1:])
        names = self.ruled.trainable
        for own, found in self.ruled.rule.gradients(self.layer, self.own, self.kept, grad, frozenset(names)).items():
            yield tuple(names[name] for name in ((own,) if isinstance(own, str) else own)), rules.as_piece(found)


@dataclass(frozen=True)
class BookKeeping:
    """The two verbs from the pieces of every layer. pieces: by the names of the parameters that each stands for."""

    make_losses: Callable[[], Tensor]
    norms: Tensor
    pieces: Mapping[Names, Piece]
    params: Mapping[str, Tensor]

    @property
    def losses(self) -> Tensor:
        return self.make_losses().view(self.norms.shape)

    def weighted_sum(self, weights: Tensor) -> dict[str, Tensor]:
        totals = {name: torch.zeros_like(value) for name, value in self.params.items()}
        self.add_weighted_sum(totals, weights)
        return totals

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor) -> None:
        # Finite norms mean finite pieces, and norms of a finite sum are finite. Asking would make a GPU wait for the
        # host; there the zeros are always put in.
        finite = not weights.is_cuda and math.isfinite(self.norms.sum().item())
        counted = None if finite else is_counted(weights)
        for names, piece in self.pieces.items():
            piece.add_weighted_sum([totals[name] for name in names], weights, counted=counted)


class Input(NamedTuple):
    """x `[runs, lot, ...]`, and what is known of it before it is read.

    finite: it holds finite numbers only. norms: `[runs, lot]`, the norm of every example.
    """

    x: Tensor
    finite: bool = False
    norms: Tensor | None = None

    def tell(self, piece: Piece, kept: Tensor) -> Piece:
        """`piece`, made from what a layer kept, with what is known if that is x itself."""
        if not isinstance(piece, Outer) or kept.untyped_storage().data_ptr() != self.x.untyped_storage().data_ptr():
            return piece
        whole = piece.right.shape[2:] == (1, math.prod(self.x.shape[2:]))
        return replace(piece, right_finite=self.finite, right_norms=self.norms if whole else None)


def _stand_in(
    layer: nn.Module, ruled: Ruled, params: Mapping[str, Tensor], shape: tuple[int, int], calls: list[Call]
) -> Callable[..., Tensor]:
    """A forward for `layer` that reads every run's own parameters and notes the call."""
    runs, lot = shape
    own = {name: params[full] for name, full in ruled.trainable.items()}
    for name in ruled.frozen:
        value = getattr(layer, name)
        own[name] = value.expand(runs, *value.shape)

    def forward(*args: Tensor, **kwargs: object) -> Tensor:
        if len(args) != 1 or kwargs:
            raise Unruled(f"{ruled.path} is called with more than its input")
        x = args[0]
        if x.dim() == 0 or len(x) != runs * lot:
            raise Unruled(f"the first dimension of the input of {ruled.path} is not the examples")
        given = x.view(runs, lot, *x.shape[1:])
        out = ruled.rule.alone(layer, own, x) if runs == 1 else None
        if out is None:
            out, kept = ruled.rule.forward(layer, own, given)
            out = out.flatten(0, 1)
        else:
            kept = given
        folded = _tracked(out, reads=ruled.rule.reads_output)
        calls.append(Call(ruled, layer, own, kept, kept._version, GradientEdge(folded.grad_fn, folded.output_nr)))
        return folded

    return forward


def _tracked(out: Tensor, *, reads: bool) -> Tensor:
    """A layer's output as a tensor of the backward pass that a model may change in place: neither a leaf nor a view."""
    if reads:
        out = out.clone()
    # Parameters have no part in the backward pass, so it is at the outputs of the first layers that it ends.
    leaf = not out.requires_grad
    return _unsafe_view(out.requires_grad_(), out.shape) if leaf or out._is_view() else out


def _forward(
    model: nn.Module, layers: tuple[Ruled, ...], params: Mapping[str, Tensor], x: Tensor
) -> tuple[Any, list[Call]]:
    """The model's output for x `[runs, lot, ...]`, its layers run by their rules, and what they did."""
    calls: list[Call] = []
    found = [(layer, ruled) for ruled in layers if (layer := ruled.layer()) is not None]
    with _STANDING_IN:
        try:
            for layer, ruled in found:
                layer.__dict__["forward"] = _stand_in(layer, ruled, params, x.shape[:2], calls)
            return model(x.flatten(0, 1)), calls
        finally:
            for layer, _ in found:
                layer.__dict__.pop("forward", None)


def _merged(found: list[tuple[Names, Piece]]) -> dict[Names, Piece]:
    """One piece for a layer that was used several times: the gradients add before a norm is taken."""
    several: dict[Names, list[Piece]] = {}
    for names, piece in found:
        several.setdefault(names, []).append(piece)
    pieces: dict[Names, Piece] = {}
    for names, same in several.items():
        if len(same) == 1:
            pieces[names] = same[0]
            continue
        sums = (reduce(torch.add, each) for each in zip(*(piece.dense() for piece in same), strict=True))
        pieces.update({(name,): Dense(gradients) for name, gradients in zip(names, sums, strict=True)})
    return pieces


def per_example(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    layers: tuple[Ruled, ...],
    params: Mapping[str, Tensor],
    given: Input,
    y: Tensor,
) -> BookKeeping:
    """To be called within `torch.no_grad()`."""
    x, version = given.x, given.x._version
    runs, lot = x.shape[:2]
    labels = y.flatten(0, 1)
    with torch.enable_grad():
        output, calls = _forward(model, layers, params, x)
        slope = slope_of(loss, output)
        losses = one_each(loss(output, labels), runs * lot) if slope is None else None
    if losses is None:
        grads = _output_gradients(output, slope(output.detach(), labels), calls)
    else:
        grads = _output_gradients(losses, torch.ones_like(losses), calls)
    found: list[tuple[Names, Piece]] = []
    for call, grad in zip(calls, grads, strict=True):
        if grad is not None:
            for names, piece in call.gradients(grad, runs=runs):
                # A model that writes into its input has made what is known of it untrue.
                found.append((names, given.tell(piece, call.kept) if x._version == version else piece))
    pieces = _merged(found)
    norms = joined(pieces.values()) if pieces else next(iter(params.values())).new_zeros(runs, lot)
    return BookKeeping(lambda: loss(output.detach(), labels), norms, pieces, params)


def one_each(losses: Tensor, examples: int) -> Tensor:
    """`losses`, once it is sure that there is one for every example."""
    if losses.shape != (examples,):
        wanted = f"one number an example, shape ({examples},) here; PyTorch's own losses need reduction='none'"
        raise InvalidArgument("loss", f"a result of shape {tuple(losses.shape)}", wanted)
    return losses


def _output_gradients(result: Tensor, slope: Tensor, calls: list[Call]) -> tuple[Tensor | None, ...]:
    """The gradient of `slope` times `result`, summed, for the output of every call; None where it does not depend on it."""
    if not calls or not result.requires_grad:
        return (None,) * len(calls)
    edges = [call.output for call in calls]
    return torch.autograd.grad(result, edges, grad_outputs=slope, allow_unused=True)
