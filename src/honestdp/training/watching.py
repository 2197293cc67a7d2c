"""`Watch`: calls a user's `on_step` with copies of the iterates of one run, and lets it stop the training.

What is handed over is a step's number and the weights that would leave if the training ended there: functions of the initial
weights, of public constants and of releases, since an optimizer's rule sees nothing else. All steps of a run are composed in its
epsilon, so that every iterate may leave under it. Of a lot, its size, a loss or a gradient nothing is in reach here.

Which steps are seen follows from public numbers alone, and looking changes no draw of the training: the random states of Python,
numpy and torch are seeded by the step for `on_step` and restored after it, and what it is given is a copy of its own.

A training that `on_step` stops is a beginning of the training that was paid for: its weights are a function of all iterates of
that one, so its guarantee holds, and nothing is given back. (An epsilon for the steps that were made would have to hold for
every step at which the run might have stopped: when to stop follows from releases.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from honestdp import checks
from honestdp.boundary.seed import lent, seed_all
from honestdp.checks import InvalidArgument
from honestdp.gradients.layout import Layout, load_row

OnStep = Callable[[int, nn.Module], Any]
LOOKS = 100  # of a run, where `every` is left out


class StopTraining(Exception):
    """Raised by `on_step`: the run ends with the weights of this step. It is charged for all of its steps.

    Decide by public records. A decision by private ones is a further release of them, which no statement here has in it.
    """


@dataclass(frozen=True)
class Watch:
    """Who looks at a run, and when: at every multiple of `every` steps, and at the last one."""

    on_step: OnStep
    every: int

    def until(self, step: int) -> int:
        """How many steps to make after this one until the next look."""
        return self.every - step % self.every

    def due(self, before: int, after: int, total: int) -> bool:
        """Whether one of the steps after `before` up to `after` is to be seen: a GPU makes several at once."""
        return after // self.every > before // self.every or after == total

    def look(self, step: int, module: nn.Module, layout: Layout, row: Tensor) -> None:
        """Hand over a copy of the module with these weights `[d]`, which nobody else has, in eval mode."""
        with lent():
            seed_all(step)
            self.on_step(step, load_row(copy.deepcopy(module), layout, row).eval())

    def begin(self, module: nn.Module, layout: Layout, row: Tensor) -> None:
        """The look before the first step, so that what is wrong with `on_step` shows before a record is read."""
        try:
            self.look(0, module, layout, row)
        except StopTraining:
            wanted = "a function that lets the training begin: it raised StopTraining at step 0"
            raise InvalidArgument("on_step", self.on_step, wanted) from None


def watch_of(on_step: Any, every: Any, runs: int, steps: int) -> Watch | None:
    """The watch that the arguments ask for, None where they ask for none."""
    if on_step is None:
        if every is not None:
            raise InvalidArgument("every", every, "left out without on_step: it says how often that is called")
        return None
    if not callable(on_step) or isinstance(on_step, type):
        raise InvalidArgument("on_step", on_step, "a function of (step, model)")
    if runs != 1:
        wanted = (
            "left out for several runs: parts of a population are trained one after another, so there is no step that all "
            "have reached. Call train for each, whose epsilons add up, or look at the results"
        )
        raise InvalidArgument("on_step", on_step, wanted)
    if every is not None:
        checks.whole(least=1, every=every)
    return Watch(on_step, max(1, steps // LOOKS) if every is None else every)


def refuse_watching(on_step: Any) -> None:
    """Of a search nobody may see an iterate."""
    if on_step is not None:
        wanted = (
            "left out for a search: only its winner leaves, and a look at the other runs, or at how many there are, would cost "
            "what the search saves. Watch one run: honestdp.train(..., on_step=...) with the winner's hyperparameters"
        )
        raise InvalidArgument("on_step", on_step, wanted)
