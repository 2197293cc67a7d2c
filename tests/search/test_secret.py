"""What a search draws before its first run, and how it settles a winner, have their stated laws: the parts of the attack's law
that its searches are too few to see closely. Randomness is the operating system's; each test has a false alarm rate of 1e-9.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from honestdp.boundary.data import PrivateData
from honestdp.boundary.seed import Seed
from honestdp.search import secret
from honestdp.search.runs import Execution, MachineStopped, Standing
from honestdp.search.vault import Unkept, Vault, erase
from honestdp.selection import Compose, LiuTalwar, RandomStopping, Winner, count_of

from . import closed_form_search as closed_form
from .closed_form_search import RATES, RECORDS

FALSE_ALARM = 1e-9
DRAWS = 4000
COMPOSE = Compose(candidates=len(RATES))
COUNTED: list[RandomStopping | LiuTalwar] = [
    RandomStopping(count=count_of(runs=4.0, shape=shape)) for shape in (1.0, 0.0, -0.5, "poisson")
]
COUNTED.append(LiuTalwar(gamma=0.25))


def by_chance(found: Counter[int], masses: closed_form.Array) -> float:
    """p-value of counts against masses, the rarest cells taken together."""
    total = sum(found.values())
    expected = masses * total
    last = next((k for k in range(1, len(masses)) if expected[k:].sum() < 60), len(masses))
    observed = np.array([found[k] for k in range(last)] + [sum(n for k, n in found.items() if k >= last)])
    wanted = np.append(expected[:last], total - expected[:last].sum())
    if not expected[0]:
        assert not observed[0]
        observed, wanted = observed[1:], wanted[1:]
    return float(stats.chisquare(observed, wanted).pvalue)


@pytest.mark.parametrize("selection", COUNTED, ids=lambda selection: f"{selection.name}-{selection.runs:g}")
def test_the_runs_of_a_search_are_as_many_as_charged_and_try_independent_candidates(
    selection: RandomStopping | LiuTalwar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret, "score_noise", lambda count, **kw: [0] * count)  # slow, and no part of this
    made = closed_form.designed(selection)
    drawn = [secret.drawn(made, seed=None) for _ in range(DRAWS)]
    assert by_chance(Counter(len(one.candidates) for one in drawn), closed_form.counts(selection)) > FALSE_ALARM
    tried = [[made.candidates.index(one) for one in each.candidates[:2]] for each in drawn]
    firsts = Counter(each[0] for each in tried if each)
    pairs = Counter(2 * each[0] + each[1] for each in tried if len(each) == 2)
    assert stats.chisquare([firsts[c] for c in range(2)]).pvalue > FALSE_ALARM
    assert stats.chisquare([pairs[c] for c in range(4)]).pvalue > FALSE_ALARM


def test_the_coins_of_the_split_are_of_128_bits_and_every_one_of_them_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coins of few bits could be tried one by one by whoever knows a few records' sides."""
    monkeypatch.setattr(secret, "score_noise", lambda count, **kw: [0] * count)
    made = closed_form.designed(COUNTED[0])
    drawn = [secret.drawn(made, seed=None) for _ in range(64)]
    for bit in range(128):  # the same in 64 draws with a chance of 2^-63
        assert {one.split >> bit & 1 for one in drawn} == {0, 1}
    sides = {drawn[0].held_out(256, 0.5).tobytes()}
    sides |= {replace(drawn[0], split=drawn[0].split ^ 1 << bit).held_out(256, 0.5).tobytes() for bit in range(128)}
    assert len(sides) == 129


def test_the_noise_of_scores_is_a_discrete_gaussian_of_its_own_for_each_run() -> None:
    made = closed_form.designed(COUNTED[0])
    world = closed_form.world(made, 0.0, signal=0, held=0)
    noise = np.array(
        [one.noise[:2] for one in (secret.drawn(made, seed=None) for _ in range(2500)) if len(one.noise) > 1]
    )
    grid = np.arange(-6, 7)
    for column in noise.T:
        observed = [int((column == z).sum()) for z in grid]
        masses = world.scores(grid)[0]
        observed.append(len(column) - sum(observed))
        assert stats.chisquare(observed, np.append(masses, 1 - masses.sum()) * len(column)).pvalue > FALSE_ALARM
    assert stats.pearsonr(noise[:, 0], noise[:, 1]).pvalue > FALSE_ALARM


def execution(selection: Compose | Winner, folder: Path) -> Execution:
    erase(folder / ".secret")
    made = closed_form.designed(selection)
    return Execution(
        made,
        secret.drawn(made, seed=None),
        closed_form.setting(0.0),
        PrivateData(closed_form.records()),
        records=RECORDS,
        store=Vault.make(folder / ".secret", "a search"),
    )


def test_the_choice_among_composed_runs_follows_its_law(tmp_path: Path) -> None:
    made, one = closed_form.designed(COMPOSE), execution(COMPOSE, tmp_path)
    assert made.choice is not None
    found: Counter[int] = Counter()
    for _ in range(1500):
        noise = secret.drawn(made, seed=None).choice
        standing = Standing(
            chosen_by={run: total + noise[run] for run, total in enumerate((1, 3))},
            scored={0: 10, 1: 11},
            kept={0: torch.zeros(1), 1: torch.ones(1)},
        )
        one._choose(standing)
        assert standing.best is not None
        assert standing.noisy == 10 + standing.best == 10 + float(standing.weights)
        found[standing.best] += 1
    law = closed_form.chosen(np.array([1.0, 3.0]), 2 / made.choice)
    assert law.sum() == pytest.approx(1)
    assert stats.binomtest(found[0], found.total(), law[0]).pvalue > FALSE_ALARM


@pytest.mark.parametrize("selection", [COMPOSE, COUNTED[0]], ids=["compose", "envelope"])
def test_a_private_search_leaves_the_noise_to_the_exact_sampler_at_the_charged_scale(
    selection: Compose | RandomStopping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator would be numpy's rounded normals: those are for a fixed seed, which is NOT PRIVATE."""
    asked: dict[str, dict[str, object]] = {}
    for name in ("score_noise", "choice_noise"):
        monkeypatch.setattr(secret, name, lambda count, _name=name, **how: asked.update({_name: how}) or [0] * count)
    made = closed_form.designed(selection)
    drawn = secret.drawn(made, seed=None)
    assert asked.pop("score_noise") == {"multiplier": made.multiplier, "sensitivity": 1, "generator": None}
    wanted = (
        {} if made.choice is None else {"choice_noise": {"epsilon": made.choice, "sensitivity": 1, "generator": None}}
    )
    assert asked == wanted
    assert len(drawn.noise) == len(drawn.candidates)
    assert len(drawn.choice) == (len(drawn.candidates) if wanted else 0)


def test_two_copies_of_a_search_make_the_same_choice_and_keep_no_score_without_noise(tmp_path: Path) -> None:
    """Whatever is asked of the validation records was drawn before: a copy of the folder is not a second answer."""
    made = closed_form.designed(COMPOSE)
    for _ in range(20):
        drawn = secret.drawn(made, seed=None)
        standings = []
        for _ in range(2):
            one = execution(COMPOSE, tmp_path)
            one._secret, one._store = drawn, Unkept()
            one._trained = lambda number, batch: [torch.ones(1) * (run + 1) for run in batch]  # type: ignore[method-assign]
            standings.append(one.finish())
        first, second = standings
        assert (first.best, first.noisy) == (second.best, second.noisy)
        assert first.chosen_by == second.chosen_by
        held = int(drawn.held_out(RECORDS, made.fraction).sum())  # every validation record is right
        assert first.chosen_by == {run: held + z for run, z in enumerate(drawn.choice)}
        assert first.scored == {run: held + z for run, z in enumerate(drawn.noise)}


def test_equal_scores_are_settled_by_a_coin_and_not_by_the_order_of_the_runs(tmp_path: Path) -> None:
    for ties in ((0.2, 0.7), (0.7, 0.2)):
        one = execution(Winner(candidates=len(RATES)), tmp_path)
        one._secret = replace(one._secret, noise=(3, 3), ties=ties)
        one._trained = lambda number, batch: [torch.ones(1) for _ in batch]  # type: ignore[method-assign]
        standing = Standing()
        one._batch(0, [0, 1], standing)
        assert standing.best == int(np.argmax(ties))


@pytest.mark.law
@pytest.mark.parametrize("killed", [False, True])
def test_runs_that_fail_by_chance_have_one_chance_each(killed: bool, tmp_path: Path) -> None:
    """Each of two runs fails with probability 0.3, and takes the whole population with it; also if a kill comes in between.

    A failure follows from the seed. Where the search stops, since no run fails by itself, it is resumed.
    """
    one = execution(Winner(candidates=len(RATES)), tmp_path)
    deaths, stops = 0, 0

    def population(batch: list[int], name: str, seed: Seed) -> list[torch.Tensor]:
        nonlocal deaths
        if deaths and "-" in name:
            deaths -= 1
            raise KeyboardInterrupt
        if (np.random.default_rng(seed.number(128)).random(len(batch)) < 0.3).any():
            raise RuntimeError
        return [torch.ones(1) for _ in batch]

    one._population = population  # type: ignore[method-assign, assignment]
    found: Counter[int] = Counter()
    for number in range(DRAWS):
        deaths, weights = int(killed), []
        while not weights:
            try:
                weights = one._trained(number, [0, 1])
            except KeyboardInterrupt:
                assert not deaths
            except MachineStopped:
                stops += 1
        found[2 * (weights[0] is None) + (weights[1] is None)] += 1
    assert stops > 0.03 * DRAWS
    expected = np.array([0.49, 0.21, 0.21, 0.09]) * DRAWS
    assert stats.chisquare([found[k] for k in range(4)], expected).pvalue > FALSE_ALARM


def test_a_run_that_failed_by_itself_is_not_tried_again_after_a_kill(tmp_path: Path) -> None:
    one = execution(Winner(candidates=len(RATES)), tmp_path)
    outcomes = [RuntimeError(), RuntimeError()]

    def population(*_: object) -> list[torch.Tensor]:
        raise outcomes.pop()

    one._population = population  # type: ignore[method-assign, assignment]
    assert one._trained(0, [0]) == [None]
    assert one._trained(0, [0]) == [None]
    assert outcomes == []
