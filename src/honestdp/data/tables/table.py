"""`Table`: what is publicly known of a table, and how its rows become inputs and labels of a model.

A table holds declared things alone, so it can be printed, saved and published with a model. It encodes each row by itself: the
features of a row depend on that row and on what was declared, never on another row, so that one row more or less changes one
record and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.data.tables.cells import Array, Cells
from honestdp.data.tables.columns import Categories, Column, Flag, Ignore, Number, Quantity, Range, plain
from honestdp.data.tables.reading import DIALECT, QUOTE, Dialect, named, other_delimiter

if TYPE_CHECKING:
    from honestdp.data.tables.source import TableRows

MISSING = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None")


@dataclass(frozen=True, eq=False)
class Table:
    """What is declared of a table: its columns, which of them is the target, and whose rows they are.

    columns: names to Range, Number, Categories, Flag, Date or Ignore; the target's is among them.
    target: the name of the column to predict: Categories or Flag for classification, Range or Number for regression.
    person: the name of a column that tells whose row it is, where a person may have several; it is no feature.
    rows_per_person: the most rows of a person that count, declared. Both or neither.
    records: N, the public number of records (of people, with person). Left out it is that of the data, as the statement says.
    missing: texts that stand for a missing value, besides empty ones, in columns of every kind and type: "-9" is the number -9
    too. A declared category is never taken for one.
    encoding, delimiter, quote, newlines: of CSV files, see `Dialect`.
    decimal: "." or ",", in numbers that are texts; with "," one that has a point is missing.
    spent: epsilon of what was learnt privately (`learn`), which every statement of a model on this table then includes.

    InvalidArgument where the declarations contradict each other.

    >>> import honestdp
    >>> from honestdp import Categories, Range
    >>> table = honestdp.Table(
    ...     columns={"age": Range(17, 90), "sex": Categories("Male", "Female"), "ill": Categories("no", "yes")}, target="ill"
    ... )
    >>> table.encode({"age": [17, 90, 200], "sex": ["Male", "Female", "unknown"]}).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    >>> table.task, table.classes, table.width
    ('classification', ('no', 'yes'), 3)
    """

    columns: Mapping[str, Column]
    target: str
    person: str | None = None
    rows_per_person: int | None = None
    records: int | None = field(default=None, kw_only=True)
    missing: tuple[str, ...] = field(default=MISSING, kw_only=True)
    encoding: str = field(default="utf-8", kw_only=True)
    delimiter: str = field(default=",", kw_only=True)
    quote: str = field(default=QUOTE, kw_only=True)
    newlines: bool = field(default=False, kw_only=True)
    decimal: str = field(default=".", kw_only=True)
    spent: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise InvalidArgument("columns", self.columns, "a dictionary of names to columns, such as Range(17, 90)")
        if not isinstance(self.missing, list | tuple) or not all(isinstance(text, str) for text in self.missing):
            raise InvalidArgument("missing", self.missing, "a list of texts")
        object.__setattr__(self, "columns", dict(self.columns))
        object.__setattr__(self, "missing", tuple(self.missing))
        checks.non_negative(spent=self.spent)
        checks.one_of((".", ","), decimal=self.decimal)
        assert self.dialect  # an impossible dialect is refused
        if self.records is not None:
            checks.whole(least=1, most=checks.MOST, records=self.records)
        _check_columns(self)
        _check_target(self)
        _check_person(self)
        if not self.width:
            raise InvalidArgument("columns", sorted(self.columns), f"with something to predict {self.target!r} from")

    # ---- Public facts

    @property
    def dialect(self) -> Dialect:
        """How its CSV files are written."""
        return Dialect(**{name: getattr(self, name) for name in DIALECT})

    @cached_property
    def cells(self) -> Cells:
        """How its cells are read."""
        return Cells(self.missing, self.decimal)

    @property
    def inputs(self) -> dict[str, Column]:
        """The columns that a model sees."""
        unseen = (self.target, self.person)
        return {
            name: each for name, each in self.columns.items() if name not in unseen and not isinstance(each, Ignore)
        }

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the encoded features, in their order."""
        return tuple(each for name, column in self.inputs.items() for each in column.names(name))

    @property
    def width(self) -> int:
        """How many features a row has once encoded."""
        return sum(column.width for column in self.inputs.values())

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The declared classes of the target; None for a quantity."""
        return self.columns[self.target].classes

    @property
    def task(self) -> str:
        """ "classification" or "regression"."""
        return "regression" if self.classes is None else "classification"

    @property
    def outputs(self) -> int:
        """Numbers that a model must give: one for each class, or one for a quantity."""
        return 1 if self.classes is None else len(self.classes)

    @property
    def to_learn(self) -> tuple[str, ...]:
        """Columns of which something is still to be learnt privately."""
        return tuple(name for name, column in self.inputs.items() if column.private)

    @property
    def digest(self) -> str:
        """Equal for equal tables alone. The order of the columns is that of a model's inputs, and counts."""
        return hashlib.sha256(json.dumps(self.as_dict()).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def describe(self) -> list[str]:
        """What is done to every row before a model sees it, a line a column: the preprocessing of statement and report."""
        lines = [f"{name}: {column.describe()}" for name, column in self.inputs.items()]
        target = self.columns[self.target]
        if self.classes is None:
            lines.append(f"target {self.target}: {target.describe().split(', missing')[0]}")
        else:
            lines.append(f"target {self.target}: {len(self.classes)} declared classes")
        if self.person is not None:
            lines.append(f"a row without {self.person} is left out")
        return [*lines, "a row whose target is missing or not declared is left out"]

    # ---- Rows

    def encode(self, rows: Any) -> Array:
        """float32 `[rows, width]`. rows: with all columns that a model sees; others are passed over. See `reading.WANTED`."""
        self._check_learnt()
        source = named(rows, self.orders)
        check_present(source.header, self.inputs)
        x = np.empty((source.length, self.width), np.float32)
        self.encode_batch(source.header, x)
        return x

    def encode_target(self, rows: Any) -> Array:
        """int64 `[rows]`, the number of the class, -1 for none of them; float32 for a quantity, scaled, NaN where missing."""
        header = named(rows, self.orders).header
        check_present(header, (self.target,))
        return self.columns[self.target].labels(header[self.target], self.cells)

    def encode_batch(self, batch: Mapping[str, Any], out: Array) -> None:
        """Write the features of some rows into `out`, each row by itself."""
        first = 0
        for name, column in self.inputs.items():
            column.encode(batch[name], out[:, first : first + column.width], self.cells)
            first += column.width

    def decode(self, outputs: Any) -> Array:
        """Labels, or numbers in the user's units, of what a model gave: `[rows, outputs]`, or numbers of classes `[rows]`."""
        if hasattr(outputs, "detach"):
            outputs = outputs.detach().cpu().numpy()
        outputs = np.asarray(outputs)
        if self.classes is None:
            column = self.columns[self.target]
            assert isinstance(column, Quantity)
            return column.unscaled(outputs.reshape(len(outputs)).astype(np.float64))
        numbers = outputs.argmax(1) if outputs.ndim == 2 else outputs
        if outputs.ndim > 2 or (outputs.ndim == 2 and outputs.shape[1] != self.outputs):
            raise InvalidArgument("outputs", f"an array of shape {outputs.shape}", f"[rows, {self.outputs}], or [rows]")
        kinds = {type(value) for value in self.classes}
        labels = np.array(self.classes, dtype=None if len(kinds) == 1 else object)
        decoded: Array = labels[numbers.astype(np.int64)]
        return decoded

    def data(self, source: Any, *, records: int | None = None) -> TableRows:
        """What `train` and `tune` take as data. No value is read before they have charged for it.

        source: rows in memory, or the path of a CSV or Parquet file. records: N, in place of the table's own.
        """
        from honestdp.data.tables.source import TableRows

        self._check_learnt()
        return TableRows(self, source, records=records)

    def learn(
        self,
        source: Any,
        *,
        epsilon: float,
        records: int | None = None,
        ledger: Any = None,
        dataset: str | None = None,
        note: str = "",
    ) -> Table:
        """The table with what it left to be learnt, by private quantiles and histograms: (epsilon, 0) private.

        source, records: see `data`. epsilon: for all columns together; it is in the epsilon of every statement of a model on the
        table that is returned. ledger, dataset, note: see `honestdp.tune`; the charge is made before a row is read. Keep what is
        returned (`as_dict`): to learn it again costs again.
        """
        from honestdp.data.tables.learning import learn

        return learn(self, source, epsilon=epsilon, records=records, ledger=ledger, dataset=dataset, note=note)

    def stand_in(self) -> Table:
        """The same widths with made-up bounds where they are still to be learnt, to plan with: never for records."""
        made_up = {name: self.columns[name].stand_in() for name in self.to_learn}
        return replace(self, columns={**self.columns, **made_up})

    @property
    def orders(self) -> list[list[str]]:
        """The orders of columns that a plain array may have: the model's inputs, all but the target, or all."""
        used = [name for name in self.columns if name not in (self.target, self.person)]
        return [list(self.inputs), used, list(self.columns)]

    def _check_learnt(self) -> None:
        if self.to_learn:
            wanted = "learnt first: table.learn(...) gives a table with bounds, out of the budget"
            raise InvalidArgument("columns", f"{', '.join(self.to_learn)}, to be learnt privately", wanted)

    # ---- Files

    def as_dict(self) -> dict[str, Any]:
        """For JSON and TOML: plain numbers and texts."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("columns", "target")}
        defaults = {each.name: each.default for each in fields(self)}
        changed = {name: plain(value) for name, value in given.items() if value != defaults[name]}
        columns = {name: column.as_dict() for name, column in self.columns.items()}
        return {"target": self.target, **changed, "columns": columns}

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Table:
        """The table that `as_dict` wrote, or that a schema declares."""
        from honestdp.data.tables.schema import table_of

        return table_of(written)


def check_present(header: Mapping[str, Any], wanted: Iterable[str]) -> None:
    """InvalidArgument where one of these columns is absent."""
    absent = [name for name in wanted if name not in header]
    if absent and (other := other_delimiter(map(str, header))):
        got = f"a header of one name, which has {other!r} in it"
        raise InvalidArgument("delimiter", got, "declared in the schema: the sign between the values of a row")
    if absent:
        have = f"there are {', '.join(sorted(map(str, header))) or 'none'}"
        raise InvalidArgument("rows", f"no column {absent[0]!r}", f"with every declared column; {have}")


def _check_columns(table: Table) -> None:
    """Columns with names, of known kinds, and in texts that a schema file can hold."""
    for name, column in table.columns.items():
        if not isinstance(name, str) or not (name or isinstance(column, Ignore)):
            wanted = "named by texts; one without a name, such as an index, is an Ignore()"
            raise InvalidArgument("columns", repr(name), wanted)
        if not isinstance(column, Column):
            wanted = "a Range, Number, Categories, Flag, Date or Ignore"
            raise InvalidArgument(f"columns[{name!r}]", column, wanted)
    values = [value for column in table.columns.values() for value in column.classes or ()]
    for text in (*table.columns, table.person, *table.missing, *values):
        try:
            str(text).encode()
        except UnicodeEncodeError:
            wanted = "one that can be written to a schema file: names and categories are printable texts"
            raise InvalidArgument("table", repr(text), wanted) from None


def _check_target(table: Table) -> None:
    """A target whose classes or bounds are declared, and nothing besides them."""
    if table.target not in table.columns:
        wanted = f"the name of a declared column: {', '.join(sorted(table.columns))}"
        raise InvalidArgument("target", table.target, wanted)
    column = table.columns[table.target]
    if not isinstance(column, Categories | Flag | Range | Number):
        wanted = "a column of Categories or Flag (classes), or of Range or Number (a quantity)"
        raise InvalidArgument("target", f"{table.target!r}, a column of kind {column.kind}", wanted)
    if column.private or column.learnt:
        wanted = "declared: the classes, or the bounds, of the target are public; they cannot be learnt"
        raise InvalidArgument(f"columns[{table.target!r}]", column.describe(), wanted)
    if isinstance(column, Categories) and column.other:
        wanted = "without other: a class that stands for anything cannot be predicted"
        raise InvalidArgument(f"columns[{table.target!r}]", column, wanted)
    for name, given in (("fill", column.fill is not None), ("indicator", column.indicator)):
        if given:
            wanted = "left out of the target: a row whose target is missing is left out, and not filled"
            raise InvalidArgument(f"columns[{table.target!r}].{name}", getattr(column, name), wanted)


def _check_person(table: Table) -> None:
    """A cap on the rows of a person, whose column is no feature."""
    if table.person is None and table.rows_per_person is None:
        return
    if table.rows_per_person is None:
        wanted = f"given with the person {table.person!r}: the most rows of one person that count, declared"
        raise InvalidArgument("rows_per_person", None, wanted)
    if not isinstance(table.person, str) or table.person == table.target:  # also where rows_per_person stands alone
        raise InvalidArgument("person", table.person, "the name of a column that tells whose row it is, not the target")
    checks.whole(least=1, most=10_000, rows_per_person=table.rows_per_person)
    if not isinstance(table.columns.get(table.person, Ignore()), Ignore):
        wanted = "not a feature too: declare it as Ignore(), or leave it out of columns"
        raise InvalidArgument(f"columns[{table.person!r}]", table.columns[table.person], wanted)
