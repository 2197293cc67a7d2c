"""What is read from kept trainings: accuracies averaged over the repeats, when they were looked at, and notes on them."""

from __future__ import annotations

import numpy as np

from honestdp.data.datasets.gisette import STANDIN
from honestdp_papers.measured import UNKNOWN, accuracy
from honestdp_papers.mohapatra2022.setting import MORE_REPEATS, REPEATS, pairs
from honestdp_papers.mohapatra2022.training import QUICK_STEPS
from honestdp_papers.parts import Array
from honestdp_papers.registry import Finished


def mean_accuracy(parts: Finished, name: str) -> Array:
    """Accuracies in per cent, averaged over the repeats, `[candidates, looks]`."""
    mean: Array = accuracy(parts, name).mean(axis=0)
    return mean


def trained_notes(quick: bool) -> list[str]:
    """What is to be said of every figure made from trainings."""
    notes = [
        (
            f"Test-set accuracies of {UNKNOWN}: evaluation on public data, covered by no budget."
            if quick
            else f"Test-set accuracies, averaged over {REPEATS} trainings of each candidate ({MORE_REPEATS} where a grid has 4): "
            "evaluation on public data, covered by no budget. ± is one standard error."
        ),
    ]
    notes += sorted({f"{task.title}: {STANDIN}." for task, _ in pairs(quick) if "stand-in" in task.title})
    if quick:
        left = ", ".join(
            f"{task.title} with {model}" for task, model in pairs(False) if (task, model) not in pairs(True)
        )
        notes.append(f"Quick version: {QUICK_STEPS} steps and a few candidates; left out: {left}.")
    return notes


def looks(parts: Finished, name: str) -> Array:
    """The steps at which a part was looked at, `[looks]`."""
    kept = parts[name]
    return (np.arange(kept["right"].shape[2]) + 1) * int(kept["every"])
