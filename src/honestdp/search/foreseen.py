"""What is hopeless in a search, from its public design and the size of its models; said before it is charged."""

from __future__ import annotations

from honestdp.budget import large_delta
from honestdp.planner.prospects import Scoring, noise_to_signal, prospects
from honestdp.search.configuration import modules
from honestdp.search.design import Design
from honestdp.search.runs import Setting


def foreseen(design: Design, setting: Setting) -> list[str]:
    """Sentences, often none. Of several lots, steps and models those that give the most hope are spoken of."""
    sizes = [
        sum(weight.numel() for weight in module.parameters() if weight.requires_grad)
        for module in modules(design.space, setting)
    ]
    parameters = max(1, min(sizes))
    run = min(design.runs, key=lambda each: noise_to_signal(each, parameters))
    scoring = None
    if design.multiplier is not None:
        scoring = Scoring(noise=design.multiplier, records=design.validation_records, candidates=design.count)
    names = [name for name, _ in design.space.dimensions]
    said = prospects(run, parameters=parameters, optimizers=names, scoring=scoring)
    return [*large_delta(design.budget.delta, design.records), *said]
