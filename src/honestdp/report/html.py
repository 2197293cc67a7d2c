"""Renders a search or a training as one HTML file that needs no other.

It shows a SearchView and nothing else. Charts are drawn as SVG in per cent of their width, so that bars follow the screen while
text keeps its size; every chart has a title, a description and a table beside it. The file holds no script, refers to nothing
outside itself, and says so in a content security policy, so that not even a hostile name could fetch anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from honestdp.budget import Statement
from honestdp.plain_words import likelihood, per_cent, rounded_down, rounded_up, surest_guess
from honestdp.report import numbers
from honestdp.report.costs import Cost
from honestdp.report.view import ScoreView, SearchView
from honestdp.run import PERSON

if TYPE_CHECKING:
    from jinja2 import Environment

    from honestdp.ledger.account import Balance

__all__ = ["Cost", "ScoreView", "SearchView", "render"]

EXAMPLES = (0.1, 1.0, 3.0, 8.0)
SUSPICION = 0.01
GLOSSARY = (
    (
        "Poisson samples, or lots",
        "for each step every record is put into the lot or not by a coin of its own, so that lots differ in size and may be "
        "empty. That nobody knows who was in a lot is part of the protection.",
    ),
    (
        "negative binomial",
        "the law that the number of runs was drawn from, as a number of throws of a die until some of them succeed. It is drawn "
        "before the first run and kept secret: not to know how many runs there were is what makes a search cheap.",
    ),
    (
        "sensitivity",
        "by how much one record can change a number at most. Noise is measured in it, for noise must hide just that change.",
    ),
)


class Tick(NamedTuple):
    """Where a number is written along an axis, in per cent, and the side of it that is held there."""

    at: float
    text: str
    anchor: str


class Bar(NamedTuple):
    """A row of a chart. length: in per cent. kind: used, other, or none where there is no number to draw."""

    cost: Cost
    value: str
    length: float
    kind: str


class Bars(NamedTuple):
    """A chart of methods. mark: the budget's line."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    mark: Tick | None
    logarithmic: bool


class Interval(NamedTuple):
    """The chart of a score: its interval and its value, in per cent."""

    low: float
    high: float
    value: float
    ticks: tuple[Tick, ...]


class BalanceChart(NamedTuple):
    """The chart of a ledger: what was spent before and by this search, in per cent of the budget.

    texts: (kind, name, epsilon) for the rows below it.
    """

    before: float
    search: float
    texts: tuple[tuple[str, str, str], ...]


def render(view: SearchView) -> str:
    """The whole HTML file as text, the same for the same view."""
    needed = _needed(view)
    return _templates().get_template("report.html.j2").render(
        view=view,
        statement=view.statement,
        person=PERSON,
        spent=_spent(view),
        needed=needed,
        interval=None if view.score is None else _interval(view.score),
        score=None if view.score is None else _score(view.score),
        balance=None if view.ledger is None else _balance(view.ledger, view.what),
        reason=_reason(view),
        meanings=scale_of(view.statement),
        glossary=glossary(view),
        unreachable=[cost.method for cost in view.costs if cost.noise is None] if needed else [],
    )  # fmt: skip


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        return value if isinstance(value, Markup) else numbers.printable(str(value))

    environment = Environment(
        loader=PackageLoader("honestdp.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        up=rounded_up,
        down=rounded_down,
        short=numbers.short,
        delta=numbers.short_delta,
        plain=numbers.plain,
        accountant=numbers.accountant,
        percent=lambda value: f"{value:.2f}%",
    )
    return environment


def _spent(view: SearchView) -> Bars | None:
    """What each method would have spent at the noise of this search."""
    if not view.costs:
        return None
    budget = None if view.plan is None or view.plan.budget is None else view.plan.budget.epsilon
    return _bars(view.costs, [cost.epsilon for cost in view.costs], budget=budget)


def _needed(view: SearchView) -> Bars | None:
    """The noise per run that each method would have needed to stay within the budget."""
    if view.plan is None or view.plan.budget is None or len(view.costs) < 2:
        return None
    if all(cost.noise is None for cost in view.costs):  # none was looked for
        return None
    return _bars(view.costs, [math.inf if cost.noise is None else cost.noise for cost in view.costs], missing="none")


def _bars(
    costs: Sequence[Cost], values: Sequence[float], *, budget: float | None = None, missing: str = "infinite"
) -> Bars:
    axis = numbers.for_bars([*values] if budget is None else [*values, budget])
    bars = []
    for cost, value, text in zip(costs, values, numbers.aligned(values), strict=True):
        finite = math.isfinite(value)
        kind = ("used" if cost.used else "other") if finite else "none"
        bars.append(Bar(cost, text if finite else missing, axis.at(value), kind))
    mark = None
    if budget is not None:
        at = axis.at(budget)
        mark = Tick(at, f"budget {numbers.short(budget)}", "end" if at > 50 else "start")
    return Bars(tuple(bars), _ticks(axis), mark, axis.logarithmic)


def _ticks(axis: numbers.Axis) -> tuple[Tick, ...]:
    """A long number at an end is written inwards, so that it does not leave the page."""
    ticks = []
    for value in axis.ticks:
        at = axis.at(value)
        text = numbers.short(value)
        end = len(text) > 4 and not 5 < at < 95
        ticks.append(Tick(at, text, ("start" if at < 50 else "end") if end else "middle"))
    return tuple(ticks)


def _interval(score: ScoreView) -> Interval:
    low, high = min(score.low, score.value), max(score.high, score.value)
    limits = score.limits or (low - (high - low) / 2, high + (high - low) / 2)
    axis = numbers.linear(min(low, limits[0]), max(high, limits[1]))
    return Interval(axis.at(score.low), axis.at(score.high), axis.at(score.value), _ticks(axis))


def _score(score: ScoreView) -> dict[str, str]:
    """The score's numbers with as many decimals as its noise lets anyone see."""
    width = score.high - score.low
    decimals = min(12, max(0, 1 - math.floor(math.log10(width)))) if 0 < width < math.inf else 4
    return {
        "value": f"{score.value:.{decimals}f}",
        "low": f"{score.low:.{decimals}f}",
        "high": f"{score.high:.{decimals}f}",
        "noise": f"{score.noise:.{decimals + 1}f}",
        "confidence": f"{100 * score.confidence:.6g}\u202f%",
        "fraction": f"{100 * score.fraction:.6g}\u202f%",
    }


def _balance(ledger: Balance, what: str) -> BalanceChart:
    budget = ledger.budget.epsilon
    whole = max(budget, ledger.spent)
    before, after = 100 * ledger.before / whole, 100 * ledger.spent / whole
    added = max(ledger.spent - ledger.before, 0.0)
    texts = numbers.aligned([ledger.before, added, ledger.spent], down=[ledger.left, budget])
    kinds = ("before", "search", "", "left", "")
    names = ("Spent before", f"Added by this {what}", "Spent after", "Left", "Budget")
    return BalanceChart(before, max(after - before, 0.0), tuple(zip(kinds, names, texts, strict=True)))


def _reason(view: SearchView) -> str:
    """Why the planner recommends what was used, or what it recommends instead."""
    used = next((cost for cost in view.costs if cost.used), None)
    if view.plan is None or used is None or view.plan.candidates == 1:
        return ""
    best, reason = view.plan.recommended.selection, view.plan.reason
    if (best.name, best.accountant, best.shape) == (used.selection, used.accountant, used.shape):
        return f"The planner chose {best.name}: {reason}."
    return f"The search was asked to use {used.method}; the planner would have chosen {best.name}: {reason}."


class Meaning(NamedTuple):
    """A row of the scale. here: it is this statement's own epsilon."""

    epsilon: str
    times: str
    guess: str
    suspicion: str
    here: bool


def scale_of(statement: Statement) -> tuple[Meaning, ...]:
    """Examples of epsilon and the statement's own among them, from the strongest on; none where nothing is guaranteed."""
    own = statement.epsilon
    if not statement.words:
        return ()
    known = sorted({*(example for example in EXAMPLES if example != own), own})
    return tuple(
        Meaning(
            rounded_up(epsilon) if epsilon == own else f"{epsilon:g}",
            likelihood(epsilon),
            surest_guess(epsilon, statement.delta),
            per_cent(1 / (1 + (1 / SUSPICION - 1) * math.exp(-epsilon))),
            epsilon == own,
        )
        for epsilon in known
    )


def glossary(view: SearchView) -> list[tuple[str, str]]:
    """The words of the field that this report uses, explained: by what it shows, for a name may hold any word."""
    drawn = any(cost.used and isinstance(cost.shape, float) for cost in view.costs)
    used = (bool(view.statement.assumptions), drawn, bool(view.statement.scores))
    return [entry for entry, is_used in zip(GLOSSARY, used, strict=True) if is_used]
