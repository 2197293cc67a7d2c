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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor, nn

from honestdp.gradients import inputs
from honestdp.gradients.by_autograd import ByAutograd
from honestdp.gradients.by_formula import ByFormula, Link
from honestdp.gradients.forms import (
    Dense,
    Form,
    Outer,
    Params,
    PerExample,
    Product,
    check_weights,
    is_counted,
    joined,
    joint_norms,
)
from honestdp.gradients.grouped import grouped
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.rules import Names, Ruled
from honestdp.losses import Loss


@dataclass(frozen=True)
class Layers:
    """The layers of a model that own its trainable parameters, with their rules; and the model as a chain, if it is one."""

    ruled: tuple[Ruled, ...]
    chain: tuple[Link, ...] | None


@dataclass(frozen=True)
class BookKeeping(PerExample):
    """The two verbs from the forms of every layer.

    norms: `[runs, lot]`. forms: by the names of the parameters that each stands for. params: name -> `[runs, ...]`.
    """

    norms: Tensor
    forms: Mapping[Names, Form]
    params: Params

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor) -> None:
        check_weights(weights, self.norms)
        # Finite norms mean finite forms, and norms of a finite sum are finite. Asking would make a GPU wait for the
        # host; there the zeros are always put in.
        finite = not weights.is_cuda and math.isfinite(self.norms.sum().item())
        counted = None if finite else is_counted(weights)
        for names, form in self.forms.items():
            form.add_weighted_sum([totals[name] for name in names], weights, counted=counted)


class Input(NamedTuple):
    """x `[runs, lot, ...]`, and what is known of it before it is read. Of several inputs nothing is.

    finite: it holds finite numbers only. norms: `[runs, lot]`, the norm of every example.
    """

    x: Inputs
    finite: bool = False
    norms: Tensor | None = None

    def inform(self, form: Form) -> Form:
        """`form` with what is known, if its right factor is x itself and not something computed from it."""
        if not isinstance(form, Product | Outer) or not isinstance(self.x, Tensor):
            return form
        right = form.right
        if right.untyped_storage().data_ptr() != self.x.untyped_storage().data_ptr():
            return form
        if isinstance(form, Outer):
            return replace(form, right_finite=self.finite)
        # A part of x has other norms than x.
        whole = right.numel() == self.x.numel() and right.is_contiguous()
        return Product(form.left, right, form.shape, form.shift, self.finite, self.norms if whole else None)


def _merged(uses: list[tuple[Names, Form]]) -> dict[Names, Form]:
    """One form for a parameter that was used several times: its gradients add before a norm is taken.

    A rule may answer with one form for two parameters in one use and with two forms in another, so it is the uses of each
    parameter that are counted.
    """
    counts = Counter(name for names, _ in uses for name in names)
    forms = {names: form for names, form in uses if all(counts[name] == 1 for name in names)}
    if len(forms) == len(uses):
        return forms
    for names in {names for names, _ in uses if names not in forms}:
        several = [form for other, form in uses if other == names]
        if all(counts[name] == len(several) for name in names) and (together := joined(several)) is not None:
            forms[names] = together
    summed: dict[str, Tensor] = {}
    for names, form in uses:
        if names not in forms:
            for name, gradients in zip(names, form.dense(), strict=True):
                summed[name] = summed[name] + gradients if name in summed else gradients
    return forms | {(name,): Dense(gradients) for name, gradients in summed.items()}


def per_example(
    model: nn.Module,
    loss: Loss,
    layers: Layers,
    params: Params,
    known: Input,
    y: Inputs,
    shares: Tensor | None = None,
) -> BookKeeping:
    """The gradients of the examples `known.x` and `y`, both `[runs, lot, ...]`. To be called within `torch.no_grad()`.

    shares: `[runs, records, rows]` where the examples are rows of records, whose gradients they then are (`grouped`).
    """
    x, first = known.x, inputs.first(known.x)
    version = first._version
    runs, lot = inputs.first(y).shape[:2] if shares is None else shares.shape[:2]
    labels = inputs.flat_runs(y)
    forward: ByAutograd | ByFormula
    if layers.chain is None or not isinstance(x, Tensor):
        forward = ByAutograd(model, layers.ruled, params, x)
        known = Input(x)  # nothing is: a model's own code may write to it in ways that nobody counts, such as by .data
    else:
        forward = ByFormula(layers.chain, params, x)
    uses: list[tuple[Names, Form]] = []
    for call, grad in zip(forward.calls, forward.output_gradients(loss, labels, shares), strict=True):
        if grad is not None:
            for names, form in call.gradients(grad, runs=runs):
                # A model that writes into its input has made what is known of it untrue.
                form = known.inform(form) if first._version == version else form
                uses += [(names, form)] if shares is None else grouped(names, form, shares.shape[2])
    forms = _merged(uses)
    norms = joint_norms(forms.values()) if forms else next(iter(params.values())).new_zeros(runs, lot)
    return BookKeeping(norms, forms, params)
