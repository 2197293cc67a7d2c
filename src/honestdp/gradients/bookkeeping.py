"""The book-keeping engine: one forward and one backward for the whole population, and no parameter gradient in it.

The model is run once on all runs times lot examples as one batch. Examples do not interact, so only the layers with
trainable parameters need to know which run an example belongs to: their rule stands in for their forward. Every such
layer's input is kept, the backward pass goes to the layers' outputs only, and the two together hold every per-example
gradient (Bu et al. 2023, "Differentially Private Optimization on Large Model at Small Cost", for one model; here for a
population). Layers that are frozen run as they are, on the whole batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from honestdp.gradients.chain import Chained, Link
from honestdp.gradients.pieces import Dense, Outer, Piece, Product, check_weights, is_counted, joined
from honestdp.gradients.ruled import Names, Ruled
from honestdp.gradients.traced import Traced
from honestdp.losses import Loss


@dataclass(frozen=True)
class Layers:
    """The layers of a model that own its trainable parameters, with their rules; and the model as a chain, if it is one."""

    ruled: tuple[Ruled, ...]
    chain: tuple[Link, ...] | None


@dataclass(frozen=True)
class BookKeeping:
    """The two verbs from the pieces of every layer. pieces: by the names of the parameters that each stands for."""

    make_losses: Callable[[], Tensor]
    norms: Tensor
    pieces: Mapping[Names, Piece]
    params: Mapping[str, Tensor]

    @property
    def losses(self) -> Tensor:
        with torch.no_grad():
            return self.make_losses().view(self.norms.shape)

    def weighted_sum(self, weights: Tensor) -> dict[str, Tensor]:
        totals = {name: torch.zeros_like(value) for name, value in self.params.items()}
        self.add_weighted_sum(totals, weights)
        return totals

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor) -> None:
        check_weights(weights, self.norms)
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

    def tell(self, piece: Piece) -> Piece:
        """`piece` with what is known, if its right factor is x itself and not something made of it."""
        if not isinstance(piece, Product | Outer):
            return piece
        right = piece.right
        if right.untyped_storage().data_ptr() != self.x.untyped_storage().data_ptr():
            return piece
        if isinstance(piece, Outer):
            return replace(piece, right_finite=self.finite)
        whole = right.numel() == self.x.numel() and right.is_contiguous()
        return Product(piece.left, right, piece.shape, piece.shift, self.finite, self.norms if whole else None)


def _merged(found: list[tuple[Names, Piece]]) -> dict[Names, Piece]:
    """One piece for a parameter that was used several times: its gradients add before a norm is taken.

    A rule may answer with one piece for two parameters in one use and with two pieces in another, so it is the uses of each
    parameter that are counted.
    """
    uses = Counter(name for names, _ in found for name in names)
    pieces = {names: piece for names, piece in found if all(uses[name] == 1 for name in names)}
    several: dict[str, Tensor] = {}
    for names, piece in found:
        if names not in pieces:
            for name, gradients in zip(names, piece.dense(), strict=True):
                several[name] = several[name] + gradients if name in several else gradients
    return pieces | {(name,): Dense(gradients) for name, gradients in several.items()}


def per_example(
    model: nn.Module, loss: Loss, layers: Layers, params: Mapping[str, Tensor], given: Input, y: Tensor
) -> BookKeeping:
    """To be called within `torch.no_grad()`."""
    x, version = given.x, given.x._version
    runs, lot = x.shape[:2]
    labels = y.flatten(0, 1)
    done = Traced(model, layers.ruled, params, x) if layers.chain is None else Chained(layers.chain, params, x)
    found: list[tuple[Names, Piece]] = []
    for call, grad in zip(done.calls, done.output_gradients(loss, labels), strict=True):
        if grad is not None:
            for names, piece in call.gradients(grad, runs=runs):
                # A model that writes into its input has made what is known of it untrue.
                found.append((names, given.tell(piece) if x._version == version else piece))
    pieces = _merged(found)
    norms = joined(pieces.values()) if pieces else next(iter(params.values())).new_zeros(runs, lot)
    output = done.output
    return BookKeeping(lambda: loss(output, labels), norms, pieces, params)
