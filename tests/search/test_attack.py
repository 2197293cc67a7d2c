"""A distinguishing attack on whole searches, won by nobody.

Two halves. First, the law of what leaves a tiny search is computed exactly (closed_form_search.py) on neighbouring data, and its
divergence is held against the (epsilon, delta) of the statement: for every selection, the record added and removed, on the
training side and on the validation side, whatever the attacker takes for the initial weight. The split's coins are fixed on
both sides: given the record's side they have one law, and hockey-stick divergences are jointly convex, so that random coins
only help.

Second, what really leaves searches made by the real code, with the operating system's randomness, follows that law. Each outcome
is mapped by its exact conditional distribution functions to numbers that are independent and uniform if the law is right; each
test of that has a false alarm rate of 1e-9, small enough that no seed is needed.

So the code is the mechanism that was analysed, and that mechanism meets the statement. Faults planted in the code are noticed by
the second half, and those that break the guarantee are seen to do so by the first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import special, stats

from honestdp.boundary.data import PrivateData
from honestdp.search import secret
from honestdp.search.design import Design
from honestdp.search.guarantee import guarantee
from honestdp.search.lifecycle import Search
from honestdp.search.rehearsal import tried
from honestdp.search.tune_result import TuneResult
from honestdp.selection import Compose, LiuTalwar, RandomStopping, Selection, Winner, count_of, counts
from honestdp.selection.counts import TruncatedNegativeBinomial

from . import closed_form_search as closed_form
from .closed_form_search import BUDGET, RATES, RECORDS, Array, World
from .rosenblatt import START, placed_in, surprise, table_of, uniforms

pytestmark = pytest.mark.law

FALSE_ALARM = 1e-9
BEYOND_DOUBT = FALSE_ALARM**2
"""A fault that is noticed so far below the false alarm rate is noticed: no more searches are made to see it."""

ONE = Compose(candidates=1)
COMPOSE = Compose(candidates=len(RATES))


def stopping(bound: str, shape: float | str, runs: float) -> RandomStopping:
    return RandomStopping(count=count_of(runs=runs, shape=shape), bound=bound)


def best_of(runs: float) -> list[Selection]:
    """Every selection from which the winner alone leaves, with so many runs on average."""
    laws = [("envelope", 1.0), ("profile", 1.0), ("papernot-steinke", 1.0), ("envelope", 0.0), ("envelope", -0.5)]
    laws += [("envelope", "poisson"), ("papernot-steinke", "poisson")]
    return [ONE, Winner(candidates=len(RATES)), LiuTalwar(gamma=1 / runs), *(stopping(*law, runs) for law in laws)]


ENVELOPE = stopping("envelope", 1.0, 4.0)


def named(selection: Selection) -> str:
    shape = getattr(getattr(selection, "count", None), "shape", "")
    return f"{selection.name}-{selection.runs:g}-{shape}"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about power loss."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    torch.set_num_threads(1)


# ---- The law meets the statement

STARTS = (-0.7, -0.55, -0.45, -0.37, -0.3, -0.2, 0.0)
NEIGHBOURS = {  # (signal, held) with the record and without it
    "training record of kind A": ((10, 20), (9, 20)),
    "training record of kind B": ((10, 20), (11, 20)),
    "training record, one to score by": ((10, 1), (9, 1)),
    "validation record": ((10, 20), (10, 19)),
    "the only validation record": ((10, 1), (10, 0)),
}


def exact(selection: Selection, made: Design, start: float, pair: str, masses: Array | None = None) -> float:
    """delta at the stated epsilon, the larger of both directions."""
    (signal, held), (other_signal, other_held) = NEIGHBOURS[pair]
    epsilon = closed_form.stated(selection)
    one = closed_form.world(made, start, signal=signal, held=held)
    other = closed_form.world(made, start, signal=other_signal, held=other_held)
    grid = closed_form.score_grid(one, other)
    tables = [closed_form.winner_table(selection, each, grid, masses) for each in (one, other)]
    none = 0.0 if masses is None else masses[0]
    for table in tables:
        assert table.sum() <= 1 + 1e-9 - none
    forth = closed_form.divergence(one, tables[0], other, tables[1], epsilon)
    return max(forth, closed_form.divergence(other, tables[1], one, tables[0], epsilon))


@pytest.mark.parametrize("pair", NEIGHBOURS)
@pytest.mark.parametrize("selection", best_of(10.0), ids=named)
def test_the_exact_divergence_of_what_leaves_is_within_the_statement(selection: Selection, pair: str) -> None:
    made = closed_form.designed(selection)
    assert closed_form.stated(selection) <= BUDGET.epsilon
    assert max(exact(selection, made, start, pair) for start in STARTS) <= BUDGET.delta


@pytest.mark.parametrize("pair", ["training record of kind A", "validation record"])
def test_for_one_run_the_statement_is_exact(pair: str) -> None:
    found = max(exact(ONE, closed_form.designed(ONE), start, pair) for start in STARTS)
    assert 0.99 * BUDGET.delta <= found <= BUDGET.delta


def composed_training(made: Design, epsilon: float) -> float:
    """All weights leave, and what else leaves depends on a training record through them: one Gaussian of sqrt(k) / sigma."""
    shift = math.sqrt(len(RATES)) / made.runs[0].noise
    first, second = special.ndtr(shift / 2 - epsilon / shift), special.ndtr(-shift / 2 - epsilon / shift)
    return float(first - math.exp(epsilon) * second)


def composed_validation(made: Design, start: float, epsilon: float) -> float:
    """The weights have one law on both sides: the mean, over their signs, of the divergence of (choice, score)."""
    assert made.choice is not None
    worst = 0.0
    for held, other in ((20, 19), (19, 20), (1, 0), (0, 1)):
        one, rest = (closed_form.world(made, start, signal=10, held=n) for n in (held, other))
        grid, total = closed_form.score_grid(one, rest), 0.0
        for signs in np.ndindex(*(2,) * len(RATES)):
            chance = math.prod(one.signs[c, sign] for c, sign in enumerate(signs))
            laws = []
            for each in (one, rest):
                totals = np.array([(2 * sign - 1) * each.held for sign in signs])
                choice = closed_form.chosen(totals, 2 / made.choice)
                laws.append(choice[:, None] * each.scores(grid)[list(signs)])
            total += chance * np.maximum(laws[0] - math.exp(epsilon) * laws[1], 0).sum()
        worst = max(worst, total)
    return worst


def test_the_exact_divergence_of_a_composition_is_within_the_statement() -> None:
    made = closed_form.designed(COMPOSE)
    epsilon = closed_form.stated(COMPOSE)
    assert 0.99 * BUDGET.delta <= composed_training(made, epsilon) <= BUDGET.delta
    found = max(composed_validation(made, start, epsilon) for start in STARTS)
    assert BUDGET.delta / 1000 <= found <= BUDGET.delta


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0])
def test_a_number_of_runs_that_is_fixed_or_known_would_break_the_statement(shape: float) -> None:
    selection = stopping("envelope", shape, 10.0)
    made, masses = closed_form.designed(selection), closed_form.counts(selection)

    def if_known(k: int) -> float:
        return exact(selection, made, 0.0, "validation record", np.eye(k + 1)[k])

    assert if_known(10) > BUDGET.delta
    assert sum(masses[k] * if_known(k) for k in range(1, 41)) > BUDGET.delta


def test_scores_without_noise_would_break_the_statement() -> None:
    made = closed_form.designed(ENVELOPE)
    one, other = (closed_form.world(made, 0.0, signal=10, held=held) for held in (20, 19))
    bare = [World(w.start, w.signal, w.held, w.sigma, 0.02, w.rates) for w in (one, other)]
    grid = closed_form.score_grid(*bare)
    tables = [closed_form.winner_table(ENVELOPE, each, grid) for each in bare]
    assert closed_form.divergence(bare[0], tables[0], bare[1], tables[1], BUDGET.epsilon) > 0.99


# ---- The code follows the law


@pytest.mark.parametrize("selection", [COMPOSE, *best_of(4.0)], ids=named)
def test_what_leaves_real_searches_follows_the_exact_law(selection: Selection) -> None:
    made = closed_form.designed(selection)
    outcomes = closed_form.searches(made, START, blocks=5, each=75)
    none = sum(one.standing.best is None for one in outcomes)
    empty = math.exp(-4.0) if getattr(selection, "count", None) == count_of(runs=4.0, shape="poisson") else 0.0
    assert stats.binomtest(none, len(outcomes), empty).pvalue > FALSE_ALARM
    assert surprise(uniforms(selection, made, outcomes)) > FALSE_ALARM


def test_the_split_is_a_fair_coin_for_each_record_whatever_it_holds() -> None:
    made = closed_form.designed(ENVELOPE)
    coins = np.array([secret.drawn(made, seed=None).held_out(RECORDS, made.fraction) for _ in range(2000)])
    assert stats.binomtest(int(coins.sum()), coins.size, closed_form.FRACTION).pvalue > FALSE_ALARM
    assert stats.chisquare(coins.sum(axis=0), np.full(RECORDS, coins.sum() / RECORDS)).pvalue > FALSE_ALARM
    pairs = np.bincount((2 * coins[:, :-1] + coins[:, 1:]).ravel(), minlength=4)
    expected = (
        np.outer(
            [1 - closed_form.FRACTION, closed_form.FRACTION], [1 - closed_form.FRACTION, closed_form.FRACTION]
        ).ravel()
        * pairs.sum()
    )
    assert stats.chisquare(pairs, expected).pvalue > FALSE_ALARM


def whole_searches(made: Design, count: int, monkeypatch: pytest.MonkeyPatch) -> Array:
    """The same numbers from what `tune` hands to its user: model, hyperparameters and the score, which it clips to 0 and 1."""
    seen: list[secret.Secret] = []
    drawn = secret.drawn
    monkeypatch.setattr(secret, "drawn", lambda *args, **kw: seen.append(drawn(*args, **kw)) or seen[-1])
    said = guarantee(made, seeded=False, declared=True)
    x, y = closed_form.records()
    public = closed_form.configured(made.selection, START, PrivateData((x, y)))
    tested = tried(made, public.setting, PrivateData((x, y)).shapes)
    search = Search(design=made, configuration=public, tested=tested, statement=said, report=lambda *_: "")
    blur, found = np.random.default_rng(1), []
    with closed_form.rehearsed_once():
        results = [search.carry_out(PrivateData((x, y)), None, resume=False, show=False) for _ in range(count)]
    for result, drew in zip(results, seen, strict=True):
        coins = drew.held_out(RECORDS, made.fraction)
        law = closed_form.world(made, START, signal=int(x[torch.from_numpy(~coins)].sum()), held=int(coins.sum()))
        found.append(_told(made, law, result, blur))
    return np.array(found)


def _told(made: Design, law: World, result: TuneResult, blur: np.random.Generator) -> list[float]:
    most = round(made.validation_records)
    grid = closed_form.score_grid(law)
    table = table_of(ENVELOPE, law)
    clipped = np.zeros((*table.shape[:2], 2 * most + 1))
    for place, s in enumerate(grid.clip(-most, most)):
        clipped[:, :, int(s) + most] += table[:, :, place]
    assert result.score is not None
    noisy = round(most * (2 * result.score.value - 1))
    rate = result.hyperparameters["lr"]
    weight = float(next(result.model.parameters()).detach())
    return placed_in(law, np.arange(-most, most + 1), clipped, noisy, RATES.index(rate), weight, blur)


def test_what_a_user_of_a_whole_search_gets_follows_the_exact_law(monkeypatch: pytest.MonkeyPatch) -> None:
    found = whole_searches(closed_form.designed(ENVELOPE), 150, monkeypatch)
    assert surprise(found) > FALSE_ALARM


# ---- Planted faults


def _silent_scores(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(secret, "score_noise", lambda count, **kw: [0] * count)


def _one_noise_for_all(patch: pytest.MonkeyPatch) -> None:
    real = secret.score_noise
    patch.setattr(secret, "score_noise", lambda count, **kw: real(1, **kw) * count)


def _half_the_score_noise(patch: pytest.MonkeyPatch) -> None:
    real = secret.score_noise
    patch.setattr(
        secret, "score_noise", lambda count, *, multiplier, **kw: real(count, multiplier=multiplier / 2, **kw)
    )


def _grid_in_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(counts, "with_replacement", lambda runs, _, candidates: [i % candidates for i in range(runs)])


def _mean_number_of_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TruncatedNegativeBinomial, "draw", lambda self, _: round(self.mean))


def _one_more_run(patch: pytest.MonkeyPatch) -> None:
    real = TruncatedNegativeBinomial.draw
    patch.setattr(TruncatedNegativeBinomial, "draw", lambda self, generator: 1 + real(self, generator))


def _split_by_label(patch: pytest.MonkeyPatch) -> None:
    real = PrivateData.split
    patch.setattr(PrivateData, "split", lambda data, coins: real(data, data._pair[1].numpy() == 0))


def _half_the_training_noise(patch: pytest.MonkeyPatch) -> None:
    real = Design.run_of
    patch.setattr(Design, "run_of", lambda self, one: real(self, one).with_noise(0.5 * real(self, one).noise))


def _last_run_wins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(secret.Secret, "rank", lambda self, run, noisy: (float(run), 0.0))


def _rank_by_the_exact_score(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(secret.Secret, "rank", lambda self, run, noisy: (noisy - self.noise[run], self.ties[run]))


def _best_for_sure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(secret, "choice_noise", lambda count, **kw: [0] * count)


FAULTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Selection]] = [
    (_silent_scores, ENVELOPE),
    (_silent_scores, COMPOSE),
    (_silent_scores, ONE),
    (_half_the_score_noise, ENVELOPE),
    (_one_noise_for_all, stopping("envelope", 1.0, 8.0)),
    (_grid_in_order, stopping("envelope", 1.0, 2.0)),
    (_mean_number_of_runs, ENVELOPE),
    (_one_more_run, stopping("envelope", 1.0, 2.0)),
    (_split_by_label, ENVELOPE),
    (_split_by_label, COMPOSE),
    (_half_the_training_noise, ENVELOPE),
    (_half_the_training_noise, COMPOSE),
    (_last_run_wins, ENVELOPE),
    (_rank_by_the_exact_score, stopping("envelope", 1.0, 8.0)),
    (_best_for_sure, COMPOSE),
]


@pytest.mark.parametrize(
    ("plant", "selection"), FAULTS, ids=[f"{plant.__name__[1:]}-{selection.name}" for plant, selection in FAULTS]
)
def test_a_planted_fault_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = closed_form.designed(selection)
    plant(monkeypatch)
    for outcomes in closed_form.growing(made, START, blocks=8, each=75):
        found = surprise(uniforms(selection, made, outcomes))
        if found < BEYOND_DOUBT:
            break
    assert found < FALSE_ALARM
