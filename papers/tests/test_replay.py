"""Replays: what counts as equal, what is written, and what a page says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from honestdp.checks import HonestdpError
from honestdp_papers.claims import Outcome
from honestdp_papers.parts import Array, Part, Tell, make, replays, state
from honestdp_papers.registry import Item, Paper, Replay, parts_folder
from honestdp_papers.replay import compared, compared_means, outcome, replay

WHERE: dict[str, Any] = {"on": "2026-11-19", "commit": "0123abcd"}


def drawn(seed: int, mean: float = 80.0) -> Array:
    """Accuracies `[searches, repeats, candidates]`."""
    return np.random.default_rng(seed).normal(mean, 1.0, (2, 10, 3))


def test_the_same_numbers_are_equal_and_infinities_among_them() -> None:
    kept = {"loss": np.array([1.0, np.inf, np.nan, 0.0]), "tests": np.array(5)}
    found = compared(kept, kept)
    assert (found["differs"], found["apart"], found["difference"], found["numbers"]) == (False, 0, 0.0, 5)
    assert outcome(found | WHERE) == "replayed 2026-11-19 at 0123abcd: equal within 0"


def test_a_few_numbers_may_be_apart_and_are_counted_and_more_of_them_differ() -> None:
    kept = {"loss": np.full(100, 2.0)}
    for apart, differs in ((5, False), (6, True)):
        again = kept["loss"].copy()
        again[:apart] = 3.0
        found = compared(kept, {"loss": again})
        assert found["differs"] is differs
        assert f"{apart} of 100 numbers more than 1% apart, up to 0.33" in outcome(found | WHERE)
        assert ("DIFFERS" in outcome(found | WHERE)) is differs
    assert compared(kept, {"loss": np.full(99, 2.0)})["differs"], "another shape"
    assert compared(kept, {"loss": np.full(100, np.nan)})["differs"]


def test_with_other_draws_means_are_compared_against_their_errors() -> None:
    alike = compared_means({"right": drawn(0), "tests": np.array(1)}, {"right": drawn(1)}, axis=1)
    assert not alike["differs"]
    assert "in the mean" in outcome(alike | WHERE)
    apart = compared_means({"right": drawn(0)}, {"right": drawn(1, mean=83.0)}, axis=1)
    assert apart["differs"]
    assert "DIFFERS by 0.03" in outcome(apart | WHERE)


def test_a_replay_is_written_beside_the_results_and_a_part_that_differs_is_stale(tmp_path: Path) -> None:
    offset = 0.0

    def work(device: str, tell: Tell) -> dict[str, Array]:
        return {"right": drawn(0) + offset}

    part = Part("grid", {"size": 1}, 1.0, work)
    item = Item("figure1", "a figure", lambda parts, quick: Outcome([], {}), lambda quick: [part])
    cheap, costly = Replay("figure1", "grid", "a grid", repeats=1), Replay("figure1", "other", "a large grid", gpu=True)
    paper = Paper("toy2026", "Toy", "Somebody 2026", (item,), replays=(cheap, costly))
    with pytest.raises(HonestdpError, match="nothing to compare"):
        replay(paper, out=tmp_path, device="cpu", tell=print)
    folder, told = parts_folder(tmp_path, "toy2026", False), list[str]()
    make(part, folder, "cpu")
    assert not replay(paper, out=tmp_path, device="cpu", tell=told.append)["grid"]["differs"]
    assert told[-1] == "other: left out, it needs a GPU"
    assert state(part, folder) == "done"
    offset = 5.0
    assert not replay(paper, out=tmp_path, device="cpu", tell=told.append, only="oth*")["grid"]["differs"], "not made"
    assert replay(paper, out=tmp_path, device="cpu", tell=told.append)["grid"]["differs"]
    assert replays(tmp_path / "toy2026")["grid"]["draws"] == "same"
    assert state(part, folder) == "stale"
    changed = replace(item, parts=lambda quick: [replace(part, identity={"size": 2})])
    with pytest.raises(HonestdpError, match="other settings"):
        replay(replace(paper, items=(changed,)), out=tmp_path, device="cpu", tell=print)
