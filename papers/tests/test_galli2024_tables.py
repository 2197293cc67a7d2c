"""Galli et al. 2024, Tables 2 to 4: the cells are those that are printed, and are judged by the paper's own reading."""

from __future__ import annotations

import numpy as np
import pytest
from test_galli2024 import MNIST_VALUES, as_printed, first_seed, planted, verdicts

from honestdp_papers.claims import FAILS, HOLDS, NUMBERS, SENTENCE, UNTOLD
from honestdp_papers.galli2024 import PAPER, comparing, known, tables
from honestdp_papers.galli2024.setting import AG_NEWS, FASHION, MNIST, ONLINE, QUANTILE, THRESHOLD, WOSM
from honestdp_papers.parts import Finished

CELLS = """
mnist    Online          .3162         1.467          1.467          1.467
mnist    FixedThreshold  .01467,1.0    .003162,4.64   6.812,.010     6.812,.010
mnist    FixedQuantile   .003162,.5    .003162,.7     .003162,.7     .003162,.7
mnist    AdamWOSM        21.54         21.54          21.54          21.54
fashion  Online          .3162         1.467          1.467          1.467
fashion  FixedThreshold  .0681,.010    1.467,.010     6.812,.010     1.467,.0464
fashion  FixedQuantile   -             .3162,.3       1.467,.1       1.467,.3
fashion  AdamWOSM        .01           .01            .0464          .01
ag-news  Online          .06812        .06812         .06812         .06812
ag-news  FixedThreshold  1.467,.01     1.467,.01      1.467,.01      .03162,.0464
ag-news  FixedQuantile   .003162,.5    .003162,.5     .003162,.7     .003162,.7
ag-news  AdamWOSM        .01           .01            .01            .01
"""
"""By task and method, at the four epsilons: the step size and the clip or the quantile, or AdamWOSM's clip; - for none."""


def test_the_printed_cells_are_the_paper_s() -> None:
    wanted: dict[str, dict[str, tuple[tuple[float, ...] | None, ...]]] = {}
    for task, method, *cells in map(str.split, CELLS.strip().splitlines()):
        own = tuple(None if cell == "-" else tuple(map(float, cell.split(","))) for cell in cells)
        wanted.setdefault(task, {})[method] = own
    assert {ONLINE, THRESHOLD, QUANTILE, WOSM} == wanted["mnist"].keys()
    assert wanted == tables.PRINTED
    assert tables.PLAIN == {"mnist": 0.003162, "fashion": 0.01467, "ag-news": 0.003162}


def ending(parts: Finished, *, reversed_: bool) -> Finished:
    """The same curves with another last look: the worse the better a candidate was, or the same for all."""
    found: Finished = {}
    for name, kept in parts.items():
        right = kept["right"].copy()
        right[:, :, -1] = 9900 - right[:, :, -1] if reversed_ else 1000
        found[name] = {**kept, "right": right.astype(np.uint16)}
    return found


def test_a_cell_is_judged_by_the_best_checkpoint_whatever_the_last_iterate_is() -> None:
    parts = planted(MNIST, as_printed(MNIST, MNIST_VALUES), others=50.0)
    told = [
        {
            claim.claim: claim
            for claim in PAPER.item("table2").finish(ending(parts, reversed_=way), False).claims
            if claim.kind == NUMBERS
        }
        for way in (True, False)
    ]
    assert told[0] == told[1]
    assert [claim.verdict for claim in told[0].values() if "Without privacy" not in claim.claim] == [HOLDS] * 16


LARGE = "AdamWOSM's best clip is fairly large compared to those of the other strategies (MNIST)"
SMALL = "All strategies but FixedQuantile clip aggressively, with a small best clip (Fashion-MNIST)"


def test_the_sentence_about_large_clips_follows_the_best_ones() -> None:
    best = as_printed(MNIST, MNIST_VALUES)
    parts = planted(MNIST, best, others=50.0)
    table = PAPER.item("table2").finish(parts, False)
    assert verdicts(table, SENTENCE) == {LARGE: HOLDS}
    assert "21.5 and 4.64 (epsilon 5)" in next(claim.found for claim in table.claims if claim.claim == LARGE)
    assert verdicts(PAPER.item("table2").finish(first_seed(parts), False), SENTENCE) == {LARGE: UNTOLD}
    equal = dict.fromkeys(MNIST.epsilons, ((4.64,), 97.0))
    reached = dict.fromkeys(MNIST.epsilons, ((0.01467, 4.64), 93.0))
    parts = planted(MNIST, best | {WOSM: equal, THRESHOLD: reached}, others=50.0)
    assert verdicts(PAPER.item("table2").finish(parts, False), SENTENCE) == {LARGE: FAILS}, "not larger than the same"
    parts["mnist/k7/seeds0-4/AdamWOSM"]["right"][:] = 9700
    assert verdicts(PAPER.item("table2").finish(parts, False), SENTENCE) == {LARGE: UNTOLD}, "all clips are as good"


@pytest.mark.parametrize(
    ("threshold", "adam", "verdict"),
    [(0.0464, 0.0464, HOLDS), (0.0464, 0.2154, FAILS), (0.2154, 0.2154, FAILS)],
)
def test_the_sentence_about_small_clips_follows_the_best_ones(
    threshold: float, adam: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "constant_error", lambda task: 0.08)
    best = as_printed(FASHION, {ONLINE: 0.02, WOSM: 0.06, THRESHOLD: 0.04, QUANTILE: 0.03})
    moved = dict.fromkeys(FASHION.epsilons, ((1.467, threshold), 0.04))
    parts = planted(
        FASHION,
        best | {THRESHOLD: moved, WOSM: dict.fromkeys(FASHION.epsilons, ((adam,), 0.06))},
        others=0.1,
    )
    assert verdicts(PAPER.item("table3").finish(parts, False), SENTENCE) == {SMALL: verdict}
    parts["fashion/k7/seeds0-4/AdamWOSM"]["error"][:] = 0.06  # all clips are as good: FixedThreshold's alone are told
    alone = HOLDS if threshold < 0.1 else FAILS
    assert verdicts(PAPER.item("table3").finish(parts, False), SENTENCE) == {SMALL: alone}


def test_what_is_said_of_clips_is_said_of_the_clips_that_are_printed() -> None:
    assert tables.SMALL == 0.0464
    assert not tables.told_of_clips([], AG_NEWS, False)
    scores = comparing.Scores(
        np.array([[[90.0], [89.6], [89.4], [50.0]]] * 2), [(1.0,), (10.0,), (0.1,), (5.0,)], False
    )
    assert tables.good_clips(scores) == (1.0, 10.0)
