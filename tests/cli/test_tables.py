"""A table in, a private model out, on the command line: every command on a small file, and every bad input one line."""

from __future__ import annotations

import csv
import io
import json
import random
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import honestdp
from honestdp.cli.options import by_class
from tests.command_line import called

SCHEMA = """
target = "readmitted"

[columns.patient]
kind = "ignore"

[columns.age]
low = 17
high = 90

[columns.sex]
values = ["Male", "Female"]
indicator = true

[columns.readmitted]
values = ["no", "yes"]
"""
TUNE = ("tune", "patients.csv", "--schema", "patients.toml", "--epsilon", "3", "--lot", "100", "--steps", "5")


def rows(count: int = 200) -> list[list[str]]:
    draw = random.Random(7)
    ages = [draw.randint(17, 95) for _ in range(count)]
    return [
        [f"p{i}", str(age), draw.choice(["Male", "Female", ""]), "yes" if age > 60 else "no"]
        for i, age in enumerate(ages)
    ]


def write(path: Path, lines: list[list[str]], header: str = "patient,age,sex,readmitted") -> None:
    with path.open("w", newline="") as file:
        file.write(header + "\n")
        csv.writer(file, lineterminator="\n").writerows(lines)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file, its schema, a ledger with a budget, and a model that was trained on it."""
    folder = tmp_path_factory.mktemp("table")
    write(folder / "patients.csv", rows())
    (folder / "patients.toml").write_text(SCHEMA)
    honestdp.Ledger(folder / "ledger.db").set_budget("patients", honestdp.Budget(4.0, 1e-4))
    code, said, err = called(folder, *TUNE, "--ledger", "ledger.db", "--out", "model", "--json")
    assert code == 0, err
    (folder / "said.json").write_text(said)
    return folder


@pytest.fixture
def folder(made_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_once, tmp_path / "work"))


def test_a_template_has_every_column_and_no_value(tmp_path: Path) -> None:
    write(tmp_path / "patients.csv", rows())
    code, said, err = called(tmp_path, "schema", "patients.csv")
    assert (code, err) == (0, "")
    assert "patients.toml" in said
    text = (tmp_path / "patients.toml").read_text()
    assert all(f"[columns.{name}]" in text for name in ("patient", "age", "sex", "readmitted"))
    assert "Female" not in text
    code, _, err = called(tmp_path, "schema", "patients.csv")
    assert code == 2
    assert "--force" in err
    code, said, _ = called(tmp_path, "schema", "patients.csv", "--force", "--json")
    assert json.loads(said)["columns"] == ["patient", "age", "sex", "readmitted"]
    code, _, err = called(tmp_path, "tune", "patients.csv", "--schema", "patients.toml", "--epsilon", "3")
    assert (code, len(err.splitlines())) == (2, 1)  # nothing is filled in yet
    assert "target" in err


def test_the_search_ends_with_a_model_folder_and_its_guarantee(made_once: Path) -> None:
    said = json.loads((made_once / "said.json").read_text())
    assert said["epsilon"] <= 3
    assert said["delta"] == 1e-4  # the power of ten below a tenth of 1/200
    assert said["statement"]["preprocessing"].startswith("age: 17 to 90")
    assert said["ledger"]["dataset"] == "patients"
    saved = honestdp.load(made_once / "model", digest=said["digest"])
    assert saved.table == honestdp.read_schema(made_once / "patients.toml")
    assert saved.statement.as_dict() == said["statement"]
    assert "readmitted" in saved.card


def test_the_same_command_reads_the_result_and_a_changed_schema_does_not(folder: Path) -> None:
    command = (*TUNE, "--ledger", "ledger.db", "--out", "model", "--json")
    before = json.loads((folder / "said.json").read_text())
    code, said, _ = called(folder, *command)
    assert code == 0
    assert json.loads(said) == before
    code, said, _ = called(folder, "tune", "--resume", "model", "--json")
    assert json.loads(said) == before
    (folder / "patients.toml").write_text(SCHEMA.replace("high = 90", "high = 80"))
    for words in (command, ("tune", "--resume", "model")):
        code, _, err = called(folder, *words)
        assert (code, len(err.splitlines())) == (2, 1)


def test_the_same_command_does_not_vouch_for_a_folder_that_was_changed(folder: Path) -> None:
    weights = folder / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    code, _, err = called(folder, *TUNE, "--ledger", "ledger.db", "--out", "model")
    assert code == 2
    assert "changed since it was saved: model.safetensors" in err


def test_predictions_are_a_line_a_row_as_in_python(made_once: Path) -> None:
    code, said, err = called(made_once, "predict", "model", "patients.csv", "--keep", "patient", "--probabilities")
    assert (code, err) == (0, "")
    lines = list(csv.DictReader(io.StringIO(said)))
    assert [line["patient"] for line in lines] == [row[0] for row in rows()]
    saved = honestdp.load(made_once / "model")
    columns = dict(zip(("patient", "age", "sex", "readmitted"), map(list, zip(*rows(), strict=True)), strict=True))
    assert [line["prediction"] for line in lines] == saved.predict(columns).tolist()
    given = [[float(line[f"probability of {label}"]) for label in ("no", "yes")] for line in lines]
    assert np.allclose(given, saved.predict_proba(columns))


def test_predictions_need_no_target_and_come_as_json_or_in_a_file(made_once: Path, tmp_path: Path) -> None:
    write(tmp_path / "new.csv", [row[1:3] for row in rows(3)], "age,sex")
    model = str(made_once / "model")
    code, said, _ = called(tmp_path, "predict", model, "new.csv", "--json")
    assert code == 0
    assert [set(each) for each in json.loads(said)] == [{"prediction"}] * 3
    assert called(tmp_path, "predict", model, "new.csv", "--out", "out.csv")[0] == 0
    assert (tmp_path / "out.csv").read_text().split() == ["prediction", *(e["prediction"] for e in json.loads(said))]
    write(tmp_path / "new.csv", [], "age,sex")
    assert called(tmp_path, "predict", model, "new.csv")[1] == "prediction\n"
    assert json.loads(called(tmp_path, "predict", model, "new.csv", "--json")[1]) == []


def test_an_evaluation_is_noisy_and_charged_before_it_reads(folder: Path) -> None:
    ask = ("evaluate", "model", "patients.csv", "--epsilon", "0.1")
    code, said, err = called(folder, *ask, "--ledger", "ledger.db", "--json")
    assert code == 0, err
    found = json.loads(said)
    assert found["ledger"]["charges"] == 2
    assert (found["statement"]["epsilon"], found["statement"]["delta"]) == (0.1, 0.0)
    assert 0 <= found["score"]["low"] <= found["score"]["value"] <= found["score"]["high"] <= 1
    code, said, _ = called(folder, *ask)
    assert "not for publishing" in said
    assert "ledger      none" in said
    assert called(folder, *ask[:-2])[2].count("\n") == 1  # no epsilon, no score
    code, _, err = called(folder, "evaluate", "model", "patients.csv", "--epsilon", "2", "--ledger", "ledger.db")
    assert code == 2
    assert "over budget" in err
    assert len(honestdp.Ledger(folder / "ledger.db").charges("patients")) == 2


def test_a_report_is_the_statement_and_the_page(folder: Path) -> None:
    code, said, _ = called(folder, "report", "model", "--out", "page.html")
    assert code == 0
    assert str(honestdp.load(folder / "model").statement) in said
    assert (folder / "page.html").read_bytes() == (folder / "model" / "report.html").read_bytes()
    code, said, _ = called(folder, "report", "model", "--json")
    assert json.loads(said)["schema"]["target"] == "readmitted"
    assert called(folder, "report", "model", "--card")[1].startswith("# A private model of patients")


def test_a_plan_counts_rows_and_looks_at_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "patients.csv", rows())
    (tmp_path / "patients.toml").write_text(SCHEMA)

    def cried(*_: object) -> None:
        raise AssertionError("a plan encoded a row")

    monkeypatch.setattr(honestdp.Table, "encode_batch", cried)
    monkeypatch.setattr(honestdp.Categories, "labels", cried)
    words = ("plan", "patients.csv", "--schema", "patients.toml", "--epsilon", "3")
    code, said, err = called(tmp_path, *words, "--json")
    assert code == 0, err
    found = json.loads(said)
    assert "honestdp tune patients.csv --epsilon 3 --delta 0.0001 --schema patients.toml" in found["command"]


def test_what_a_plan_tells_to_do_can_be_done_with_bounds_to_be_learnt(tmp_path: Path) -> None:
    write(tmp_path / "patients.csv", rows())
    (tmp_path / "patients.toml").write_text(SCHEMA.replace("low = 17\nhigh = 90", 'kind = "range"\nbounds = "private"'))
    code, said, err = called(tmp_path, "plan", *TUNE[1:], "--json")
    assert code == 0, err
    program, *command = shlex.split(json.loads(said)["command"])
    assert program == "honestdp"
    assert called(tmp_path, *command)[0] == 0


def test_a_plan_says_which_column_the_schema_does_not_declare(tmp_path: Path) -> None:
    write(tmp_path / "patients.csv", rows(), header="patient,years,sex,readmitted")
    (tmp_path / "patients.toml").write_text(SCHEMA)
    code, _, err = called(tmp_path, "plan", *TUNE[1:])
    assert code == 2
    assert "got a column 'years' that the table does not know" in err


@pytest.mark.slow
def test_a_target_that_is_given_need_not_be_filled_in(tmp_path: Path) -> None:
    """As `schema` and the README say it: the template has "?", and --target names the column."""
    write(tmp_path / "patients.csv", rows())
    plan = ("plan", "patients.csv", "--schema", "patients.toml", "--epsilon", "3", "--target", "readmitted", "--json")
    said = []
    for target in ('target = "?"', "", 'target = "sex"', 'target = "readmitted"'):
        (tmp_path / "patients.toml").write_text(SCHEMA.replace('target = "readmitted"', target))
        code, text, err = called(tmp_path, *plan)
        assert code == 0, err
        said.append(text)
    assert len(set(said)) == 1


def test_a_record_is_a_person_where_a_column_tells_whose_row_it_is(folder: Path) -> None:
    """Forty people with five rows each: N, delta and the statement are theirs."""
    write(folder / "visits.csv", [[f"p{i % 40}", *row[1:]] for i, row in enumerate(rows())])
    people = (
        "visits.csv",
        "--schema",
        "patients.toml",
        "--person",
        "patient",
        "--rows-per-person",
        "3",
        "--epsilon",
        "3",
    )
    code, said, err = called(folder, "tune", *people, "--lot", "20", "--steps", "3", "--out", "people", "--json")
    assert code == 0, err
    found = json.loads(said)
    assert (found["statement"]["relation"], found["delta"]) == (
        "add or remove one person, with all of their rows",
        1e-3,
    )
    assert "the number of people, 40, is public" in found["statement"]["assumptions"][0]
    assert honestdp.load(folder / "people").columns.rows_per_person == 3
    code, said, _ = called(folder, "evaluate", "people", "visits.csv", "--epsilon", "1", "--json")
    assert json.loads(said)["records"] == 40
    code, said, err = called(folder, "plan", *people)
    assert (code, said) == (2, "")
    assert "--records" in err  # to count people is to read their ids
    code, said, _ = called(folder, "plan", *people, "--records", "40", "--table")
    assert code == 0
    assert "32 people, lot" in said
    assert "; add or remove one person, with all of their rows" in said
    assert "one record" not in said
    write(folder / "visits.csv", [["p0", *row[1:]] for row in rows()])
    code, said, err = called(folder, "tune", *people, "--out", "one")
    assert (code, said) == (2, "")
    assert "got 1 people" in err


@pytest.mark.slow
def test_bounds_are_learnt_once_out_of_the_budget(folder: Path) -> None:
    """Charged before the search, in its epsilon, and read again by the same command."""
    (folder / "patients.toml").write_text(SCHEMA.replace("low = 17\nhigh = 90", 'kind = "range"\nbounds = "private"'))
    honestdp.Ledger(folder / "ledger.db").set_budget("visits", honestdp.Budget(3.1, 1e-4))
    command = (
        *TUNE,
        "--bounds-epsilon",
        "0.5",
        "--ledger",
        "ledger.db",
        "--dataset",
        "visits",
        "--out",
        "new/model",
        "--json",
    )

    def charges() -> list[str]:
        return [charge.entry.what.split(" | ")[0] for charge in honestdp.Ledger(folder / "ledger.db").charges("visits")]

    assert called(folder, *command, "--dry-run")[0] == 0
    assert called(folder, *command, "--steps", "0")[0] == 2
    assert (charges(), (folder / "new").exists()) == ([], False)
    code, said, err = called(folder, *command)
    assert code == 0, err
    found = json.loads(said)
    assert charges() == ["honestdp, private bounds of age", "honestdp tune, 1 candidate"]
    assert 2.9 < found["epsilon"] <= 3
    assert found["ledger"]["spent"] <= 3
    assert "learn" in " ".join(found["statement"]["notes"])
    again = json.loads(called(folder, *command)[1])
    assert (again, len(charges())) == (found, 2)
    saved = honestdp.load(folder / "new" / "model")
    assert (saved.columns.spent, saved.columns.to_learn) == (0.5, ())
    assert saved.evaluate(folder / "patients.csv", epsilon=1.0).statement.epsilon == 1.0
    (folder / "patients.toml").write_text((folder / "patients.toml").read_text().replace("indicator = true", ""))
    code, _, err = called(folder, *command)
    assert code == 2
    assert "learnt from another schema" in err
    code, _, err = called(folder, *command[:-3], "--json")
    assert (code, "--out" in err, len(charges())) == (2, True, 2)


# ---- Bad input: one line, exit code 2, nothing charged


def cut(folder: Path) -> None:
    content = (folder / "patients.csv").read_text()
    (folder / "patients.csv").write_text(content[: len(content) // 2].rsplit(",", 1)[0])


def schema(folder: Path, old: str, new: str) -> None:
    assert old in SCHEMA
    (folder / "patients.toml").write_text(SCHEMA.replace(old, new))


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a target that is no column": (lambda f: schema(f, 'target = "readmitted"', 'target = "died"'), "target"),
    "a schema that contradicts itself": (lambda f: schema(f, "high = 90", "high = 10"), "columns.age.high"),
    "no schema": (lambda f: (f / "patients.toml").unlink(), "patients.toml"),
    "a file cut in the middle": (cut, "cut"),
    "no rows": (lambda f: write(f / "patients.csv", []), "at least one row"),
    "one row": (lambda f: write(f / "patients.csv", rows(1)), "must be 10 records or more"),
    "an empty file": (lambda f: (f / "patients.csv").write_bytes(b""), "empty"),
    "no file": (lambda f: (f / "patients.csv").unlink(), "patients.csv"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_costs_nothing(tmp_path: Path, name: str) -> None:
    write(tmp_path / "patients.csv", rows())
    (tmp_path / "patients.toml").write_text(SCHEMA)
    honestdp.Ledger(tmp_path / "ledger.db").set_budget("patients", honestdp.Budget(4.0, 1e-4))
    spoil, words = BAD[name]
    spoil(tmp_path)
    code, said, err = called(tmp_path, *TUNE, "--ledger", "ledger.db", "--out", "model")
    assert (code, said, len(err.splitlines())) == (2, "", 1), err
    assert words in err
    assert len(err) < 600
    assert honestdp.Ledger(tmp_path / "ledger.db").charges("patients") == ()
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("words", "blamed"),
    [
        (("tune", "patients.csv", "--epsilon", "3"), "--schema"),
        (("tune", "digits", "--epsilon", "3", "--schema", "patients.toml"), "--schema"),
        (("tune", "nothing", "--epsilon", "3"), "one of"),
        (("tune", "patients.csv", "--schema", "patients.toml"), "--epsilon"),
        ((*TUNE, "--model", "forest"), "--model"),
        ((*TUNE, "--target", "died"), "--target"),
        ((*TUNE, "--records", "0"), "--records"),
        ((*TUNE, "--records", "5"), "--records must be 10 records or more, as many as the file has"),
        ((*TUNE, "--person", "patient"), "person"),
        ((*TUNE, "--person", "nobody", "--rows-per-person", "2"), "--person must be a column of the data"),
        (("tune", "none.csv", *TUNE[2:]), "FILE must be a file that exists; got none.csv"),
        (("plan", "none.csv", *TUNE[2:]), "FILE must be a file that exists; got none.csv"),
        (
            ("plan", *TUNE[1:], "--person", "nobody", "--rows-per-person", "2", "--records", "99"),
            "--person must be a column",
        ),
        (("evaluate", "model", "none.csv", "--epsilon", "1"), "FILE must be a file that exists; got none.csv"),
        (("report", "model", "--out", "nowhere/page.html"), "--out must be a file in a folder that exists"),
        (("plan", "--schema", "patients.toml", "--epsilon", "3"), "--schema"),
        (("plan", "--epsilon", "3"), "--records"),
        (("predict", "model", "patients.csv", "--keep", "name"), "'name'"),
        (("predict", "model", "none.csv"), "none.csv"),
        (("predict", "model", "patients.csv", "--out", "nowhere/out.csv"), "--out"),
        (("predict", "patients.csv", "patients.csv"), "MODEL"),
        (("evaluate", "model", "patients.csv", "--epsilon", "-1"), "--epsilon"),
        (("evaluate", "model", "patients.csv", "--epsilon", "1", "--dataset", "x"), "--dataset"),
        (("evaluate", "model", "patients.csv", "--epsilon", "1", "--metric", "auc"), "--metric"),
        (("report", "model", "--digest", "abc"), "--digest"),
        (("report", "model", "--digest", "0" * 64), "changed since it was saved"),
    ],
)
def test_what_is_wrong_with_a_command_is_blamed_on_its_option(
    made_once: Path, words: tuple[str, ...], blamed: str
) -> None:
    code, said, err = called(made_once, *words)
    assert (code, said, len(err.splitlines())) == (2, "", 1), err
    assert blamed in err


@pytest.mark.parametrize("command", ["predict", "evaluate", "report"])
def test_a_folder_that_was_tampered_with_is_used_by_no_command(folder: Path, command: str) -> None:
    statement = folder / "model" / "statement.json"
    statement.write_text(statement.read_text().replace('"epsilon": ', '"epsilon": 0'))
    others = [] if command == "report" else ["patients.csv"]
    epsilon = ["--epsilon", "0.1", "--ledger", "ledger.db"] if command == "evaluate" else []
    code, said, err = called(folder, command, "model", *others, *epsilon)
    assert (code, said, len(err.splitlines())) == (2, "", 1)
    assert "statement.json" in err
    assert len(honestdp.Ledger(folder / "ledger.db").charges("patients")) == 1


def test_prevalence_may_be_said_by_class(folder: Path) -> None:
    how = ("evaluate", "model", "patients.csv", "--epsilon", "5", "--metric", "balanced accuracy", "--prevalence")
    code, _, err = called(folder, *how, "yes=0.2,no=0.8")
    assert code == 0, err
    for wrong in ("yes=0.2,maybe=0.8", "yes=0.2", "yes=0.2,0.8", "yes=x,no=y"):
        code, _, err = called(folder, *how, wrong)
        assert (code, len(err.splitlines())) == (2, 1)
        assert f"--prevalence must be a number for each class, such as no=0.5,yes=0.5; got {wrong}" in err


def test_parts_by_class_come_in_the_order_of_the_classes(capsys: pytest.CaptureFixture[str]) -> None:
    assert by_class("prevalence", "yes=0.05,no=0.95", ("no", "yes")) == [0.95, 0.05]
    assert capsys.readouterr().err == ""
    assert by_class("prevalence", "0.95,0.05", ("no", "yes")) == [0.95, 0.05]
    assert "prevalence, in the order in which the classes are declared: no 0.95, yes 0.05" in capsys.readouterr().err
    assert by_class("class_weights", "1=9,0=1", range(2)) == [1.0, 9.0]
    assert by_class("class_weights", "balanced", ("no", "yes")) == "balanced"


def test_columns_that_the_schema_does_not_name_are_passed_over_by_evaluate_as_by_predict(folder: Path) -> None:
    write(folder / "more.csv", [[*row, "7"] for row in rows()], "patient,age,sex,readmitted,extra")
    for words in (("predict", "model", "more.csv"), ("evaluate", "model", "more.csv", "--epsilon", "0.5")):
        code, _, err = called(folder, *words)
        assert code == 0, err
    write(folder / "less.csv", [row[1:3] for row in rows()], "age,gender")
    code, _, err = called(folder, "evaluate", "model", "less.csv", "--epsilon", "0.5")
    assert code == 2
    assert "no column 'sex'" in err


def test_an_option_that_is_forgotten_is_named_as_an_option(folder: Path) -> None:
    code, _, err = called(folder, *TUNE, "--person", "patient")
    assert code == 2
    assert "--rows-per-person must be given with the person 'patient'" in err
