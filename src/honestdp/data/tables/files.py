"""CSV and Parquet files: their header, how many rows they have, and their rows in batches.

Values of a CSV are read as texts, and each is understood by what was declared of its column (`values`): a type that is guessed
from the first rows of a file would make a row's features depend on other rows. What is wrong with a file is said without a
value of it.

Every row of a CSV is a line, and so a record is a line: a file in which a quoted cell goes on in the next line is refused, unless
that was declared (`dialect`). No row is handed out before the whole file was scanned for it, in one reading, by one parser.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from honestdp.checks import InvalidArgument
from honestdp.data.tables.dialect import Dialect
from honestdp.data.tables.header import NoHeader, first_line, names_in
from honestdp.data.tables.rows import BATCH

_PIECE = 4096
_BLOCK = 1 << 23
_SPANS = (
    "a CSV in which every row is a line; in this one a quoted value goes on in the next line, so that one stray quote could "
    'take the rows of others away. Mend the file; or declare quote = "" if it is written without quotes, or newlines = true '
    "if its values hold line breaks and its writer closes every quote"
)


@dataclass(frozen=True)
class TableFile:
    """A CSV or Parquet file, told apart by its first bytes. dialect: how a CSV is written."""

    path: Path
    dialect: Dialect = field(default_factory=Dialect)
    _scanned: dict[tuple[int, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_parquet(self) -> bool:
        with self._named_errors(), self.path.open("rb") as file:
            return file.read(4) == b"PAR1"

    @property
    def header(self) -> dict[str, str | None]:
        """Names of the columns, and their types where the file declares them, which a CSV does not. No row is read."""
        if self.is_parquet:
            with self._named_errors():
                schema = pyarrow.parquet.read_schema(self.path)
            return _once([(field.name, str(field.type)) for field in schema], self.path)
        return _once([(name, None) for name in self._first_line()], self.path)

    def _first_line(self) -> list[str]:
        wanted = None
        with self._named_errors(), pa.input_stream(str(self.path), compression="detect") as stream:
            try:
                return names_in(first_line(iter(partial(stream.read, _PIECE), b""), self.dialect), self.dialect)
            except NoHeader as trouble:
                wanted = str(trouble)
        raise self._trouble(str(wanted))

    @property
    def _undecodable(self) -> str:
        other = 'declare another, such as encoding = "latin-1" or "utf-16"'
        return f"in the encoding {self.dialect.encoding}, which it is not: {other}"

    def count(self) -> int:
        """How many rows there are. A CSV is parsed for it from end to end, once, so that one that is cut, misread, or has a row
        that is no line is found here.
        """
        if self.is_parquet:
            with self._named_errors():
                return int(pyarrow.parquet.read_metadata(self.path).num_rows)
        with self._named_errors():
            now = self.path.stat()
        state = (now.st_size, now.st_mtime_ns)  # a file that was changed since is another one
        if state not in self._scanned:
            self._scanned[state] = sum(self._lines(batch) for batch in self._texts(None))
        return self._scanned[state]

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
        """These columns of all rows, some rows at a time."""
        self.count()
        for batch in self._stored(names) if self.is_parquet else self._texts(names):
            yield {name: _plain(batch.column(batch.schema.names.index(name))) for name in names}

    def _lines(self, batch: pa.RecordBatch) -> int:
        if self.dialect.spans and any(map(_has_line_break, batch.columns)):
            raise self._trouble(_SPANS)
        return len(batch)

    def _stored(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._named_errors(), pyarrow.parquet.ParquetFile(self.path) as file:
            yield from file.iter_batches(batch_size=BATCH, columns=list(names), use_threads=False)

    def _texts(self, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
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
        with self._named_errors():
            if _rows_missing(self.path):
                return
            with pyarrow.csv.open_csv(
                str(self.path), read_options=read, parse_options=parse, convert_options=convert
            ) as reader:
                yield from reader

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
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
        if wanted is not None:
            raise self._trouble(wanted)

    @property
    def _misshapen(self) -> str:
        return (
            f"a whole CSV with {self.dialect.delimiter!r} between as many values in every row as the header has, or a whole "
            "Parquet file; this one is cut, a row has more or fewer values, or a quote is not closed: declare "
            'quote = "" for a file that is written without quotes'
        )

    def _trouble(self, wanted: str) -> InvalidArgument:
        return InvalidArgument("data", str(self.path), wanted)


def other_delimiter(header: Iterable[str]) -> str | None:
    """What seems to be between the names of a header that was taken for a single name; None where nothing does."""
    names = list(header)
    return next((each for each in ";\t|," if len(names) == 1 and each in names[0]), None)


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _rows_missing(path: Path) -> bool:
    return path.stat().st_size == 0


def _has_line_break(values: pa.Array) -> bool:
    return any(pc.any(pc.match_substring(values, end)).as_py() for end in "\r\n")


def _once(columns: list[tuple[str, Any]], path: Path) -> dict[str, Any]:
    names = [name for name, _ in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument("data", str(path), f"with different names in its header; {twice[0]!r} is there twice")
    return dict(columns)
