"""What is hopeless in a search, from its public design and the size of its models; said before it is charged."""

from __future__ import annotations

from honestdp.budget import large_delta, large_epsilon
from honestdp.planner.prospects import WORD, Scoring, counting, drowned, forewarn, noise_to_signal, prospects
from honestdp.run import Run
from honestdp.search.configuration import modules
from honestdp.search.design import Design
from honestdp.search.runs import Setting


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
    return tuple(WORD + sentence for sentence in drowned(*_most_hopeful(design, setting)))


def _most_hopeful(design: Design, setting: Setting) -> tuple[Run, int]:
    """The run, and the weights that count of the model, over which the noise is least."""
    shapes = [[w.shape for w in each.parameters() if w.requires_grad] for each in modules(design.space, setting)]
    parameters = min(map(counting, shapes))
    return min(design.runs, key=lambda each: noise_to_signal(each, parameters)), parameters
