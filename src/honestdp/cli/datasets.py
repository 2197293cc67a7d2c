"""Names of data on the command line: a dataset by its name, or a file with its schema, and the model that fits them.

Bounds and categories that a schema leaves open are learnt privately before the search, and kept beside its folder in the file
`FOLDER.learnt.toml`. Learning is a release: it is charged before a row is read, and the statement of the search includes its
epsilon. The same command again reads that file; to learn a second time would cost a second time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from honestdp import checks
from honestdp.cli import options as option
from honestdp.files import replace_file

if TYPE_CHECKING:
    from torch import nn

    from honestdp.boundary.metrics import Metric
    from honestdp.data.tables.table import Table
    from honestdp.ledger.spending import Spending

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".gz")
DELTA = 1e-5  # of datasets by name
FEWEST = 10  # records that a file must have
OF_A_FILE = ("schema", "target", "person", "rows_per_person")
LEARNT_ONCE = "what was learnt is charged and kept, and the search is not charged yet: the same command goes on"

_SCHEMA = "(FILE only) The declarations of its columns, in TOML. `honestdp schema FILE` writes a file to fill in."
_TARGET = "(FILE only) The column to predict; left out, the target of the schema."
_PERSON = "(FILE only) Column with the person's id. A record is then a person, and epsilon a person's."
_ROWS = "With --person: the most rows of a person that count, declared. More are dropped by a coin."
_DELTA = "delta, well below 1/N. Left out: of a FILE the largest power of ten that is; 1e-5 by name."

Schema = Annotated[Path | None, Option(help=_SCHEMA)]
Target = Annotated[str | None, Option(help=_TARGET)]
Person = Annotated[str | None, Option(help=_PERSON)]
RowsPerPerson = Annotated[int | None, option.whole(_ROWS)]
Records = Annotated[int | None, option.of_spec("records", more="FILE only; people, with --person.", whole=True)]
Delta = Annotated[float | None, Option(help=_DELTA)]
_MODEL = r"logistic|linear|hidden(?::(\d+))?"


@dataclass(frozen=True, kw_only=True)
class Source:
    """The records of a search, and their public facts.

    label: the name, for folders and the ledger. declared: N, where it was given; counted: N. standin: words on data that stand in
    for others. file, table: the file and its declarations. to_learn: the table before its bounds are learnt, for which made-up
    ones stand in.
    """

    label: str
    data: Any
    features: int
    outputs: int
    counted: int
    declared: int | None
    standin: str | None = None
    table: Table | None = None
    to_learn: Table | None = None
    file: Path | None = None

    @property
    def delta(self) -> float:
        from honestdp.budget import default_delta

        return DELTA if self.table is None else default_delta(self.counted)

    @property
    def classes(self) -> Sequence[object]:
        """Labels in the order of the model's outputs."""
        return range(self.outputs) if self.table is None or self.table.classes is None else self.table.classes

    def weights(self, model: str) -> int:
        """The weights of the model that the option names, which count against the noise."""
        from honestdp.planner.prospects import counting

        units = hidden_units(model)
        hidden = [(units, self.features), (units,), (self.outputs, units)]
        return counting([*(hidden if units else [(self.outputs, self.features)]), (self.outputs,)])

    @property
    def metric(self) -> Metric | None:
        from honestdp.models.saved import table_metric

        return None if self.table is None else table_metric(self.table)


def is_file(name: str) -> bool:
    """Whether the word names a file and not a dataset. A dataset's name is never taken for a file's."""
    from honestdp.data import named

    return name not in named.names() and (name.lower().endswith(SUFFIXES) or "/" in name or Path(name).exists())


def source_of(options: Mapping[str, Any], folder: Path | None = None) -> Source:
    """The records that the options name. Every fault that can be found without a row is found first. folder: of the search."""
    name = options["name"]
    if is_file(name):
        return _of_file(Path(name), options, folder)
    from honestdp.data import named

    others = [f"--{each.replace('_', '-')}" for each in (*OF_A_FILE, "records") if options.get(each) is not None]
    if name not in named.names():
        known = ", ".join(named.names())
        raise checks.HonestdpError(f"what to train on must be a CSV or Parquet file, or one of {known}; got {name}")
    if others:
        raise checks.HonestdpError(
            f"{others[0]} must be left out for the dataset {name}: it is for a CSV or Parquet file"
        )
    dataset = named.load_dataset(name)
    records = len(dataset.train_rows)
    return Source(
        label=name,
        data=dataset.train,
        features=dataset.features,
        outputs=dataset.classes,
        counted=records,
        declared=records,
        standin=dataset.standin,
    )


def table_of(options: Mapping[str, Any]) -> Table:
    """The table that the schema declares, with what the options say besides."""
    from honestdp.data.tables.schema import read_schema

    if options["schema"] is None:
        wanted = f"given for a file, to declare its columns: honestdp schema {options['name']} writes one to fill in"
        raise checks.InvalidArgument("schema", None, wanted)
    given = {each: options[each] for each in (*OF_A_FILE[1:], "records") if options.get(each) is not None}
    return replace(read_schema(options["schema"], target=given.get("target")), **given)


def handed_over(source: Source, result: Any) -> str | None:
    """Save the model of a search on a file in the search's folder, as `predict` takes it. The digest of the whole folder."""
    if source.table is None or result.folder is None:
        return None
    from honestdp.models.folder import save

    return save(result.folder, result, table=source.table, title=f"A private model of {source.label}").digest


def files_handed_over(source: Source, folder: Path | None) -> list[str]:
    """The files that `handed_over` adds to the folder of a search."""
    if source.table is None or folder is None:
        return []
    from honestdp.models.folder import WRITTEN_LATER

    return sorted(WRITTEN_LATER)


def _of_file(file: Path, options: Mapping[str, Any], folder: Path | None) -> Source:
    from honestdp.data.tables.learning import kept
    from honestdp.data.tables.reading import TableFile

    table, to_learn = table_of(options), None
    assert TableFile(file, table.dialect).header  # a file that is not there is found first of all
    if not table.to_learn and options["bounds_epsilon"] is not None:
        wanted = 'left out: no column of the schema has bounds = "private", so that there is nothing to learn'
        raise checks.InvalidArgument("bounds_epsilon", options["bounds_epsilon"], wanted)
    if table.to_learn:
        share = share_of(options)
        if (found := kept(table, _path(folder), share)) is not None:
            table = found
        else:
            to_learn, table = table, replace(table.stand_in(), spent=table.spent + share)
    return _with_rows(file, table, to_learn)


# ---- Bounds to be learnt


def share_of(options: Mapping[str, Any]) -> float:
    """The part of epsilon for the bounds to be learnt."""
    from honestdp.data.tables.learning import share_of

    return share_of(options["epsilon"], options.get("bounds_epsilon"))


def to_plan(options: Mapping[str, Any]) -> Source:
    """The public numbers of a file: its rows are counted, and no value of one is looked at."""
    table = table_of(options)
    if table.person is not None and table.records is None:
        wanted = (
            f"declared with --person: how many people there are in {options['name']} cannot be told without reading it"
        )
        raise checks.InvalidArgument("records", None, wanted)
    share = share_of(options) if table.to_learn and options["epsilon"] is not None else 0.0
    return _with_rows(Path(options["name"]), replace(table.stand_in(), spent=table.spent + share), None)


def charged_first(source: Source, options: Mapping[str, Any]) -> list[Spending]:
    """The charge before that of the search: a ledger without room for both is found before either."""
    from honestdp.data.tables.learning import spending_of

    return [] if source.to_learn is None else [spending_of(source.to_learn, source.counted, share_of(options))]


def with_bounds(source: Source, options: Mapping[str, Any], folder: Path | None) -> Source:
    """The source with the bounds that its table left open, learnt out of the budget."""
    from honestdp.data.tables.learning import kept

    if source.to_learn is None or source.file is None:
        return source
    from honestdp.search.folder import Lock, make

    path = _path(folder)
    assert folder is not None
    make(folder)
    with Lock(folder):  # of two processes that learn for one search, each would be charged
        table = kept(source.to_learn, path, share_of(options))  # learnt by another process meanwhile
        return _with_rows(source.file, table or _learnt(source, options, path), None)


def _learnt(source: Source, options: Mapping[str, Any], path: Path) -> Table:
    """The table with its bounds: charged, learnt, and on the disk before anything is made of it."""
    from honestdp.data.tables.schema import text_of
    from honestdp.ledger import Ledger
    from honestdp.search.lifecycle import SearchStopped

    assert source.to_learn is not None
    ledger, dataset = options["ledger"], options["dataset"] or source.label

    def charges() -> int:
        return 0 if ledger is None else len(Ledger(ledger).charges(dataset))

    before = charges()
    try:
        found = source.to_learn.learn(
            source.file,
            epsilon=share_of(options),
            ledger=ledger,
            dataset=None if ledger is None else dataset,
            note=options["note"],
        )
        replace_file(path, text_of(found).encode(), mode=0o644)
    except KeyboardInterrupt:
        if charges() == before:
            raise
        lost = f"the charge for {', '.join(source.to_learn.to_learn)} stays charged, and to learn them is charged again"
        raise SearchStopped(paid=LEARNT_ONCE if path.exists() else lost) from None
    return found


def _path(folder: Path | None) -> Path:
    """The file of learnt bounds."""
    if folder is None:
        wanted = (
            "given where the schema has bounds to be learnt: they are kept beside it, so that they are paid for once"
        )
        raise checks.InvalidArgument("out", None, wanted)
    named = Path(os.path.abspath(folder))  # "." has a name too
    if not named.name:
        raise checks.InvalidArgument("out", str(folder), "a folder with a name: what is learnt is kept beside it")
    return named.with_name(f"{named.name}.learnt.toml")


# ---- Rows, their name and their model


def _with_rows(file: Path, table: Table, to_learn: Table | None) -> Source:
    data = table.data(file)
    data.scan()  # a file that is cut is found before anything is planned or charged, also where N is declared
    counted = len(data)
    if counted < FEWEST:
        many = data.known.unit.plural
        wanted = f"{FEWEST} {many} or more, as many as the file has: no private model can be made of fewer"
        raise checks.InvalidArgument("name" if table.records is None else "records", f"{counted} {many}", wanted)
    return Source(
        label=label_of(file),
        data=data,
        features=table.width,
        outputs=table.outputs,
        counted=counted,
        declared=None,  # the table says so by itself
        file=file,
        to_learn=to_learn,
        table=table,
    )


def label_of(file: Path) -> str:
    """The file's name up to its first point: the dataset's default name in a ledger. `patients.2024.csv` and
    `patients.2025.csv` are one dataset by it, which may charge people in one of them too much and never too little.
    """
    return file.name.split(".")[0] or file.name


def model_of(words: str, *, features: int, outputs: int) -> Callable[..., nn.Module]:
    """A function that makes the model that the option names."""
    from torch import nn

    units = hidden_units(words)

    def logistic() -> nn.Module:
        return nn.Linear(features, outputs)

    def hidden(width: int = units) -> nn.Module:
        return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, outputs))

    return hidden if units else logistic


def hidden_units(words: str) -> int:
    """The width of the hidden layer of a model, 0 where it has none."""
    match = re.fullmatch(_MODEL, words)
    if match is None or match[1] == "0":
        wanted = "logistic (or linear, the same for numbers), hidden, or hidden:WIDTH"
        raise checks.InvalidArgument("model", words, wanted)
    return int(match[1] or 100) if words.startswith("hidden") else 0
