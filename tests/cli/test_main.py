"""The command line as a user meets it: results on standard output, errors of one line. Numbers and refusals are asked for
in this process, words in real ones."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import called, run

BASE = ["--records", "60000", "--lot", "250", "--steps", "10000", "--delta", "1e-6"]
RUN = [*BASE, "--noise", "4"]


PROGRAM = Path(sys.executable).with_name("honestdp")


def honestdp(*arguments: str) -> subprocess.CompletedProcess[str]:
    code, out, err = run(Path(), *arguments)
    return subprocess.CompletedProcess(arguments, code, out, err)


def as_json(*arguments: str) -> dict[str, object]:
    code, out, err = called(Path(), *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_epsilon_of_one_run() -> None:
    found = as_json("epsilon", *RUN)
    assert found["epsilon"] == pytest.approx(0.4238, rel=3e-3)
    assert (found["delta"], found["accountant"], found["selection"], found["runs"]) == (1e-6, "pld", "compose", 1)


@pytest.mark.parametrize(
    ("options", "epsilon", "accountant", "runs"),
    [
        (["--candidates", "40", "--selection", "liu-talwar", "--accountant", "moments"], 3.009, "moments", 40),
        (["--candidates", "40", "--selection", "papernot-steinke"], 1.106, "rdp", 40),
        (["--candidates", "280", "--selection", "envelope", "--runs", "40", "--shape", "0"], 0.6841, "pld", 40),
        (["--candidates", "10", "--selection", "profile", "--shape", "poisson"], 0.8995, "pld", 10),
        (["--candidates", "10", "--selection", "winner"], 1.332, "pld", 10),
        (["--candidates", "10"], 1.457, "pld", 10),
        (["--accountant", "rdp"], 0.4593, "rdp", 1),
    ],
)
def test_epsilon_of_a_search(options: list[str], epsilon: float, accountant: str, runs: float) -> None:
    found = as_json("epsilon", *RUN, *options)
    assert found["epsilon"] == pytest.approx(epsilon, rel=2e-3)
    assert found["accountant"] == accountant
    assert found["runs"] == pytest.approx(runs)


def test_the_printed_statement_is_whole() -> None:
    said = honestdp("epsilon", *RUN, "--selection", "envelope", "--candidates", "40").stdout
    for words in (
        "0.7551 at delta 1e-06",
        "add or remove one record",
        "pld",
        "envelope",
        "winner alone",
        "assumes",
        "Papernot",
    ):
        assert words in said


@pytest.mark.slow
def test_noise_meets_the_budget() -> None:
    found = as_json("noise", *BASE, "--epsilon", "1", "--selection", "envelope", "--candidates", "40")
    noise, epsilon = found["noise"], found["epsilon"]
    assert isinstance(noise, float)
    assert isinstance(epsilon, float)
    assert 0.999 <= epsilon <= 1
    again = as_json("epsilon", *BASE, "--noise", repr(noise), "--selection", "envelope", "--candidates", "40")
    assert again["epsilon"] == epsilon


def test_the_printed_noise_meets_the_budget_too() -> None:
    said = honestdp("noise", *BASE, "--epsilon", "1").stdout
    noise = said.split("noise ")[1].split(",")[0]
    found = as_json("epsilon", *BASE, "--noise", noise)["epsilon"]
    assert isinstance(found, float)
    assert found <= 1


@pytest.mark.slow
def test_plan_as_json_and_chart(tmp_path: Path) -> None:
    chart = tmp_path / "plan.svg"
    small = ["--records", "2000", "--lot", "100", "--steps", "200", "--delta", "1e-5", "--candidates", "8"]
    found = as_json("plan", *small, "--noise", "3", "--plot", str(chart))
    methods = found["methods"]
    assert isinstance(methods, list)
    for method in methods:
        assert {"selection", "accountant", "shape", "runs", "coverage", "epsilon", "noise", "leaves"} <= set(method)
    assert {m["selection"] for m in methods} == {
        "compose",
        "winner",
        "liu-talwar",
        "papernot-steinke",
        "profile",
        "envelope",
    }
    recommended = found["recommended"]
    assert isinstance(recommended, dict)
    assert {key: value for key, value in recommended.items() if key != "reason"} in methods
    assert chart.stat().st_size > 10_000


@pytest.mark.slow
def test_plan_as_a_table_fits_a_terminal() -> None:
    small = [
        "--records",
        "2000",
        "--lot",
        "100",
        "--steps",
        "200",
        "--delta",
        "1e-5",
        "--candidates",
        "8",
        "--noise",
        "3",
    ]
    said = honestdp("plan", *small, "--table").stdout
    table = said.split("selection        by")[1].split("from ")[0]
    assert max(len(line) for line in table.splitlines()) <= 80
    assert "recommended" in said
    assert "add or remove one record" in said


def test_no_noise_is_said_plainly() -> None:
    found = as_json("epsilon", *BASE, "--noise", "0")
    assert float(str(found["epsilon"])) == math.inf
    assert found["private"] is False
    assert "NOT PRIVATE" in honestdp("epsilon", *BASE, "--noise", "0").stdout


def test_help_and_version() -> None:
    installed = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, timeout=300, check=True)
    assert installed.stdout.startswith("honestdp ")
    for command in ([], ["epsilon"], ["noise"], ["plan"]):
        done = honestdp(*command, "--help")
        assert done.returncode == 0
        assert "Usage" in done.stdout
    assert "gamma = 1/K" in " ".join(honestdp("epsilon", "--help").stdout.replace("│", " ").split())


BAD = [
    (["--lot", "nan"], "--lot", "nan"),
    (["--records", "many"], "--records", "many"),
    (["--steps", "1.5"], "--steps", "1.5"),
    (["--noise", "-1"], "--noise", "-1"),
    (["--selection", "envelope", "--shape", "-1"], "--shape", "-1"),
    (["--selection", "envelope", "--shape", "round"], "--shape", "round"),
    (["--selection", "best"], "--selection", "best"),
    (["--selection", "liu-talwar", "--accountant", "pld"], "--accountant", "pld"),
    (["--colour", "blue"], "--colour", "No such option"),
]


@pytest.mark.parametrize(("options", "name", "value"), BAD, ids=[" ".join(case[0]) for case in BAD])
def test_bad_input_is_one_line_that_names_the_option_and_the_value(
    options: list[str], name: str, value: str, tmp_path: Path
) -> None:
    act = run if options == ["--lot", "nan"] else called  # one of them from its start to its exit code
    code, out, err = act(tmp_path, "epsilon", *RUN, *options)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert name in err
    assert value in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["noise", *BASE, "--epsilon", "0"],
        ["noise", *BASE, "--epsilon", "nan"],
        ["noise", *BASE],
        ["plan", *BASE, "--candidates", "4"],
        ["plan", *BASE, "--candidates", "4", "--noise", "4", "--epsilon", "1"],
        ["plan", *RUN, "--candidates", "4", "--coverage", "1"],
        ["plan", *RUN, "--candidates", "4", "--plot", "chart.pdf"],
        ["plan", *RUN, "--candidates", "4", "--plot", "no/such/folder/chart.png"],
        ["plan", *RUN, "--candidates", "4", "--max-runs", "0"],
        ["train"],
    ],
)
def test_bad_input_to_the_other_commands(arguments: list[str], tmp_path: Path) -> None:
    code, _, err = called(tmp_path, *arguments)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


@pytest.mark.slow
def test_the_options_of_plan_reach_the_planner() -> None:
    small = [
        "--records",
        "2000",
        "--lot",
        "100",
        "--steps",
        "20",
        "--delta",
        "1e-5",
        "--candidates",
        "6",
        "--noise",
        "3",
    ]
    found = as_json("plan", *small, "--coverage", "0.5", "--max-runs", "7", "--published")
    recommended, statement = found["recommended"], found["statement"]
    assert isinstance(recommended, dict)
    assert isinstance(statement, dict)
    assert found["coverage"] == 0.5
    assert recommended["runs"] <= 7
    assert recommended["coverage"] >= 0.5 - 1e-9
    assert statement["published"] is None  # a published bound needs none beside it
    assert "within 7 runs" in recommended["reason"]
    assert statement["delta"] == found["delta"] == 1e-5
    assert statement["epsilon"] == recommended["epsilon"]
    assert any(m["equal"] == "coverage" and m["coverage"] == pytest.approx(0.5) for m in found["methods"])  # type: ignore[attr-defined]


@pytest.mark.slow
def test_identical_candidates_cost_less_than_different_ones() -> None:
    winner = ["--selection", "winner", "--candidates", "10"]
    found = as_json("epsilon", *RUN, *winner, "--identical")["epsilon"]
    assert isinstance(found, float)
    assert 1.19 < found < 1.32


def test_an_accountant_s_warning_becomes_a_note_of_the_statement() -> None:
    tiny = [
        "--records",
        "1e6",
        "--lot",
        "1",
        "--steps",
        "10",
        "--noise",
        "100",
        "--delta",
        "1e-9",
        "--accountant",
        "rdp",
    ]
    done = honestdp("epsilon", *tiny, "--json")
    assert done.stderr == ""
    assert "edge of the orders" in json.loads(done.stdout)["notes"][0]
    assert "edge of the orders" in honestdp("epsilon", *tiny).stdout


@pytest.mark.slow
def test_output_that_is_cut_off_is_no_error_of_ours() -> None:
    command = f"{PROGRAM} epsilon {' '.join(RUN)} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (
            ["--selection", "envelope", "--candidates", "9", "--runs", "3", "--shape", "0"],
            "how",
            "logarithmic, 3 on average",
        ),
        (["--selection", "winner", "--candidates", "3", "--identical"], "basis", "Theorem 2R"),
        (["--candidates", "3", "--accountant", "moments"], "accountant", "moments"),
    ],
)
def test_the_options_of_noise_reach_the_selection(options: list[str], field: str, value: str) -> None:
    found = as_json("noise", *BASE, "--steps", "300", "--epsilon", "1", *options)
    assert value in str(found[field])
    again = as_json("epsilon", *BASE, "--steps", "300", "--noise", repr(found["noise"]), *options)
    assert again["epsilon"] == found["epsilon"]


@pytest.mark.slow
def test_a_plan_of_a_quintillion_candidates_is_made_and_of_more_is_refused_in_one_line() -> None:
    options = ["--records", "60000", "--lot", "250", "--steps", "1000", "--noise", "4", "--delta", "1e-6"]
    found = as_json("plan", *options, "--candidates", "1e18")
    assert found["candidates"] == 10**18
    for count in ("--candidates", "--steps", "--records"):
        done = honestdp("epsilon", *options, count, "1e19")
        assert done.returncode == 2
        assert done.stderr.startswith(f"honestdp: error: {count} must be a whole number of at most 1e+18")
        assert len(done.stderr.splitlines()) == 1
