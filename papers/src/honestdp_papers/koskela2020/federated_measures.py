"""What is read from kept federations: accuracies in per cent by method, share of random images and step size, and differences."""

from __future__ import annotations

import numpy as np

from honestdp_papers.koskela2020.federation import levels, part_name
from honestdp_papers.measured import Measured, jackknifed
from honestdp_papers.parts import Array
from honestdp_papers.registry import Finished


def accuracy(parts: Finished, method: str, level: int, quick: bool) -> Array:
    """In per cent, `[repeats, step sizes, looks]`."""
    kept = parts[part_name(level, method)]
    found: Array = 100 * kept[f"right_{method}"].astype(float) / float(kept["tests"])
    return found


def levels_in(parts: Finished, quick: bool) -> tuple[int, ...]:
    """The shares of random images that were trained; one of them a figure can do without."""
    return tuple(level for level in levels(quick) if part_name(level, "ADADP") in parts)


def final(parts: Finished, method: str, level: int, quick: bool) -> Array:
    """After the last round, `[repeats, step sizes]`."""
    last: Array = accuracy(parts, method, level, quick)[:, :, -1]
    return last


def rounds_of(parts: Finished, level: int) -> Array:
    """The rounds after which was looked."""
    kept = parts[part_name(level, "ADADP")]
    seen: Array = (np.arange(kept["right_ADADP"].shape[-1]) + 1) * int(kept["every"])
    return seen


def step_sizes_found(parts: Finished, level: int) -> Array:
    """Of ADADP from its usual first step size, `[repeats, clients, looks]`."""
    found: Array = parts[part_name(level, "ADADP")]["eta"][:, -1]
    return found


def tuned(means: Array) -> float:
    """Of SGD: that of its best step size, which is picked on the test images."""
    return float(means.max())


def usual(means: Array) -> float:
    """Of ADADP: that of its usual first step size."""
    return float(means[-1])


def lead(parts: Finished, level: int, quick: bool) -> Measured:
    """By how many points ADADP ends above SGD tuned for this level."""
    found = [final(parts, method, level, quick) for method in ("ADADP", "SGD")]
    return jackknifed(found, lambda means: usual(means[0]) - tuned(means[1]))


def loss_of(parts: Finished, method: str, level: int, quick: bool) -> Measured:
    """By how many points a method ends lower at a level than where all images are dealt out at random."""
    of = usual if method == "ADADP" else tuned
    found = [final(parts, method, at, quick) for at in (100, level)]
    return jackknifed(found, lambda means: of(means[0]) - of(means[1]))


def kept_better(parts: Finished, level: int, quick: bool) -> Measured:
    """By how many points less ADADP loses than tuned SGD."""
    found = [final(parts, method, at, quick) for method in ("SGD", "ADADP") for at in (100, level)]
    return jackknifed(found, lambda m: (tuned(m[0]) - tuned(m[1])) - (usual(m[2]) - usual(m[3])))
