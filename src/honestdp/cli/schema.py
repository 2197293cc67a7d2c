"""The command `schema`: a file's columns as a schema to fill in, made of its header alone."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from honestdp import checks
from honestdp.cli import options as option
from honestdp.cli.sources import label_of
from honestdp.cli.terminal import emit
from honestdp.data.tables.reading import QUOTE, Dialect
from honestdp.files import SCHEMA, check_place, written


def schema(
    file: Annotated[Path, Argument(metavar="FILE", help="A CSV or Parquet file, of which the header alone is parsed.")],
    out: Annotated[Path | None, Option(help="The schema to write; FILE's name with .toml if left out, here.")] = None,
    encoding: Annotated[str, Option(help="Of a CSV, such as latin-1.")] = "utf-8",
    delimiter: Annotated[
        str | None, Option(help="Of a CSV: what is between two values; by the header if left out.")
    ] = None,
    quote: Annotated[str, Option(help='Of a CSV: what is around values; "" if it is written without quotes.')] = QUOTE,
    force: Annotated[bool, Option("--force", help="Write over a schema that is there.")] = False,
    as_json: option.Json = False,
) -> None:
    """Write a schema to fill in: the columns of a file, by name, and what may be declared of them.

    `honestdp schema patients.csv` writes patients.toml; fill in what is publicly known of each column, then

    `honestdp tune patients.csv --schema patients.toml --target readmitted --epsilon 3 --out model/`

    Of a CSV the first line alone is parsed, which must be a header: a first row of words cannot be told from names. What is read
    off private rows would not be private. What nobody can declare can be learnt privately, out of the budget: bounds = "private".
    """
    from honestdp.data.tables.reading import TableFile, other_delimiter
    from honestdp.data.tables.schema import template

    out = out or Path(f"{label_of(file)}.toml")
    if out.exists() and not force:
        raise checks.InvalidArgument("out", str(out), "a file that is not there yet, or given with --force")
    check_place(out, argument="out", force=force, own=SCHEMA)
    between = (delimiter or ",").encode().decode("unicode_escape")
    if len(between) != 1 or delimiter == "":
        raise checks.InvalidArgument("delimiter", delimiter, "one character")
    if delimiter is None:
        between = other_delimiter(TableFile(file, Dialect(encoding, quote=quote)).header) or between
    text = template(file, encoding=encoding, delimiter=between, quote=quote)
    with written(out, argument="out", force=force, own=SCHEMA) as to:
        to.write(text.encode())
    columns = list(TableFile(file, Dialect(encoding, between, quote)).header)
    command = shlex.join(["honestdp", "tune", str(file), "--schema", str(out), "--epsilon", "3", "--out", "model"])
    many = f"{len(columns)} column{'s' * (len(columns) != 1)}"
    words = f"{'schema':<12}{out}, {many} to declare: nothing in it may be read off the rows\n{'then':<12}{command}"
    emit(lambda: {"schema": str(out), "columns": columns}, as_json=as_json, text=lambda: words)
