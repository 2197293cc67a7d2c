"""A search's `Statement`: the guarantee of its selection, with the split, the scores and the assumptions."""

from __future__ import annotations

import warnings
from dataclasses import replace

from honestdp.accounting import AccountingWarning
from honestdp.accounting.calibration import epsilon_of
from honestdp.budget import (
    DECLARED_CLASSES,
    Statement,
    assumptions,
    independence,
    large_delta,
    large_epsilon,
    prepared,
    uncovered,
)
from honestdp.losses import Loss
from honestdp.losses.class_weights import ClassWeighted
from honestdp.optimizers import BY_NAME
from honestdp.plain_words import rounded_up
from honestdp.planner.prospects import WARNING, Scoring, counting, drowned, forewarn, noise_to_signal, prospects
from honestdp.run import Run
from honestdp.search.configuration import modules
from honestdp.search.design import Design
from honestdp.search.runs import Setting
from honestdp.selection.cost import leaving, statement

CLOCK = (
    "how long the search took, and what else the operator of the machine sees of it, such as the times at which its disk says "
    "that files were changed: that tells of the number of runs, and is for the operator alone"
)

CLUSTER = (
    "whoever operates the cluster can read, while the search lasts, the records, its draws and every run; how many runs there "
    "were and which lost is seen by the operator alone"
)
_NOBODY, _OPERATOR = "nobody has", "nobody but the operator of the cluster has"


def guarantee(
    design: Design,
    *,
    seeded: bool,
    declared: bool,
    loss: Loss | None = None,
    decoded: bool = False,
    strict: bool = False,
    preprocessing: str | None = None,
    cluster: bool = False,
    expected: tuple[str, ...] = (),
    chosen: tuple[str, ...] = (),
) -> Statement:
    """seeded: the randomness came from a user's seed. declared: the number of records was given, not taken from the data.
    loss: the user's own. decoded: the records are those of a Dataset. strict: each example was under a map of its own.
    preprocessing: the user's words on it. cluster: the runs are made on the nodes of one. expected: a word on a hopeless search.
    chosen: which optimizer was taken where none was named.
    """
    notes = []
    if not design.selection.one_run:
        notes.append(f"the selection was chosen because: {design.reason}")
    notes += chosen
    if design.shaped:
        notes.append(design.shaped)
    if design.selection.secret:
        chance = design.selection.coverage(design.count)
        notes.append(f"a given one of {design.count} candidates is run at all with probability {chance:.3g}")
    if not design.space.finite:
        how = "as candidates= says, or as many as a search takes that is not told"
        notes.append(f"candidates are drawn from laws: the search amounts to {design.count} of them, {how}")
    further = []
    if len(design.runs) > 1:
        what = "each has noise of its own, and the worst of their curves is charged"
        further.append(f"candidates differ in lot or steps: {what}")
    further += expected
    further += [BY_NAME[name].asks for name, _ in design.space.dimensions if name in BY_NAME and BY_NAME[name].asks]
    return statement(
        design.selection,
        design.base,
        delta=design.budget.delta,
        records=design.records,
        unit=design.unit,
        spent=design.spent,
        seed="the seed was fixed, and whoever knows it can subtract the noise" if seeded else "",
        notes=notes,
        further=further,
        leaves=_leaves(design),
        scores=_scores(design),
        uncovered=uncovered(design.unit, *[CLOCK] * design.selection.secret, *[CLUSTER] * cluster),
        assumptions=_assumptions(design, declared, loss, decoded, strict, cluster),
        preprocessing=prepared(preprocessing),
    )


def seen_by_cluster(made: Statement) -> Statement:
    """The statement of a search that was on a cluster at some time, and ends elsewhere: its operator has seen the same."""
    if CLUSTER in made.uncovered:
        return made
    kept = tuple(text.replace(_NOBODY, _OPERATOR, 1) if text.startswith(_NOBODY) else text for text in made.assumptions)
    return replace(made, uncovered=f"{made.uncovered}; {CLUSTER}", assumptions=kept)


def _leaves(design: Design) -> str:
    leaves = leaving(design.selection)
    if design.metric is None:
        return leaves
    if design.selection.one_run:
        return f"{leaves}, and its noisy score"
    return f"{leaves}, which of them is best, and its noisy score" if design.choice is not None else leaves


def _scores(design: Design) -> str:
    if design.metric is None or design.multiplier is None:
        return ""
    spending = design.spending
    assert spending.validation is not None
    with warnings.catch_warnings(action="ignore", category=AccountingWarning):
        cost = rounded_up(epsilon_of(spending.base, spending.validation, delta=design.budget.delta))
    noise = f"discrete Gaussian noise of {design.multiplier:.4g} times the sensitivity"
    if design.choice is not None:
        choice = f"the best run by a noisy maximum at epsilon {rounded_up(design.choice)}"
        how = f"{choice}, and its {design.metric.name} with {noise}"
    else:
        how = f"{'the' if design.selection.one_run else 'every'} run's {design.metric.name}, with {noise}"
    if design.unit.person:
        return (
            f"{how}, of a person the mean over their rows; asked of the validation side, {design.fraction:g} of all people by a "
            f"coin for each. A person is on one side with all of their rows: there they pay epsilon {cost}, never more than on "
            f"the training side; {design.metric.absence('people')}"
        )
    return (
        f"{how}; asked of the validation records, {design.fraction:g} of all by a coin for each. A record is on one side: as a "
        f"validation record it pays epsilon {cost}, never more than as a training record; {design.metric.absence('records')}"
    )


def _assumptions(
    design: Design, declared: bool, loss: Loss | None, decoded: bool, strict: bool, cluster: bool
) -> tuple[str, ...]:
    first = "the lot, the steps, the noise and the split's fraction are public constants"
    size = f"the number of {design.unit.plural}, {design.records}, is public"
    size += "; it was declared" if declared else "; it was not declared but taken to be that of the data"
    trust = []
    if design.metric is not None and design.metric.asks_user(loss):
        one = "row" if design.unit.person else "record"
        how = f"it was shown one {one} at a time, and remembers none"
        trust.append(f"what scores a {one} is the user's function: {how}")
    if (design.metric is not None and design.metric.weighs_classes) or isinstance(loss, ClassWeighted):
        trust.append(DECLARED_CLASSES)
    if decoded:
        trust.append("the Dataset fails on no record, and holds the same records in the same order whenever it is read")
    errors = "the model and its loss raise an error on no record"
    who = _OPERATOR if cluster else _NOBODY
    secret = f"{who} read the search's secret state while it lasted: its draws, its losers, its generators"
    return (f"{first}; {size}", *assumptions(design.unit)[1:], independence(strict=strict), *trust, errors, secret)


def foreseen(design: Design, setting: Setting) -> list[str]:
    """Sentences, often none. Of several lots, steps and models those that give the most hope are spoken of."""
    run, parameters = _most_hopeful(design, setting)
    scoring = None
    if design.multiplier is not None:
        scoring = Scoring(noise=design.multiplier, records=design.validation_records, candidates=design.count)
    names = [name for name, _ in design.space.dimensions]
    said = prospects(run, parameters=parameters, optimizers=names, scoring=scoring)
    budget = design.whole
    return [*large_epsilon(budget.epsilon), *large_delta(budget.delta, design.records), *said]


def forewarned(design: Design, setting: Setting) -> None:
    """Say it."""
    forewarn(foreseen(design, setting))


def for_the_statement(design: Design, setting: Setting) -> tuple[str, ...]:
    """For the statement: whoever is handed a model that noise has drowned reads it there."""
    return tuple(WARNING + sentence for sentence in drowned(*_most_hopeful(design, setting)))


def _most_hopeful(design: Design, setting: Setting) -> tuple[Run, int]:
    """The run, and the weights that count of the model, over which the noise is least."""
    shapes = [[w.shape for w in each.parameters() if w.requires_grad] for each in modules(design.space, setting)]
    parameters = min(map(counting, shapes))
    return min(design.runs, key=lambda each: noise_to_signal(each, parameters)), parameters
