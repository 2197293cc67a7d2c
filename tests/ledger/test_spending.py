"""What a charge spends: written exactly, composed tightly, the dearer of the two sides of the split."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, SelfComposedDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from honestdp import Run, accounting
from honestdp.accounting import quiet
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.steps import GaussianStep
from honestdp.checks import InvalidArgument
from honestdp.ledger.chain import canonical
from honestdp.ledger.spending import Spending, total_epsilon
from honestdp.selection import (
    Binomial,
    Compose,
    LiuTalwar,
    Poisson,
    RandomStopping,
    TruncatedNegativeBinomial,
    Winner,
    named,
)

RUN = Run(records=60000, lot=250, steps=500, noise=4.0)
OTHER = Run(records=60000, lot=500, steps=300, noise=5.0)
DELTA = 1e-6


def by_profile(spending: Spending) -> float:
    """The epsilon of the steps that compose with other charges."""
    pair = dominating_pair(spending.steps(delta=DELTA), delta=DELTA)
    assert pair is not None
    return pair.worst_epsilon(DELTA)


reals = st.floats(1e-3, 1e3)
chances = st.floats(1e-6, 1.0)
runs = st.builds(
    Run, records=st.integers(1000, 10**6), lot=st.floats(1, 1000), steps=st.integers(0, 10**6), noise=reals
)
counts = st.one_of(
    st.builds(TruncatedNegativeBinomial, shape=st.floats(-0.9, 50), gamma=chances),
    st.builds(Poisson, reals),
    st.builds(Binomial, st.integers(1, 1000), chances),
)


@st.composite
def spendings(draw: Any) -> Spending:
    listed = draw(st.lists(st.tuples(runs, st.integers(1, 50)), min_size=1, max_size=4))
    total = sum(count for _, count in listed)
    selection = draw(
        st.one_of(
            st.builds(Compose, candidates=st.just(total), accountant=st.sampled_from(accounting.ACCOUNTANTS)),
            st.builds(Winner, candidates=st.just(total)),
            st.builds(LiuTalwar, gamma=chances, accountant=st.sampled_from(("rdp", "moments"))),
            st.builds(RandomStopping, count=counts, bound=st.sampled_from(("papernot-steinke", "profile", "envelope"))),
        )
    )
    choice = draw(st.none() | reals) if isinstance(selection, Compose) else None
    sensitivity = draw(st.none() | st.integers(1, 10**6))
    return Spending(selection, tuple(listed), score=draw(st.none() | reals), choice=choice, sensitivity=sensitivity)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(spendings())
def test_what_is_written_is_read_back_exactly(spending: Spending) -> None:
    written = canonical(spending.as_dict())
    again = Spending.from_dict(json.loads(written))
    assert again == spending
    assert hash(again) == hash(spending)
    assert canonical(again.as_dict()) == written


@settings(max_examples=100, deadline=None)
@given(spendings(), st.data())
def test_what_is_not_known_is_refused(spending: Spending, data: st.DataObject) -> None:
    written = spending.as_dict()
    place = data.draw(st.sampled_from([written, written["selection"], written["runs"][0]]))
    if data.draw(st.booleans()):
        place["colour"] = "blue"
    else:
        del place[data.draw(st.sampled_from(sorted(place)))]
    with pytest.raises(InvalidArgument):
        Spending.from_dict(written)


def test_another_version_is_refused() -> None:
    written = {**Spending(Compose(candidates=1), ((RUN, 1),)).as_dict(), "version": 2}
    with pytest.raises(InvalidArgument, match="version must be 1"):
        Spending.from_dict(written)


def test_the_order_of_runs_and_the_type_of_numbers_do_not_matter() -> None:
    first = Spending(Compose(candidates=3), ((RUN, 1), (OTHER, 1), (RUN, 1)))
    second = Spending(Compose(candidates=3), ((OTHER, 1), (Run(records=60000, lot=250, steps=500, noise=4), 2)))
    assert first == second
    assert canonical(first.as_dict()) == canonical(second.as_dict())


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"selection": Compose(candidates=2)}, "runs"),
        ({"selection": Winner(candidates=3)}, "runs"),
        ({"selection": Winner(candidates=2, identical=True), "runs": ((RUN, 1), (OTHER, 1))}, "runs"),
        ({"runs": ()}, "runs"),
        ({"runs": ((RUN, 0),)}, "candidates"),
        ({"score": 0.0}, "score"),
        ({"score": math.inf}, "score"),
        ({"choice": -1.0}, "choice"),
        ({"choice": 1.0, "selection": named("envelope", runs=4)}, "choice"),
        ({"sensitivity": -1}, "sensitivity"),
    ],
)
def test_a_bad_part_is_refused_by_name(options: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgument, match=argument):
        Spending(**{"selection": Compose(candidates=1), "runs": ((RUN, 1),), **options})


def test_composed_runs_are_their_own_steps() -> None:
    steps = Spending(Compose(candidates=3), ((RUN, 2), (OTHER, 1))).steps(delta=DELTA)
    assert set(steps) == {GaussianStep(RUN.rate, 4.0, 1000), GaussianStep(OTHER.rate, 5.0, 300)}


def test_charges_of_runs_compose_as_the_joint_event() -> None:
    first = Spending(Compose(candidates=3), ((RUN, 2), (OTHER, 1)))
    second = Spending(Compose(candidates=1), ((RUN, 1),))
    joint = ComposedDpEvent([SelfComposedDpEvent(RUN.event, 3), OTHER.event])
    assert total_epsilon([first, second], delta=DELTA) == accounting.epsilon(joint, delta=DELTA)
    assert total_epsilon([second, first], delta=DELTA) == total_epsilon([first, second], delta=DELTA)


def test_a_search_composes_with_runs_better_than_it_adds_and_worse_than_alone() -> None:
    search = Spending(named("envelope", runs=20), ((RUN, 1),))
    run = Spending(Compose(candidates=1), ((OTHER, 1),))
    alone = [spending.epsilon(delta=DELTA) for spending in (search, run)]
    together = total_epsilon([search, run], delta=DELTA)
    assert max(alone) < together < sum(alone)
    assert total_epsilon([search, search, run], delta=DELTA) > together


def test_runs_that_are_repeated_beside_a_search_are_all_counted() -> None:
    run = Run(records=1000, lot=50, steps=100, noise=2.0)
    search = Spending(named("envelope", runs=5), ((run.with_noise(4.0), 1),))
    one, two = (Spending(Compose(candidates=k), ((run, k),)) for k in (1, 2))
    assert total_epsilon([one, one, search], delta=1e-6) == pytest.approx(total_epsilon([two, search], delta=1e-6))
    assert total_epsilon([one, one, search], delta=1e-6) > 1.05 * total_epsilon([one, search], delta=1e-6)


def test_a_profile_composes_as_the_runs_it_was_made_from() -> None:
    """Compose with a choice that costs nothing is compose, by a profile in place of its queries."""
    exact = Spending(Compose(candidates=2), ((RUN, 2),))
    by_profile = Spending(Compose(candidates=2), ((RUN, 2),), choice=1e-6)
    for count in (1, 3, 10):
        tight, found = (total_epsilon([spending] * count, delta=DELTA) for spending in (exact, by_profile))
        assert tight <= found * (1 + 1e-4)
        assert found <= tight * 1.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compose", "liu-talwar", "papernot-steinke", "profile", "envelope"])
def test_a_record_pays_on_the_dearer_side(name: str) -> None:
    selection = named(name, candidates=4)
    training = selection.epsilon(RUN.event, delta=DELTA)
    for score in (3.0, 300.0):
        spending = Spending(selection, ((RUN, 4),), score=score, sensitivity=0)
        event = GaussianDpEvent(score)
        with quiet():
            validation = selection.epsilon(event, delta=DELTA)
        for found in (spending.epsilon(delta=DELTA), by_profile(spending)):
            assert found >= 0.998 * max(training, validation)
            assert found == pytest.approx(max(training, validation), rel=0.02)


def test_where_profiles_cross_both_sides_count() -> None:
    """Two sides of one epsilon at this delta, one of them a single pure query: composed, each is the dearer one somewhere."""
    run = Spending(Compose(candidates=1), ((RUN, 1),))
    epsilon = run.epsilon(delta=DELTA)
    mixed = Spending(Compose(candidates=1), ((RUN, 1),), choice=epsilon)
    pure = accounting.epsilon(SelfComposedDpEvent(accounting.PureDpEvent(epsilon), 20), delta=DELTA)
    assert mixed.epsilon(delta=DELTA) == pytest.approx(epsilon, rel=3e-3)
    assert total_epsilon([mixed] * 20, delta=DELTA) >= 0.999 * max(pure, total_epsilon([run] * 20, delta=DELTA))


def test_with_a_choice_one_score_is_charged_and_without_it_all() -> None:
    weak = Run(records=60000, lot=250, steps=1, noise=100.0)  # next to nothing, so that validation is the dearer side
    runs = ((weak, 9),)
    every = Spending(Compose(candidates=9), runs, score=10.0, sensitivity=1)
    chosen = Spending(Compose(candidates=9), runs, score=10.0, choice=0.1, sensitivity=1)
    score = accounting.DiscreteGaussianDpEvent(10.0)
    pure = accounting.PureDpEvent(0.1)
    for spending, event in ((every, SelfComposedDpEvent(score, 9)), (chosen, ComposedDpEvent([pure, score]))):
        for found in (spending.epsilon(delta=DELTA), by_profile(spending)):
            assert found == pytest.approx(accounting.epsilon(event, delta=DELTA), rel=3e-3)


@pytest.mark.slow
def test_the_lattice_of_the_score_counts() -> None:
    """Noise of less than one unit is coarse: the same multiplier costs otherwise on a finer lattice."""
    coarse, fine = (Spending(named("envelope", runs=3), ((RUN, 1),), score=0.6, sensitivity=d) for d in (1, 1000))
    for spending in (coarse, fine):
        event = accounting.DiscreteGaussianDpEvent(0.6, spending.sensitivity)
        for found in (spending.epsilon(delta=DELTA), by_profile(spending)):
            assert found == pytest.approx(spending.selection.epsilon(event, delta=DELTA), rel=3e-3)
    assert coarse.epsilon(delta=DELTA) != pytest.approx(fine.epsilon(delta=DELTA), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "event", [GaussianDpEvent(0.4), *(accounting.DiscreteGaussianDpEvent(0.4, d) for d in (1, 3, 5))]
)
@pytest.mark.parametrize("selection", [Compose(candidates=1), Compose(candidates=3), named("envelope", runs=3)])
def test_an_old_entry_of_a_sensitivity_that_nobody_said_costs_the_worst_that_it_can_be(
    selection: Any, event: Any
) -> None:
    """A Renyi bound of all these laws: a ledger of an earlier version is still read, and never charged too little."""
    candidates = int(selection.runs) if selection.each_once else 3
    runs = ((Run(records=60000, lot=100, steps=100, noise=4.0), candidates),)
    unsaid = Spending.from_dict({**Spending(selection, runs, score=0.4, sensitivity=1).as_dict(), "sensitivity": None})
    asked = selection.event([(event, candidates)])
    for delta in (1e-5, 1e-12):
        with quiet():
            worst = selection.base.by_profile.epsilon(asked, delta=delta)
            assert unsaid.epsilon(delta=delta) >= worst * (1 - accounting.pld.TOLERANCE)
            assert total_epsilon([unsaid] * 2, delta=delta) >= unsaid.epsilon(delta=delta)


def test_a_sensitivity_of_zero_is_continuous_noise() -> None:
    continuous = Spending(Compose(candidates=1), ((RUN.with_noise(1e6), 1),), score=0.4, sensitivity=0)
    assert continuous.epsilon(delta=DELTA) == accounting.epsilon(GaussianDpEvent(0.4), delta=DELTA)
    assert Spending.from_dict(continuous.as_dict()) == continuous


def test_what_was_written_before_a_sensitivity_could_be_left_out_costs_what_it_did() -> None:
    """An entry of that time says 1, for a score or for none: it is read as that, and a charge of no score is still written so."""
    written = Spending(Compose(candidates=1), ((RUN, 1),)).as_dict()
    assert written["sensitivity"] == 1
    old = Spending.from_dict({**written, "score": 0.4, "version": 1})
    discrete = accounting.epsilon(accounting.DiscreteGaussianDpEvent(0.4, 1), delta=DELTA)
    assert old.epsilon(delta=DELTA) == pytest.approx(discrete, rel=1e-6)
    unsaid = Spending.from_dict({**written, "score": 0.4, "sensitivity": None})
    assert unsaid.as_dict()["sensitivity"] is None
    assert unsaid != old
    assert unsaid.epsilon(delta=DELTA) > old.epsilon(delta=DELTA)


def test_different_candidates_cost_the_worst_of_them() -> None:
    weak = RUN.with_noise(6.0)
    selection = named("envelope", runs=10)
    mixed = Spending(selection, ((weak, 3), (RUN, 1)))
    for found in (mixed.epsilon(delta=DELTA), by_profile(mixed)):
        assert found == pytest.approx(Spending(selection, ((RUN, 4),)).epsilon(delta=DELTA), rel=0.01)
        assert found > Spending(selection, ((weak, 4),)).epsilon(delta=DELTA)


def test_no_noise_is_infinite_and_no_step_nothing() -> None:
    for selection in (Compose(candidates=1), named("envelope", runs=3)):
        spending = Spending(selection, ((RUN.with_noise(0.0), 1),))
        assert not spending.private
        assert spending.epsilon(delta=DELTA) == math.inf
        assert total_epsilon([Spending(selection, ((RUN.with_steps(0), 1),))], delta=DELTA) == 0
    assert total_epsilon([], delta=DELTA) == 0


@pytest.mark.parametrize(
    "selection", [Compose(candidates=1, accountant="moments"), LiuTalwar(gamma=0.1, accountant="moments")]
)
def test_a_second_charge_never_makes_the_total_less(selection: Any) -> None:
    """Whichever accountant the first one's statement names, the total is by the one that composes, but for its grid."""
    first = Spending(selection, ((RUN, 1),))
    nothing = Spending(Compose(candidates=1), ((RUN.with_noise(1e4).with_steps(1), 1),))
    assert total_epsilon([first, nothing], delta=DELTA) >= first.epsilon(delta=DELTA) * (1 - accounting.pld.TOLERANCE)
