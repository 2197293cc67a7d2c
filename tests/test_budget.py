"""Numbers of a budget as they are printed: what is left never too large, wherever it is shown."""

from __future__ import annotations

import numpy as np
import pytest

from honestdp import Run
from honestdp.budget import in_short, large_delta
from honestdp.plain_words import chance, in_words, rounded_down, shown_delta
from honestdp.report import chart, numbers
from honestdp.selection import Compose
from honestdp.selection.cost import statement


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


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        (0.095, "1 in 10"),
        (1e-5, "1 in 100\u202f000"),
        (1e-9, "1 in 1\u202f000\u202f000\u202f000"),
        (0.1, "1 in 10"),
        (0.3, ""),
    ],
)
def test_a_chance_is_never_told_smaller_than_it_is(delta: float, text: str) -> None:
    """One in eleven is less than .095."""
    assert chance(delta) == text


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        (1.0000004e-5, "1.00001e-05"),
        (1e-5, "1e-05"),
        (3 * 1e-5, "3e-05"),
        (1.2345601e-7, "1.23457e-07"),
        (0.25, "0.25"),
        (0.0, "0"),
    ],
)
def test_a_delta_is_never_told_smaller_than_it_is(delta: float, text: str) -> None:
    assert shown_delta(delta) == text
    assert numbers.short_delta(delta) == text.replace("e-0", "e-")


def test_deltas_of_every_size_are_told_from_above() -> None:
    generator = np.random.default_rng(1)
    for delta in map(float, [*10 ** generator.uniform(-300, 0, size=500), 5e-324]):
        assert delta * (1 - 1e-14) <= float(shown_delta(delta)) <= delta * (1 + 2e-5)


def test_every_line_that_tells_a_delta_rounds_it_up() -> None:
    delta = 1.0000004e-5
    said = statement(Compose(candidates=1), Run(records=1000, lot=10, steps=5, noise=4.0), delta=delta)
    lines = (
        str(said),
        in_short(said)[0][1],
        in_words(1.0, delta)[0].replace("e-5", "e-05"),
        *large_delta(delta, 10**6),
    )
    for line in lines:
        assert "1.00001e-05" in line


def test_a_chart_tells_no_smaller_epsilon_than_is_spent() -> None:
    assert chart.own_label(noise=1.0, epsilon=1.004) == "this plan: noise 1, epsilon 1.01"
