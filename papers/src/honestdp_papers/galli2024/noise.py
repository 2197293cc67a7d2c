"""The noises of the paper's grids: the least with which a whole grid meets its budget, by moments.

    python -m honestdp_papers.galli2024.noise

writes `noise.json` beside this file, so that a bare GPU machine needs no accountants. A grid's runs are composed and all of them
are charged, as in the paper; the repeats with other seeds are not, as in the paper. A key is task/epsilon/runs; a single run is
that of a method with nothing left to search (ours).
"""

from __future__ import annotations

import json
from pathlib import Path

from honestdp_papers.galli2024.setting import (
    DELTA,
    FASHION,
    GRANULARITIES,
    METHODS,
    MNIST,
    STANDIN,
    Task,
    candidates,
    sized,
)
from honestdp_papers.parts import kept_numbers, write_whole

FILE = Path(__file__).with_name("noise.json")
QUICK_K = 3


def granularities(quick: bool) -> tuple[int, ...]:
    return (QUICK_K,) if quick else GRANULARITIES


def noise_of(task: Task, epsilon: float, runs: int, quick: bool) -> float:
    """The noise of a grid of so many runs; a stand-in's is that of what it stands in for."""
    found: float = kept_numbers(FILE)["quick" if quick else "full"][_key(task, epsilon, runs)]
    return found


def _key(task: Task, epsilon: float, runs: int) -> str:
    return f"{task.name.removesuffix('-standin').removesuffix('-unstrided').removesuffix('-standardised')}/{epsilon:g}/{runs}"


def calibrated(task: Task, epsilon: float, runs: int) -> float:
    """The least noise of a run of the task with which so many of them, composed, meet (epsilon, delta) by moments."""
    from honestdp import Budget, least_noise
    from honestdp.selection import Compose

    run = task.priced
    selection = Compose(candidates=runs, accountant="moments")
    return least_noise(
        Budget(epsilon, DELTA), records=run.records, lot=run.lot, steps=run.steps, selection=selection
    ).noise


def _computed(quick: bool) -> dict[str, float]:
    counts = sorted({1, *(len(candidates(m, k, quick)) for m in METHODS for k in granularities(quick))})
    found = {}
    for task in (sized(task, quick) for task in (MNIST, FASHION, STANDIN)):
        for epsilon in task.epsilons:
            for runs in counts:
                found[_key(task, epsilon, runs)] = calibrated(task, epsilon, runs)
        print(task.title, flush=True)
    return found


def main() -> None:
    written = {"full": _computed(False), "quick": _computed(True)}
    write_whole(FILE, (json.dumps(written, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
