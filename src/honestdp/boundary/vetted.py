"""`Vetted`: copies of a model and its loss that were tested on synthetic inputs. Mechanisms and score doors are made of it.

A search or a training tests a model and its loss once, before the charge (`vet`), and hands the value on: to its
rehearsal, to its timers, to the mechanism of every population and to the score door. The copy that was tested is
trained and scored: nothing reads the user's object after the test, so that whatever becomes of that object (another
class, another forward of the instance, another mode) is without effect. The modules of a population's runs only give
their initial weights. A copy shares code with the user's program: that of its classes and functions, and torch itself.
A change of these while a call of the library runs changes what the call computes.

The test refuses, in words: a model or a loss that mixes examples, that does not fit the records' shapes, or that cannot
be copied; a metric that raises, gives NaN or more than one number, does not fit the labels, or remembers records
between its calls; a model that in `eval()` lets the records of a batch, or of an earlier batch, into a record's output.
It is a test and not a proof. It cannot see what synthetic records do not set off: memory that begins after some hundred
calls, or a branch that only unusual numbers take.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.boundary.data import Shapes
from honestdp.boundary.metrics import MACHINE, Metric
from honestdp.boundary.records import zeros_like
from honestdp.boundary.release import width_of
from honestdp.boundary.scores import BATCH, Forward, mapped, one_by_one
from honestdp.checks import InvalidArgument
from honestdp.gradients import Prepared, Untouched, inputs, predictions, vet_forward
from honestdp.gradients.choice import Choice
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.layout import Layout, dtype_of, layout_of, load_row
from honestdp.gradients.outputs import check_output, main, with_rows
from honestdp.gradients.probe import copied, made_up_inputs, made_up_labels
from honestdp.gradients.vetting import refuse_by_name
from honestdp.losses import Loss, Taken, default_loss

WIDELY = 8192
"""Examples that a model is tested with before the charge, if a population may have so many."""
_SEED = 20261115


@dataclass(frozen=True, eq=False, repr=False)
class Vetted:
    """gradients: those of the copies of model and loss. given: the module that was copied; it is never run.

    labels: those that the loss takes, for each tensor of labels. rows: where a record is a person, how many rows each is fetched
    with; 1 where a row is the record. forward: how the model is scored; None where it is not.
    """

    gradients: Prepared
    given: nn.Module
    layout: Layout
    labels: Taken = ()
    rows: int = 1
    forward: Forward | None = None

    @property
    def model(self) -> nn.Module:
        return self.gradients.model

    @property
    def loss(self) -> Loss:
        return self.gradients.loss

    @property
    def strict(self) -> bool:
        return self.gradients.strict

    @property
    def dtype(self) -> torch.dtype:
        return dtype_of(self.model)

    @cached_property
    def untouched(self) -> Untouched:
        return Untouched(self.model, self.loss)

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph may be tried: calls of fused recurrent layers invalidate one."""
        return not any(isinstance(module, nn.RNNBase) for module in self.model.modules())

    def cover(self, x: Inputs, y: Inputs, *, runs: int, width: int) -> Choice:
        """The engine, once the copies were tested with `width` records of each run at once: now, if never before.

        x, y: synthetic examples `[2, ...]`.
        """
        views = self.layout.views(
            torch.empty(1, self.layout.width, dtype=self.dtype, device=inputs.first(y).device).expand(runs, -1)
        )
        x, y = (inputs.each(lambda part: part.expand(runs, *part.shape), parts) for parts in (x, y))
        with torch.no_grad():
            return self.gradients.vet(views, x, y, examples=runs * width * self.rows)

    def scored(self, weights: Tensor) -> nn.Module:
        """A copy of the model with a run's weights `[d]`, to be scored."""
        return load_row(copied(self.model), self.layout, weights)


def vet(
    module: nn.Module,
    shapes: Shapes,
    *,
    loss: Loss | None,
    device: torch.device,
    records: int,
    lot: float | None,
    runs: int = 1,
    strict: bool = False,
    metric: Metric | None = None,
) -> Vetted:
    """Test copies of a model and its loss, and a metric if there is one, on synthetic records. No record is needed for it.

    Args:
        module: stays as it is and where it is.
        records, lot: their declared number, and the expected size of a lot. The copies are tested at the width of a lot of one
            run, and of so many runs together, up to `WIDELY` examples: a wider population is tested before its first step.

    Raises:
        InvalidArgument: for what cannot be trained or scored; RefusedModel for a model whose examples interact.
    """
    refuse_by_name(module)
    layout, rows = layout_of(module, device), shapes.unit.rows
    x, y = shapes.blanks(module)
    layout = replace(layout, entering=inputs.entering(x))
    x, y = (inputs.each(lambda part: part.to(device), parts) for parts in (x, y))
    loss = default_loss(y) if loss is None else loss
    alone, together = (
        some * (1 if lot is None else width_of(x, runs=some, records=records, lot=lot, rows=rows)) for some in (1, runs)
    )
    width = max(alone, min(together, WIDELY // rows))
    try:
        with torch.random.fork_rng(devices=inputs.gpus(y)):
            prepared = Prepared(module, loss, strict=strict, device=device)
            labels = check_output(copied(prepared.model), prepared.loss, x, y, declared=shapes.classes)
            vetted = Vetted(prepared, module, layout, labels, rows)
            vetted.cover(x, y, runs=1, width=width)
            if runs > 1:  # whose layers go another way than those of a single run
                vetted.cover(x, y, runs=2, width=1)
    except InvalidArgument:
        raise
    except (RuntimeError, TypeError, LookupError, ValueError, AttributeError, AssertionError) as trouble:
        why = " ".join(f"{type(trouble).__name__}: {trouble}".split())
        several = f"up to {width * rows} of them at once, since lots vary in size"
        given = f"{inputs.in_words(x)} and {inputs.in_words(y, 'labels')}, {several}"
        wanted = f"one that with its loss takes {given} ({why}){_way_out(x, why)}"
        raise InvalidArgument("model", type(module).__name__, wanted) from trouble
    if metric is not None:
        vetted = replace(vetted, forward=rehearse(metric, vetted.model, loss=vetted.loss, x=x, y=y, strict=strict))
    return vetted


def _way_out(x: Inputs, why: str) -> str:
    """What may be behind a failure of the model on inputs such as x."""
    if isinstance(x, dict) and "argument" in why:
        return f". Inputs of a dict are given by name, model(**x): def forward(self, {', '.join(x)})"
    if isinstance(x, Tensor) and x.dim() == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        return ". Images are [channels, height, width] in torch: x.permute(0, 3, 1, 2)"
    return ""


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
