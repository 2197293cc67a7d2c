"""The noise of every search of `honest`, and what each of them spends, by the product's own design of a search.

    python -m honestdp_papers.mohapatra2022.honest_noise

writes `honest_noise.json` beside this module: for each search the spending that `honestdp.tune` would charge to a ledger,
calibrated to the budget. The trainings read the noise from it where the accountants are not installed; the result of `honest`
recomputes every epsilon from it. A search here is what `tune` does when it is given the optimizer, the selection and the budget
and nothing else is asked: a fifth of the records scores the runs, and random stopping draws a geometric number of runs, so many
on average that a given candidate is run with probability 0.9. Horizon has one candidate: all records train it and the whole
budget is its.
"""

from __future__ import annotations

from collections.abc import Iterator

from honestdp.budget import Budget
from honestdp.search.design import Design
from honestdp_papers import honest_designs
from honestdp_papers.mohapatra2022.honest_training import (
    DELTA,
    NOISES,
    OPTIMIZERS,
    SINGLE,
    TASKS,
    Search,
    kept_spending,
    searches,
)


def every_search() -> Iterator[Search]:
    """Every search of the full table, but for the model, on which no price depends."""
    for task in TASKS:
        for optimizer in (*OPTIMIZERS, SINGLE):
            yield from searches(task, optimizer, quick=False)


def calibrated(search: Search) -> Design:
    """The search as the product would set it out."""
    return honest_designs.calibrated(search, Budget(search.epsilon, DELTA), search.task.records)


def kept(search: Search) -> Design:
    """The same from the file, without calibrating again."""
    return honest_designs.kept(search, Budget(search.epsilon, DELTA), search.task.records, kept_spending(search))


if __name__ == "__main__":
    honest_designs.write(NOISES, every_search(), calibrated)
