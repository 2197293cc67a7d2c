"""What the accountant's grid adds to epsilon: random settings, each also on a grid ten times as fine.

    python benchmarks/grid.py [--settings 150] [--seed 0]

Prints the largest part of epsilon that the grid added, and where.
"""

from __future__ import annotations

import argparse
import math
import random

from honestdp.accounting.pld import MOST_CELLS, TOLERANCE, dominating_pair
from honestdp.accounting.steps import GaussianStep


def added(rng: random.Random) -> tuple[float, str] | None:
    """The part added, and the setting; None where epsilon is nothing, or a grid would need more cells than there may be."""
    rate, noise = math.exp(rng.uniform(math.log(1e-5), 0)), math.exp(rng.uniform(math.log(0.4), math.log(20)))
    steps, delta = round(math.exp(rng.uniform(0, math.log(1e5)))), 10 ** rng.uniform(-12, -2)
    queries = (GaussianStep(rate, noise, steps),)
    found = []
    for tolerance in (TOLERANCE / 100, TOLERANCE):
        dominating_pair.cache_clear()
        pair = dominating_pair(queries, delta=delta, tolerance=tolerance)
        if pair is None or len(pair.losses) > 0.8 * MOST_CELLS:
            return None
        found.append(pair.worst_epsilon(delta))
    if not 1e-9 < found[0] < math.inf:
        return None
    return found[1] / found[0] - 1, f"rate {rate:.3g}, noise {noise:.3g}, {steps} steps, delta {delta:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    found = [each for each in (added(rng) for _ in range(arguments.settings)) if each is not None]
    for part, setting in sorted(found, reverse=True)[:3]:
        print(f"{part:.2e} of epsilon: {setting}")
    print(f"{len(found)} of {arguments.settings} settings compared")


if __name__ == "__main__":
    main()
