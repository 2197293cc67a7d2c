"""`ScoreDoor`: scores models on the validation records; only whole numbers with noise in them come out.

Rule 16 is kept by construction. The model sees the records in batches of one public width, the last one filled up with blank
records, and gives a row for each; this module itself cuts output and labels into one row a record. From there on every record
is alone: a metric of honestdp's own is computed row by row on shapes that were checked, and a user's function, be it a metric
or a loss, is handed one record at a time (`torch.func.vmap` where it can be mapped, else a loop over copies). One number a record
comes back, or NaN where something failed, `Metric.units` makes a whole number from -D to D of each, and these are summed. So one
record more or less moves the sum by at most D if the model gives a record the same row in any company; that the model does is
tried before the charge (`rehearsal`), or holds by construction where `forward` maps the model over single records.

Where a record is a person, what is said of records up to here is so of rows; a person's number is then the mean over their rows,
each within the metric's range, and that number is what becomes a whole one.

The model and users' functions get copies of the records. A model that writes to its own weights or buffers, which would carry
something of a record to the others, stops the search.

A batch on which the model or a mapped function fails is halved, each half filled up to the same width, until the failing record
is alone: it must not take the others with it, for then it alone would move the sum by all of theirs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from honestdp.boundary.metrics import (
    BATCH,
    Accuracy,
    BalancedAccuracy,
    DeclaredMetric,
    LogLikelihood,
    LogLoss,
    Metric,
    check_metric,
    of_rows,
)
from honestdp.boundary.people import RowsOfPeople
from honestdp.boundary.records import zeros_like
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs, mapped_outputs, outputs, predictions
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.write_guard import ModelWritten, TensorSnapshot, tensors_of, versions_of
from honestdp.losses import Loss, cross_entropy, one_number, prediction, squared_error

Forward = Callable[[nn.Module], Callable[[Inputs], Any]]
"""A model, prepared once a score -> its outputs of a batch `[width, ...]`."""
Numbers = Callable[[Any, Any], Tensor]
"""output, of n rows, and y `[n, ...]` -> one number a record, `[n]`."""
MACHINE = (torch.OutOfMemoryError, MemoryError, torch.AcceleratorError)
"""What is no record's own: it stops the search. After an error of an accelerator it computes nothing more, for any record."""


def one_by_one(model: nn.Module) -> Callable[[Inputs], Any]:
    """Each record by itself, for a model that reads numbers to choose its way: it would choose for a whole batch together."""

    def outputs_of(x: Inputs) -> Any:
        each = (inputs.rows(x, slice(i, i + 1)) for i in range(len(inputs.first(x))))
        return outputs.joined([outputs.with_rows(inputs.call(model, one), 1) for one in each])

    return outputs_of


def mapped(model: nn.Module) -> Callable[[Inputs], Any]:
    """Each record under a map of its own."""
    return partial(mapped_outputs, model)


class ScoreDoor:
    """The validation records, and the secret noise that every score leaves with."""

    def __init__(
        self,
        x: Inputs,
        y: Inputs,
        *,
        loss: Loss,
        metric: Metric,
        noise: Sequence[tuple[int, ...]],
        forward: Forward = predictions.forward,
        width: int = BATCH,
        blank: Inputs | None = None,
        people: RowsOfPeople | None = None,
    ) -> None:
        """noise: for each run the numbers that are drawn for it, one for each question about it. forward: how a model makes its
        outputs of a batch `[width, ...]`. blank: `[1, ...]`, what a batch is filled up with; zeros where it is not given.
        people: where a record is a person, whose rows x and y are then.
        """
        check_metric(metric)
        self._people = people
        self._metric, self._forward, self._width, self._noise = metric, forward, width, dict(enumerate(noise))
        self._numbers = numbers_of(metric, loss)
        self._blank = inputs.each(lambda part: part.new_zeros(1, *part.shape[1:]), x) if blank is None else blank
        cuts = [slice(first, first + width) for first in range(0, len(inputs.first(y)), width)]
        self._batches = [(inputs.rows(x, cut), inputs.rows(y, cut)) for cut in cuts]

    def score(self, run: int, model: nn.Module) -> tuple[int, ...]:
        """S + z of a run's model, for each z of its noise. Once a run: two models with one noise would tell their difference."""
        noise = self._noise.pop(run)
        total = self._total(model)
        return tuple(_noisy(total, z) for z in noise)

    @torch.no_grad()
    def _total(self, model: nn.Module) -> Tensor:
        """S, exact: it does not leave."""
        model.eval()
        tensors = tensors_of(model)
        before, versions = TensorSnapshot(tensors), versions_of(tensors)
        forward = self._forward(model)
        numbers = [self._one_each(forward, x, y) for x, y in self._batches]
        if before.written(tensors_of(model), versions) is not None:
            raise ModelWritten
        if not numbers:
            return torch.zeros((), dtype=torch.int64)
        each = torch.cat(numbers)
        if self._people is not None:
            each = self._people.means(self._metric.within(each))  # one number a person, from here on as one a record
        return self._metric.units(each).sum()

    def _one_each(self, forward: Callable[[Inputs], Any], x: Inputs, y: Inputs) -> Tensor:
        """One number a record, NaN for those that fail. x, y: at most `width` records."""
        count = len(inputs.first(y))
        try:
            # A copy: a model may write into its input, and a record must be the same for every run, and if it is tried again.
            filled = inputs.each(torch.clone, self._filled(x, self._blank))
            output = outputs.with_rows(forward(filled), self._width)
            found = self._numbers(output, self._filled(y, zeros_like(y, 1)))
            if found.shape == (self._width,):
                return found[:count]
        except MACHINE:
            raise
        except Exception:  # its words may be a record's
            pass
        if count == 1:
            return torch.full((1,), torch.nan, dtype=torch.float64, device=inputs.first(y).device)
        halves = slice(count // 2), slice(count // 2, None)
        return torch.cat([self._one_each(forward, inputs.rows(x, half), inputs.rows(y, half)) for half in halves])

    def _filled(self, x: Inputs, blanks: Inputs) -> Inputs:
        """As many records as the width, blank ones after those that are given."""
        pairs = zip(inputs.leaves(x), inputs.leaves(blanks), strict=True)
        filled: Inputs = inputs.like(x, [_filled(part, blank, self._width) for part, blank in pairs])
        return filled


def _filled(part: Tensor, blank: Tensor, width: int) -> Tensor:
    missing = width - len(part)
    return torch.cat([part, blank.expand(missing, *part.shape[1:])]) if missing else part


def _noisy(total: Tensor, noise: int) -> int:
    """The one way out."""
    return int(total) + noise


def numbers_of(metric: Metric, loss: Loss) -> Numbers:
    """What the metric makes of the records, or rows of people, of a batch, each by itself."""
    metric = of_rows(metric)
    if isinstance(metric, Accuracy):
        return right
    if isinstance(metric, BalancedAccuracy):
        return partial(balanced, metric.weights)
    if isinstance(metric, LogLoss):
        return log_loss
    if isinstance(metric, LogLikelihood):
        return log_likelihood
    if isinstance(metric, DeclaredMetric):
        return OneByOne(metric.function)
    if loss is cross_entropy:
        return _cross_entropy
    return (
        squared_error
        if loss is squared_error
        else OneByOne(lambda output, y: loss(outputs.each_tensor(lambda row: row[None], output), inputs.alone(y)))
    )


def asks_user(metric: Metric | None, loss: Loss | None) -> bool:
    """Whether a record's number comes from a function of the user. loss: None is one of honestdp's own."""
    return metric is not None and isinstance(numbers_of(metric, loss or cross_entropy), OneByOne)


def aligned(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs `[n, classes, ...]` and labels `[n, ...]` of the same further dimensions. Labels `[n, 1, ...]` and outputs `[n]`
    are understood; what would have to be broadcast is refused.
    """
    if y.dim() > 1 and 0 in y.shape[1:]:
        wanted = "another than accuracy where a record has no labels: honestdp.LogLikelihood(low=, high=)"
        raise InvalidArgument("metric", "accuracy", wanted)
    if output.dim() == 1:
        output = output[:, None]
    if y.dim() == output.dim() and y.shape[1] == 1:
        y = y[:, 0]
    classes = output.shape[1]
    if y.shape != (len(output), *output.shape[2:]) or classes == 0 or (classes > 1 and y.is_floating_point()):
        wanted = (
            f"another than accuracy for outputs of shape {list(output.shape[1:])} and {y.dtype} labels of shape "
            f"{list(y.shape[1:])} a record. Accuracy takes one whole number as the label of a record (or of a position in it) "
            "and an output for each class, or one logit. Take honestdp.ClippedLoss(bound) or honestdp.DeclaredMetric(function, "
            "low=, high=)"
        )
        raise InvalidArgument("metric", "accuracy", wanted)
    return output, y


def right(output: Any, y: Tensor) -> Tensor:
    """`[n]`: whether a record is classified right, at every position of it. NaN is wrong."""
    scores, y = aligned(prediction(output), y)
    highest, place = scores.max(dim=1)  # NaN is the highest of all
    # One output is a logit. Labels of two classes are 0 and 1, sometimes -1 and 1: above one half is the second class.
    found = (highest > 0) == (y > 0.5) if scores.shape[1] == 1 else place == y
    found &= highest == highest
    return found if found.dim() == 1 else found.flatten(1).all(dim=1)


def balanced(weights: Sequence[float], output: Any, y: Tensor) -> Tensor:
    """`[n]`: 1/2 and half of the weight of a record's class, more where it is right and less where not. NaN for other labels."""
    found = right(output, y)
    scores, label = aligned(prediction(output), y)
    if label.dim() != 1:
        raise InvalidArgument("metric", "balanced accuracy", "another for several labels a record")
    place = (label > 0.5).long() if scores.shape[1] == 1 else label
    fits = (place >= 0) & (place < len(weights))
    weight = torch.tensor(weights, dtype=torch.float64, device=label.device)[torch.where(fits, place, 0)]
    return torch.where(fits, 0.5 + weight * (found.double() - 0.5), torch.nan)


def log_loss(output: Any, y: Tensor) -> Tensor:
    """`[n]`: -log of the probability of a record's label, the mean over its positions. NaN for a label that is no class."""
    scores, label = aligned(prediction(output), y)
    if scores.shape[1] > 1:
        return _cross_entropy(scores, label) / max(1, label[0].numel())
    second = torch.where(label > 0.5, 1.0, 0.0).to(torch.float64)
    losses = functional.binary_cross_entropy_with_logits(scores[:, 0].double(), second, reduction="none")
    return losses.reshape(len(label), -1).mean(dim=1)


def log_likelihood(output: Any, y: Inputs) -> Tensor:
    """`[n]`: what the model gives, one number a record."""
    return one_number(output, len(inputs.first(y)), "the model's output shape, for log-likelihood,").double()


def _cross_entropy(output: Any, y: Tensor) -> Tensor:
    """Cross-entropy, and NaN for a label that is none of the classes: with it the loss would fail for the whole batch."""
    output = prediction(output)
    fits = (y >= 0) & (y < output.shape[1])
    losses = cross_entropy(output, torch.where(fits, y, 0)).double()
    return torch.where(fits.reshape(len(y), -1).all(dim=1), losses, torch.nan)


class OneByOne:
    """A user's function of one record, called for every record of a batch without showing it another one.

    By `torch.func.vmap` where the function can be mapped, which is found out on zeros and not on records; else in a loop, each
    call with copies. Shape and number of what comes back are forced: one number a record.
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function
        self._mapped: bool | None = None

    def __call__(self, output: Any, y: Inputs) -> Tensor:
        if self._mapped is None:
            zeros = outputs.each_tensor(lambda rows: torch.zeros_like(rows[:2]), output)
            self._mapped = self._can_be_mapped(zeros, zeros_like(y, min(2, len(inputs.first(y)))))
        if self._mapped:
            return self._map(output, y)
        places = range(len(inputs.first(y)))
        return torch.stack([self._alone_or_nan(outputs.row(output, i), inputs.rows(y, i)) for i in places])

    def alone(self, output: Any, y: Inputs) -> Tensor:
        """The number of one record."""
        found = torch.as_tensor(self._function(output, y), device=inputs.first(y).device)
        if found.numel() != 1:
            raise InvalidArgument("metric", f"a result of shape {list(found.shape)}", "one number for one record")
        return found.reshape(()).double()

    def _map(self, output: Any, y: Inputs) -> Tensor:
        """Over copies: a function may write into what it gets."""
        tensors, rebuild = outputs.tensors_in(output)

        def alone(rows: list[Tensor], label: Inputs) -> Tensor:
            return self.alone(rebuild(rows), label)

        copies = [tensor.clone() for tensor in tensors]
        mapped: Tensor = torch.func.vmap(alone, randomness="different")(copies, inputs.each(torch.clone, y))
        return mapped

    def _can_be_mapped(self, output: Any, y: Inputs) -> bool:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a map is slow
                self._map(output, y)
        except MACHINE:
            raise
        except Exception:
            return False
        return True

    def _alone_or_nan(self, output: Any, y: Inputs) -> Tensor:
        try:
            return self.alone(outputs.each_tensor(torch.clone, output), inputs.each(torch.clone, y))
        except MACHINE:
            raise
        except Exception:
            return torch.full((), torch.nan, dtype=torch.float64, device=inputs.first(y).device)
