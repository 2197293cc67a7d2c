"""The report as a file: complete, closed to the outside, the same each time, and not to be written into by a hostile name."""

from __future__ import annotations

import dataclasses
import fnmatch
import math
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from honestdp.budget import PROTECTS
from honestdp.plain_words import in_words, rounded_down, rounded_up, surest_guess
from honestdp.report import numbers
from honestdp.report.html import SearchView, render, scale_of
from tests.report.example_views import ALONE, COSTS, FAR_APART, NOT_PRIVATE, SEARCH, STATEMENT
from tests.report.parsed_page import Page

ROOT = Path(__file__).parents[2]
ALL = {"search": SEARCH, "alone": ALONE, "not private": NOT_PRIVATE, "far apart": FAR_APART}
EVERY = pytest.mark.parametrize("view", ALL.values(), ids=ALL)


@EVERY
def test_a_report_refers_to_nothing_outside_itself(view: SearchView) -> None:
    page = Page(render(view))
    assert page.fetches == []
    assert not any("//" in value for value in page.attributes)


@pytest.mark.parametrize(
    "planted",
    [
        '<img src="https://example.org/a.png">',
        '<link rel="stylesheet" href="a.css">',
        '<script src="a.js"></script>',
        '<style>@import "a.css";</style>',
        "<style>p { background: url(https://example.org/a.png) }</style>",
        '<p style="background: URL(a.png)">a</p>',
        '<p onclick="fetch(1)">a</p>',
        '<svg><use xlink:href="a.svg#b"></use></svg>',
    ],
)
def test_a_planted_reference_is_noticed(planted: str) -> None:
    page = render(SEARCH).replace("</main>", planted + "</main>")
    assert Page(page).fetches != []


@EVERY
def test_a_report_is_the_same_each_time(view: SearchView) -> None:
    assert render(view).startswith("<!DOCTYPE html>")
    assert render(view) == render(view)


def test_a_report_does_not_depend_on_the_process() -> None:
    code = "import sys; from honestdp.report.html import render; from tests.report.example_views import SEARCH; "
    code += "sys.stdout.buffer.write(render(SEARCH).encode())"
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "PYTHONPATH": path}
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
    assert made.stdout.decode() == render(SEARCH)


def test_a_report_has_no_time_in_it() -> None:
    text = Page(render(SEARCH)).text
    assert not re.search(r"\d{4}-\d\d-\d\d|\d\d:\d\d|\bseconds\b|\bminutes\b", text)
    assert "How long the search took is seen by its operator alone." in text


def test_a_view_has_no_place_for_what_must_not_leave() -> None:
    """Rule 11: whoever adds a field here has to show that it is public."""
    names = {field.name for field in fields(SearchView)}
    assert names == {
        "title",
        "dataset",
        "statement",
        "hyperparameters",
        "score",
        "plan",
        "costs",
        "ledger",
        "configuration",
        "reproduce",
        "version",
        "key",  # of the charge, as the ledger shows it
        "what",  # the word "search" or "training", by which function was called
    }


def _words(text: str) -> str:
    """Text with one plain blank wherever there is any space."""
    return " ".join(text.split())


def test_a_report_holds_the_whole_statement() -> None:
    """Rule 14."""
    text = _words(Page(render(SEARCH)).text)
    said = (
        f"ε = {rounded_up(STATEMENT.epsilon)}",
        "plus a probability of 1e-5 (1 in 100 000)",
        STATEMENT.relation,
        STATEMENT.accountant,
        f"{STATEMENT.selection}: {STATEMENT.how}",
        STATEMENT.leaves,
        STATEMENT.basis,
        "ε = 4.449 for the same runs, by Papernot & Steinke 2022, Theorem 2",
        *STATEMENT.assumptions,
        *STATEMENT.notes,
        PROTECTS,
        "pixels divided by 16",
    )
    for words in said:
        assert words in text


def test_the_report_and_the_terminal_say_the_same_two_plain_sentences() -> None:
    text, printed = _words(Page(render(SEARCH)).text), _words(str(STATEMENT))
    for sentence in in_words(STATEMENT.epsilon, STATEMENT.delta):
        assert _words(sentence) in text
        assert _words(sentence) in printed
    assert "guesses right" not in str(NOT_PRIVATE.statement)


def test_epsilon_stands_on_a_scale_with_examples_in_its_place() -> None:
    rows = scale_of(STATEMENT)
    assert [(row.epsilon, row.times, row.here) for row in rows] == [
        ("0.1", "1.11", False),
        ("1", "2.72", False),
        ("2.999", "20.1", True),
        ("3", "20.1", False),
        ("8", "2\u202f990", False),
    ]
    assert [_words(row.suspicion) for row in rows] == ["1.2 %", "2.7 %", "16.9 %", "16.9 %", "96.8 %"]
    page = Page(render(SEARCH)).text
    assert all(text in page for row in rows for text in (row.epsilon, f"{row.times} times", row.guess, row.suspicion))
    assert "(here)" not in render(NOT_PRIVATE)


def test_words_of_the_field_are_explained_where_they_are_used() -> None:
    text = _words(Page(render(SEARCH)).text)
    for words in (
        "every record is put into the lot or not by a coin",
        "a number of throws of a die",
        "can change a number",
    ):
        assert words in text
    plain = replace(SEARCH, statement=replace(STATEMENT, scores=""), costs=ALONE.costs)
    assert "a number of throws of a die" not in render(plain)
    assert "can change a number" not in render(plain)


def test_a_report_holds_winner_ledger_configuration_and_the_way_back() -> None:
    text = _words(Page(render(SEARCH)).text)
    assert SEARCH.score is not None
    assert SEARCH.ledger is not None
    for words in ("adam-wosm", "0.891", "0.852 to 0.931 (95 %)", "360 (20 %)"):
        assert words in text
    for words in (
        "1.431",
        "2.121",
        "3.552",
        "4.448",
        "8.000",
        SEARCH.key,
        SEARCH.ledger.head,
        "clip: 0.05, 0.1, 0.2",
        "2.1803471",
    ):
        assert words in text
    assert SEARCH.reproduce in text
    for cost in COSTS:
        assert cost.method in text


def test_no_more_is_said_to_be_left_than_is() -> None:
    assert SEARCH.ledger is not None
    text = Page(render(replace(SEARCH, ledger=replace(SEARCH.ledger, spent=8 - 4.70181)))).text
    assert "4.701" in text
    assert "4.702" not in text


def test_python_code_keeps_its_lines_and_indentation() -> None:
    code = "result = honestdp.tune(\n    model,\n\n    (x, y),  # two  blanks\n)"
    assert code in Page(render(replace(SEARCH, reproduce=code))).text


def test_only_a_search_that_is_not_private_bears_the_banner() -> None:
    seeded = replace(SEARCH, statement=replace(STATEMENT, not_private=("the seed of the noise is fixed",)))
    for view in (NOT_PRIVATE, seeded):
        text = Page(render(view)).text
        assert "NOT PRIVATE" in text
        assert view.statement.not_private[0] in text
        assert "may leave under the guarantee" not in text
        assert "guesses right" not in text
    assert "NOT PRIVATE" not in render(SEARCH)


def test_what_is_missing_leaves_no_empty_section() -> None:
    text = Page(render(ALONE)).text
    for words in ("There was no search", "Nothing was tuned", "No score was computed"):
        assert words in text
    for words in ("The ledger", "Noise per run", "The planner"):
        assert words not in text
    bare = Page(render(replace(ALONE, plan=None, costs=()))).text
    assert "would have cost" not in bare


def test_another_method_than_the_recommended_one_is_said() -> None:
    costs = tuple(replace(cost, used=cost.method == "compose, pld") for cost in COSTS)
    text = Page(render(replace(SEARCH, costs=costs))).text
    assert "asked to use compose, pld; the planner would have chosen envelope" in text
    assert "The planner chose envelope" in Page(render(SEARCH)).text


def test_a_method_that_no_noise_helps_is_named() -> None:
    assert "No noise brings these within the budget: far." in Page(render(FAR_APART)).text
    assert "No noise brings" not in render(SEARCH)


@EVERY
def test_charts_have_titles_descriptions_and_tables(view: SearchView) -> None:
    text = render(view)
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert set(page.referred) <= set(page.ids)
    figures = text.split("<figure")[1:]
    assert figures
    for figure in figures:
        assert 'aria-labelledby="' in figure
        assert 'role="img"' in figure
    assert len(re.findall(r"<svg[^>]*role=.img", text)) == text.count("<desc") == text.count("<title id=")
    assert text.count("<table") >= (5 if view is SEARCH else 2)


def hostile(view: SearchView, text: str) -> SearchView:
    """The view with every string that came from outside replaced."""

    def swap(value: object) -> object:
        if isinstance(value, str):
            return text
        if isinstance(value, dict):
            return {f"{text}{key}": swap(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(swap(part) for part in value)
        return value

    def swap_fields(made: object, names: tuple[str, ...]) -> object:
        return dataclasses.replace(made, **{name: swap(getattr(made, name)) for name in names})  # type: ignore[type-var]

    own = ("title", "dataset", "hyperparameters", "configuration", "version", "reproduce", "key")
    parts = {
        "statement": ("accountant", "selection", "how", "leaves", "basis", "published", "assumptions", "notes"),
        "score": ("name",),
        "ledger": ("dataset",),
    }
    changed = {name: swap_fields(getattr(view, name), names) for name, names in parts.items()}
    costs = tuple(swap_fields(made, ("method", "words", "accountant", "leaves")) for made in view.costs)
    plan = dataclasses.replace(view.plan, reason=text)  # type: ignore[type-var]
    return swap_fields(dataclasses.replace(view, costs=costs, plan=plan, **changed), own)  # type: ignore[return-value, arg-type]


ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><script>1</script>",
    "</title></textarea><svg/onload=1>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; &amp; 'single'",
    "javascript:alert(1)",
    "url(https://example.org)",
    "\x00\x1b[31m\ud800\u202e\ufffe",
    "]]><!--",
)


def check_nothing_was_injected(text: str) -> None:
    given_view = hostile(SEARCH, text)
    page = Page(render(given_view))
    assert page.tags == Page(render(hostile(SEARCH, "x"))).tags
    assert page.fetches == []
    shown = numbers.printable(text)
    assert shown in page.text
    render(given_view).encode()


@pytest.mark.parametrize("text", ATTACKS)
def test_hostile_names_are_shown_and_change_nothing(text: str) -> None:
    check_nothing_was_injected(text)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.text(min_size=1, max_size=30, alphabet=st.characters(codec=None)))
def test_any_name_is_shown_and_changes_nothing(text: str) -> None:
    check_nothing_was_injected(text)


def test_an_infinite_or_tiny_or_huge_cost_can_be_drawn() -> None:
    for epsilons in ((0.0,) * 8, (1e-9,) * 8, (1e12,) * 8, (math.inf, 0.0, 1e-7, 1.0, 2.0, 3.0, 1e7, 1e300)):
        costs = tuple(replace(cost, epsilon=e) for cost, e in zip(COSTS, epsilons, strict=True))
        assert "nan" not in Page(render(replace(SEARCH, costs=costs))).text


def test_numbers_of_what_is_spent_round_up_and_of_what_is_left_round_down() -> None:
    values = [1.26041, 14.118, 2.99881, 3.0, 0.457]
    for value, text in zip(values, numbers.aligned(values), strict=True):
        assert value <= float(text) + 1e-12 <= value + 2e-4
    assert {len(text.split(".")[1]) for text in numbers.aligned(values)} == {4}
    assert numbers.aligned([1.00001], down=[1.00001]) == ["1.001", "1.000"]
    assert numbers.aligned([math.inf, 1e-9]) == ["infinite", "1e-09"]
    assert rounded_down(4.44879) == "4.448"
    assert rounded_down(0.0) == "0"


def test_the_surest_guess_is_what_the_definition_allows() -> None:
    """Two laws that meet (epsilon, delta) with equality: with delta the record is told outright, else by the odds e^epsilon."""
    for epsilon, delta in ((0.1, 1e-5), (1.0, 0.01), (3.0, 0.2)):
        odds = math.exp(epsilon)
        right = delta + (1 - delta) * odds / (1 + odds)
        shown = float(surest_guess(epsilon, delta).split("\u202f")[0]) / 100
        assert right <= shown < right + 0.0011
    assert surest_guess(800.0, 1e-5).startswith("100.0")
    assert surest_guess(1e-9, 1e-9).startswith("50.")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.floats(1e-8, 1e8), min_size=1, max_size=9))
def test_bars_keep_their_order_and_stay_in_the_chart(values: list[float]) -> None:
    axis = numbers.for_bars(values)
    places = [axis.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert places[0] > 0
    assert places[-1] <= 100
    assert 2 <= len(axis.ticks) <= 11
    assert axis.logarithmic == (max(values) / min(values) > numbers.LOGARITHMIC_FROM)


def test_a_linear_bar_is_as_long_as_its_value() -> None:
    axis = numbers.for_bars([1.0, 2.0, 14.1])
    assert axis.low == 0
    assert axis.at(2.0) == pytest.approx(2 * axis.at(1.0))


def test_every_template_is_shipped() -> None:
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["honestdp"]
    folder = resources.files("honestdp.report") / "templates"
    names = [f"report/templates/{file.name}" for file in folder.iterdir()]
    assert len(names) >= 3
    for name in names:
        assert any(fnmatch.fnmatch(name, pattern) for pattern in shipped)
