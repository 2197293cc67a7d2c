"""Events are the only currency: counted in full, and refused where unknown."""

from __future__ import annotations

import math
import warnings

import dp_accounting
import numpy as np
import pytest

from honestdp import Run
from honestdp.accounting import AccountingWarning, epsilon, privacy_loss, rdp, renyi_curve
from honestdp.accounting.events import steps_of, total_steps

RUN = Run(records=1000, lot=50, steps=7, noise=1.5)
OTHER = Run(records=1000, lot=100, steps=4, noise=2.0)


def test_repeated_compositions_keep_their_counts() -> None:
    both = dp_accounting.ComposedDpEvent([RUN.event, OTHER.event, RUN.event])
    three = dp_accounting.SelfComposedDpEvent(both, 3)
    found = {(step.rate, step.noise): step.count for step in steps_of(three)}
    assert found == {(0.05, 1.5): 42, (0.1, 2.0): 12}
    assert total_steps(three) == 54


def test_a_non_private_query_costs_everything_and_no_query_nothing() -> None:
    both = dp_accounting.ComposedDpEvent([RUN.event, dp_accounting.NonPrivateDpEvent()])
    assert epsilon(both, delta=1e-5) == math.inf
    assert epsilon(dp_accounting.NoOpDpEvent(), delta=1e-5) == 0


def test_every_step_adds_what_rounding_may_take_from_a_renyi_curve() -> None:
    """At a rate of 1e-9 a step's divergence is far below what floating point can tell from zero."""
    steps = 10**6
    curve = renyi_curve(Run(records=10**9, lot=1, steps=steps, noise=1.0).event, [1.5, 2.0, 32.0])
    assert (curve.values >= steps * rdp.ROUNDING / (curve.orders - 1)).all()
    assert rdp.ROUNDING >= 1e-15


def test_moments_stop_at_order_512() -> None:
    tiny = Run(records=10**6, lot=1, steps=10, noise=100.0).event
    with pytest.warns(AccountingWarning, match="512"):
        found = epsilon(tiny, delta=1e-9, accountant="moments")
    at_512 = float(renyi_curve(tiny, [512.0]).values[0]) + math.log(1e9) / 511
    assert found == pytest.approx(at_512, rel=1e-9)


def test_a_best_order_at_the_low_edge_warns_too() -> None:
    loud = Run(records=100, lot=100, steps=100, noise=0.2).event
    with pytest.warns(AccountingWarning, match="best Renyi order, 1.1, lies at the edge"):
        epsilon(loud, delta=1e-5, accountant="rdp")


def test_a_pair_is_made_for_its_delta() -> None:
    loose, strict = (privacy_loss(RUN.event, delta=delta) for delta in (1e-3, 1e-20))
    assert loose is not None
    assert strict is not None
    assert strict.losses[-1] > loose.losses[-1]
    assert strict.worst_epsilon(1e-20) == epsilon(RUN.event, delta=1e-20)
    assert np.isfinite(strict.worst_epsilon(1e-20))


def test_a_total_loss_beyond_the_numbers_falls_back() -> None:
    long = Run(records=100, lot=50, steps=10**5, noise=1.0).event
    with pytest.warns(AccountingWarning, match="a Renyi bound, sound but looser"):
        found = epsilon(long, delta=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccountingWarning)
        assert found == min(epsilon(long, delta=1e-6, accountant=name) for name in ("rdp", "moments"))
