"""Tries model, loss and metric on made-up records, to refuse what cannot be scored; it reads no record's values.

What can go wrong without a record goes wrong here, in words: a metric that raises, gives NaN or more than one number, does not
fit the labels, or remembers records between its calls; a model that in `eval()` lets the records of a batch, or of an earlier
batch, into a record's output. It is a trial, not a proof. It cannot see what made-up records do not set off: memory that begins
after some hundred calls, or a branch that only unusual numbers take.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.boundary.metrics import MACHINE, Metric
from honestdp.boundary.records import zeros_like
from honestdp.boundary.scores import BATCH, Forward, mapped, one_by_one
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs, predictions, vet_forward
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.outputs import main, with_rows
from honestdp.gradients.probe import made_up_inputs, made_up_labels
from honestdp.losses import Loss

_SEED = 20261115


def rehearse(metric: Metric, module: nn.Module, *, loss: Loss, x: Inputs, y: Inputs, strict: bool = False) -> Forward:
    """Refuse what cannot score; how the model is to make its outputs of a batch of records.

    x, y: some records, of which only shapes and kinds are read. strict: each record under a map of its own.
    """
    blanks = inputs.blank(module, x, 2), zeros_like(y, 2)
    # Warnings and torch's generators stay as before: what is tried here leaves no trace.
    with torch.random.fork_rng(devices=inputs.gpus(y)), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        with _blamed_on(module):
            together = vet_forward(copy.deepcopy(module).eval(), loss, *blanks, examples=BATCH, strict=strict)
            forward = mapped if strict else predictions.forward if together > 1 else one_by_one
            made = made_up_inputs(module, x, (BATCH,), torch.Generator().manual_seed(_SEED))
            output = with_rows(forward(copy.deepcopy(module).eval())(made), BATCH)
        labels = _labels(y, output)
        metric.check(loss, output, labels)
    return forward


@contextmanager
def _blamed_on(module: nn.Module) -> Iterator[None]:
    """Within, a failure is the model's, which cannot be scored."""
    try:
        yield
    except (InvalidArgument, *MACHINE):
        raise
    except Exception as trouble:
        wanted = (
            f"one that takes {BATCH} records at a time in eval mode to be scored ({' '.join(str(trouble).split())})"
        )
        raise InvalidArgument("model", type(module).__name__, wanted) from trouble


def _labels(y: Inputs, output: Any) -> Inputs:
    """A label for each row: whole numbers counted through the classes, or through two; others within 0 and 1."""
    first, generator = main(output), torch.Generator().manual_seed(_SEED)

    def made(part: Tensor) -> Tensor:
        several = first.shape[1] if isinstance(y, Tensor) and first.dim() == max(2, part.dim() + 1) else 2
        classes = None if part.is_floating_point() else max(2, several)
        return made_up_labels(part, (len(first), *part.shape[1:]), generator, classes=classes)

    labels: Inputs = inputs.each(made, y)
    return labels
