"""Pages for practitioners say what full-size results conclude, and nothing older."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from honestdp_papers.document import fill, filled
from honestdp_papers.galli2024 import PAPER

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_optimizers_says_what_the_results_conclude() -> None:
    text = (ROOT / "docs/optimizers.md").read_text()
    assert [text.count(f"<!-- {mark}galli2024/{name} -->") for name in ("honest", "ours") for mark in ("", "/")] == [
        1
    ] * 4
    assert filled(text, PAPER, out=ROOT / "papers/results") == text


@pytest.mark.parametrize("there", [False, True], ids=["not trained", "trained"])
def test_a_place_has_the_conclusions_of_its_item(there: bool, tmp_path: Path) -> None:
    said = "It pays even where selection is cheap, " + "as was found, " * 20 + "so it is."
    if there:
        result = {
            "claims": [],
            "tables": [],
            "notes": [],
            "made": {},
            "quick": False,
            "numbers": {"conclusions": [said]},
        }
        (tmp_path / "galli2024").mkdir()
        (tmp_path / "galli2024/honest.json").write_text(json.dumps(result))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- galli2024/honest -->\nold\n<!-- /galli2024/honest -->\nafter\n")
    assert fill(tmp_path, PAPER, out=tmp_path) == [page]
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("before\n<!--")
    assert text.endswith("-->\nafter\n")
    assert max(map(len, text.splitlines())) <= 120
    assert (" ".join(said.split()) in " ".join(text.split())) is there
    assert ("Not trained in full size yet" in text) is not there
    assert fill(tmp_path, PAPER, out=tmp_path) == []
