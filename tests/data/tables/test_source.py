"""Rows of a file: streamed into one array, read after the charge, and bad files refused without a value of theirs."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import honestdp
from honestdp import Budget, Categories, Compute, Ledger, Range, Run, Table
from honestdp.boundary.data import PrivateData, coins, in_two
from honestdp.data.tables import reading, source
from honestdp.data.tables.reading import TableFile
from honestdp.errors import BudgetExceeded, InvalidArgument
from tests.data.tables.patients import TABLE, rows, write_csv

SMALL = Table({"age": Range(17, 90), "sex": Categories("m", "f"), "ill": Categories("no", "yes")}, "ill")
QUIET = Compute(progress=False)


def small(count: int = 60) -> dict[str, list[Any]]:
    age = np.random.default_rng(0).integers(17, 90, count)
    return {"age": list(age), "sex": ["m", "f"] * (count // 2), "ill": list(np.where(age > 50, "yes", "no"))}


def test_a_file_gives_what_its_rows_give_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches far smaller than the file, with values that are no values, compressed or not."""
    monkeypatch.setattr(reading, "_BLOCK", 2048)
    monkeypatch.setattr(reading, "BATCH", 16)
    columns = rows(200)
    plain = write_csv(tmp_path / "a.csv", columns)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    pa.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    x, y = TABLE.data(columns).read()
    assert np.array_equal(x, TABLE.encode(columns))
    for name in ("a.csv", "a.csv.gz", "a.parquet"):
        read = TABLE.data(tmp_path / name)
        assert len(read) == 200
        assert np.array_equal(read.read()[0], x), name
        assert np.array_equal(read.read()[1], y), name


def test_types_are_declared_and_never_guessed_from_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes that look like numbers stay codes, and a text far below makes no text of the numbers above it."""
    monkeypatch.setattr(reading, "_BLOCK", 64)
    table = Table({"ward": Categories("01", "02"), "a": Range(0, 2), "ill": Categories("no", "yes")}, "ill")
    path = tmp_path / "a.csv"
    path.write_text("ward,a,ill\n" + "01,2,yes\n" * 50 + "02,x,no\n")
    x = table.data(path).read()[0]
    assert x[0].tolist() == [1, 0, 1]
    assert x[-1].tolist() == [0, 1, 0.5]


def test_quotes_new_lines_that_are_declared_and_byte_order_marks_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfage,"sex",ill\n"30","m",yes\n40,"f\n",no\n')
    data = replace(SMALL, newlines=True).data(path)
    assert len(data) == 2
    assert data.read()[0][:, 1:].tolist() == [[1, 0], [0, 1]]


def test_a_declared_encoding_and_delimiter_are_used(tmp_path: Path) -> None:
    table = Table({"größe": Range(0, 1), "t": Categories("é", "n")}, "t", encoding="latin-1", delimiter=";")
    path = tmp_path / "a.csv"
    path.write_bytes("größe;t\n1;é\n0;n\n".encode("latin-1"))
    assert table.data(path).read()[1].tolist() == [0, 1]


def spoilt(change: Callable[[bytes], bytes], *, parquet: bool = False) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = write_csv(folder / "a.csv", small())
        if parquet:
            pa.parquet.write_table(pa.table(small()), path)
        path.write_bytes(change(path.read_bytes()))
        return path

    return make


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "cut in the middle of a row": (spoilt(lambda b: b[: b.rindex(b",")]), "cut"),
    "a Parquet file cut in the middle": (spoilt(lambda b: b[: len(b) // 2], parquet=True), "cut"),
    "a row with more values": (spoilt(lambda b: b + b"31,m,yes,secret\n"), "more or fewer values"),
    "another encoding": (spoilt(lambda b: b + "31,größe,yes\n".encode("latin-1")), "encoding utf-8, which it is not"),
    "a header in another encoding": (spoilt(lambda b: "größe,".encode("latin-1") + b), "encoding utf-8"),
    "no rows": (spoilt(lambda b: b[: b.index(b"\n") + 1]), "at least one row"),
    "nothing at all": (spoilt(lambda b: b""), "empty"),
    "no file": (lambda folder: folder / "none.csv", "exists"),
    "a folder": (lambda folder: folder, "can be read"),
    "a row with more values, by its line": (spoilt(lambda b: b.replace(b",m,", b",m,x,", 1)), r"line \d+ has 4 values"),
    "a row with fewer values, by its line": (spoilt(lambda b: b + b"20\n21,m,yes\n"), r"line 62 has 1 values.* more or fewer"),
    "a quote that is not closed, by its line": (spoilt(lambda b: b + b'22,"m,yes\n23,m,no\n'), r"from line 62 on, or a quote is"),
    "a workbook": (spoilt(lambda b: b"PK\x03\x04" + b), "an Excel workbook or another zip archive: save its sheet as CSV"),
    "an old workbook": (spoilt(lambda b: b"\xd0\xcf\x11\xe0" + b), "an Excel workbook: save"),
    "a name spelled otherwise": (spoilt(lambda b: b.replace(b"sex", b"sexes")), "'sex' is declared and not there: is it"),
    "a picture": (spoilt(lambda b: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), "must be"),
    "a column that the schema does not know": (spoilt(lambda b: b.replace(b"sex", b"sex,iq")), "'iq'"),
    "no target": (spoilt(lambda b: b.replace(b"ill", b"well")), "'well'"),
    "one name twice": (spoilt(lambda b: b.replace(b"sex", b"age")), "twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_words_before_the_charge_and_without_a_value_of_it(name: str, tmp_path: Path) -> None:
    make, words = BAD[name]
    path, ledger = make(tmp_path), Ledger(tmp_path / "ledger.db")
    ledger.set_budget("h", Budget(3.0, 1e-5))
    with pytest.raises(InvalidArgument, match=words) as caught:
        honestdp.tune(
            lambda: torch.nn.Linear(3, 2), SMALL.data(path), budget=Budget(1.0, 1e-5), ledger=ledger, dataset="h",
            out=tmp_path / "out", compute=QUIET,
        )  # fmt: skip
    said = str(caught.value).replace(str(tmp_path), "")  # the folder's own number is nobody's value
    assert "secret" not in said
    assert "31" not in said
    assert ledger.balance("h").spent == 0


@pytest.mark.slow
def test_no_row_is_read_before_the_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger with too little left keeps the file of a declared N closed: it is not even scanned for what is wrong with it."""
    reads: list[str] = []
    whole = TableFile._texts
    monkeypatch.setattr(TableFile, "_texts", lambda *how: reads.append("rows") or whole(*how))
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("h", Budget(0.5, 1e-3))
    data = SMALL.data(write_csv(tmp_path / "a.csv", small()), records=60)
    how: dict[str, Any] = {"ledger": ledger, "dataset": "h", "compute": QUIET}
    model = torch.nn.Linear(3, 2)
    with pytest.raises(BudgetExceeded):
        honestdp.tune(model, data, budget=Budget(1.0, 1e-3), lot=10, steps=2, out=tmp_path / "s", **how)
    run = Run(records=60, lot=10, steps=1, noise=0.5)
    with pytest.raises(BudgetExceeded):
        honestdp.train(model, data, run=run, optimizer="horizon", **how)
    assert reads == []
    honestdp.train(model, data, run=Run(records=60, lot=10, steps=1, noise=20.0), optimizer="horizon", **how)
    assert reads == ["rows", "rows"]  # scanned before the charge, and read after it


STRAY = {"cut": lambda b: b[: b.rindex(b",")], "next line": lambda b: b.replace(b",m,", b',"m,', 1) + b'31,f",no\n'}


@pytest.mark.parametrize("words", STRAY)
def test_a_file_that_cannot_be_read_costs_nothing_with_a_declared_n_either(words: str, tmp_path: Path) -> None:
    path, ledger = write_csv(tmp_path / "a.csv", small()), Ledger(tmp_path / "ledger.db")
    whole = path.read_bytes()
    path.write_bytes(STRAY[words](whole))
    ledger.set_budget("h", Budget(3.0, 1e-3))
    books: dict[str, Any] = {"ledger": ledger, "dataset": "h", "compute": QUIET}
    how: dict[str, Any] = {"budget": Budget(1.0, 1e-3), "lot": 10, "steps": 2, "out": tmp_path / "s", **books}
    with pytest.raises(InvalidArgument, match=words):
        honestdp.tune(torch.nn.Linear(3, 2), SMALL.data(path, records=60), **how)
    run = Run(records=60, lot=10, steps=1, noise=20.0)
    with pytest.raises(InvalidArgument, match=words):
        honestdp.train(torch.nn.Linear(3, 2), SMALL.data(path, records=60), run=run, **books)
    private = Table({**SMALL.columns, "age": Range(bounds="private")}, "ill")
    with pytest.raises(InvalidArgument, match=words):
        private.learn(path, epsilon=0.1, records=60, ledger=ledger, dataset="h")
    assert ledger.charges("h") == ()
    assert not (tmp_path / "s").exists()
    path.write_bytes(whole)
    honestdp.tune(torch.nn.Linear(3, 2), SMALL.data(path, records=60), **how)
    assert len(ledger.charges("h")) == 1


def test_a_search_that_was_charged_goes_on_under_its_charge_when_its_file_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that breaks between the scan and the reading."""
    path, ledger = write_csv(tmp_path / "a.csv", small()), Ledger(tmp_path / "ledger.db")
    whole = path.read_bytes()
    ledger.set_budget("h", Budget(3.0, 1e-3))
    how: dict[str, Any] = {"budget": Budget(1.0, 1e-3), "lot": 10, "steps": 2, "out": tmp_path / "s", "compute": QUIET}
    how |= {"ledger": ledger, "dataset": "h"}
    with monkeypatch.context() as patch:
        read = source.TableRows.read
        patch.setattr(source.TableRows, "read", lambda rows: path.write_bytes(STRAY["cut"](whole)) and read(rows))
        with pytest.raises(InvalidArgument, match="cut") as caught:
            honestdp.tune(torch.nn.Linear(3, 2), SMALL.data(path, records=60), **how)
        assert "line" not in str(caught.value)  # after a charge no row is pointed at
    assert len(ledger.charges("h")) == 1
    path.write_bytes(whole)
    honestdp.tune(torch.nn.Linear(3, 2), SMALL.data(path, records=60), **how)
    assert len(ledger.charges("h")) == 1


def test_how_many_rows_a_file_has_changes_nothing_that_is_said(tmp_path: Path) -> None:
    """N is declared: lots, noise and statement follow from it, with fewer rows, more, or none."""
    said: dict[str, set[str]] = {"train": set(), "tune": set()}
    for count in (60, 40, 80, 0):
        data = SMALL.data(write_csv(tmp_path / f"{count}.csv", small(count)), records=60)
        how: dict[str, Any] = {"run": Run(records=60, lot=10, steps=2, noise=9.0), "delta": 1e-3, "compute": QUIET}
        said["train"].add(str(honestdp.train(torch.nn.Linear(3, 2), data, optimizer="horizon", **how).statement))
        if count in (60, 0):
            searched = honestdp.tune(
                torch.nn.Linear(3, 2), data, budget=Budget(1.0, 1e-3), lot=10, steps=2, compute=QUIET
            )
            said["tune"].add(f"{searched.statement} {searched.run}".split("note")[0])
    assert [len(each) for each in said.values()] == [1, 1]
    assert "the number of records, 60, is public; it was declared" in said["tune"].pop()


def test_a_table_of_one_row_is_a_table(tmp_path: Path) -> None:
    data = SMALL.data({"age": [30], "sex": ["m"], "ill": ["yes"]})
    result = honestdp.train(
        torch.nn.Linear(3, 2), data, run=Run(records=1, lot=1, steps=2, noise=5.0), optimizer="horizon", delta=0.1,
        compute=QUIET,
    )  # fmt: skip
    assert "taken" not in result.statement.how
    with pytest.raises(InvalidArgument):
        honestdp.tune(lambda: torch.nn.Linear(3, 2), data, budget=Budget(1.0, 0.1), lot=2, steps=2, compute=QUIET)


def test_a_target_that_happens_to_be_constant_is_not_told(tmp_path: Path) -> None:
    """Two classes are declared; that the rows have one is theirs."""
    columns = small() | {"ill": ["no"] * 60}
    result = honestdp.tune(
        lambda: torch.nn.Linear(3, 2), SMALL.data(columns), budget=Budget(1.0, 1e-3), lot=10, steps=2, compute=QUIET
    )
    assert result.statement.preprocessing is not None
    assert "2 declared classes" in result.statement.preprocessing


def test_the_statement_says_what_the_table_does_and_the_users_words_before_it() -> None:
    run, model = Run(records=60, lot=10, steps=1, noise=5.0), torch.nn.Linear(3, 2)
    result = honestdp.train(model, SMALL.data(small()), run=run, optimizer="horizon", delta=1e-3, compute=QUIET)
    said = result.statement.preprocessing
    assert said == "; ".join(SMALL.describe())
    own = {"preprocessing": "exported by the ward", "compute": QUIET}
    result = honestdp.train(model, SMALL.data(small()), run=run, optimizer="horizon", delta=1e-3, **own)
    assert result.statement.preprocessing == f"exported by the ward; {said}"


def test_another_schema_is_another_search(tmp_path: Path) -> None:
    how: dict[str, Any] = {"budget": Budget(1.0, 1e-3), "lot": 10, "steps": 2, "out": tmp_path / "s", "compute": QUIET}
    honestdp.tune(torch.nn.Linear(3, 2), SMALL.data(small()), **how)
    other = Table({**SMALL.columns, "age": Range(0, 90)}, "ill")
    with pytest.raises(InvalidArgument, match="it differs in"):
        honestdp.tune(torch.nn.Linear(3, 2), other.data(small()), **how)


def test_a_second_search_on_one_file_is_said(tmp_path: Path) -> None:
    path, run = write_csv(tmp_path / "a.csv", small()), Run(records=60, lot=10, steps=1, noise=5.0)
    how: dict[str, Any] = {"run": run, "optimizer": "horizon", "delta": 1e-3, "compute": QUIET}
    honestdp.train(torch.nn.Linear(3, 2), SMALL.data(path), **how)
    again = honestdp.train(torch.nn.Linear(3, 2), SMALL.data(str(path)), **how)
    assert any("second training or search on these data" in note for note in again.statement.notes)


def test_rows_that_were_read_are_split_in_place_as_others_are_by_copies() -> None:
    generator = np.random.default_rng(3)
    x, y = generator.normal(size=(200_000, 2)).astype(np.float32), generator.integers(0, 9, 200_000)
    side = coins(len(y), fraction=0.3, seed=1)
    wanted = [(x[~side], y[~side]), (x[side], y[side])]
    for (a, b), (c, d) in zip(in_two(x.copy(), y.copy(), side), wanted, strict=True):
        assert np.array_equal(a, c)
        assert np.array_equal(b, d)
    own = PrivateData(SMALL.data(small())).read()
    base = own._pair[0]
    parts = own.split(coins(60, fraction=0.3, seed=1))
    assert all(np.shares_memory(part._pair[0], base) for part in parts)


# ---- What is declared, against the model and against the types of columns, before the charge

THREE = Table({"age": Range(17, 90), "ill": Categories("no", "mild", "severe")}, "ill", records=60)
SEVERE = {"age": [20, 50, 80] * 20, "ill": ["no", "mild", "severe"] * 20}


@pytest.fixture
def books(tmp_path: Path) -> dict[str, Any]:
    Ledger(tmp_path / "l.db").set_budget("d", Budget(9.0, 1e-3))
    return {"ledger": tmp_path / "l.db", "dataset": "d"}


@pytest.mark.parametrize("outputs", [2, 5])
def test_a_model_of_another_number_of_outputs_than_there_are_classes_costs_nothing(
    outputs: int, books: dict[str, Any]
) -> None:
    model, data = torch.nn.Linear(THREE.width, outputs), THREE.data(SEVERE)
    run = Run(records=60, lot=20, steps=2, noise=2.0)
    with pytest.raises(InvalidArgument, match="outputs must be 3, one for each declared class"):
        honestdp.train(model, data, run=run, delta=1e-3, **books)
    with pytest.raises(InvalidArgument, match="outputs must be 3, one for each declared class"):
        honestdp.tune(model, data, budget=Budget(1.0, 1e-3), lot=20, steps=2, compute=QUIET, **books)
    with pytest.raises(InvalidArgument, match="outputs must be 3"):  # nobody pays, and it is refused in the same words
        honestdp.train(model, data, run=run, delta=1e-3)
    assert Ledger(books["ledger"]).charges("d") == ()


def test_a_loss_of_ones_own_must_take_every_declared_class(books: dict[str, Any]) -> None:
    run, loss = Run(records=60, lot=20, steps=2, noise=2.0), torch.nn.CrossEntropyLoss(reduction="none")
    with pytest.raises(InvalidArgument, match="labels 0 to 2 of the 3 declared classes"):
        honestdp.train(torch.nn.Linear(THREE.width, 2), THREE.data(SEVERE), run=run, delta=1e-3, loss=loss, **books)
    assert Ledger(books["ledger"]).charges("d") == ()
    honestdp.train(torch.nn.Linear(THREE.width, 3), THREE.data(SEVERE), run=run, delta=1e-3, loss=loss, **books)


@pytest.mark.parametrize("labels", [np.arange(60) % 3, np.arange(60) % 3 / 1.0, pa.array([True, False] * 30)])
def test_a_target_of_numbers_for_declared_texts_is_refused_by_its_type(labels: Any) -> None:
    with pytest.raises(InvalidArgument, match="'ill' must be texts, as its declared categories are"):
        THREE.data(SEVERE | {"ill": labels})


def test_a_file_says_its_types_too(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table(SEVERE | {"ill": list(range(60))}), tmp_path / "a.parquet")
    with pytest.raises(InvalidArgument, match="'ill' must be texts"):
        THREE.data(tmp_path / "a.parquet")


def test_numbers_that_are_declared_and_texts_that_are_all_missing_are_taken() -> None:
    numbers = Table({"age": Range(17, 90), "sex": Categories("m", "f"), "ill": Categories("0", "1")}, "ill")
    numbers.data({"age": [20, 30], "sex": np.array([np.nan, np.nan]), "ill": np.array([0, 1])})
    with pytest.raises(InvalidArgument, match="'sex' must be texts"):
        numbers.data({"age": [20, 30], "sex": np.array([1, 2]), "ill": np.array([0, 1])})
