"""`honestdp papers`: list, run, replay and document, as real processes."""

from __future__ import annotations

import json
import re
import subprocess
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.command_line import run
from tests.forked_python import forked

from honestdp.checks import HonestdpError
from honestdp.data.sources import DatasetUnavailable
from honestdp_papers import run_device
from honestdp_papers.claims import RULE, VERDICTS
from honestdp_papers.document import page
from honestdp_papers.parts import keep_replays, make, write_whole
from honestdp_papers.registry import lookup, parts_folder, result_file
from honestdp_papers.results import reproduce


def papers(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code, out, error = run(folder, "papers", *words)
    return subprocess.CompletedProcess(words, code, out, error)


def output(folder: Path, *words: str) -> str:
    done = papers(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_run_shows_what_is_kept_and_anew_makes_it(tmp_path: Path) -> None:
    command = ("run", "koskela2020/section4_2", "--quick")
    nothing = papers(tmp_path, *command)
    assert nothing.returncode == 2
    assert nothing.stderr.endswith("honestdp papers run koskela2020/section4_2 --quick --anew makes one\n")
    result = json.loads(output(tmp_path, *command, "--anew", "--json"))
    kept = tmp_path / "papers" / "results" / "koskela2020"
    assert sorted(path.name for path in kept.iterdir()) == ["section4_2-quick.json"]
    assert json.loads((kept / "section4_2-quick.json").read_text()) == result
    assert result["quick"]
    assert result["made"]["command"] == "honestdp papers run koskela2020/section4_2 --quick --anew --json"
    assert set(result["made"]) >= {"device", "seconds of the rest", "versions", "on", "parts", "missing"}
    assert {claim["verdict"] for claim in result["claims"]} <= set(VERDICTS)

    before = (kept / "section4_2-quick.json").stat().st_mtime_ns
    assert json.loads(output(tmp_path, *command, "--json")) == result
    shown = output(tmp_path, *command)
    assert "quick version" in shown
    assert "made by     honestdp papers run koskela2020/section4_2 --quick --anew --json" in shown
    assert (kept / "section4_2-quick.json").stat().st_mtime_ns == before, "nothing is made"

    again = papers(tmp_path, *command, "--anew")
    assert again.stderr == "note: replaces papers/results/koskela2020/section4_2-quick.json\n"
    listed = {row["name"]: row for row in json.loads(output(tmp_path, "list", "--json"))["items"]}
    assert listed["koskela2020/section4_2"]["state"] == "kept, quick"
    assert listed["mohapatra2022/table1"]["state"] == "not made"
    alone = output(tmp_path, "list", "koskela2020")
    assert "koskela2020/supplement-figure1" in alone, "names can be copied"
    assert "mohapatra2022" not in alone


def test_the_page_is_made_from_full_results_and_names_what_is_missing(tmp_path: Path) -> None:
    kept = Path(__file__).parents[1] / "results" / "mohapatra2022" / "figure1.json"
    write_whole(tmp_path / "papers" / "results" / "mohapatra2022" / "figure1.json", kept.read_bytes())
    output(tmp_path, "document", "mohapatra2022")
    page = (tmp_path / "papers" / "docs" / "mohapatra2022.md").read_text()
    assert "](../results/mohapatra2022/figure1.png)" in page
    assert "| the paper, numbers | It is 4.8 times at n = 5000" in page
    assert (
        page.index("## In short")
        < page.index("## Settings")
        < page.index("## What the paper got right")
        < page.index("## figure1")
    )
    assert "| DPMomentum | 0.001, 0.002, 0.005" in page, "Table 3"
    assert (
        "  - The least overhead of LT is about 5 times or more, and grows with the dataset ([figure1](#figure1))"
        in page
    )
    assert RULE in page
    sentences = re.search(
        r"- Of (\d+) sentences of the paper: (\d+) hold, (\d+) hold in part, (\d+) do not hold, ", page
    )
    assert sentences is not None
    total, *parts = map(int, sentences.groups())
    assert 1 <= sum(parts) <= total
    assert f"{page.count('| the paper, a sentence |')} sentences of the paper" in page
    assert "Not run in full size yet: `honestdp papers run mohapatra2022/table1 --anew`" in page
    assert "honestdp papers run mohapatra2022/figure1" in page


@pytest.mark.slow
def test_kept_parts_are_used_as_they_are_and_none_is_made(tmp_path: Path) -> None:
    found, (item,) = lookup("mohapatra2022/figure2")
    (grid,) = item.parts(False)
    chosen = {"out": tmp_path, "quick": False, "device": "cpu", "kept_only": True}
    with pytest.raises(
        HonestdpError, match=r"none of its 1 parts is in .*; run --anew in the place of --kept to make them"
    ):
        reproduce(found, item, **chosen)  # type: ignore[arg-type]
    loss = np.full((2, 30, 30), 5.0) + np.arange(30)
    folder = parts_folder(tmp_path, "mohapatra2022", False)
    make(replace(grid, work=lambda device, tell: {"loss": loss}), folder, "cpu")
    differing = {"differs": True, "draws": "same", "apart": 9, "numbers": 10, "difference": 0.5, "on": "2026-11-19"}
    differing |= {"commit": "0123abcd", "made on": "CPU", "replayed on": "CPU"}
    keep_replays(folder.parent, {grid.name: differing})
    made = reproduce(found, item, **chosen)["made"]  # type: ignore[arg-type]
    assert (made["parts"], made["missing"]) == (1, [])
    written = page(found, out=tmp_path, beside=tmp_path / "docs" / "page.md")
    line = (
        "\n- 1 of the kept trainings were made again by later code: 0 of them equal, 1 different ([how](#replays)).\n"
    )
    assert line in written[: written.index("## Settings")]
    assert "| replayed 2026-11-19 at 0123abcd: DIFFERS, 9 of 10 numbers" in written
    assert "\n## How the parts were made\n" in written
    assert "Not run in full size yet: `honestdp papers run mohapatra2022/figure3 --anew`" in written
    assert "## What is not trained yet" not in written
    file = result_file(tmp_path, "mohapatra2022", "figure2", False)
    result = json.loads(file.read_text())
    result["made"]["missing"] = ["a/seed0/X", "a/seed0/Y", "a/seed1/X", "a/seed1/Y", "b/Z"]
    file.write_text(json.dumps(result))
    written = page(found, out=tmp_path, beside=tmp_path / "docs" / "page.md")
    assert "\n5 parts, for want of time on a GPU." in written
    assert (
        "\n- 5 parts are not trained yet ([which](#what-is-not-trained-yet)).\n"
        in written[: written.index("## Settings")]
    )
    assert "\n- `a/seed0`, `a/seed1`: X, Y\n- `b`: Z\n" in written


def test_a_page_speaks_of_its_own_paper_s_figures(tmp_path: Path) -> None:
    """Every page had it that DPAdam's trainings are in figures 4 and 5."""
    found = lookup("koskela2020")[0]
    kept = Path(__file__).parents[1] / "results"
    assert "figures 4 and 5" not in page(found, out=kept, beside=tmp_path / "page.md")


def test_a_page_is_not_written_over_when_there_is_no_result(tmp_path: Path) -> None:
    page = tmp_path / "papers" / "docs" / "mohapatra2022.md"
    page.parent.mkdir(parents=True)
    page.write_text("kept")
    done = papers(tmp_path, "document", "mohapatra2022")
    assert done.returncode == 2
    assert done.stderr.startswith("honestdp: error: no full-size result of mohapatra2022 is in papers/results")
    assert done.stderr.count("\n") == 1
    assert page.read_text() == "kept"


@pytest.mark.parametrize("damaged", ["", '{"claims": [', "[]", "{}"])
def test_a_damaged_result_is_one_line(damaged: str, tmp_path: Path) -> None:
    file = tmp_path / "papers" / "results" / "mohapatra2022" / "figure1.json"
    file.parent.mkdir(parents=True)
    file.write_text(damaged)
    done = papers(tmp_path, "run", "mohapatra2022/figure1")
    assert done.returncode == 2
    assert "figure1.json is no whole result; make it again (honestdp papers run mohapatra2022/figure1" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_interrupted_run_says_in_one_line_how_to_go_on(tmp_path: Path) -> None:
    code = """
from honestdp_papers import results

def stopped(*words, **named):
    raise KeyboardInterrupt

results.reproduce = stopped
from honestdp.cli.main import main
main()
"""
    ended, _, error = forked(tmp_path, code, "papers", "run", "mohapatra2022/figure1", "--anew")
    assert ended == 130
    assert error == "honestdp: stopped; the parts that are done are kept: run the same again to go on\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["mohapatra2022/figure99"], "PAPER/NAME must be one of mohapatra2022/figure1"),
        (["mohapatra2022/figure3", "--device", "tpu"], "device must be cpu or cuda"),
        (["mohapatra2022/figure3", "--only", "nothing*"], "--only nothing* names no part"),
        (["mohapatra2022/figure3", "--device", "cpu", "--only", "*mnist-signed-LR"], "mnist"),
    ],
)
def test_on_a_bare_machine_what_cannot_be_done_is_one_line(
    words: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def unavailable(name: str) -> None:
        raise DatasetUnavailable(f"dataset {name}: not here")

    monkeypatch.setattr("honestdp_papers.mohapatra2022.setting._loaded", unavailable)
    assert run_device.main([*words, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("run_device: error: ")
    assert expected in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run", "abadi2016"), "error: PAPER must be a paper's name"),
        (("list", "abadi2016"), "error: PAPER must be a paper's name"),
        (("run", "mohapatra2022/figure99"), "one of mohapatra2022/figure1"),
        (("run", "mohapatra2022/figure4"), "honestdp papers run mohapatra2022/figure4 --anew makes one"),
        (("run", "mohapatra2022/figure1", "--anew", "--device", "tpu"), "cpu or cuda"),
    ],
)
def test_a_bad_name_is_one_line_and_exit_code_2(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    done = papers(tmp_path, *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_cpu_is_told_what_the_full_size_takes_and_nothing_of_it_with_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library of the command line
        from honestdp_papers import command
    monkeypatch.setattr("honestdp_papers.results.reproduce", lambda *_, **__: {})
    said = {}
    for quick in (False, True):
        command._made(*lookup("koskela2020/table1"), quick=quick, device="cpu", out=tmp_path, kept=False)
        said[quick] = capsys.readouterr().err
    seconds = sum(part.weight for part in lookup("koskela2020/table1")[1][0].parts(False) if not part.optional)
    assert seconds > 300
    assert f"koskela2020/table1 in full trains for {seconds / 60:.0f} minutes on a large GPU" in said[False]
    assert "takes" not in said[True]


def test_a_process_that_has_lost_its_gpu_says_run_again_and_ends_without_destructors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them aborted with exit code 134, which a loop that goes on at 1 took for the end."""

    def ended(code: int) -> None:
        raise SystemExit(f"at once, with {code}")

    def lost(*parts: object, **how: object) -> bool:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore of it")

    monkeypatch.setattr(run_device.os, "_exit", ended)
    monkeypatch.setattr(run_device, "make_all", lost)
    monkeypatch.setattr(run_device, "check_device", lambda device: None)
    with pytest.raises(SystemExit, match="at once, with 1"):
        run_device.main(["mohapatra2022/figure4", "--quick", "--out", str(tmp_path), "--device", "cpu"])
    assert "illegal memory access" in (said := capsys.readouterr().err)
    assert "run the same again" in said


def test_an_error_that_loses_no_gpu_is_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wrong(*parts: object, **how: object) -> bool:
        raise RuntimeError("another one")

    monkeypatch.setattr(run_device, "make_all", wrong)
    with pytest.raises(RuntimeError, match="another one"):
        run_device.main(["mohapatra2022/figure4", "--quick", "--out", str(tmp_path), "--device", "cpu"])
