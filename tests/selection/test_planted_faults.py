"""Faults that were planted in the selections and that no test had seen: each of these claims turns one of them red."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from honestdp import Run
from honestdp.accounting import Pair, RenyiCurve, privacy_loss, renyi_curve
from honestdp.accounting.pair import Slack
from honestdp.selection import LiuTalwar, Poisson, TruncatedNegativeBinomial, grid, named, random_stopping, winner
from honestdp.selection.counts import Binomial, Count, count_of, coverage
from honestdp.selection.envelope import Curve, Lines, envelope_epsilon, expected, least_epsilon, profile_epsilon
from honestdp.selection.liu_talwar import DELTA2
from honestdp.selection.profile import at, base_pair, constant
from honestdp.selection.random_stopping import repeated_curve

RUN = Run(records=100, lot=30, steps=3, noise=0.7)
DELTA = 0.1
SEARCHES: list[tuple[str, dict[str, Any]]] = [
    ("profile", {"runs": 20.0}),
    ("envelope", {"runs": 20.0}),
    ("envelope", {"runs": 20.0, "shape": "poisson"}),
    ("winner", {"candidates": 3}),
    ("winner", {"candidates": 3, "identical": True}),
]


class Coins:
    """Coins that never end a search, in the place of a generator."""

    def geometric(self, chance: float) -> int:
        return 10**12

    def integers(self, most: int, size: int) -> Any:
        return np.zeros(size, np.int64)


@pytest.mark.parametrize("gamma", [1.0, 0.5, 0.01])
def test_liu_talwar_stops_at_its_cap_whatever_the_coin_says(gamma: float) -> None:
    cap = math.log(1e20) / gamma
    drawn = LiuTalwar(gamma=gamma).draws(Coins(), 7)  # type: ignore[arg-type]
    assert cap - 1 < len(drawn) <= cap


def test_liu_talwar_charges_delta_for_every_run_up_to_its_cap() -> None:
    """delta = sqrt(2 delta1) Y + delta2, and epsilon = 3 eps1 + 3 sqrt(2 delta1), put together again."""
    gamma, delta = 0.1, 1e-5
    found = LiuTalwar(gamma=gamma).epsilon(RUN.event, delta=delta)
    root = (delta - DELTA2) / (math.log(1 / DELTA2) / gamma)
    one_run = renyi_curve(RUN.event).epsilon(root**2 / 2)
    assert found == pytest.approx(3 * one_run + 3 * root, rel=1e-12)


@pytest.fixture
def swap(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Exchanges the two directions of the relation in every base run from here on."""

    def swapped(event: Any, *, delta: float, tolerance: float) -> Pair | None:
        pair = base_pair(event, delta=delta, tolerance=tolerance)
        return None if pair is None else pair.reversed

    def exchange() -> None:
        monkeypatch.setattr(random_stopping, "base_pair", swapped)
        monkeypatch.setattr(winner, "base_pair", swapped)

    return exchange


@pytest.mark.parametrize(("name", "options"), SEARCHES)
def test_both_directions_are_charged_and_the_larger_counts(name: str, options: dict[str, Any], swap: Any) -> None:
    """The relation has no first and second: with the two exchanged, a search costs the same. One direction alone does not."""
    selection = named(name, **options)
    before = selection.epsilon(RUN.event, delta=DELTA)
    swap()
    assert selection.epsilon(RUN.event, delta=DELTA) == pytest.approx(before, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), SEARCHES)
def test_each_direction_has_the_profile_of_its_own(
    name: str, options: dict[str, Any], swap: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    selection = named(name, **options)
    # Without the composition, which is not exchanged and is the lesser bound at some epsilons.
    monkeypatch.setattr(winner, "of_event", lambda *_, **__: constant(1.0))
    added, removed = selection.profiles(RUN.event, delta=DELTA)
    epsilons = np.linspace(0, 4, 9)
    swap()
    others = selection.profiles(RUN.event, delta=DELTA)
    np.testing.assert_allclose(at(others[0], epsilons), at(removed, epsilons), rtol=1e-9)
    np.testing.assert_allclose(at(others[1], epsilons), at(added, epsilons), rtol=1e-9)
    assert not np.allclose(at(added, epsilons), at(removed, epsilons), rtol=1e-2)


@pytest.mark.parametrize(
    ("run", "delta", "runs", "shape", "dearer"),
    [
        (RUN, 0.1, 20.0, "poisson", 1),
        (RUN, 0.1, 20.0, 1.0, 0),
        (Run(records=100, lot=50, steps=1, noise=1.0), 1e-2, 20.0, "poisson", 1),
    ],
)
def test_now_one_direction_is_dearer_and_now_the_other(
    run: Run, delta: float, runs: float, shape: float | str, dearer: int
) -> None:
    pair = base_pair(run.event, delta=delta / runs, tolerance=4e-5)
    assert pair is not None
    count = count_of(runs=runs, shape=shape)
    each = [envelope_epsilon(direction, count, delta) for direction in (pair, pair.reversed)]
    assert each[dearer] > 1.02 * each[1 - dearer]
    assert named("envelope", runs=runs, shape=shape).epsilon(run.event, delta=delta) == pytest.approx(
        max(each), rel=1e-6
    )


def test_composition_charges_the_dearer_direction() -> None:
    pair = privacy_loss(RUN.event, delta=1e-3)
    assert pair is not None
    assert pair.epsilon(1e-3) > 1.1 * pair.reversed.epsilon(1e-3)
    assert pair.worst_epsilon(1e-3) == pair.reversed.worst_epsilon(1e-3) == pair.epsilon(1e-3)


def test_what_rounding_may_have_taken_from_a_base_run_is_charged_with_the_steepest_slope() -> None:
    losses, p = np.array([-1.0, 0.5, 1.5]), np.array([0.2, 0.5, 0.3])
    exact = Pair(losses, p, p * np.exp(-losses), 0.0, 0.0)
    lacking = replace(exact, upper=(Slack(theta=1.0, log_mass=math.log(1e-3)),))
    lines = Lines(slopes=np.array([7.0, 2.0, 0.0]), offsets=np.array([6.0, 0.5, 0.0]))
    for epsilon in (0.7, 1.2):
        first = epsilon + math.log(lines.root)  # the least loss that is charged at all
        added = 7.0 * float(lacking.slack(np.array(first)))
        assert added > 1e-3
        assert expected(lacking, lines, epsilon) == pytest.approx(expected(exact, lines, epsilon) + added, rel=1e-9)


@pytest.mark.parametrize("law", [TruncatedNegativeBinomial.of_mean(30, shape=1.0), Poisson(5.0)])
@pytest.mark.parametrize("bound", [profile_epsilon, envelope_epsilon])
def test_infinite_losses_of_a_base_run_are_charged_for_every_run(bound: Any, law: Count) -> None:
    """A mass at infinity of one run is E K times as much of the search: no epsilon meets a smaller delta."""
    pair = Pair(np.array([-0.1, 0.1]), np.array([0.475, 0.524]), np.array([0.525, 0.474]), p_inf=1e-3, r_inf=1e-3)
    for direction in (pair, pair.reversed):
        assert bound(direction, law, 0.99 * law.mean * 1e-3) == math.inf
        assert bound(direction, law, 1.5 * law.mean * 1e-3) < 20


def test_infinite_losses_of_the_other_direction_are_in_g() -> None:
    """An outcome that only the other records have may win every time it is there: r_inf raises g from its first point on."""
    p, r = np.array([0.475, 0.525]), np.array([0.4725, 0.4275])
    curve = Curve.of(Pair(np.log(p / r), p, r, p_inf=0.0, r_inf=0.1))
    for s, g in ((0.0, 0.1), (0.475, 0.1 + 0.4725), (1.0, 1.0)):
        assert np.interp(s, curve.s, curve.g) == pytest.approx(g, abs=1e-9)
        assert np.interp(s, curve.s, curve.y) == pytest.approx(1 - g, abs=1e-9)


@pytest.mark.parametrize("bound", [grid.different_epsilon, grid.identical_epsilon])
def test_what_a_winner_charges_in_full_is_taken_from_its_delta(bound: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """e^-T of Theorem 3 and the integral of lambda of Theorem 2R: with what is left for the rest they make delta, not more."""
    pair = base_pair(RUN.event, delta=1e-6, tolerance=1e-3)
    assert pair is not None
    charged, left = [], []
    lines_of, ratio_of, least = grid._grid_lines, grid._ratio, grid._least

    def lines(*arguments: Any, cut: float) -> Any:
        charged.append(math.exp(-cut))
        return lines_of(*arguments, cut=cut)

    def ratio(*arguments: Any) -> float:
        charged.append(arguments[-1])
        return ratio_of(*arguments)

    def remainder(*arguments: Any) -> float:
        left.append(arguments[2])
        return least(*arguments)

    monkeypatch.setattr(grid, "_grid_lines", lines)
    monkeypatch.setattr(grid, "_ratio", ratio)
    monkeypatch.setattr(grid, "_least", remainder)
    bound(pair, 5, 1e-3)
    assert len(charged) == len(grid.PARTS)
    for mass, rest in zip(charged, left[-len(charged) :], strict=True):
        assert mass > 0
        assert mass + rest == pytest.approx(1e-3, rel=1e-9)


def test_a_negative_binomial_is_charged_by_its_gamma_and_its_mean_apart() -> None:
    """log(1/gamma) / b and log(E K) / (a - 1) are two terms; for shape 1 alone is the mean 1/gamma."""
    orders, values = np.array([2.0, 5.0, 40.0]), np.array([0.1, 0.3, 2.0])
    count = TruncatedNegativeBinomial.of_mean(50.0, shape=0.0)
    assert count.gamma < 0.5 / count.mean
    by_hand = []
    for a, rdp in zip(orders, values, strict=True):
        hat = min(
            -math.log(count.gamma),
            *((1 - 1 / b) * v - math.log(count.gamma) / b for b, v in zip(orders, values, strict=True)),
        )
        by_hand.append(rdp + hat + math.log(50.0) / (a - 1))
    np.testing.assert_allclose(repeated_curve(RenyiCurve(orders, values), count).values, by_hand, rtol=1e-9)


@pytest.mark.parametrize("mean", [1e-3, 0.1, 1.0, 30.0])
def test_a_poisson_search_that_makes_no_run_is_in_its_curve(mean: float) -> None:
    """Q = Q' costs nothing, and no bound on it is below: without e^-mu it would be, for less than one run on average."""
    orders = np.array([1.5, 2.0, 10.0, 500.0])
    values = repeated_curve(RenyiCurve(orders, np.zeros(4)), Poisson(mean)).values
    assert (values >= 0).all()
    np.testing.assert_allclose(values, np.log(np.exp(-mean) + mean) / (orders - 1))


def test_an_epsilon_found_by_bisection_meets_its_delta_and_is_rounded_up() -> None:
    def delta_of(epsilon: float) -> float:
        return math.exp(-epsilon)

    for start in (1e-3, 1.0, 40.0, math.inf):
        found = least_epsilon(delta_of, 1e-5, start=start)
        assert delta_of(found) <= 1e-5
        assert found == pytest.approx(-math.log(1e-5), rel=2e-6)


@pytest.mark.parametrize("candidates", [1, 2, 40, 10**6, 10**18])
def test_coverage_keeps_its_digits_for_any_number_of_candidates(candidates: int) -> None:
    laws = [count_of(runs=runs, shape=shape) for runs in (1.0, 50.0, 1e9) for shape in (-0.5, 0.0, 1.0, 3.0, "poisson")]
    for law in (*laws, Binomial(7, 0.3)):
        covered = coverage(law, candidates)
        assert 0 < covered <= 1
        if candidates == 10**18 and law.mean < 100:
            assert covered == pytest.approx(law.mean / candidates, rel=1e-9)
    by_coin = LiuTalwar(gamma=0.02).coverage(candidates)
    assert by_coin == pytest.approx(coverage(count_of(runs=50.0, shape=1.0), candidates), rel=1e-9)


def test_what_is_said_of_a_composition_that_is_not_charged_is_not_said() -> None:
    """The winner of very many: composing them is beyond the tight accountant, and the theorem's number is what is charged."""
    from honestdp.selection.cost import statement

    said = statement(named("winner", candidates=10**15), Run(records=60000, lot=250, steps=100, noise=4.0), delta=1e-6)
    assert said.accountant == "pld"
    assert "Theorem 3" in said.basis
    assert said.notes == ()
