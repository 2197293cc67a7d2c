"""The autoencoder's strides, which are not printed: whether SGD trains the network of stride 2, and what one of stride 1 does.

What is judged on Fashion-MNIST is judged with stride 2. Where SGD hardly trains it, a reader has to know.
"""

from __future__ import annotations

from honestdp_papers.claims import Table
from honestdp_papers.galli2024 import one_image
from honestdp_papers.galli2024.comparing import Compared
from honestdp_papers.galli2024.measures import BEST, LAST, Scores, scores_of, shown, told
from honestdp_papers.galli2024.setting import (
    FASHION,
    METHODS,
    NODP,
    NODP_ADAM,
    ONLINE,
    QUANTILE,
    UNSTRIDED,
    Task,
    sized,
)
from honestdp_papers.galli2024.variants import width
from honestdp_papers.measured import counted
from honestdp_papers.registry import Finished


def doubt(here: Compared) -> list[str]:
    """What speaks against the network in a line, and the numbers in a second one; nothing where SGD trains it without privacy."""
    task, plain = here.task, here.plain.get(NODP)
    constant = one_image.constant_error(sized(task, here.quick))
    if here.quick or plain is None or plain.top(BEST).value < constant:
        return []
    adam = here.plain[NODP_ADAM]
    return [
        f"What is judged on {task.title} is judged on a network that may not be the paper's, for plain SGD hardly trains it: "
        f"without privacy the best step size has an error of {shown(plain.top(BEST), task, plain.seeds)} in the mean over the "
        f"seeds, and one constant image for all has {constant:.4f}.",
        f"Adam trains the same network to {shown(adam.top(BEST), task, adam.seeds)} without privacy. {_rising(here)}The paper "
        "prints neither strides nor initial weights: [ablations](#ablations) says what stride 1, the second try, shows.",
    ]


def _rising(here: Compared) -> str:
    """Whether Online's error is larger at the largest epsilon than at the least, by granularity."""
    first, last = here.task.epsilons[0], here.task.epsilons[-1]
    both = {
        k: [here.cases[k, epsilon][ONLINE].top(BEST).value for epsilon in (first, last)]
        for k in sorted({k for k, _ in here.cases})
        if all(ONLINE in here.cases.get((k, epsilon), {}) for epsilon in (first, last))
    }
    if not both:
        return ""
    each = ", ".join(f"{told(a, here.task)} and {told(b, here.task)} (k {k})" for k, (a, b) in both.items())
    return (
        f"Online, whose step is SGD's, has a larger error at epsilon {last:g}, with less noise, than at epsilon {first:g} in "
        f"{counted([a < b for a, b in both.values()])} granularities: {each} at {first:g} and {last:g}. "
    )


Pairs = dict[tuple[str, float], tuple[Scores, Scores]]
"""(method, epsilon) -> its trainings with stride 2 and with stride 1."""


def pairs_of(parts: Finished, quick: bool) -> Pairs:
    """Where both were trained."""
    found: Pairs = {}
    for epsilon in FASHION.epsilons:
        for method in METHODS:
            first, second = (
                scores_of(parts, task, method, width(quick), epsilon, quick) for task in (FASHION, UNSTRIDED)
            )
            if first is not None and second is not None:
                found[method, epsilon] = first, second
    return found


def second_try(pairs: Pairs) -> Table:
    """The autoencoder of stride 1 beside the first."""
    rows: list[list[str | float]] = [
        [f"{epsilon:g}", method, task.title, *(shown(own.top(way), task, own.seeds) for way in (BEST, LAST)), str(own.seeds)]
        for (method, epsilon), both in pairs.items()
        for task, own in zip((FASHION, UNSTRIDED), both, strict=True)
    ]  # fmt: skip
    return Table("The autoencoder's strides: error", ["epsilon", "method", "network", BEST, LAST, "seeds"], rows)


def second_note(pairs: Pairs) -> list[str]:
    """What the second try shows, in words."""
    if not pairs:
        return []
    tops = {key: [own.top(BEST).value for own in both] for key, both in pairs.items()}
    methods = [name for name in METHODS if any(method == name for method, _ in tops)]
    lower = counted([second < first for first, second in tops.values()])
    spans = "; ".join(
        f"{name} {_span([own[0] for (method, _), own in tops.items() if method == name], FASHION)} with stride 2 and "
        f"{_span([own[1] for (method, _), own in tops.items() if method == name], UNSTRIDED)} with stride 1"
        for name in methods
    )
    both = [epsilon for method, epsilon in tops if method == ONLINE and (QUANTILE, epsilon) in tops]
    ahead = [counted([tops[ONLINE, e][place] < tops[QUANTILE, e][place] for e in both]) for place in (0, 1)]
    order = f" Online is ahead of FixedQuantile at {ahead[0]} epsilons with stride 2 and at {ahead[1]} with stride 1."
    ends = [tops[ONLINE, e][1] for e in (FASHION.epsilons[0], FASHION.epsilons[-1]) if (ONLINE, e) in tops]
    rising = (
        f" With stride 1 too Online's error is larger at epsilon {FASHION.epsilons[-1]:g} than at {FASHION.epsilons[0]:g}."
        if len(ends) == 2 and ends[0] < ends[1]
        else ""
    )
    seeds = min(own.seeds for _, own in pairs.values())
    single = " It has one seed, so that nothing is judged by it." if seeds == 1 else ""
    return [
        f"The second try, the autoencoder with stride 1 and the same number of weights, has the smaller error in {lower} pairs: "
        f"{spans}, over the epsilons.{order if both else ''}{rising}{single} Verdicts on Fashion-MNIST are those of stride 2."
    ]


def _span(values: list[float], task: Task) -> str:
    return f"{told(min(values), task)} to {told(max(values), task)}"
