"""The noise of every search of `honest`, and what each of them spends, by the product's own design of a search.

    python -m honestdp_papers.galli2024.honest_noise

writes `honest_noise.json` beside this module: for each search the spending that `honestdp.tune` would charge to a ledger. A fifth
of the records scores the runs, and random stopping draws a geometric number of runs, so many on average that a given candidate
is run with probability 0.9. A rule with one candidate has all records and the whole budget.
"""

from __future__ import annotations

import json
from typing import Any

from honestdp.boundary.metrics import Accuracy
from honestdp.budget import Budget
from honestdp.ledger.spending import Spending
from honestdp.search.design import Design, Request, design
from honestdp_papers.galli2024.honest_training import EPSILON, NOISES, SINGLE, Search, kept_spending, searches
from honestdp_papers.galli2024.setting import AG_NEWS, DELTA, METHODS, MNIST, STANDIN, sized
from honestdp_papers.parts import write_whole

COVERAGE = 0.9


def calibrated(search: Search) -> Design:
    """The search as the product would set it out."""
    return design(
        Request(
            budget=Budget(EPSILON, DELTA),
            records=sized(search.task, search.quick).records,
            fraction=search.fraction,
            space=search.space,
            selection=search.selection,
            coverage=COVERAGE,
            metric=None if search.single else Accuracy(),
        )
    )


def kept(search: Search) -> Design:
    """The same from the file, without calibrating again."""
    spent = Spending.from_dict(kept_spending(search))
    candidates = tuple(search.candidates)
    return Design(
        budget=Budget(EPSILON, DELTA),
        records=sized(search.task, search.quick).records,
        fraction=search.fraction,
        space=search.space,
        candidates=candidates,
        count=len(candidates),
        selection=spent.selection,
        reason="",
        runs=tuple(run for run, _ in spent.runs),
        metric=None if search.single else Accuracy(),
        multiplier=spent.score,
        choice=spent.choice,
    )


def main() -> None:
    found: dict[str, dict[str, Any]] = {}
    every = [
        (task, method, quick)
        for quick in (False, True)
        for task in (MNIST, STANDIN, AG_NEWS)
        for method in (*METHODS, *SINGLE)
    ]
    for task, method, quick in every:
        for search in searches(task, method, quick):
            if search.key not in found:
                found[search.key] = calibrated(search).spending.as_dict()
                print(search.key, f"noise {found[search.key]['runs'][0]['noise']:.4g}", flush=True)
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
    write_whole(NOISES, f"{{\n{lines}\n}}\n".encode())


if __name__ == "__main__":
    main()
