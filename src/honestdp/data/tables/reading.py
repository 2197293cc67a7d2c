"""Rows of a table wherever they are, in memory or in a CSV or Parquet file: their header, their number, and batches of columns.

Values of a CSV are read as texts, and each is understood by what was declared of its column (`cells`): a type that is guessed
from the first rows of a file would make a row's features depend on other rows. Errors name a file's fault without a value of it.

Every row of a CSV is a line, and so a record is a line. `Dialect` declares how the file is written, which decides whose row a
line belongs to: in a file that is read with quotes, one stray quote would make the rows below it a part of its cell, so that one
record would take others away, and no noise is made for that. So a cell ends with its line, and a file in which one does not is
refused, unless `newlines` says that its writer closes every quote. No row is handed out before the whole file was scanned for it,
in one reading, by one parser.

Names of columns go into templates, schemas, statements and errors, so nothing of a row may be taken for one. The first line alone
is parsed. A quote that it does not close, which would pull rows in, is refused, and so are names that read like a row's numbers
or dates. A first row of words alone cannot be told from names.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from honestdp.checks import InvalidArgument

QUOTE = '"'
BATCH = 65536
_BLOCK = 1 << 23
_MOST_HEADER, _LONGEST = 1 << 22, 10_000
"""Letters of a header, and of a name in it, at the most."""
WANTED = (
    "rows with named columns: a pandas DataFrame, a pyarrow Table, a dictionary of columns, a list of dictionaries, a numpy "
    "structured array, or a 2-d array with the columns in the order in which they are declared"
)
_SPANS = (
    "a CSV in which every row is a line; in this one a quoted value goes on in the next line{}, so that one stray quote could "
    'take the rows of others away. Mend the file; or declare quote = "" if it is written without quotes, or newlines = true '
    "if its values hold line breaks and its writer closes every quote"
)
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})([ T].*)?")
_OFFICE = {b"PK\x03\x04": "an Excel workbook or another zip archive", b"\xd0\xcf\x11\xe0": "an Excel workbook"}


# ---- In memory


@dataclass(frozen=True)
class Named:
    """Columns by name in memory, all of one length."""

    header: Mapping[str, Any]
    length: int

    def count(self) -> int:
        return self.length

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """These columns, so many rows at a time."""
        for first in range(0, self.length, BATCH):
            yield {name: self.header[name][first : first + BATCH] for name in names}


def named(rows: Any, orders: Sequence[Sequence[str]]) -> Named:
    """The columns of rows in memory. orders: those that a plain 2-d array may have, one of each width."""
    if type(rows).__module__.startswith("scipy.sparse") or hasattr(rows, "sparse"):
        wanted = "dense: a table encodes every value, also those that are 0; pass rows.toarray(), or train on the matrix itself"
        raise InvalidArgument("rows", f"a sparse matrix ({type(rows).__name__})", wanted)
    if isinstance(rows, Named):
        return rows
    if isinstance(rows, pa.RecordBatch | pa.Table):
        return _checked({name: rows.column(name) for name in _once(rows.schema.names)})
    if isinstance(rows, np.ndarray):
        return _of_array(rows, orders)
    if isinstance(rows, Mapping):
        return _checked({str(name): _column(values) for name, values in rows.items()})
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes) and all(isinstance(r, Mapping) for r in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        return _checked({str(name): [row.get(name) for row in rows] for name in names}, len(rows))
    if type(rows).__module__.split(".")[0] == "pandas" and hasattr(rows, "columns"):
        return _checked({name: rows[name].array for name in _once([str(c) for c in rows.columns])}, len(rows))
    if hasattr(rows, "__arrow_c_stream__"):
        return named(pa.table(rows), orders)
    raise InvalidArgument("rows", type(rows).__name__, WANTED)


def _of_array(rows: np.ndarray[Any, Any], orders: Sequence[Sequence[str]]) -> Named:
    if rows.dtype.names is not None:
        return _checked({name: rows[name] for name in rows.dtype.names})
    fits = [order for order in orders if rows.ndim == 2 and len(order) == rows.shape[1]]
    if not fits:
        widths = " or ".join(str(len(order)) for order in orders)
        wanted = f"2-d, with {widths} columns in their declared order"
        raise InvalidArgument("rows", f"an array of shape {rows.shape}", wanted)
    return _checked({name: rows[:, place] for place, name in enumerate(fits[0])}, len(rows))


def _column(values: Any) -> Any:
    """A column that can be cut into batches."""
    if hasattr(values, "numpy") and hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return values if isinstance(values, np.ndarray | list | tuple | pa.Array | pa.ChunkedArray) else np.asarray(values)


def _checked(columns: dict[str, Any], length: int | None = None) -> Named:
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.ndim != 1:
            raise InvalidArgument(f"rows[{name!r}]", f"an array of shape {values.shape}", "one value a row")
    lengths = sorted({len(values) for values in columns.values()})
    if len(lengths) > 1:
        raise InvalidArgument("rows", f"columns of {lengths} values", "columns of one length")
    return Named(columns, length if length is not None else sum(lengths))


def _once(names: Sequence[str]) -> list[str]:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidArgument("rows", f"two columns named {twice[0]!r}", "columns with different names")
    return list(names)


# ---- How a CSV is written


@dataclass(frozen=True)
class Dialect:
    """How a CSV is written.

    delimiter: between values. quote: around them, doubled inside of them; "" in a file that knows none, in which it is a letter
    like others. newlines: whether a value in quotes may hold line breaks. InvalidArgument for what no file can have.
    """

    encoding: str = "utf-8"
    delimiter: str = ","
    quote: str = QUOTE
    newlines: bool = False

    def __post_init__(self) -> None:
        try:
            known = isinstance(self.encoding, str) and "a".encode(self.encoding) is not None
        except (LookupError, ValueError):
            known = False
        if not known:
            wanted = 'the name of an encoding of texts that Python knows, such as "utf-8" or "latin-1"'
            raise InvalidArgument("encoding", self.encoding, wanted)
        if not _one_letter(self.delimiter):
            raise InvalidArgument("delimiter", self.delimiter, 'one character of ASCII, such as ";"')
        if self.quote != "" and (not _one_letter(self.quote) or self.quote == self.delimiter):
            wanted = 'one character of ASCII that is not the delimiter, or "" for a file without quotes'
            raise InvalidArgument("quote", self.quote, wanted)
        if not isinstance(self.newlines, bool):
            raise InvalidArgument("newlines", self.newlines, "true or false")
        if self.newlines and not self.quote:
            wanted = 'left out where quote is "": without quotes every line break ends a row'
            raise InvalidArgument("newlines", self.newlines, wanted)

    @property
    def codec(self) -> str:
        """For Python, without the mark that some programs put first."""
        return "utf-8-sig" if self.encoding.lower() in ("utf-8", "utf8") else self.encoding

    @property
    def spans(self) -> bool:
        """Whether a cell may go on in the next line against the declaration."""
        return bool(self.quote) and not self.newlines

    @property
    def format(self) -> dict[str, Any]:
        """Arguments of Python's `csv.reader`."""
        quotes = {"quotechar": self.quote} if self.quote else {"quoting": csv.QUOTE_NONE}
        return {"delimiter": self.delimiter, **quotes}


DIALECT = tuple(each.name for each in fields(Dialect))


def other_delimiter(header: Iterable[str]) -> str | None:
    """What seems to be between the names of a header that was taken for a single name; None where nothing does."""
    names = list(header)
    return next((each for each in ";\t|," if len(names) == 1 and each in names[0]), None)


def _one_letter(text: object) -> bool:
    return isinstance(text, str) and len(text) == 1 and text.isascii() and text not in "\r\n\0"


def _like_a_value(name: str) -> bool:
    """Whether it reads like a number, with a point or a comma, or like a date."""
    try:
        float(name.replace(",", "."))
    except ValueError:
        return _DATE.fullmatch(name) is not None
    return True


# ---- Files


@dataclass(frozen=True)
class TableFile:
    """A CSV or Parquet file, told apart by its first bytes. dialect: how a CSV is written."""

    path: Path
    dialect: Dialect = field(default_factory=Dialect)
    _scanned: dict[tuple[int, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_parquet(self) -> bool:
        with self._named_errors(), self.path.open("rb") as file:
            first = file.read(4)
        if first in _OFFICE:
            raise self._trouble(f"a CSV or Parquet file; this one is {_OFFICE[first]}: save its sheet as CSV")
        return first == b"PAR1"

    @property
    def header(self) -> dict[str, str | None]:
        """Names of the columns, and their types where the file declares them, which a CSV does not. No row is read."""
        types: list[str | None]
        if self.is_parquet:
            with self._named_errors():
                schema = pyarrow.parquet.read_schema(self.path)
            names, types = schema.names, [str(field.type) for field in schema]
        else:
            names = self._names()
            types = [None] * len(names)
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise self._trouble(f"with different names in its header; {twice[0]!r} is there twice")
        return dict(zip(names, types, strict=True))

    def _names(self) -> list[str]:
        """The names in the first line of a CSV. Rows below it are never parsed, and one that cannot be decoded is no error."""
        with self._named_errors(), pa.input_stream(str(self.path), compression="detect") as stream:
            line = io.TextIOWrapper(stream, encoding=self.dialect.codec, errors="replace").readline(_MOST_HEADER)
        if "\ufffd" in line:
            raise self._trouble(self._undecodable)
        if "\0" in line:
            raise self._trouble("a CSV or Parquet file; this is neither")
        if len(line) == _MOST_HEADER:
            wanted = (
                f"a file whose first line names its columns; this one has a line of more than {_MOST_HEADER} letters"
            )
            raise self._trouble(wanted)
        try:
            names = next(csv.reader([line.removesuffix("\n")], strict=True, **self.dialect.format), [])
        except csv.Error:
            names = None
        if names is None or any(len(name) > _LONGEST for name in names):
            raise self._trouble(
                f"a file whose first line closes every quote that it opens, and has no name of more than {_LONGEST} letters; "
                'declare quote = "" for a file that is written without quotes'
            )
        if not any(names):
            raise self._trouble("a file with a header that names its columns; this one is empty")
        if any(_like_a_value(name.strip()) for name in names):
            wanted = "a file whose first line names its columns; this one seems to begin with a row of values"
            raise self._trouble(wanted)
        return names

    def count(self, *, before_charge: bool = True) -> int:
        """The number of rows. A CSV is parsed for it from end to end, once, so that a file that is cut, misread, or has a row of
        several lines is found here; before a charge, with the number of the line at fault.
        """
        with self._named_errors():
            if self.is_parquet:
                return int(pyarrow.parquet.read_metadata(self.path).num_rows)
            now = self.path.stat()
        state = (now.st_size, now.st_mtime_ns)  # a file that was changed since is another one
        if state not in self._scanned:
            self._scanned[state] = sum(self._lines(batch, before_charge) for batch in self._texts(None, before_charge))
        return self._scanned[state]

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
        """These columns of all rows, some rows at a time. What fails here may be known after a charge, and names no line."""
        self.count(before_charge=False)
        for batch in self._stored(names) if self.is_parquet else self._texts(names):
            yield {name: batch.column(batch.schema.names.index(name)) for name in names}

    def _lines(self, batch: pa.RecordBatch, before_charge: bool) -> int:
        if self.dialect.spans and any(map(_has_line_break, batch.columns)):
            fault = self._fault() if before_charge else None
            raise self._trouble(fault or _SPANS.format(""))
        return len(batch)

    def _stored(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._named_errors(), pyarrow.parquet.ParquetFile(self.path) as file:
            yield from file.iter_batches(batch_size=BATCH, columns=list(names), use_threads=False)

    def _texts(self, names: Sequence[str] | None, before_charge: bool = False) -> Iterator[pa.RecordBatch]:
        header, dialect = list(self.header), self.dialect
        wanted = header if names is None else list(names)
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()), include_columns=wanted, strings_can_be_null=False
        )
        # Values that span lines are parsed as such also where they are refused, so that they are seen and not misread.
        parse = pyarrow.csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote or False,
            newlines_in_values=True,
            ignore_empty_lines=len(header) > 1,  # of one column an empty line is a row whose value is missing
        )
        read = pyarrow.csv.ReadOptions(block_size=_BLOCK, encoding=dialect.encoding, use_threads=False)
        how = {"read_options": read, "parse_options": parse, "convert_options": convert}
        with self._named_errors(before_charge), pyarrow.csv.open_csv(str(self.path), **how) as reader:
            yield from reader

    def _fault(self) -> str | None:
        """The line of a CSV that is at fault, and how; for the owner of the file, before a charge. None where none is found."""
        unreadable = suppress(csv.Error, UnicodeDecodeError, OSError, pa.ArrowException)
        with unreadable, pa.input_stream(str(self.path), compression="detect") as stream:
            lines = io.TextIOWrapper(stream, encoding=self.dialect.codec, newline="")
            return self._fault_in(csv.reader(lines, **self.dialect.format))
        return None

    def _fault_in(self, reader: Any) -> str | None:
        wanted, fault = len(next(reader)), None
        line = reader.line_num
        for values in reader:
            first, line = line + 1, reader.line_num
            if fault is not None:
                break
            if self.dialect.spans and line > first:
                return _SPANS.format(f", from line {first} on, or a quote is not closed")
            if values and len(values) != wanted:
                found = f"line {first} has {len(values)} values"
                fault = f"a CSV with {wanted} values in every row, as its header has; {found}: a row has more or fewer values"
        else:
            if fault is not None and len(values) < wanted:
                return f"{fault}, or the file is cut, for it is the last line"
        return fault

    @contextmanager
    def _named_errors(self, before_charge: bool = False) -> Iterator[None]:
        """What goes wrong in words of our own: pyarrow's may quote a row."""
        wanted = None
        try:
            yield
        except FileNotFoundError:
            wanted = "a file that exists"
        except (IsADirectoryError, PermissionError):
            wanted = "a file that can be read"
        except (UnicodeDecodeError, LookupError):
            wanted = self._undecodable
        except pa.ArrowInvalid as trouble:
            wanted = self._undecodable if "UTF" in str(trouble) else self._misshapen
        except (OSError, pa.ArrowException):
            wanted = self._misshapen
        if wanted == self._misshapen and before_charge:
            wanted = self._fault() or wanted
        if wanted is not None:
            raise self._trouble(wanted)

    @property
    def _undecodable(self) -> str:
        other = 'declare another, such as encoding = "latin-1" or "utf-16"'
        return f"in the encoding {self.dialect.encoding}, which it is not: {other}"

    @property
    def _misshapen(self) -> str:
        return (
            f"a whole CSV with {self.dialect.delimiter!r} between as many values in every row as the header has, or a whole "
            "Parquet file; this one is cut, a row has more or fewer values, or a quote is not closed: declare "
            'quote = "" for a file that is written without quotes'
        )

    def _trouble(self, wanted: str) -> InvalidArgument:
        return InvalidArgument("data", str(self.path), wanted)


def _has_line_break(values: pa.Array) -> bool:
    return any(pc.any(pc.match_substring(values, end)).as_py() for end in "\r\n")
