"""Results printed in a few lines, and as cards in a notebook: no epsilon by itself, nothing that runs."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

import honestdp
from honestdp.notebook import card
from honestdp.planner.comparison import Plan
from tests.tiny_search import WHOLE, clouds, linear

EVIL = '<script>alert("1")</script> & </td>'


class Page(HTMLParser):
    """The tags, attributes and words of a piece of HTML, which must be closed as it was opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.open = set[str](), set[str](), list[str]()
        self.words = self.styles = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}
        self.styles += "".join(value or "" for _, value in attributes)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def trained(**more: Any) -> honestdp.Result:
    run = honestdp.Run(records=400, lot=40, steps=4, noise=1.0)
    rule = honestdp.optimizers.SGD(lr=0.1, clip=1.0)
    return honestdp.train(linear(), clouds(), run=run, optimizer=rule, **more)


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    result = trained(delta=1e-5)
    return {
        "train": result,
        "seeded": trained(delta=1e-5, noise_seed=1),
        "tune": honestdp.tune(linear, clouds(), **{**WHOLE, "space": {"lr": 0.1, "clip": 1.0}}),
        "plan": honestdp.plan(records=400, lot=40, steps=4, delta=1e-5, candidates=3, noise=2.0, validation=0.0),
        "statement": result.statement,
    }


KINDS = ["train", "seeded", "tune", "plan", "statement"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_card_is_plain_html_with_what_is_printed(kind: str, shown: dict[str, Any]) -> None:
    one = shown[kind]
    page = Page(one._repr_html_())
    assert page.tags <= {"div", "strong", "table", "tr", "td", "details", "summary", "pre"}
    assert page.attributes <= {"style"}
    for line in str(one).splitlines():
        assert all(word.strip() in page.words for word in line.split("  "))
    assert len(one._repr_html_()) < 12_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_card_has_no_colour_of_its_own_but_grey(kind: str, shown: dict[str, Any]) -> None:
    styles = Page(shown[kind]._repr_html_()).styles
    assert "#" not in styles
    assert styles.count("color:") == styles.count("color:inherit")
    assert styles.count("background:") == styles.count("background:transparent")


@pytest.mark.slow
def test_what_a_user_wrote_is_escaped() -> None:
    page = Page(card(EVIL, [(EVIL, EVIL), ("WARNING", EVIL)], (EVIL, EVIL)))
    assert page.words.count(EVIL) == 6
    statement = replace(trained(delta=1e-5).statement, how=EVIL, notes=(EVIL,))
    assert "script" not in Page(statement._repr_html_()).tags


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["train", "seeded", "tune"])
def test_a_result_is_printed_in_a_few_lines_and_no_epsilon_stands_alone(kind: str, shown: dict[str, Any]) -> None:
    result, text = shown[kind], str(shown[kind])
    assert 3 < len(text.splitlines()) <= 8
    statement = result.statement
    for needed in (
        f"{honestdp.budget.rounded_up(statement.epsilon)} at delta {statement.delta:g}",
        statement.relation,
        f"accountant {statement.accountant}",
        statement.how,
        statement.leaves,
        f"{len(statement.assumptions)} things: see .statement",
        "sgd, lr 0.1, clip 1.0",
    ):
        assert needed in text
    assert text.startswith("NOT PRIVATE") == (kind == "seeded")
    assert ("score" in text) == (kind == "tune")


def test_a_plan_is_printed_in_a_few_lines_too(shown: dict[str, Any]) -> None:
    plan = shown["plan"]
    assert isinstance(plan, Plan)
    assert str(plan).startswith("recommended")
    assert f"at delta {plan.delta:g}, add or remove one record" in str(plan)
    assert plan.reason in str(plan)
    assert all(sentence in str(plan) for sentence in plan.warnings)
    assert repr(plan).startswith("<Plan: 3 candidates, 400 records, lot 40, 4 steps")


def test_the_representation_is_a_line_for_which_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("honestdp.training.result._account", None)
    assert repr(trained(delta=1e-5)) == "<Result: sgd, lr 0.1, clip 1.0, lot 40, steps 4>"


def test_what_the_number_leaves_out_is_printed_with_it() -> None:
    x, y = clouds()
    run = honestdp.Run(records=len(x), lot=40, steps=2, noise=1.0)
    printed = [str(honestdp.train(linear(), (x, y), run=run, delta=1e-5)) for _ in range(2)]
    words = "second training or search on these data in this process; the first is not in this number"
    assert [words in one for one in printed] == [False, True]


def test_without_a_delta_it_says_what_is_missing() -> None:
    result = trained()
    assert str(result).splitlines()[0] == "epsilon     needs a delta: result.at(delta)"
    assert "needs a delta" in result._repr_html_()
    assert "at delta 1e-06" in str(result.at(1e-6))
