"""The errors of answers that are the same for every image: what an autoencoder that has learnt something is below.

    python -m honestdp_papers.galli2024.one_image

writes `one_image.json` beside this file, so that a result is made from kept parts without the dataset. A key is
task/training records/test records.
"""

from __future__ import annotations

import json
from pathlib import Path

from honestdp_papers.galli2024.setting import FASHION, Task, records_of, sized
from honestdp_papers.parts import kept_numbers, write_whole

FILE = Path(__file__).with_name("one_image.json")
MEAN, GREY = "mean image", "one grey"


def constant_error(task: Task) -> float:
    """Of the mean training image, on the test images."""
    return _kept(task, MEAN)


def grey_error(task: Task) -> float:
    """Of the training images' mean pixel everywhere, on the test images."""
    return _kept(task, GREY)


def _kept(task: Task, answer: str) -> float:
    error: float = kept_numbers(FILE)[_key(task)][answer]
    return error


def _key(task: Task) -> str:
    return f"{task.name}/{task.records}/{task.tests}"


def computed(task: Task) -> dict[str, float]:
    """Both, from the images."""
    train, tests = records_of(task).train[0], records_of(task).test[0]
    answers = {MEAN: train.mean(dim=0), GREY: train.mean()}
    return {name: float((tests - answer).square().mean()) for name, answer in answers.items()}


def main() -> None:
    written = {_key(task): computed(task) for task in (sized(FASHION, quick) for quick in (False, True))}
    write_whole(FILE, (json.dumps(written, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
