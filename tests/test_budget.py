"""Numbers of a budget as they are printed: what is left never too large, wherever it is shown."""

from __future__ import annotations

import numpy as np
import pytest

from honestdp.budget import rounded_down
from honestdp.report import numbers


@pytest.mark.parametrize(("value", "text"), [(2.4999999999999, "2.499"), (0.3, "0.3"), (-1e-17, "0"), (1e-7, "1e-07")])
def test_what_is_left_is_never_shown_larger_than_it_is(value: float, text: str) -> None:
    assert rounded_down(value) == text


def test_ledger_and_report_never_show_more_than_is_left() -> None:
    generator = np.random.default_rng(0)
    values = [*(10 ** generator.uniform(-5, 3, size=500)), *(k / 1000 - 1e-13 for k in range(1, 4000, 7))]
    for value in map(float, values):
        shown = (rounded_down(value), *numbers.aligned([], down=[value]))
        assert all(0.999 * value <= float(text) <= value for text in shown)


def test_the_report_agrees_with_the_ledger_just_below_a_round_number() -> None:
    assert numbers.aligned([], down=[2.4999999999999]) == ["2.499"]
