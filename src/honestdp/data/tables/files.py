"""CSV and Parquet files: their header, how many rows they have, and their rows in batches.

Values of a CSV are read as texts, and each is understood by what was declared of its column (`values`): a type that is guessed
from the first rows of a file would make a row's features depend on other rows. What is wrong with a file is said without a
value of it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from honestdp.checks import InvalidArgument
from honestdp.data.tables.rows import BATCH

_HEADER = 1 << 22  # bytes in which a header ends
_BLOCK = 1 << 23
_UTF8 = ("utf-8", "utf8")


@dataclass(frozen=True)
class TableFile:
    """A CSV or Parquet file, told apart by its first bytes. encoding, delimiter: of a CSV."""

    path: Path
    encoding: str = "utf-8"
    delimiter: str = ","

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
        with self._named_errors(), pa.input_stream(str(self.path), compression="detect") as stream:
            start = stream.read(_HEADER)
        try:
            text = start.decode(self._codec, "ignore" if len(start) == _HEADER else "strict")
        except UnicodeDecodeError as trouble:
            text = start[: trouble.start].decode(self._codec)  # further down: the rows say so when they are read
            if "\n" not in text:
                raise self._trouble(self._undecodable) from None
        if "\0" in text.split("\n", 1)[0]:
            raise self._trouble("a CSV or Parquet file; this is neither")
        names = next(csv.reader(io.StringIO(text), delimiter=self.delimiter), [])
        if not names or not any(names):
            raise self._trouble("a file with a header that names its columns; this one is empty")
        if any(_is_number(name) for name in names):
            raise self._trouble(
                "a file whose first line names its columns; this one seems to begin with a row of values"
            )
        return names

    @property
    def _codec(self) -> str:
        return "utf-8-sig" if self.encoding.lower() in _UTF8 else self.encoding

    @property
    def _undecodable(self) -> str:
        return f'in the encoding {self.encoding}, which it is not: declare another, such as encoding = "latin-1"'

    def count(self) -> int:
        """How many rows there are. A CSV is parsed for it from end to end, so that one that is cut or misread is found here."""
        if self.is_parquet:
            with self._named_errors():
                return int(pyarrow.parquet.read_metadata(self.path).num_rows)
        return sum(len(batch) for batch in self._texts(None))

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
        """These columns of all rows, some rows at a time."""
        for batch in self._stored(names) if self.is_parquet else self._texts(names):
            yield {name: _plain(batch.column(batch.schema.names.index(name))) for name in names}

    def _stored(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._named_errors(), pyarrow.parquet.ParquetFile(self.path) as file:
            yield from file.iter_batches(batch_size=BATCH, columns=list(names), use_threads=False)

    def _texts(self, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        header = list(self.header)
        wanted = header if names is None else list(names)
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()), include_columns=wanted, strings_can_be_null=False
        )
        parse = pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
        read = pyarrow.csv.ReadOptions(block_size=_BLOCK, encoding=self.encoding, use_threads=False)
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
            f"a whole CSV with {self.delimiter!r} between as many values in every row as the header has, or a whole Parquet "
            "file; this one is cut, or a row has more or fewer values"
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


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _once(columns: list[tuple[str, Any]], path: Path) -> dict[str, Any]:
    names = [name for name, _ in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument("data", str(path), f"with different names in its header; {twice[0]!r} is there twice")
    return dict(columns)
