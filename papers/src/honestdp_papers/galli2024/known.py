"""Numbers that a bare GPU machine or a result made from kept parts has without accountants and data.

    python -m honestdp_papers.galli2024.known

writes two files beside this one. `noise.json`: the least noise with which a whole grid meets its budget, by moments. A
grid's runs are composed and all of them are charged, as in the paper; the repeats with other seeds are not, as in the
paper. A key is task/epsilon/runs; a single run is that of a method with nothing left to search (ours).
`one_image.json`: the errors of answers that are the same for every image, which an autoencoder that has learnt
something is below. A key is task/training records/test records.
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
    records_of,
    sized,
)
from honestdp_papers.parts import kept_numbers, write_whole

NOISES, ANSWERS = (Path(__file__).with_name(name) for name in ("noise.json", "one_image.json"))
QUICK_K = 3


def granularities(quick: bool) -> tuple[int, ...]:
    return (QUICK_K,) if quick else GRANULARITIES


def noise_of(task: Task, epsilon: float, runs: int, quick: bool) -> float:
    """The noise of a grid of so many runs; a stand-in's is that of what it stands in for."""
    found: float = kept_numbers(NOISES)["quick" if quick else "full"][_key(task, epsilon, runs)]
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


MEAN, GREY = "mean image", "one grey"


def constant_error(task: Task) -> float:
    """Of the mean training image, on the test images."""
    return _kept(task, MEAN)


def grey_error(task: Task) -> float:
    """Of the training images' mean pixel everywhere, on the test images."""
    return _kept(task, GREY)


def _kept(task: Task, answer: str) -> float:
    error: float = kept_numbers(ANSWERS)[_answer_key(task)][answer]
    return error


def _answer_key(task: Task) -> str:
    return f"{task.name}/{task.records}/{task.tests}"


def computed(task: Task) -> dict[str, float]:
    """Both, from the images."""
    train, tests = records_of(task).train[0], records_of(task).test[0]
    answers = {MEAN: train.mean(dim=0), GREY: train.mean()}
    return {name: float((tests - answer).square().mean()) for name, answer in answers.items()}


def main() -> None:
    answers = {_answer_key(task): computed(task) for task in (sized(FASHION, quick) for quick in (False, True))}
    noises = {"full": _computed(False), "quick": _computed(True)}
    for file, written in ((ANSWERS, answers), (NOISES, noises)):
        write_whole(file, (json.dumps(written, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
