"""Searches played from trainings that were kept: what a search would have trained is drawn, scored and judged by the product.

How many runs there are, which candidates they try, the noise of their scores and what breaks ties are drawn as `honestdp.tune`
draws them (`search.secret`); the winner is the run of the highest rank, or of composed runs the private choice. Only the weights
are not trained anew: a run takes one of the kept trainings of its candidate. Those were made at the noise of this search, are
independent, and a search takes each of them once before it takes any a second time (its score has noise of its own even then).

The draws have fixed seeds, so that the table can be made again. That is for evaluation: no search with a fixed seed is private.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from honestdp.boundary.metrics import best_of
from honestdp.search.design import Design
from honestdp.search.secret import Secret
from honestdp_papers.parts import Array

SEARCHES = 20
_TRAININGS = 2  # the purpose of the generator that picks among kept trainings
Training = tuple[int, int]
"""(repeat, candidate)."""


@dataclass(frozen=True)
class Kept:
    """The trainings of one search's grid at its noise, `[repeats, candidates]` each.

    right: answers on the validation side, which has `held` records. test: answers on the test records. finite: whether the
    weights are numbers.
    """

    right: Array
    test: Array
    finite: Array
    held: int

    def total(self, training: Training) -> int:
        """S, the exact score of a training by accuracy: right minus wrong answers."""
        return 2 * int(self.right[training]) - self.held


def right_answers(design: Design, kept: Kept, secrets: Sequence[Secret]) -> list[int]:
    """Right answers of each search's winner on the test records; none where no run ended with numbers, and none leaves."""
    winners = (played(design, secret, kept) for secret in secrets)
    return [0 if winner is None else int(kept.test[winner]) for winner in winners]


def played(design: Design, secret: Secret, kept: Kept) -> Training | None:
    """The training that wins the search of these draws."""
    assert design.metric is not None
    place = {candidate: number for number, candidate in enumerate(design.candidates)}
    generator = secret.generator(_TRAININGS)
    assert generator is not None, "searches are played with fixed seeds"
    tried = trainings([place[candidate] for candidate in secret.candidates], len(kept.right), generator)
    totals = {run: kept.total(training) for run, training in enumerate(tried) if kept.finite[training]}
    if not totals:
        return None
    if design.choice is not None:
        return tried[best_of({run: total + secret.choice[run] for run, total in totals.items()})]
    return tried[max(totals, key=lambda run: secret.rank(run, float(totals[run] + secret.noise[run])))]


def trainings(candidates: Sequence[int], repeats: int, generator: np.random.Generator) -> list[Training]:
    """A kept training for each run: those of its candidate in an order by chance, each once before any a second time."""
    taken: Counter[int] = Counter()
    orders: dict[int, Array] = {}
    found = []
    for candidate in candidates:
        order = orders.setdefault(candidate, generator.permutation(repeats))
        found.append((int(order[taken[candidate] % repeats]), candidate))
        taken[candidate] += 1
    return found
