"""Warnings before a hopeless run: what cannot come to anything, known from public numbers before a record is read.

**Noise.** Every step releases a mean gradient of norm at most the clip C, with noise of deviation sigma C / L in each
coordinate. Over T steps that is as good as one mean gradient with noise of sigma / (L sqrt(T)) clips in each coordinate. What
noise in the weights does to the outputs depends on them: it is as long as the signal where it comes to

    r = sigma sqrt(d) / (L sqrt(T)),    d = inputs times outputs

of 1: `counting` takes for d the widest fan-in of the model times its outputs, which is the size of a linear model. Hidden layers
add weights, and signal with them: with all of a model's weights for d, wide models would be given up that still learn (a hidden
layer of 128 on digits has 55 to 81 % at an r of 1 by all its weights, where a linear model has 21). By this r accuracy falls
alike on six sets and with one to four layers: at 1 it is less than half of the way up from chance to what the same steps reach
with little noise, and from 2 on next to chance (docs/notes/hopeless.md has all numbers). It is
a rule of thumb: convolutions, and classes that are hard to tell apart, are lost before.

**Steps** that are too few for an optimizer to learn anything, whatever the noise (docs/tuning.md has the numbers).

**Scores.** The interval of a score reaches 1.96 deviations of its noise and of the choice of validation records to both sides.
Where that is a third of the whole range, the score tells next to nothing, and where the noise alone is a tenth of the range, the
winner among several candidates is mostly the luckiest.

Nothing here is an error: whoever knows better goes on. Nothing here needs more than the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from honestdp.logs import logger
from honestdp.run import Run

DROWNED = 1.0  # r from which on little is learnt
LOST = 2.0  # r from which on next to nothing is
WARNING = "warning: "  # before a sentence, in a log and in a statement
WASTEFUL = 1.25  # times the noise that larger lots would have: they are worth a word
FEW_STEPS = {"quantile": 60, "adadp": 100, "adam-wosm": 100, "adam-oso": 100}
FEW = 30  # steps, for every other optimizer
VAGUE = 0.33  # reach of a score's interval, of its range
BLURRED = 0.1  # deviation of a score's noise, of its range, when candidates are compared by it
DEVIATIONS = 1.96
_log = logger("honestdp")


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How runs are scored. noise: the multiplier of the sensitivity. records: how many validation records are expected."""

    noise: float
    records: float
    candidates: int = 1

    @property
    def deviation(self) -> float:
        """Of the noise, as a part of the score's range, which is twice the sensitivity of a centred record."""
        return self.noise / (2 * self.records)

    @property
    def reach(self) -> float:
        """Of the 95 % interval of a score in the middle of its range, to either side."""
        return DEVIATIONS * math.sqrt(self.deviation**2 + 0.25 / self.records)


def counting(shapes: Iterable[Sequence[int]]) -> int:
    """d, the weights that count against the noise: the widest fan-in, and the bias, times the outputs. Of a linear model, all.

    shapes: of the trainable parameters, in the model's order; the outputs are those of the last matrix.

    >>> counting([(10, 64), (10,)]), counting([(128, 64), (128,), (10, 128), (10,)])
    (650, 1290)
    """
    listed = [tuple(shape) for shape in shapes]
    every, matrices = sum(map(math.prod, listed)), [shape for shape in listed if len(shape) > 1]
    if not matrices:
        return max(1, every)
    return max(1, min(every, (1 + max(math.prod(shape[1:]) for shape in matrices)) * matrices[-1][0]))


def noise_to_signal(run: Run, parameters: int) -> float:
    """r: the noise over all steps together, in units of the longest mean gradient. parameters: d, as `counting` counts them."""
    return run.noise * math.sqrt(parameters / run.steps) / run.lot if run.steps else 0.0


def most_parameters(run: Run) -> float:
    """Inputs times outputs of the model from which on the noise drowns its gradients."""
    return DROWNED**2 * run.steps * (run.lot / run.noise) ** 2 if run.noise > 0 else math.inf


def prospects(
    run: Run, *, parameters: int | None = None, optimizers: Iterable[str] = (), scoring: Scoring | None = None
) -> list[str]:
    """What is hopeless, one sentence each: what, by which number, and the way out. Empty where nothing is.

    parameters: d, as `counting` counts them; left out, one is assumed, and what is hopeless even then is said.
    optimizers: by name. scoring: where runs are scored.

    >>> [first] = prospects(Run(records=80, lot=20, steps=1000, noise=1928.0), parameters=650)
    >>> first.split(":")[0]
    'noise drowns the gradients, and chance is to be expected'
    """
    said = [*drowned(run, parameters), *_short(run, optimizers)]
    return said if scoring is None else [*said, *_vague(scoring)]


def drowned(run: Run, parameters: int | None) -> list[str]:
    """The sentence on noise that drowns the gradients, where it does."""
    ratio = noise_to_signal(run, parameters or 1)
    if ratio < DROWNED:
        return []
    what = "chance" if ratio >= LOST else "less than half of what the model could learn"
    model = "a single weight" if parameters is None else f"{parameters} weights between inputs and outputs"
    ways = [f"{_times(ratio)} times the records or the epsilon"]
    if parameters is not None and most_parameters(run) >= 1:
        ways.append(f"fewer inputs or outputs, at most {most_parameters(run):.2g} weights between them")
    if run.noise * math.sqrt(math.expm1(min(1 / run.noise**2, 700.0))) > WASTEFUL and run.rate < 1:
        ways.append("larger lots")
    return [
        f"noise drowns the gradients, and {what} is to be expected: for {model} the noise of all {run.steps} steps together is "
        f"{ratio:.2g} times the longest mean gradient that clipping allows (noise {run.noise:.4g}, lot {run.lot:g}). "
        f"The way out: {', or '.join(ways)}"
    ]


def stated(run: Run, shapes: Iterable[Sequence[int]]) -> tuple[str, ...]:
    """For the notes of a statement: a model that noise has drowned is handed on with the word on it."""
    return tuple(WARNING + sentence for sentence in drowned(run, counting(shapes)))


def _short(run: Run, optimizers: Iterable[str]) -> Iterable[str]:
    for name in dict.fromkeys(optimizers):
        least = FEW_STEPS.get(name, FEW)
        if 0 < run.steps < least:
            steps = "1 step is" if run.steps == 1 else f"{run.steps} steps are"
            yield (
                f"{steps} too few for {name or 'this optimizer'} (it needs about {least} to learn anything). The way out: more "
                "steps in smaller lots, which cost no more privacy"
            )


def _vague(scoring: Scoring) -> Iterable[str]:
    ways = "more records, a larger part of them for validation, or a larger epsilon"
    records = f"{scoring.records:.0f} validation records"
    if scoring.reach >= VAGUE:
        whole = "all of its range" if scoring.reach >= 0.5 else f"{scoring.reach:.2g} of its range to either side"
        yield (
            f"the score will say next to nothing: with noise {scoring.noise:.3g} on {records} its 95 % interval is "
            f"{whole}. The way out: {ways}"
        )
    elif scoring.candidates > 1 and scoring.deviation >= BLURRED:
        yield (
            f"the winner will mostly be the luckiest: the noise of a score is {scoring.deviation:.2g} of its range on {records}, "
            f"more than candidates tend to differ by. The way out: {ways}, or one candidate"
        )


def _times(ratio: float) -> str:
    return f"{math.ceil(ratio * 10) / 10:g}" if ratio < 10 else f"{math.ceil(ratio)}"


def forewarn(said: Iterable[str]) -> None:
    """Say it: a warning of the logger `honestdp`, which Python shows on standard error unless told otherwise."""
    for sentence in said:
        _log.warning("honestdp: %s%s", WARNING, sentence)
