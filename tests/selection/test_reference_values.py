"""Reference values of the selections, the papers' printed numbers, and explicit attacks that no bound may undercut."""

from __future__ import annotations

import math

import numpy as np
import pytest

from honestdp import Run
from honestdp.accounting import RenyiCurve
from honestdp.selection import LiuTalwar, Poisson, RandomStopping, TruncatedNegativeBinomial, Winner, named
from honestdp.selection.random_stopping import repeated_curve

MNIST = Run(records=60000, lot=250, steps=10000, noise=4.0)


def cost(name: str, run: Run = MNIST, delta: float = 1e-6, **options: object) -> float:
    return named(name, **options).epsilon(run.event, delta=delta)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("candidates", "moments", "rdp"), [(1, 2.740, 2.529), (4, 2.844, 2.640), (40, 3.009, 2.814), (280, 3.142, 2.954)]
)
def test_liu_talwar(candidates: int, moments: float, rdp: float) -> None:
    assert cost("liu-talwar", candidates=candidates, accountant="moments") == pytest.approx(moments, abs=6e-4)
    assert cost("liu-talwar", candidates=candidates) == pytest.approx(rdp, abs=1.5e-3)


@pytest.mark.parametrize(
    ("mean", "shape", "value"),
    [
        (4, 0.0, 0.7152),
        (4, 1.0, 0.8333),
        (4, "poisson", 0.6975),
        (40, 0.0, 0.8836),
        (40, 1.0, 1.106),
        (40, "poisson", 2.304),
        (280, 1.0, 1.282),
    ],
)
def test_papernot_steinke(mean: float, shape: float | str, value: float) -> None:
    assert cost("papernot-steinke", runs=mean, shape=shape) == pytest.approx(value, rel=5e-4)


# mean, shape -> profile, envelope, an explicit attack
STOPPING = [
    (10, 1.0, 0.66793, 0.63227, 0.63215),
    (40, 1.0, 0.80458, 0.75503, 0.75485),
    (40, 0.0, 0.71537, 0.68409, 0.68395),
    (10, "poisson", 0.89946, 0.80147, 0.80101),
]


@pytest.mark.parametrize(("mean", "shape", "profile", "envelope", "attack"), STOPPING)
def test_profile_and_envelope(mean: float, shape: float | str, profile: float, envelope: float, attack: float) -> None:
    by_envelope = cost("envelope", runs=mean, shape=shape)
    assert by_envelope == pytest.approx(envelope, rel=3e-4)
    assert cost("profile", runs=mean, shape=shape) == pytest.approx(profile, rel=3e-4)
    assert by_envelope >= attack * (1 - 1e-4)


@pytest.mark.parametrize(
    ("candidates", "value", "composition", "attack"), [(10, 1.332, 1.457, 1.190), (40, 2.255, 3.114, 1.841)]
)
def test_winner(candidates: int, value: float, composition: float, attack: float) -> None:
    found = cost("winner", candidates=candidates)
    assert found == pytest.approx(value, rel=1.5e-3)
    assert found > attack
    assert cost("compose", candidates=candidates) == pytest.approx(composition, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("candidates", "value", "attack"), [(10, 1.311, 1.190), (40, 2.119, 1.841)])
def test_winner_of_one_setting_and_many_seeds(candidates: int, value: float, attack: float) -> None:
    found = Winner(candidates=candidates, identical=True).epsilon(MNIST.event, delta=1e-6)
    assert attack < found <= value * 1.004


@pytest.mark.parametrize("shape", [-0.9, -0.5, 0.0, 0.5, 1.0, 3.0])
def test_pure_epsilon_one_costs_two_plus_the_shape(shape: float) -> None:
    """Pure differential privacy is a constant Renyi curve; with large means the search costs (2 + eta) epsilon."""
    orders = np.geomspace(1.5, 1e9, 200)
    count = TruncatedNegativeBinomial.of_mean(1000, shape=shape)
    raised = repeated_curve(RenyiCurve(orders, np.ones(200)), count)
    assert raised.values[-1] == pytest.approx(2 + shape, rel=1e-6)


def test_the_library_agrees_where_it_goes() -> None:
    """dp-accounting's own repeat-and-select, which refuses shapes below 0."""
    from dp_accounting import dp_event, rdp

    from honestdp.accounting.rdp import ORDERS

    for mean, shape in ((4, 0.0), (30, 1.0), (30, 2.5), (30, math.inf)):
        accountant = rdp.RdpAccountant(ORDERS)
        accountant.compose(dp_event.RepeatAndSelectDpEvent(MNIST.event, mean, shape))
        ours = cost("papernot-steinke", runs=mean, shape="poisson" if math.isinf(shape) else shape)
        assert ours == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-4)


# Mohapatra et al. 2022, Table 1: lot 250, noise 4, at the sizes and deltas that give its numbers.
TABLE1 = {
    "adult": (36177, 10000, 1e-6, (5.01, 5.23, 1.91), (5.008, 5.229, 1.913)),
    "enron": (4137, 5000, 1e-5, (30.86, 32.31, 12.80), (30.855, 32.304, 12.803)),
    "gisette": (4800, 5000, 1e-5, (26.40, 27.64, 10.76), (26.389, 27.638, 10.757)),
    "mnist": (60000, 10000, 1e-6, (3.01, 3.14, 1.14), (3.009, 3.142, 1.139)),
}


@pytest.mark.parametrize("dataset", TABLE1)
def test_table1_of_mohapatra(dataset: str) -> None:
    records, steps, delta, printed, ours = TABLE1[dataset]
    run = Run(records=records, lot=250, steps=steps, noise=4.0)
    found = (
        cost("liu-talwar", run, delta, candidates=40, accountant="moments"),
        cost("liu-talwar", run, delta, candidates=280, accountant="moments"),
        cost("compose", run, delta, candidates=4, accountant="moments"),
    )
    assert found == pytest.approx(printed, abs=0.02)
    assert found == pytest.approx(ours, abs=1.5e-3)


@pytest.mark.parametrize(("records", "delta", "blow_up"), [(5000, 1e-5, 4.74), (950_000, 1e-6, 7.33)])
def test_figure1_of_mohapatra(records: int, delta: float, blow_up: float) -> None:
    run = Run(records=records, lot=250, steps=10000, noise=4.0)
    one = cost("compose", run, delta, accountant="moments")
    assert cost("liu-talwar", run, delta, accountant="moments") / one == pytest.approx(blow_up, rel=2e-3)


def test_figure1_right_of_mohapatra() -> None:
    run = Run(records=5000, lot=250, steps=10000, noise=4.0)
    found = [LiuTalwar(gamma=gamma, accountant="moments").epsilon(run.event, delta=1e-5) for gamma in (1.0, 0.001)]
    assert found == pytest.approx([32.88, 39.05], abs=0.01)


@pytest.mark.parametrize(("records", "delta", "crossing"), [(5000, 1e-5, 14.8), (60000, 1e-6, 25.9)])
def test_figure6_of_mohapatra(records: int, delta: float, crossing: float) -> None:
    """The moments accountant over k runs overtakes liu-talwar with gamma = 1/k between these whole numbers."""
    run = Run(records=records, lot=250, steps=10000, noise=4.0)

    def gap(k: int) -> float:
        composed = cost("compose", run, delta, candidates=k, accountant="moments")
        return composed - cost("liu-talwar", run, delta, candidates=k, accountant="moments")

    below, above = gap(math.floor(crossing)), gap(math.ceil(crossing))
    assert below < 0 < above
    assert math.floor(crossing) - below / (above - below) == pytest.approx(crossing, abs=0.1)


def test_counts_have_the_mean_they_are_asked_for() -> None:
    for shape in (-0.95, -0.5, 0.0, 0.5, 1.0, 4.0):
        for mean in (1.0, 1.01, 2.0, 40.0, 1e5):
            count = TruncatedNegativeBinomial.of_mean(mean, shape=shape)
            assert count.mean == pytest.approx(mean, rel=1e-9)
            assert count.generating(1.0) == pytest.approx(1.0, rel=1e-9)
            assert count.generating(0.0) == 0.0


def test_coverage_of_the_geometric_law() -> None:
    """A mean of 9 (G - 1) runs draws any one of G candidates with probability 0.9."""
    for candidates in (4, 40, 280):
        selection = RandomStopping(count=TruncatedNegativeBinomial.of_mean(9 * (candidates - 1), shape=1.0))
        assert selection.coverage(candidates) == pytest.approx(0.9, rel=1e-9)
    assert RandomStopping(count=Poisson(40)).coverage(40) == pytest.approx(1 - math.exp(-1))
