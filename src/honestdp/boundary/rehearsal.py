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

from honestdp.boundary.metrics import (
    BATCH,
    OF_SEVERAL,
    Accuracy,
    BalancedAccuracy,
    DeclaredMetric,
    LogLikelihood,
    LogLoss,
    Metric,
    of_rows,
)
from honestdp.boundary.records import zeros_like
from honestdp.boundary.scores import MACHINE, Forward, OneByOne, aligned, mapped, numbers_of, one_by_one
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs, predictions, vet_forward
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.outputs import each_tensor, main, row, tensors_in, with_rows
from honestdp.gradients.probe import made_up_inputs, made_up_labels
from honestdp.losses import Loss, cross_entropy, prediction

_SEED = 20261115
_CALLS = 32  # records that a user's function is tried on, three times each
_LOGITS = (-3.0, -0.3, 0.3, 3.0)


def rehearse(metric: Metric, module: nn.Module, *, loss: Loss, x: Inputs, y: Inputs, strict: bool = False) -> Forward:
    """Refuse what cannot score; how the model is to make its outputs of a batch of records.

    x, y: some records, of which only shapes and kinds are read. strict: each record under a map of its own.
    """
    metric = of_rows(metric)
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
        if isinstance(metric, Accuracy | BalancedAccuracy | LogLoss):
            if not isinstance(labels, Tensor):
                raise InvalidArgument("metric", metric.name, OF_SEVERAL)
            predicted = prediction(output)
            aligned(predicted, labels)
            if isinstance(metric, BalancedAccuracy):
                _check_classes(metric, predicted, labels)
            if predicted.dim() == 1 or predicted.shape[1] == 1:
                _check_logit(loss, output, labels)
            return forward
        numbers = numbers_of(metric, loss)
        if isinstance(metric, LogLikelihood):
            numbers(output, labels)
        if isinstance(numbers, OneByOne):
            _check_function(metric, numbers, output, labels)
    return forward


@contextmanager
def _blamed_on(module: nn.Module) -> Iterator[None]:
    """Within, a failure is the model's, which cannot be scored."""
    try:
        yield
    except (InvalidArgument, *MACHINE):
        raise
    except Exception as trouble:
        wanted = f"one that takes {BATCH} records at a time in eval mode to be scored ({_line(trouble)})"
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


def _check_classes(metric: BalancedAccuracy, output: Tensor, y: Tensor) -> None:
    """That the declared classes are those of the model, one label a record."""
    numbers_of(metric, cross_entropy)(output, y)
    classes = 2 if output.dim() == 1 else max(2, output.shape[1])
    if len(metric.prevalence) != classes:
        raise InvalidArgument(
            "prevalence", list(metric.prevalence), f"of {classes} classes, as the model's outputs have"
        )


def _check_logit(loss: Loss, output: Any, y: Tensor) -> None:
    """That one output is a logit to the loss, too: label 1 has the smaller loss above 0, label 0 below."""
    predicted, label = prediction(output), y[:1]

    def at(logit: float) -> Any:
        """The first example's output with this prediction."""
        return each_tensor(lambda part: torch.full_like(part[:1], logit) if part is predicted else part[:1], output)

    try:
        losses = [[float(loss(at(one), torch.full_like(label, value)).sum()) for value in (0, 1)] for one in _LOGITS]
        agree = all((second < first) == (one > 0) for one, (first, second) in zip(_LOGITS, losses, strict=True))
    except MACHINE:
        raise
    except Exception:
        agree = False
    if not agree:
        wanted = (
            "another than accuracy for one output and this loss. Accuracy reads one output as a logit, class 1 above 0, and the "
            "loss does not: the labels are no classes, or the output is a probability. Take honestdp.ClippedLoss(bound), "
            "honestdp.DeclaredMetric(function, low=, high=), a loss of logits (binary_cross_entropy_with_logits), or an output "
            "for each class"
        )
        raise InvalidArgument("metric", "accuracy", wanted)


def _check_function(metric: Metric, numbers: OneByOne, output: Any, y: Inputs) -> None:
    """That a user's function gives a record one number, and the same one whatever it was called with before."""
    forth = list(range(min(_CALLS, len(inputs.first(y)))))
    alone: dict[int, Tensor] = {}
    try:
        for i in [*forth, *reversed(forth), *forth]:
            number = numbers.alone(
                each_tensor(torch.clone, row(output, i)), inputs.each(torch.clone, inputs.rows(y, i))
            )
            if all(bool(torch.isfinite(part[i]).all()) for part in tensors_in(output)[0]) and not bool(
                torch.isfinite(number)
            ):
                raise _unfit(metric, f"one that gives finite numbers; of a made-up record it is {float(number)}")
            if not torch.allclose(alone.setdefault(i, number), number, rtol=1e-5, atol=0, equal_nan=True):
                raise _unfit(metric, _MEMORY)
        together = numbers(output, y)[: len(forth)]
    except (InvalidArgument, *MACHINE):
        raise
    except Exception as trouble:
        shapes = ", ".join(str(list(part.shape[1:])) for part in tensors_in(output)[0])
        given = f"an output of shape {shapes} and {inputs.in_words(y, 'labels')}"
        wanted = f"one that makes a number of one record, {given} ({_line(trouble)})"
        raise _unfit(metric, wanted) from trouble
    if not torch.allclose(together, torch.stack([alone[i] for i in forth]), rtol=1e-3, atol=1e-6, equal_nan=True):
        raise _unfit(metric, _MEMORY)


_MEMORY = "one that gives a record the same number whenever it is called: no memory of other records, no chance"


def _unfit(metric: Metric, wanted: str) -> InvalidArgument:
    blamed = ("metric", metric.name) if isinstance(metric, DeclaredMetric) else ("loss", "one for ClippedLoss")
    return InvalidArgument(*blamed, wanted)


def _line(trouble: Exception) -> str:
    return " ".join(str(trouble).split())
