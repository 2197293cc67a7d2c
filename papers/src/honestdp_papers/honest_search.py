"""Searches at one honest budget: set out and priced by the product, and played from trainings that were kept.

    python -m honestdp_papers.honest_search mohapatra2022

writes `honest_noise.json` beside the modules of a paper: for each search of its experiment `honest` the spending that
`honestdp.tune` would charge to a ledger, calibrated to the budget. A search is what `tune` does by default with the optimizer,
the selection and the budget: a fifth of the records scores the runs, and random stopping draws a geometric number of runs, so
many on average that a given candidate is run with probability 0.9. One candidate has all records and the whole budget. The
trainings read their noise from that file, so that a bare GPU machine needs no accountants.

The trainings are the product's: a coin for each record puts it on the training or the validation side, the declared number of
training records sets the rate, and the last iterate is what is scored. A search at one budget trains each candidate at the noise
that its selection leaves it, so that a grid is trained once for every search.

How many runs there are, which candidates they try, the noise of their scores and what breaks ties are drawn as `honestdp.tune`
draws them (`search.secret`); the winner is the run of the highest rank, or of composed runs the private choice. Only the weights
are not trained anew: a run takes one of the kept trainings of its candidate. Those were made at the noise of this search, are
independent, and a search takes each of them once before it takes any a second time (its score has noise of its own even then).
The draws have fixed seeds, so that the table can be made again. That is for evaluation: no search with a fixed seed is private.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from honestdp import Accuracy, Budget, Run
from honestdp.boundary.data import coins
from honestdp.boundary.score_noise import best_of
from honestdp.losses import Loss
from honestdp.search.space import Candidate, Space
from honestdp_papers.curves import Bench, Exam, Measure, finite
from honestdp_papers.parts import Array, Arrays, Tell, kept_numbers, write_whole

if TYPE_CHECKING:  # a bare GPU machine has no accountants
    from honestdp.search.design import Design
    from honestdp.search.secret import Secret

FRACTION, COVERAGE = 0.2, 0.9
"""Of the records on the validation side; with which probability random stopping runs a given candidate."""
SEARCHES = 20
_TRAININGS = 2  # the purpose of the generator that picks among kept trainings
Training = tuple[int, int]
"""(repeat, candidate)."""


@dataclass(frozen=True)
class Search:
    """What is searched, how, and for how much.

    name: of the optimizer, or of the method that has it. single: whether there is one candidate, with nothing to choose. key:
    what its price depends on. noises: the file of what every search of the paper spends.
    """

    name: str
    selection: str
    budget: Budget
    records: int
    space: Space
    single: bool
    key: str
    noises: Path

    @property
    def fraction(self) -> float:
        """Of the records on the validation side: none where there is nothing to choose."""
        return 0.0 if self.single else FRACTION

    @property
    def candidates(self) -> list[Candidate]:
        return self.space.candidates()

    @property
    def spending(self) -> dict[str, Any]:
        """What the search spends, as it is in the file."""
        found: dict[str, Any] = kept_numbers(self.noises)[self.key]
        return found

    @property
    def run(self) -> Run:
        """Its trainings, at the noise in the file."""
        (written,) = self.spending["runs"]
        return Run(**{name: value for name, value in written.items() if name != "candidates"})

    def calibrated(self) -> Design:
        """The search as the product would set it out."""
        from honestdp.search.design import Request, design

        return design(
            Request(
                budget=self.budget,
                records=self.records,
                fraction=self.fraction,
                space=self.space,
                selection=self.selection,
                coverage=COVERAGE,
                metric=None if self.single else Accuracy(),
            )
        )

    def kept(self) -> Design:
        """The same by what the file says that it spends, without calibrating again."""
        from honestdp.ledger.spending import Spending
        from honestdp.search.design import Design

        spent, candidates = Spending.from_dict(self.spending), tuple(self.candidates)
        return Design(
            budget=self.budget,
            records=self.records,
            fraction=self.fraction,
            space=self.space,
            candidates=candidates,
            count=len(candidates),
            selection=spent.selection,
            reason="",
            runs=tuple(run for run, _ in spent.runs),
            metric=None if self.single else Accuracy(),
            multiplier=spent.score,
            choice=spent.choice,
        )


def write(searches: Iterable[Search]) -> None:
    """Write what every search spends, by its key."""
    found: dict[str, dict[str, Any]] = {}
    for search in searches:
        if search.key not in found:
            found[search.key] = search.calibrated().spending.as_dict()
            print(search.key, f"noise {found[search.key]['runs'][0]['noise']:.4g}", flush=True)
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
    write_whole(search.noises, f"{{\n{lines}\n}}\n".encode())


@dataclass(frozen=True)
class Pool:
    """The trainings of one part: every candidate, so often, in the run of every search. These differ in their noise alone."""

    candidates: list[Candidate]
    runs: list[Run]
    repeats: int
    fraction: float
    seed: int


def sides_of(
    model: nn.Module,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    place: torch.device,
    *,
    records: int,
    fraction: float,
    split: int,
    loss: Loss | None = None,
) -> tuple[Bench, dict[str, Exam], Arrays]:
    """The training side on the device, exams of the others, and how many records they have."""
    x, y = train
    held = torch.from_numpy(coins(len(x), fraction=fraction, seed=split))
    bench = Bench(model, (x[~held], y[~held]), place, records=records, loss=loss, by_coin=fraction > 0)
    asked = {"validation": (x[held], y[held]), "test": test}
    exams = {name: bench.exam(*side) for name, side in asked.items() if len(side[0])}
    return bench, exams, {"held": np.array(int(held.sum())), "tests": np.array(len(test[0]))}


def trained(
    pool: Pool,
    bench: Bench,
    exams: Mapping[str, Exam],
    starts: Tensor,
    *,
    every: int,
    together: int,
    tell: Tell,
) -> Arrays:
    """Right answers of every training's last weights on each side, and whether these weights are numbers.

    starts: initial weights of every repeat and candidate, `[repeats * candidates, d]`. Each answer is `[searches, repeats,
    candidates]`: what a search sees, and what it is judged by.
    """
    searches, run = len(pool.runs), pool.runs[0]
    rules = [candidate.rule() for candidate in pool.candidates] * (searches * pool.repeats)
    noises = np.repeat([one.noise for one in pool.runs], len(starts))
    how: dict[str, Any] = {"seed": pool.seed, "every": every, "together": together, "tell": tell, "noises": noises}
    measures: dict[str, Measure] = {**exams, "finite": finite}
    found = bench.trained(run, rules, starts.repeat(searches, 1), measures, [run.steps], **how)
    found.setdefault("validation", np.zeros((len(rules), 1), np.uint16))
    shape = (searches, pool.repeats, len(pool.candidates))
    return {name: values.reshape(shape) for name, values in found.items()}


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


if __name__ == "__main__":
    write(importlib.import_module(f"honestdp_papers.{sys.argv[1]}.honest_training").every_search())
