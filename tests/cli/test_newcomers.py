"""What people do who meet the command line for the first time: files as other programs write them, and ledgers without room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import honestdp
from honestdp.data.tables import learning as of_tables
from honestdp.search import dry_run
from honestdp.search import tune as searching
from tests.cli.test_tables import SCHEMA, TUNE, called, rows, write

PRIVATE = SCHEMA.replace("low = 17\nhigh = 90", 'kind = "range"\nbounds = "private"')
CHARGED = (*TUNE, "--ledger", "ledger.db", "--out", "model")


def prepared(folder: Path, schema: str = SCHEMA, *, epsilon: float = 4.0) -> honestdp.Ledger:
    write(folder / "patients.csv", rows())
    (folder / "patients.toml").write_text(schema)
    ledger = honestdp.Ledger(folder / "ledger.db")
    ledger.set_budget("patients", honestdp.Budget(epsilon, 1e-4))
    return ledger


def test_a_ledger_with_room_for_bounds_or_the_search_but_not_both_is_charged_for_neither(tmp_path: Path) -> None:
    ledger = prepared(tmp_path, PRIVATE, epsilon=2.85)  # 0.3 to learn, 2.7 to search: each has room, both do not
    for words in (CHARGED, (*CHARGED, "--dry-run")):
        code, _, err = called(tmp_path, *words)
        assert (code, len(err.splitlines())) == (2, 1), err
        assert "refuses both" in err
    assert ledger.charges("patients") == ()
    assert not (tmp_path / "model.learnt.toml").exists()


@pytest.mark.slow
def test_a_schema_that_has_spent_before_goes_on_with_one_more_column_to_learn(tmp_path: Path) -> None:
    """As the schema of a model folder has it: its dry run has the noise of the search, and the same command reads the result."""
    ledger = prepared(tmp_path, "spent = 0.4\n" + PRIVATE, epsilon=9.0)
    code, ahead, err = called(tmp_path, *CHARGED, "--dry-run", "--json")
    assert code == 0, err
    code, said, err = called(tmp_path, *CHARGED, "--json")
    assert code == 0, err
    foreseen = json.loads(ahead)
    assert foreseen["runs"][0]["noise"] == json.loads(said)["run"]["noise"]
    assert foreseen["epsilon_of_bounds"] == pytest.approx(0.7)
    left = {path.name for path in (tmp_path / "model").iterdir() if not path.name.startswith(".")}
    assert {*foreseen["files"], *foreseen["files_of_the_model"]} == left
    assert called(tmp_path, *CHARGED, "--json")[:2] == (0, said)
    assert len(ledger.charges("patients")) == 2
    assert honestdp.load(tmp_path / "model").columns.spent == pytest.approx(0.7)


def test_of_two_searches_at_once_in_one_folder_one_learns_and_the_other_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, values = prepared(tmp_path, PRIVATE, epsilon=9.0), of_tables._values
    other = list[tuple[int, str, str]]()

    def meanwhile(*given: Any) -> Any:
        if not other:
            other.append((0, "", ""))
            other[0] = called(tmp_path, *CHARGED)
        return values(*given)

    monkeypatch.setattr(of_tables, "_values", meanwhile)
    assert called(tmp_path, *CHARGED, "--json")[0] == 0
    assert other[0][0] == 2
    assert "no other process works" in other[0][2]
    assert len(ledger.charges("patients")) == 2


def test_what_another_search_learnt_meanwhile_is_not_learnt_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other begins and ends between this one's look for what was learnt and its own learning."""
    ledger, look_ahead = prepared(tmp_path, PRIVATE, epsilon=9.0), dry_run.looked_ahead

    def meanwhile(*given: Any) -> Any:
        ahead = look_ahead(*given)
        with monkeypatch.context() as patched:
            patched.setattr(dry_run, "looked_ahead", look_ahead)
            assert called(tmp_path, *CHARGED, "--json")[0] == 0
        return ahead

    monkeypatch.setattr(dry_run, "looked_ahead", meanwhile)
    assert called(tmp_path, *CHARGED, "--json")[0] == 0
    assert len(ledger.charges("patients")) == 2


def test_the_same_file_and_target_spelled_otherwise_are_the_same_search(tmp_path: Path) -> None:
    prepared(tmp_path)
    said = called(tmp_path, *CHARGED, "--json")[1]
    (tmp_path / "copy.toml").write_text(SCHEMA)
    file, schema = CHARGED[1], CHARGED[3]
    for name, other in (
        (f"./{file}", schema),
        (str(tmp_path / file), str(tmp_path / schema)),
        (file, "copy.toml"),
    ):
        command = (CHARGED[0], name, CHARGED[2], other, *CHARGED[4:])
        for more in ((), ("--target", "readmitted")):
            assert called(tmp_path, *command, *more, "--json")[:2] == (0, said)


def test_what_differs_is_said_in_the_words_of_the_command_line(tmp_path: Path) -> None:
    prepared(tmp_path)
    assert called(tmp_path, *CHARGED, "--json")[0] == 0
    write(tmp_path / "others.csv", rows())
    code, _, err = called(tmp_path, CHARGED[0], "others.csv", *CHARGED[2:], "--dataset", "patients")
    assert code == 2
    assert "the command ('honestdp tune patients.csv" in err
    assert " there, 'honestdp tune others.csv" in err
    dearer = [*CHARGED]
    dearer[dearer.index("--epsilon") + 1] = "2"
    code, _, err = called(tmp_path, *dearer)
    assert (code, "budget (epsilon 3 there, 2 here)" in err) == (2, True), err
    (tmp_path / "patients.toml").write_text(SCHEMA.replace("high = 90", "high = 80"))
    code, _, err = called(tmp_path, *CHARGED)
    assert (code, "differs in data (what the schema declares)" in err) == (2, True), err


@pytest.mark.parametrize(("epsilon", "refused"), [(3.0, True), (9.0, False)])
def test_a_charge_that_is_dear_because_of_its_delta_names_the_ledgers(
    tmp_path: Path, epsilon: float, refused: bool
) -> None:
    prepared(tmp_path, epsilon=epsilon)  # at delta 1e-4, at which the search below would cost 3
    for words in (("--dry-run",), ()):
        code, said, err = called(tmp_path, *CHARGED, "--delta", "0.003", *words)
        assert (code == 2) == refused, err
        assert "--delta 0.0001" in (err if refused else said)
    code, said, err = called(tmp_path, *CHARGED[:-1], "other", "--delta", "0.0001")
    assert (code, "--delta" in err + said.replace("honestdp tune", "")) == (0, False), err


def test_help_says_which_name_a_file_has_in_the_ledger(tmp_path: Path) -> None:
    """Up to its first point: files of several years are one dataset, unless somebody says otherwise."""
    prepared(tmp_path)
    (tmp_path / "patients.csv").rename(tmp_path / "visits.2025.csv")
    code, _, err = called(tmp_path, CHARGED[0], "visits.2025.csv", *CHARGED[2:])
    assert code == 2
    assert "error: visits has no budget in ledger.db" in err
    for command in ("tune", "evaluate"):
        said = " ".join(called(tmp_path, command, "--help")[1].replace("│", " ").split())
        assert "name up to its first point" in said


def test_learnt_bounds_that_were_lost_are_not_paid_for_again_by_the_same_command(tmp_path: Path) -> None:
    ledger = prepared(tmp_path, PRIVATE, epsilon=9.0)
    assert called(tmp_path, *CHARGED, "--json")[0] == 0
    (tmp_path / "model.learnt.toml").unlink()
    code, _, err = called(tmp_path, *CHARGED)
    assert (code, len(ledger.charges("patients"))) == (2, 2), err


@pytest.mark.parametrize(
    ("place", "words"),
    [("before", "nothing was charged"), ("within", "charged again"), ("after", "charged and kept")],
)
def test_a_stop_says_whether_bounds_were_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, words: str
) -> None:
    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    ledger = prepared(tmp_path, PRIVATE)
    with monkeypatch.context() as patched:
        patched.setattr(*{"before": (of_tables, "_charge", stop), "within": (of_tables, "_values", stop),
                          "after": (searching, "carried_out", stop)}[place])  # fmt: skip
        code, _, err = called(tmp_path, *CHARGED)
    assert (code, words in err) == (130, True), err
    assert len(ledger.charges("patients")) == (place != "before")
    if place == "after":
        assert called(tmp_path, *CHARGED, "--json")[0] == 0
        assert len(ledger.charges("patients")) == 2


def test_an_epsilon_for_bounds_is_refused_where_none_are_learnt(tmp_path: Path) -> None:
    prepared(tmp_path)
    code, _, err = called(tmp_path, *CHARGED, "--bounds-epsilon", "0.1")
    assert (code, "--bounds-epsilon" in err) == (2, True)


def test_a_plan_sets_apart_what_the_search_will_spend_on_bounds(tmp_path: Path) -> None:
    prepared(tmp_path, PRIVATE)
    words = ("plan", "patients.csv", "--schema", "patients.toml", "--epsilon", "3", "--lot", "100", "--steps", "5")
    said = json.loads(called(tmp_path, *words, "--json")[1])
    ahead = json.loads(called(tmp_path, *TUNE, "--out", "model", "--dry-run", "--json")[1])
    assert said["epsilon_of_bounds"] == pytest.approx(0.3)
    assert said["recommended"]["noise"] == pytest.approx(ahead["runs"][0]["noise"])
    assert said["statement"]["epsilon"] == pytest.approx(ahead["epsilon"])
    assert "--epsilon 3 " in said["command"]


def test_a_file_with_semicolons_decimal_commas_and_an_index_is_read_as_it_is_meant(tmp_path: Path) -> None:
    ledger = prepared(tmp_path)
    lines = [f"{i};{row[0]};{row[1]},5;{row[2]};{row[3]}" for i, row in enumerate(rows())]
    (tmp_path / "patients.csv").write_text("\n".join([";patient;age;sex;readmitted", *lines]) + "\n")
    code, _, err = called(tmp_path, *CHARGED)
    assert (code, "';'" in err, ledger.charges("patients")) == (2, True, ()), err
    assert called(tmp_path, "schema", "patients.csv", "--force")[0] == 0
    text = (tmp_path / "patients.toml").read_text()
    assert 'delimiter = ";"' in text
    assert '# decimal = ","' in text
    assert '[columns.""]\nkind = "ignore"' in text
    declared = 'delimiter = ";"\ndecimal = ","\n' + SCHEMA + '[columns.""]\nkind = "ignore"\n'
    (tmp_path / "patients.toml").write_text(declared)
    code, _, err = called(tmp_path, *CHARGED, "--json")
    assert code == 0, err
    write(tmp_path / "commas.csv", rows())
    code, _, err = called(tmp_path, "predict", "model", "commas.csv")
    assert (code, "','" in err) == (2, True), err


def test_a_decimal_comma_is_a_number_where_it_is_declared_and_missing_where_not() -> None:
    columns = {"a": honestdp.Range(0, 10), "c": honestdp.Categories("1,5", "2"), "y": honestdp.Range(0, 10)}
    given = {"a": ["2,5", "5", "1.000,5", "x"], "c": ["1,5", "2", "2", "2"], "y": ["2,5", "1", "1", "1"]}
    table = honestdp.Table(columns, target="y", decimal=",")
    assert table.encode(given).tolist() == [[0.25, 1, 0], [0.5, 0, 1], [0.5, 0, 1], [0.5, 0, 1]]
    assert table.encode_target(given)[0] == 0.25
    assert honestdp.Table(columns, target="y").encode(given)[0, 0] == 0.5
    assert honestdp.Table.from_dict(table.as_dict()) == table
    with pytest.raises(honestdp.errors.InvalidArgument, match="decimal"):
        honestdp.Table(columns, target="y", decimal=";")


def test_a_kind_that_a_type_of_parquet_rules_out_is_refused(tmp_path: Path) -> None:
    ledger = prepared(tmp_path)
    columns = dict(zip(("patient", "age", "sex", "readmitted"), map(list, zip(*rows(), strict=True)), strict=True))
    days = pa.array([int(age) for age in columns["age"]], pa.int32()).cast(pa.date32())
    pyarrow.parquet.write_table(pa.table(columns | {"age": days}), tmp_path / "patients.parquet")
    words = ["patients.parquet" if word == "patients.csv" else word for word in CHARGED]
    code, _, err = called(tmp_path, *words)
    assert (code, "'age'" in err, "date32" in err, ledger.charges("patients")) == (2, True, True, ()), err


def test_a_file_has_one_name_in_the_ledger_whichever_command_charges(tmp_path: Path) -> None:
    prepared(tmp_path)
    assert called(tmp_path, *TUNE, "--out", "model")[0] == 0
    (tmp_path / "patients.csv").rename(tmp_path / "patients.2024.csv")
    words = ("evaluate", "model", "patients.2024.csv", "--epsilon", "0.1", "--ledger", "ledger.db", "--json")
    code, said, err = called(tmp_path, *words)
    assert code == 0, err
    assert json.loads(said)["ledger"]["dataset"] == "patients"
