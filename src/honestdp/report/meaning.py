"""What the report's numbers and words mean: epsilon on a scale with examples, and a short glossary of the words it uses."""

from __future__ import annotations

import math
from typing import NamedTuple

from honestdp.budget import Statement
from honestdp.plain_words import likelihood, per_cent, rounded_up, surest_guess
from honestdp.report.view import SearchView

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
