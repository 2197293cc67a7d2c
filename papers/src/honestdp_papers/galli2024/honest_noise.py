"""The noise of every search of `honest`, and what each of them spends, by the product's own design of a search.

    python -m honestdp_papers.galli2024.honest_noise

writes `honest_noise.json` beside this module: for each search the spending that `honestdp.tune` would charge to a ledger. A fifth
of the records scores the runs, and random stopping draws a geometric number of runs, so many on average that a given candidate
is run with probability 0.9. A rule with one candidate has all records and the whole budget.
"""

from __future__ import annotations

from collections.abc import Iterator

from honestdp.budget import Budget
from honestdp.search.design import Design
from honestdp_papers import honest_designs
from honestdp_papers.galli2024.honest_training import EPSILON, NOISES, SINGLE, Search, kept_spending, searches
from honestdp_papers.galli2024.setting import AG_NEWS, DELTA, METHODS, MNIST, STANDIN, sized

BUDGET = Budget(EPSILON, DELTA)


def every_search() -> Iterator[Search]:
    for quick in (False, True):
        for task in (MNIST, STANDIN, AG_NEWS):
            for method in (*METHODS, *SINGLE):
                yield from searches(task, method, quick)


def calibrated(search: Search) -> Design:
    """The search as the product would set it out."""
    return honest_designs.calibrated(search, BUDGET, sized(search.task, search.quick).records)


def kept(search: Search) -> Design:
    """The same from the file, without calibrating again."""
    return honest_designs.kept(search, BUDGET, sized(search.task, search.quick).records, kept_spending(search))


if __name__ == "__main__":
    honest_designs.write(NOISES, every_search(), calibrated)
