"""The commands on a model folder: `predict`, `evaluate` and `report`."""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from typer import Argument, Option

from honestdp import checks
from honestdp.cli import options as option
from honestdp.cli.datasets import label_of
from honestdp.cli.options import by_class
from honestdp.cli.terminal import balance_line, emit
from honestdp.files import PAGE, check_place, written
from honestdp.notebook import as_text

if TYPE_CHECKING:
    from honestdp.models.saved import SavedModel

_FOLDER = "The folder that `honestdp tune FILE --out` wrote, or `honestdp.save`."
_DIGEST = "The folder's digest as it was printed when it was saved: then it must be that very folder."
_EPSILON = (
    "**Required.** What this score may cost the people in FILE. Its noise is about 0.7/(epsilon x rows): at 0.1 and 10000 rows "
    "0.0007, less than a tenth of a percentage point."
)
_LEDGER = "{spec.ledger} --dataset must have a budget in it: `honestdp ledger set-budget`."
_KEEP = "Copy this column of FILE in front, such as an identifier. May repeat."
PREDICTION = "prediction"

Folder = Annotated[Path, Argument(metavar="MODEL", help=_FOLDER)]
Digest = Annotated[str | None, Option(help=_DIGEST)]


def predict(
    folder: Folder,
    file: Annotated[Path, Argument(metavar="FILE", help="Rows as CSV or Parquet, with the schema's columns.")],
    out: Annotated[Path | None, Option(help="Write to this CSV file; standard output if left out.")] = None,
    force: option.Force = False,
    probabilities: Annotated[bool, Option("--probabilities", help="A column for each class's probability.")] = False,
    keep: Annotated[list[str] | None, Option(help=_KEEP)] = None,
    digest: Digest = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON, an object a row, in the place of CSV.")] = False,
) -> None:
    """Predict with a saved model: one line for each row of a CSV or Parquet file, in its order.

    `honestdp predict model/ new.csv --out predictions.csv`

    `honestdp predict model/ new.csv --probabilities --keep patient_id --json`

    The target column is not needed, and columns that the schema does not name are passed over. Nothing is charged: what is
    private about the model was paid for when it was trained. A prediction is still an answer about its own row.
    """
    from honestdp.models.folder import load

    if out is not None and as_json:
        raise checks.InvalidArgument("out", str(out), "left out with --json, which prints")
    if out is not None and out.exists() and file.exists() and out.samefile(file):
        raise checks.InvalidArgument("out", str(out), "another file than FILE, which would be written over")
    if out is not None:
        check_place(out, argument="out", force=force)
    saved = load(folder, digest=digest)
    if probabilities and saved.table is not None and saved.table.classes is None:
        raise checks.InvalidArgument("probabilities", None, "left out for a model of numbers, which have none")
    _check_kept(keep or [], saved, probabilities)
    blocks = _predicted(saved, _batches(saved, file, keep or []), keep or [], with_probabilities=probabilities)
    with _opened(out, force=force) as to:
        if as_json:
            _write_json(to, blocks)
        else:
            lines = csv.writer(to, lineterminator="\n")
            for place, columns in enumerate(blocks):
                if place == 0:
                    lines.writerow(columns)
                lines.writerows(zip(*columns.values(), strict=True))


def _batches(saved: SavedModel, file: Path, keep: list[str]) -> Iterator[dict[str, Any]]:
    """The columns that are needed, some rows at a time, at first none. A column that is missing is found at once."""
    import pyarrow as pa

    from honestdp.data.tables.reading import TableFile
    from honestdp.data.tables.table import check_present

    source = TableFile(file, saved.columns.dialect)
    names = list(dict.fromkeys([*saved.columns.inputs, *keep]))
    check_present(source.header, names)
    source.count()  # a file that cannot be read, or not row by row, is found before a line is written
    none = {name: pa.array([], pa.string()) for name in names}
    return itertools.chain([none], source.batches(names))


def _check_kept(keep: list[str], saved: SavedModel, probabilities: bool) -> None:
    """No column to keep has the name of one that is written: the one would be lost for the other."""
    written = [PREDICTION, *(_probability(label) for label in (saved.columns.classes or ()) if probabilities)]
    for name in keep:
        if name in written:
            wanted = f"a column with another name: predictions are written as {name!r}. Rename it in FILE"
            raise checks.InvalidArgument("keep", name, wanted)


def _probability(label: object) -> str:
    return f"probability of {label}"


def _predicted(
    saved: SavedModel, batches: Iterable[dict[str, Any]], keep: list[str], *, with_probabilities: bool
) -> Iterator[dict[str, list[Any]]]:
    """Columns of what is written, some rows at a time."""
    from honestdp.gradients.predictions import probabilities

    table = saved.columns
    for batch in batches:
        given = saved.outputs(batch)
        columns = {name: batch[name].to_pylist() for name in keep}
        columns[PREDICTION] = table.decode(given).tolist()
        if with_probabilities:
            each = probabilities(given)
            columns |= {_probability(label): each[:, i].tolist() for i, label in enumerate(table.classes or ())}
        yield columns


def _write_json(to: TextIO, blocks: Iterable[dict[str, list[Any]]]) -> None:
    """One array of an object a row, written as the rows come."""
    to.write("[")
    between = "\n"
    for columns in blocks:
        for values in zip(*columns.values(), strict=True):
            to.write(between + json.dumps(dict(zip(columns, values, strict=True)), default=str))
            between = ",\n"
    to.write("\n]\n")


@contextmanager
def _opened(out: Path | None, *, force: bool) -> Iterator[TextIO]:
    """Standard output, or a file that appears under its name when it is whole."""
    if out is None:
        yield sys.stdout
        return
    with written(out, argument="out", force=force) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.detach()  # flushed, and still open


def evaluate(
    folder: Folder,
    file: Annotated[Path, Argument(metavar="FILE", help="Held-out rows as CSV or Parquet, with the target.")],
    epsilon: Annotated[float | None, Option(help=_EPSILON)] = None,
    metric: option.Metric = None,
    prevalence: option.Prevalence = None,
    records: Annotated[int | None, option.of_spec("records", whole=True)] = None,
    ledger: Annotated[Any, option.ledger(_LEDGER)] = None,
    dataset: Annotated[str | None, Option(help="Its name in the ledger; FILE's name up to its first point.")] = None,
    note: option.Note = "",
    digest: Digest = None,
    as_json: option.Json = False,
) -> None:
    """A noisy score of a saved model on held-out rows, charged before a row is read.

    `honestdp evaluate model/ heldout.csv --epsilon 0.1 --ledger ledger.db`

    An exact score of private rows has no guarantee: it is not for publishing, nor for choosing between models. This one has
    noise for epsilon, and may leave. Every call is a new question and costs epsilon again. For rows that are public, compare
    the output of `honestdp predict` yourself.
    """
    from honestdp.models.evaluation import NOT_FOR_PUBLISHING
    from honestdp.models.folder import load

    if epsilon is None:
        wanted = "given: what the score may cost, such as --epsilon 0.1. An exact score of private rows is not for publishing"
        raise checks.InvalidArgument("epsilon", None, wanted)
    saved = load(folder, digest=digest)
    done = saved.evaluate(
        file,
        epsilon=epsilon,
        metric=metric,
        prevalence=by_class("prevalence", prevalence, saved.columns.classes or ()),  # type: ignore[arg-type]
        records=records,
        ledger=ledger,
        dataset=dataset or (None if ledger is None else label_of(file)),
        note=note,
    )
    rest = f"{done.statement}\n\n{balance_line(done.balance)}\n{'note':<12}{NOT_FOR_PUBLISHING}"
    emit(done.as_dict, as_json=as_json, text=lambda: f"{done.score.in_words()}\n\n{rest}")


def report(
    folder: Folder,
    out: Annotated[Path | None, Option(help="Also write the page (HTML, one file) here.")] = None,
    force: option.Force = False,
    card: Annotated[bool, Option("--card", help="Print the model card (Markdown) in its place.")] = False,
    digest: Digest = None,
    as_json: option.Json = False,
) -> None:
    """What is guaranteed about a saved model, after every file of it was compared with its digest.

    `honestdp report model/`

    `honestdp report model/ --out page.html` also writes the page for people who answer for the data.
    """
    from honestdp.models.card import CARD
    from honestdp.models.folder import REPORT, load

    saved = load(folder, digest=digest)
    if out is not None:
        with written(out, argument="out", force=force, own=PAGE) as to:
            to.write(saved.page.encode())
    rows = [] if saved.score is None else [("score", saved.score.in_words())]
    rows += [("digest", saved.digest), ("card", str(folder / CARD)), ("report", str(out or folder / REPORT))]
    words = f"{saved.statement}\n\n{as_text(rows, width=12)}"
    value = saved.as_dict() | {"page": None if out is None else str(out)}
    emit(lambda: value, as_json=as_json, text=lambda: saved.card if card else words)
