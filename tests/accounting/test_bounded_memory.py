"""Whatever is asked, the answer comes in bounded memory, or one line refuses the argument."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from scipy import special

from honestdp import Run
from honestdp.accounting import DiscreteGaussianDpEvent, Pair, PureDpEvent, WorstOfDpEvent, epsilon, pld, privacy_loss
from honestdp.accounting.composition import compose, discretise
from honestdp.accounting.discrete import MOST_ATOMS, AtomStep, discrete_gaussian
from honestdp.accounting.pld import KEPT_CELLS, dominating_pair
from honestdp.accounting.steps import MOST_CELLS, GaussianStep, TooFine
from honestdp.checks import InvalidArgument
from honestdp.selection import RandomStopping, named

from .absurd_settings import whole_run_delta

ROOT = Path(__file__).parents[2]
LIMITED = """
import resource, sys, warnings
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
warnings.simplefilter("ignore")
{}
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
assert grown < 1, f"{{grown:.2f}} GiB"
"""


def in_little_memory(*command: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=500, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.slow
def test_random_questions_are_answered_rightly_or_refused_in_little_memory() -> None:
    """A part of `python -m tests.accounting.absurd_settings`, which can be asked for more."""
    in_little_memory("-m", "tests.accounting.absurd_settings", "15", "75")


@pytest.mark.slow
@pytest.mark.parametrize(
    "question",
    [
        "1000 1 1 0.06 0.001",
        "60000 250 1e18 4 1e-6",
        "638548259 510435 89334335844521504 187580 0.0269 --selection profile --shape poisson",
        "439469491 1 1372778 0.82 1e-7 --selection winner --candidates 742970004627575",
        "8123 2720 824741343803407 604971 1.5e-11 --selection winner --candidates 194312701804",
    ],
)
def test_questions_that_once_filled_the_memory(question: str) -> None:
    constants = ("--records", "--lot", "--steps", "--noise", "--delta")
    values, options = question.split()[:5], question.split()[5:]
    asked = [*chain.from_iterable(zip(constants, values, strict=True)), *options]
    code = f"from honestdp.cli.main import main\nsys.argv = ['honestdp', 'epsilon', *{asked}]\n"
    code += "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code"
    in_little_memory("-c", LIMITED.format(code))


@pytest.mark.slow
def test_pairs_that_are_kept_have_a_bounded_number_of_losses() -> None:
    dominating_pair.cache_clear()
    for delta in (1e-6, 1e-7, 1e-8):
        dominating_pair((GaussianStep(1e-4, 1.0, 10**6),), delta=delta)
        assert dominating_pair._cells() <= KEPT_CELLS
    dominating_pair.cache_clear()


def test_no_grid_has_more_than_the_declared_cells() -> None:
    step = GaussianStep(0.01, 1.0, 1000)
    with pytest.raises(TooFine):
        step.discretised(grid=1e-7, tail=1e-15)
    with pytest.raises(TooFine):
        AtomStep.discretised(discrete_gaussian(1.0), grid=1e-6, tail=0.0)
    with pytest.raises(TooFine):  # each step fits, and all of them together do not
        compose(discretise([GaussianStep(1.0, 0.5, 10**4)], grid=1e-4, delta=1e-6), grid=1e-4, delta=1e-6)


def test_where_the_tolerance_asks_for_more_cells_the_grid_is_coarser_and_the_bound_holds() -> None:
    fine = dominating_pair((GaussianStep(0.004, 4.0, 10**4),), delta=1e-6)
    assert fine is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("honestdp.accounting.steps.MOST_CELLS", 5000)
        patch.setattr(pld, "MOST_CELLS", 5000)
        dominating_pair.cache_clear()
        coarse = dominating_pair((GaussianStep(0.004, 4.0, 10**4),), delta=1e-6)
    dominating_pair.cache_clear()
    assert coarse is not None
    assert len(coarse.losses) <= 5500 < len(fine.losses) <= 1.1 * MOST_CELLS  # a length that transforms well
    assert fine.worst_epsilon(1e-6) < coarse.worst_epsilon(1e-6) < 1.2 * fine.worst_epsilon(1e-6)


@pytest.mark.parametrize(("multiplier", "sensitivity"), [(1.0, 20_000), (3.0, 50_000), (0.2, 10**6), (700.0, 128)])
def test_a_wide_discrete_gaussian_dominates_its_like_and_costs_what_the_continuous_one_does(
    multiplier: float, sensitivity: int
) -> None:
    """Wide laws are all alike: the continuous law is their limit, to far more digits than the accountant has."""
    step = discrete_gaussian(multiplier, sensitivity=sensitivity)
    assert isinstance(step, AtomStep)
    assert len(step.losses) <= MOST_ATOMS + 2
    found = epsilon(DiscreteGaussianDpEvent(multiplier, sensitivity), delta=1e-6)
    run = Run(records=1, lot=1, steps=1, noise=multiplier)
    assert whole_run_delta(found, run) < 1e-6 * (1 + 1e-5)
    assert whole_run_delta(found * (1 - 2e-4) - 1e-7, run) > 1e-6


def test_outcomes_taken_together_never_cost_less() -> None:
    """Neither law loses mass, and at every epsilon the profile of the few is at least that of the many, in both directions."""
    many = discrete_gaussian(2.0, sensitivity=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("honestdp.accounting.discrete.MOST_ATOMS", 150)
        discrete_gaussian.cache_clear()
        few = discrete_gaussian(2.0, sensitivity=100)
    discrete_gaussian.cache_clear()
    assert isinstance(many, AtomStep)
    assert isinstance(few, AtomStep)
    assert len(few.losses) <= 152 < len(many.losses)
    pairs = [Pair(step.losses, step.p, step.p * np.exp(-step.losses), 0.0, 0.0) for step in (few, many)]
    assert pairs[0].r.sum() == pytest.approx(1, abs=1e-9)
    for epsilon_ in np.linspace(-3, 3, 25):
        for one, other in (pairs, [pair.reversed for pair in pairs]):
            assert one.delta(epsilon_) >= other.delta(epsilon_) - 1e-12
            assert one.delta(epsilon_) <= other.delta(epsilon_) * 1.2 + 1e-9


def test_what_lies_beyond_the_outcomes_of_a_discrete_gaussian_is_charged() -> None:
    for step in (discrete_gaussian(0.5), discrete_gaussian(30.0), discrete_gaussian(1.0, sensitivity=20_000)):
        assert isinstance(step, AtomStep)
        assert min(step.p_inf, step.r_inf) > 2 * special.ndtr(-10.5)


@pytest.mark.slow
def test_pure_queries_of_two_kinds_are_composed_on_a_grid_that_fits_neither() -> None:
    event = dp_accounting.ComposedDpEvent([PureDpEvent(0.5), PureDpEvent(0.3)])
    pair = privacy_loss(event, delta=1e-9)
    assert pair is not None
    assert pair.worst_epsilon(1e-9) == pytest.approx(0.8, rel=2e-4)


def test_an_endless_discrete_gaussian_is_left_to_a_renyi_bound() -> None:
    event = DiscreteGaussianDpEvent(10.0, 10**9)
    assert privacy_loss(event, delta=1e-6) is None
    with pytest.warns(UserWarning, match="a Renyi bound"):
        assert epsilon(event, delta=1e-6) == pytest.approx(epsilon(event, delta=1e-6, accountant="rdp"))


@pytest.mark.parametrize("noise", [1e8, 1e9])
@pytest.mark.parametrize("rate", [1e-9, 1e-3, 1.0])
def test_losses_next_to_nothing_cost_next_to_nothing(noise: float, rate: float) -> None:
    """Below what floats resolve, less noise stands in; a Renyi bound would say 0.01."""
    run = Run(records=10**9, lot=rate * 1e9, steps=1000, noise=noise)
    assert epsilon(run.event, delta=1e-9) < 1e-5


@pytest.mark.parametrize(
    ("name", "value"),
    [("records", 10**19), ("steps", 10**19)],
)
def test_counts_that_no_machine_makes_are_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(InvalidArgument, match=rf"{name} must be a whole number of at most 1e\+18"):
        Run(**{"records": 100, "lot": 10.0, "steps": 5, "noise": 1.0, name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("selection", "options", "argument"),
    [
        ("compose", {"candidates": 10**19}, "candidates"),
        ("winner", {"candidates": 10**19}, "candidates"),
        ("liu-talwar", {"runs": 1e19}, "gamma"),
        ("envelope", {"runs": 1e19}, "runs"),
        ("profile", {"runs": 1e19, "shape": "poisson"}, "runs"),
    ],
)
def test_searches_that_no_machine_makes_are_refused_by_name(
    selection: str, options: dict[str, float], argument: str
) -> None:
    with pytest.raises(InvalidArgument, match=argument):
        named(selection, **options)  # type: ignore[arg-type]


PURE = {
    "one": PureDpEvent(1.0),
    "small": PureDpEvent(1e-3),
    "next to nothing": PureDpEvent(1e-14),
    "large": PureDpEvent(30.0),
    "beyond floats": PureDpEvent(800.0),
    "many": dp_accounting.SelfComposedDpEvent(PureDpEvent(0.1), 100),
    "one of two": WorstOfDpEvent((PureDpEvent(1.0), DiscreteGaussianDpEvent(1.0))),
    "and others": dp_accounting.ComposedDpEvent([PureDpEvent(0.5), DiscreteGaussianDpEvent(5.0)]),
}
EVERY = [
    ("compose", {"candidates": 3}),
    ("compose", {"candidates": 3, "accountant": "rdp"}),
    ("compose", {"candidates": 3, "accountant": "moments"}),
    ("winner", {"candidates": 10}),
    ("winner", {"candidates": 10, "identical": True}),
    ("liu-talwar", {"candidates": 10}),
    *(
        (bound, {"runs": 50.0, "shape": shape})
        for bound in ("papernot-steinke", "profile", "envelope")
        for shape in (-0.5, 1.0)
    ),
    *((bound, {"runs": 5.0, "shape": "poisson"}) for bound in ("papernot-steinke", "profile", "envelope")),
]


@pytest.mark.filterwarnings("ignore::honestdp.accounting.AccountingWarning")
@pytest.mark.parametrize(
    ("kind", "delta"),
    [
        (kind, delta)
        for kind in PURE
        for delta in (0.3, 1e-6, 1e-60)
        if delta > 1e-20 or isinstance(PURE[kind], PureDpEvent)
    ],
)
def test_pure_events_go_through_every_selection(kind: str, delta: float) -> None:
    event = PURE[kind]
    found = {}
    for name, options in EVERY:
        if name != "liu-talwar" or delta > 1e-20:
            found[name, str(options)] = named(name, **options).epsilon(event, delta=delta)  # type: ignore[arg-type]
    assert all(math.isfinite(each) and each >= 0 for each in found.values()), found
    for options in (str(options) for name, options in EVERY if name == "envelope"):
        envelope, profile, published = (found[name, options] for name in ("envelope", "profile", "papernot-steinke"))
        assert envelope <= profile * (1 + 1e-4)
        assert profile <= published


def test_no_query_costs_nothing_and_no_noise_everything() -> None:
    for accountant in ("pld", "rdp", "moments"):
        assert epsilon(PureDpEvent(0.0), delta=1e-60, accountant=accountant) == 0
        assert epsilon(PureDpEvent(math.inf), delta=1e-6, accountant=accountant) == math.inf


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-60])
def test_pure_queries_compose_as_the_closed_form_says(delta: float) -> None:
    """Kairouz, Oh & Viswanath 2015: sums over how many answers are right."""
    count, e = 20, 0.2
    event = dp_accounting.SelfComposedDpEvent(PureDpEvent(e), count)
    found = epsilon(event, delta=delta)

    def exact(at: float) -> float:
        likely = [math.comb(count, i) * (math.exp(e * i) - math.exp(at + e * (count - i))) for i in range(count + 1)]
        return sum(max(each, 0.0) for each in likely) / (1 + math.exp(e)) ** count

    assert exact(found) <= delta * (1 + 1e-9)
    assert exact(found - 1e-3) > delta
    assert found <= count * e * (1 + 1e-9)


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 3.0])
def test_a_pure_event_costs_two_plus_the_shape_by_the_published_bound(shape: float) -> None:
    found = named("papernot-steinke", runs=1000.0, shape=shape).epsilon(PureDpEvent(1.0), delta=1e-9)
    assert found == pytest.approx(2 + shape, rel=1e-6)
    assert named("envelope", runs=1000.0, shape=shape).epsilon(PureDpEvent(1.0), delta=1e-9) <= found


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, "poisson"])
@pytest.mark.parametrize("runs", [5.0, 50.0])
def test_the_best_of_pure_runs_is_charged_at_least_what_an_attack_finds_and_little_more(
    runs: float, shape: float | str
) -> None:
    """The outcome of the lowest loss wins over a rare one of the highest, and that one over all else.

    The rare outcome then wins with density phi'(1-s) against phi'(1-g(s)), which Theorem 2 says is the worst there is.
    """
    e = 1.0
    selection = named("envelope", runs=runs, shape=shape)
    assert isinstance(selection, RandomStopping)
    s, g = np.array(1 / (1 + math.exp(e))), np.array(1 / (1 + math.exp(-e)))  # of the lowest loss, with and without
    ratio = e + math.log(float(selection.count.slope(s, 1 - s) / selection.count.slope(g, 1 - g)))
    found = selection.epsilon(PureDpEvent(e), delta=1e-12)
    assert ratio * (1 - 1e-6) <= found <= ratio * (1 + 2e-3)
