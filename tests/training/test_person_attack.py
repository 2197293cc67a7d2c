"""An attack on a person of ten rows: a statement of single rows does not hold for them, that of people does.

One weight, one step, every record in the lot, clip 1 and noise sigma: what leaves is w = -(S + sigma z)/L with S the sum of the
clipped gradients. The attacker knows everybody but one, whose rows all have gradient 100 where they are in the data; where they
are not, nothing of theirs is in S. With S moved by m clips, the two laws are normal ones m/sigma apart, and

    delta(e) = Phi(m/(2 sigma) - e sigma/m) - exp(e) Phi(-m/(2 sigma) - e sigma/m)

is the least delta at which they are e apart: exact, by Balle & Wang 2018.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import special
from torch import Tensor, nn

import honestdp
from honestdp.optimizers import SGD

pytestmark = pytest.mark.law

DELTA, NOISE, ROWS, OTHERS = 1e-5, 4.0, 10, 5
RUNS = 400


def product(output: Tensor, y: Tensor) -> Tensor:
    return output[:, 0] * y


def rows(there: bool) -> tuple[Tensor, Tensor]:
    """Five people of one row that give nothing, then the one with ten, who gives nothing either where they are not there."""
    y = torch.zeros(OTHERS + ROWS)
    y[OTHERS:] = 100.0 * there
    return torch.ones(OTHERS + ROWS, 1), y


IDS = [*range(OTHERS), *[OTHERS] * ROWS]


def sums(data: Any, records: int, *, runs: int, seed: int = 1) -> tuple[Tensor, honestdp.Statement]:
    """-L w of so many runs, and what one of them states."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    results = honestdp.train_population(
        model,
        data,
        run=honestdp.Run(records=records, lot=records, steps=1, noise=NOISE),
        optimizers=[SGD(lr=1.0, clip=1.0)] * runs,
        loss=product,
        noise_seed=seed,
        delta=DELTA,
    )
    weights = torch.stack([next(each.model.parameters()).detach().flatten()[0] for each in results])
    one = honestdp.train(
        model,
        data,
        run=results[0].run,
        optimizer=SGD(lr=1.0, clip=1.0),
        loss=product,
        noise_seed=seed,
        delta=DELTA,
    )
    return -records * weights, one.statement


def as_people(there: bool) -> Any:
    return honestdp.by_person(rows(there), IDS, rows=ROWS, name="patient_id")


def divergence(moved: float, epsilon: float) -> float:
    shift = moved / NOISE
    near, far = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
    return float(special.ndtr(near) - math.exp(epsilon) * special.ndtr(far))


def moved(people: bool) -> tuple[float, honestdp.Statement]:
    """By how many clips one person moves the sum, read off two trainings with the same noise; and what was stated."""
    count = OTHERS + 1 if people else OTHERS + ROWS
    (with_them, statement), (without, _) = (
        sums(as_people(there) if people else rows(there), count, runs=1) for there in (True, False)
    )
    return float(with_them[0] - without[0]), statement


def test_the_statement_of_rows_is_broken_by_a_person_of_ten_and_that_of_people_is_not() -> None:
    by_rows, of_rows = moved(people=False)
    by_person, of_people = moved(people=True)
    assert by_rows == pytest.approx(ROWS, rel=0.02)
    assert by_person == pytest.approx(1.0, rel=0.02)
    assert of_rows.epsilon == pytest.approx(of_people.epsilon)  # the same noise: what differs is whose it is
    assert divergence(by_rows, of_rows.epsilon) > 0.1 > 1000 * of_rows.delta
    assert divergence(by_person, of_people.epsilon) <= of_people.delta
    # The bound is no looser than the mechanism: a little less would not hold.
    assert divergence(by_person, 0.97 * of_people.epsilon) > 0.9 * of_people.delta


def test_who_guesses_finds_the_person_of_ten_rows_behind_a_statement_of_rows_alone() -> None:
    """The same by guessing, from what left of 400 runs each: the part of right and of false alarms, within 4.5 deviations."""
    slack = 4.5 * 0.5 / math.sqrt(RUNS)
    for people, found in ((False, True), (True, False)):
        count = OTHERS + 1 if people else OTHERS + ROWS
        (there, statement), (gone, _) = (
            sums(as_people(it) if people else rows(it), count, runs=RUNS, seed=7 + it) for it in (True, False)
        )
        guess = ROWS / 2 if not people else 0.5
        right, false = float((there > guess).float().mean()), float((gone > guess).float().mean())
        bound = math.exp(statement.epsilon) * (false + slack) + statement.delta + slack
        assert (right > bound) is found, (people, right, false, bound)


def test_a_statement_of_people_says_so_everywhere() -> None:
    _, statement = sums(as_people(True), OTHERS + 1, runs=1)
    text = str(statement)
    assert statement.relation == "add or remove one person, with all of their rows"
    assert "patient_id" in text
    assert "At most 10 rows of a person" in text
    assert "without one particular person" in text or statement.not_private
    assert "the number of people" in text
    assert honestdp.Statement.from_dict(statement.as_dict()) == statement


def test_the_declared_number_is_that_of_people() -> None:
    run = honestdp.Run(records=OTHERS + ROWS, lot=2, steps=1, noise=NOISE)
    with pytest.raises(honestdp.errors.InvalidArgument, match="as many people as the data has"):
        honestdp.train(nn.Linear(1, 1), as_people(True), run=run, optimizer=SGD(lr=1.0, clip=1.0), delta=DELTA)
