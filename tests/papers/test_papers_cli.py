"""`honestdp papers`: list, run, show and document, as real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def papers(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("honestdp")), "papers", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)


def output(folder: Path, *words: str) -> str:
    done = papers(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_run_writes_a_result_that_show_and_list_read(tmp_path: Path) -> None:
    result = json.loads(output(tmp_path, "run", "mohapatra2022/figure1", "--quick", "--json"))
    kept = tmp_path / "results" / "papers" / "mohapatra2022"
    assert sorted(path.name for path in kept.iterdir()) == ["figure1-quick.json", "figure1-quick.png"]
    assert json.loads((kept / "figure1-quick.json").read_text()) == result
    assert result["quick"]
    assert result["made"]["command"] == "honestdp papers run mohapatra2022/figure1 --quick --json"
    assert set(result["made"]) >= {"device", "seconds of the rest", "versions", "on"}
    assert {claim["verdict"] for claim in result["claims"]} <= {"holds", "holds in part", "does not hold"}

    shown = output(tmp_path, "show", "mohapatra2022/figure1", "--quick")
    assert "verdict" in shown
    assert "holds in part" in shown
    assert "quick version" in shown

    listed = {row["name"]: row for row in json.loads(output(tmp_path, "list", "--json"))}
    assert listed["mohapatra2022/figure1"]["size"] == "quick"
    assert listed["mohapatra2022/table1"]["size"] is None
    assert "mohapatra2022/table1" in output(tmp_path, "list")


def test_the_page_is_made_from_full_results_and_names_what_is_missing(tmp_path: Path) -> None:
    output(tmp_path, "run", "mohapatra2022/figure1")
    output(tmp_path, "document", "mohapatra2022")
    page = (tmp_path / "docs" / "papers" / "mohapatra2022.md").read_text()
    assert "](../../results/papers/mohapatra2022/figure1.png)" in page
    assert "| holds in part |" in page
    assert "Not run in full size yet: `honestdp papers run mohapatra2022/table1`" in page
    assert "honestdp papers run mohapatra2022/figure1" in page


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run", "abadi2016"), "a paper's name"),
        (("run", "mohapatra2022/figure99"), "one of mohapatra2022/figure1"),
        (("show", "mohapatra2022/figure4"), "there is no result of it"),
        (("run", "mohapatra2022/figure1", "--device", "tpu"), "cpu or cuda"),
    ],
)
def test_a_bad_name_is_one_line_and_exit_code_2(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    done = papers(tmp_path, *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
