"""Galli et al. 2024, Tables 2 to 4: the cells are those that are printed, and are judged by the paper's own reading."""

from __future__ import annotations

import numpy as np

from honestdp_papers.claims import HOLDS, NUMBERS
from honestdp_papers.galli2024 import printed, tables
from honestdp_papers.galli2024.setting import MNIST, ONLINE, QUANTILE, THRESHOLD, WOSM
from honestdp_papers.registry import Finished
from tests.honestdp_papers.test_galli2024 import MNIST_VALUES, as_printed, planted

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
    assert wanted == printed.PRINTED
    assert printed.PLAIN == {"mnist": 0.003162, "fashion": 0.01467, "ag-news": 0.003162}


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
            for claim in tables.table2(ending(parts, reversed_=way), False).claims
            if claim.kind == NUMBERS
        }
        for way in (True, False)
    ]
    assert told[0] == told[1]
    assert [claim.verdict for claim in told[0].values() if "Without privacy" not in claim.claim] == [HOLDS] * 16
