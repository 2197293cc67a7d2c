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

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.boundary.metrics import MACHINE, Metric, check_metric
from honestdp.boundary.people import RowsOfPeople
from honestdp.boundary.records import zeros_like
from honestdp.gradients import inputs, mapped_outputs, outputs, predictions
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.write_guard import ModelWritten, TensorSnapshot, tensors_of, versions_of
from honestdp.losses import Loss

Forward = Callable[[nn.Module], Callable[[Inputs], Any]]
"""A model, prepared once a score -> its outputs of a batch `[width, ...]`."""
BATCH = 1024
"""Records in one forward pass of a model that is scored: a public constant, and the last batch is filled up with blank records,
so that no width depends on how many records the coins put on the validation side."""


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
        self._numbers = metric.numbers(loss)
        self._blank = inputs.each(lambda part: part.new_zeros(1, *part.shape[1:]), x) if blank is None else blank
        cuts = [slice(first, first + width) for first in range(0, len(inputs.first(y)), width)]
        self._batches = [(inputs.rows(x, cut), inputs.rows(y, cut)) for cut in cuts]

    def score(self, run: int, model: nn.Module, forward: Forward | None = None) -> tuple[int, ...]:
        """S + z of a run's model, for each z of its noise. Once a run: two models with one noise would tell their difference.

        forward: how this model makes its outputs, where runs have several architectures; the door's own by default.
        """
        noise = self._noise.pop(run)
        total = self._total(model, forward or self._forward)
        return tuple(_noisy(total, z) for z in noise)

    @torch.no_grad()
    def _total(self, model: nn.Module, prepare: Forward) -> Tensor:
        """S, exact: it does not leave."""
        model.eval()
        tensors = tensors_of(model)
        before, versions = TensorSnapshot(tensors), versions_of(tensors)
        forward = prepare(model)
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
