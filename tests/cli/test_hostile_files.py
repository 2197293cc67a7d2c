"""Files and commands that a newcomer brings: one line in words, no row lost, nothing charged for nothing."""

from __future__ import annotations

import csv
import io
import random
import shutil
from pathlib import Path

import pytest

import honestdp
from tests.command_line import called

SCHEMA = """
target = "ill"
[columns.who]
kind = "ignore"
[columns.age]
low = 17
high = 90
[columns.ill]
values = ["no", "yes"]
"""
TUNE = ("tune", "rows.csv", "--schema", "rows.toml", "--epsilon", "3", "--lot", "50", "--steps", "3")
BOOKS = ("--ledger", "ledger.db")
STRAY = "next line"


def rows(count: int = 120) -> list[str]:
    ages = [random.Random(3).randint(17, 90) for _ in range(count)]
    return ["who,age,ill", *(f"p{i},{age},{'yes' if age > 50 else 'no'}" for i, age in enumerate(ages))]


def write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


def with_a_stray_quote(lines: list[str]) -> list[str]:
    return [*lines[:20], '"' + lines[20], *lines[21:80], lines[80].replace(",", '",', 1), *lines[81:]]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file, its schema, a ledger with budgets, and a model."""
    folder = tmp_path_factory.mktemp("rows")
    write(folder / "rows.csv", rows())
    (folder / "rows.toml").write_text(SCHEMA)
    for dataset in ("rows", "heldout", "stray"):
        honestdp.Ledger(folder / "ledger.db").set_budget(dataset, honestdp.Budget(9.0, 1e-3))
    code, _, err = called(folder, *TUNE, "--out", "model")
    assert code == 0, err
    write(folder / "stray.csv", with_a_stray_quote(rows()))
    return folder


@pytest.fixture
def folder(made_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_once, tmp_path / "work"))


def refused(folder: Path, *words: str) -> str:
    code, said, err = called(folder, *words)
    assert (code, said, len(err.splitlines())) == (2, "", 1), err
    return err


def charges(folder: Path) -> int:
    ledger = honestdp.Ledger(folder / "ledger.db")
    return sum(len(ledger.charges(dataset)) for dataset in ("rows", "heldout", "stray"))


# ---- One cell, and the rows of others


@pytest.mark.parametrize("records", [(), ("--records", "120")], ids=["counted", "declared"])
def test_a_stray_quote_takes_no_row_away_in_any_command(made_once: Path, records: tuple[str, ...]) -> None:
    tune = ("tune", "stray.csv", *TUNE[2:], *BOOKS, "--out", "other", *records)
    for words in (
        tune,
        ("evaluate", "model", "stray.csv", "--epsilon", "1", *BOOKS, *records),
        ("predict", "model", "stray.csv"),
    ):
        err = refused(made_once, *words)
        assert STRAY in err
        assert "p19" not in err
    assert charges(made_once) == 0
    assert not (made_once / "other").exists()


def test_a_file_without_quotes_keeps_every_row_once_that_is_declared(folder: Path) -> None:
    (folder / "rows.toml").write_text('quote = ""\n' + SCHEMA)
    code, _, err = called(folder, "tune", "stray.csv", *TUNE[2:], "--out", "other")
    assert code == 0, err
    code, said, _ = called(folder, "predict", "other", "stray.csv", "--keep", "who")
    kept = [line[0] for line in csv.reader(io.StringIO(said))][1:]
    assert (len(kept), kept[19], kept[-1]) == (120, '"p19', "p119")


# ---- A file that cannot be read costs nothing, however often it is tried

BROKEN = {
    "cut": lambda text: text.rsplit(",", 1)[0],
    "more or fewer values": lambda text: text + "p,31,yes,4711\n",
    "encoding": lambda text: text.replace("p7", "p\xe4"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("records", [(), ("--records", "120")], ids=["counted", "declared"])
def test_an_evaluation_of_a_broken_file_says_why_and_is_not_charged(
    folder: Path, name: str, records: tuple[str, ...]
) -> None:
    (folder / "heldout.csv").write_bytes(BROKEN[name]((folder / "rows.csv").read_text()).encode("latin-1"))
    words = ("evaluate", "model", "heldout.csv", "--epsilon", "1", *BOOKS, *records)
    for _ in range(2):
        err = refused(folder, *words)
        assert name in err
        assert "4711" not in err
    assert charges(folder) == 0
    refused(
        folder, *words[: -len(BOOKS) - len(records)], *records
    )  # nor is it a failure without a reason where nobody pays


def test_over_budget_a_file_stays_closed(folder: Path) -> None:
    """The ledger's refusal comes first, of a file that is cut as of any other."""
    honestdp.Ledger(folder / "ledger.db").set_budget("cut", honestdp.Budget(0.5, 1e-3))
    (folder / "cut.csv").write_text(BROKEN["cut"]((folder / "rows.csv").read_text()))
    assert "budget" in refused(folder, "evaluate", "model", "cut.csv", "--epsilon", "1", *BOOKS, "--records", "120")


# ---- Predictions: a line a row, and nothing of the user's lost


def test_predictions_are_not_written_over_what_they_are_of(folder: Path) -> None:
    before = (folder / "rows.csv").read_bytes()
    (folder / "link.csv").symlink_to("rows.csv")
    for out in ("rows.csv", "./rows.csv", "link.csv"):
        assert "--out" in refused(folder, "predict", "model", "rows.csv", "--out", out)
    assert (folder / "rows.csv").read_bytes() == before


def test_a_column_that_is_kept_is_not_lost_for_one_that_is_written(folder: Path) -> None:
    write(folder / "new.csv", ["prediction,probability of yes,age", "mine,own,40"])
    assert "--keep" in refused(folder, "predict", "model", "new.csv", "--keep", "prediction")
    words = ("predict", "model", "new.csv", "--keep", "probability of yes")
    assert "--keep" in refused(folder, *words, "--probabilities")
    code, said, _ = called(folder, *words)
    assert (code, said.splitlines()[1].split(",")[0]) == (0, "own")


def test_a_row_of_one_column_that_is_empty_has_a_prediction_too(folder: Path) -> None:
    write(folder / "new.csv", ["age", "20", "", "80", "", "50"])
    code, said, _ = called(folder, "predict", "model", "new.csv")
    assert (code, len(said.splitlines())) == (0, 6)


# ---- One line in the place of a traceback


def test_what_is_wrong_with_how_a_file_is_written_is_one_line(folder: Path) -> None:
    assert "--encoding" in refused(folder, "schema", "rows.csv", "--encoding", "foo", "--force")
    assert "--quote" in refused(folder, "schema", "rows.csv", "--quote", "ab", "--force")
    write(folder / "long.csv", ["a" * 140_000 + ",b", "1,2"])
    assert len(refused(folder, "schema", "long.csv")) < 600
    for key in (
        'encoding = "foo"',
        "encoding = 5",
        'delimiter = ";;"',
        "delimiter = 5",
        'quote = "ab"',
        "newlines = 1",
    ):
        (folder / "rows.toml").write_text(f"{key}\n{SCHEMA}")
        assert key.split()[0] in refused(folder, *TUNE, *BOOKS, "--out", "other")
    assert charges(folder) == 0


def test_lines_that_end_in_a_carriage_return_alone_are_lines(folder: Path) -> None:
    (folder / "mac.csv").write_bytes((folder / "rows.csv").read_bytes().replace(b"\n", b"\r"))
    assert called(folder, "schema", "mac.csv")[0] == 0
    assert called(folder, "tune", "mac.csv", *TUNE[2:], "--out", "mac")[0] == 0
    assert called(folder, "predict", "mac", "mac.csv")[1] == called(folder, "predict", "mac", "rows.csv")[1]


@pytest.mark.parametrize("out", [".", "..", "/"])
def test_a_folder_without_a_name_is_no_traceback_where_bounds_are_learnt(folder: Path, out: str) -> None:
    (folder / "rows.toml").write_text(SCHEMA.replace("low = 17\nhigh = 90", 'kind = "range"\nbounds = "private"'))
    assert "--out" in refused(folder, *TUNE, *BOOKS, "--out", out)
    assert charges(folder) == 0


def test_a_folder_that_is_here_keeps_what_is_learnt_beside_it(folder: Path) -> None:
    text = SCHEMA.replace("low = 17\nhigh = 90", 'kind = "range"\nbounds = "private"')
    (folder / "rows.toml").write_text(text)
    (empty := folder / "empty").mkdir()
    words = ("tune", "../rows.csv", "--schema", "../rows.toml", *TUNE[4:], "--out", ".")
    code, _, err = called(empty, *words)
    assert code == 0, err
    assert (folder / "empty.learnt.toml").exists()


# ---- What is there already


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "model", "rows.csv", "--out"),
        ("report", "model", "--out"),
        ("schema", "rows.csv", "--force", "--out"),
    ],
    ids=["predict", "report", "schema"],
)
@pytest.mark.parametrize("place", ["ledger.db", "model/model.safetensors"])
def test_no_command_writes_over_a_ledger_or_a_model(folder: Path, words: tuple[str, ...], place: str) -> None:
    before = (folder / place).read_bytes()
    force = () if "--force" in words else ("--force",)
    err = refused(folder, *words, place, *force)
    assert "--out must be a new file: this one is never written over" in err
    assert (folder / place).read_bytes() == before


@pytest.mark.parametrize("words", [("predict", "model", "rows.csv"), ("report", "model")], ids=["predict", "report"])
def test_another_file_needs_force(folder: Path, words: tuple[str, ...]) -> None:
    (folder / "thesis.txt").write_text("mine")
    assert "force" in refused(folder, *words, "--out", "thesis.txt")
    assert (folder / "thesis.txt").read_text() == "mine"
    assert called(folder, *words, "--out", "thesis.txt", "--force")[0] == 0
    assert (folder / "thesis.txt").read_text() != "mine"
    assert "never" in refused(folder, *words, "--out", "rows.toml", "--force")


def test_a_report_is_made_again_over_a_report(folder: Path) -> None:
    for _ in range(2):
        assert called(folder, "report", "model", "--out", "page.html")[0] == 0
