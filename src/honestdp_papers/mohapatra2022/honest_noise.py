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

import json
from collections.abc import Iterator
from typing import Any

from honestdp.boundary.metrics import Accuracy
from honestdp.budget import Budget
from honestdp.ledger.spending import Spending
from honestdp.search.design import Design, Request, design
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
from honestdp_papers.parts import write_whole

COVERAGE = 0.9


def every_search() -> Iterator[Search]:
    """Every search of the full table, but for the model, on which no price depends."""
    for task in TASKS:
        for optimizer in (*OPTIMIZERS, SINGLE):
            yield from searches(task, optimizer, quick=False)


def calibrated(search: Search) -> Design:
    """The search as the product would set it out."""
    request = Request(
        budget=Budget(search.epsilon, DELTA),
        records=search.task.records,
        fraction=search.fraction,
        space=search.space,
        selection=search.selection,
        coverage=COVERAGE,
        metric=None if search.single else Accuracy(),
    )
    return design(request)


def kept(search: Search) -> Design:
    """The same from the file, without calibrating again."""
    spent = Spending.from_dict(kept_spending(search))
    return Design(
        budget=Budget(search.epsilon, DELTA),
        records=search.task.records,
        fraction=search.fraction,
        space=search.space,
        candidates=tuple(search.candidates),
        count=len(search.candidates),
        selection=spent.selection,
        reason="",
        runs=tuple(run for run, _ in spent.runs),
        metric=None if search.single else Accuracy(),
        multiplier=spent.score,
        choice=spent.choice,
    )


def main() -> None:
    found: dict[str, dict[str, Any]] = {}
    for search in every_search():
        if search.key not in found:
            found[search.key] = calibrated(search).spending.as_dict()
            print(search.key, f"noise {found[search.key]['runs'][0]['noise']:.4g}", flush=True)
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
    write_whole(NOISES, f"{{\n{lines}\n}}\n".encode())


if __name__ == "__main__":
    main()
