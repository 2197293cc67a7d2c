"""From what left a search to numbers that are independent and uniform if its law is the exact one (Rosenblatt 1952)."""

from __future__ import annotations

import numpy as np
from scipy import special, stats

from honestdp.search.design import Design
from honestdp.selection import Selection

from . import closed_form_search as closed_form
from .closed_form_search import RATES, Array, Outcome, World

START = -0.33
"""The initial weight of the searches that are made: either candidate's weight may end on either side of zero."""


def uniforms(selection: Selection, made: Design, outcomes: list[Outcome]) -> Array:
    """`[searches, ...]`: independent and uniform if the winners follow their law. Ends of atoms are blurred by a seeded draw."""
    blur = np.random.default_rng(0)
    each = _composed if made.choice is not None else _won
    return np.array([each(selection, made, one, blur) for one in outcomes if one.standing.best is not None])


def _won(selection: Selection, made: Design, one: Outcome, blur: np.random.Generator) -> list[float]:
    """Score, then candidate given the score, then weight given both."""
    law = closed_form.world(made, START, signal=one.signal, held=one.held)
    grid = closed_form.score_grid(law)
    table = table_of(selection, law)
    assert one.standing.best is not None
    assert one.standing.weights is not None
    candidate = made.candidates.index(one.secret.candidates[one.standing.best])
    return placed_in(law, grid, table, one.standing.noisy, candidate, float(one.standing.weights), blur)


def placed_in(
    law: World, grid: Array, table: Array, noisy: float, candidate: int, weight: float, blur: np.random.Generator
) -> list[float]:
    s = int(np.searchsorted(grid, noisy))
    assert grid[s] == noisy
    score = _atom(table.sum(axis=(0, 1)), s, blur)
    which = _atom(table[:, :, s].sum(axis=1), candidate, blur)
    negative, positive = table[candidate, :, s] / law.signs[candidate]
    z = (weight - law.means[candidate]) / law.deviations[candidate]
    reached = negative * min(special.ndtr(z), law.signs[candidate, 0])
    reached += positive * max(0.0, special.ndtr(z) - law.signs[candidate, 0])
    return [score, which, reached / table[candidate, :, s].sum()]


def _composed(selection: Selection, made: Design, one: Outcome, blur: np.random.Generator) -> list[float]:
    """Every weight, then the choice given their signs, then the score of the chosen."""
    law = closed_form.world(made, START, signal=one.signal, held=one.held)
    weights = np.array([float(one.standing.kept[run]) for run in range(len(RATES))])
    placed = special.ndtr((weights - law.means) / law.deviations).tolist()
    totals = np.sign(weights) * law.held
    assert made.choice is not None
    assert one.standing.best is not None
    choice = _atom(closed_form.chosen(totals, 2 / made.choice), one.standing.best, blur)
    grid = closed_form.score_grid(law)
    sign = int(weights[one.standing.best] > 0)
    return [*placed, choice, _atom(law.scores(grid)[sign], int(one.standing.noisy - grid[0]), blur)]


def _atom(masses: Array, place: int, blur: np.random.Generator) -> float:
    below = masses[:place].sum()
    return float((below + blur.random() * masses[place]) / masses.sum())


_tables: dict[tuple[Selection, World], Array] = {}


def table_of(selection: Selection, law: World) -> Array:
    if (selection, law) not in _tables:
        _tables[selection, law] = closed_form.winner_table(selection, law, closed_form.score_grid(law))
    return _tables[selection, law]


def surprise(found: Array) -> float:
    """The p-value of independence and uniformity: each column in ten cells, and all of them together in thirds."""
    tests = [stats.chisquare(np.bincount((column * 10).astype(int).clip(0, 9), minlength=10)) for column in found.T]
    together = np.ravel_multi_index(tuple((found.T * 3).astype(int).clip(0, 2)), (3,) * found.shape[1])
    tests.append(stats.chisquare(np.bincount(together, minlength=3 ** found.shape[1])))
    return float(min(1.0, min(test.pvalue for test in tests) * len(tests)))
