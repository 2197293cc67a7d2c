"""What `tune` and `plan` train on, from the words of the command line: a dataset by name, or a file with its schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from honestdp import checks
from honestdp.cli import learning
from honestdp.cli import options as option
from honestdp.run import ROW, Unit

if TYPE_CHECKING:
    from torch import nn

    from honestdp.boundary.metrics import Metric
    from honestdp.data.tables.table import Table

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".gz")
DELTA = 1e-5  # of datasets by name

_SCHEMA = "Of a FILE: what is declared of its columns, in TOML. `honestdp schema FILE` writes one to fill in."
_PERSON = "Of a FILE: the column that tells whose row it is. A record is then a person, and epsilon a person's."
_ROWS = "With --person: the most rows of a person that count, declared. More are dropped by a coin."
_RECORDS = "N, declared: how many records FILE has (people, with --person). Left out, it is counted, and the statement says so."
_DELTA = "delta, well below 1/N. Left out: of a FILE the largest power of ten that is; 1e-5 by name."

Schema = Annotated[Path | None, Option(help=_SCHEMA)]
Target = Annotated[str | None, Option(help="Of a FILE: the column to predict; as the schema says, if left out.")]
Person = Annotated[str | None, Option(help=_PERSON)]
RowsPerPerson = Annotated[int | None, option.whole(_ROWS)]
Records = Annotated[int | None, option.whole(_RECORDS)]
Delta = Annotated[float | None, Option(help=_DELTA)]
FEWEST = 10  # rows that a file must have
OF_A_FILE = ("schema", "target", "person", "rows_per_person")


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is trained on, and what is publicly known of it.

    label: its name, for folders and the ledger. declared: N, where it was given; counted: N. standin: words on data that stand in
    for others. file, table: of a file. to_learn: the table before its bounds are learnt, for which made-up ones stand in.
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

    @property
    def metric(self) -> Metric | None:
        from honestdp.models.saved import table_metric

        return None if self.table is None else table_metric(self.table)


def is_file(name: str) -> bool:
    """Whether the word names a file and not a dataset. A dataset's name is never taken for a file's."""
    from honestdp.data import named

    return name not in named.names() and (name.lower().endswith(SUFFIXES) or "/" in name or Path(name).exists())


def source_of(options: Mapping[str, Any], folder: Path | None = None) -> Source:
    """What the options name. Whatever can be wrong without a row of it is found first. folder: of the search, if known."""
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
        wanted = f"given for a file: what is declared of its columns. honestdp schema {options['name']} writes one to fill in"
        raise checks.InvalidArgument("schema", None, wanted)
    given = {each: options[each] for each in (*OF_A_FILE[1:], "records") if options.get(each) is not None}
    return replace(read_schema(options["schema"], target=given.get("target")), **given)


def handed_over(source: Source, result: Any) -> str | None:
    """Makes the folder of a search on a file one that `predict` takes. The digest of all that is in it."""
    if source.table is None or result.folder is None:
        return None
    from honestdp.models.folder import save

    return save(result.folder, result, table=source.table, title=f"A private model of {source.label}").digest


def files_handed_over(source: Source, folder: Path | None) -> list[str]:
    """What `handed_over` adds to the folder of a search."""
    if source.table is None or folder is None:
        return []
    from honestdp.models.folder import WRITTEN_LATER

    return sorted(WRITTEN_LATER)


def _of_file(file: Path, options: Mapping[str, Any], folder: Path | None) -> Source:
    table, to_learn = table_of(options), None
    if not table.to_learn and options["bounds_epsilon"] is not None:
        wanted = 'left out: no column of the schema has bounds = "private", so that there is nothing to learn'
        raise checks.InvalidArgument("bounds_epsilon", options["bounds_epsilon"], wanted)
    if table.to_learn:
        share = learning.share_of(options)
        if (found := learning.kept(table, options, folder)) is not None:
            table = found
        else:
            to_learn, table = table, replace(table.stand_in(), spent=table.spent + share)
    return _with_rows(file, table, to_learn)


def with_bounds(source: Source, options: Mapping[str, Any], folder: Path | None) -> Source:
    """The source with what its table left to be learnt, out of the budget."""
    if source.to_learn is None or source.file is None:
        return source
    dataset, table = None if options["ledger"] is None else options["dataset"] or source.label, source.to_learn
    with learning.alone(folder):
        found = learning.kept(table, options, folder)  # by another process, since it was looked for
        found = found or learning.learnt(table, source.file, options, folder, dataset)
    return _with_rows(source.file, found, None)


def _with_rows(file: Path, table: Table, to_learn: Table | None) -> Source:
    data = table.data(file)
    data.scan()  # a file that is cut is found before anything is planned or charged, also where N is declared
    counted = len(data)
    if counted < FEWEST:
        one, many = ("row", "rows") if table.person is None else ("person", "people")
        if table.records is not None:
            wanted = f"{FEWEST} at least, as many {many} as the file has: no private model can be made of fewer"
            raise checks.InvalidArgument("records", counted, wanted)
        few = f"no {one}" if counted == 0 else f"one {one}" if counted == 1 else f"{counted} {many}"
        wanted = f"a file of at least {FEWEST} {many}: no private model can be made of fewer; this one has {few}"
        raise checks.InvalidArgument("name", str(file), wanted)
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


@dataclass(frozen=True)
class Planned:
    """What a plan knows of what will be trained on: N, the default delta, the model's weights, whose record it is, and the
    epsilon that was spent, or is set apart, to learn bounds.
    """

    counted: int
    delta: float = DELTA
    parameters: int | None = None
    unit: Unit | None = None
    spent: float = 0.0


def planned_on(options: Mapping[str, Any]) -> Planned:
    """Public numbers of the file that is named, of which no value is looked at; or the declared number of records."""
    from honestdp.budget import default_delta
    from honestdp.planner.prospects import counting

    if options["name"] is None:
        given = next((f"--{each.replace('_', '-')}" for each in OF_A_FILE if options[each] is not None), None)
        if given is not None:
            raise checks.HonestdpError(f"{given} must be left out without a file: it says what is in it")
        if options["records"] is None:
            raise checks.InvalidArgument("records", None, "given, or a file with its --schema to count them in")
        return Planned(options["records"])
    table, file = table_of(options), Path(options["name"])
    counted = _counted(table, file, options["schema"])
    checks.whole(least=FEWEST, records=counted)
    width = re.fullmatch(r"hidden(?::(\d+))?", options["model"])
    units = 0 if width is None else int(width[1] or 100)
    inputs, outputs = table.width, table.outputs
    hidden = [(units, inputs), (units,), (outputs, units)] if units else [(outputs, inputs)]
    parameters = counting([*hidden, (outputs,)])
    unit = ROW if table.person is None else Unit(table.person, table.rows_per_person or 1)
    spent = table.spent + (learning.share_of(options) if table.to_learn and options["epsilon"] is not None else 0.0)
    return Planned(counted, default_delta(counted), parameters, unit, spent)


def _counted(table: Table, file: Path, schema: Path) -> int:
    """How many records the file is said to have, or has, without a look at a value of one; its header fits the schema."""
    from honestdp.data.tables.reading import TableFile, other_delimiter
    from honestdp.data.tables.source import check_header

    source = TableFile(file, table.dialect)
    header = source.header
    new = [name for name in header if name not in table.columns and name != table.person]
    if new and not other_delimiter(header):
        wanted = (
            f'made for the file {file}, which has a column {new[0]!r} that it does not declare: as kind = "ignore" where no '
            "model is to see it"
        )
        raise checks.InvalidArgument("schema", str(schema), wanted)
    check_header(table, header)
    if table.records is not None:
        return table.records
    if table.person is not None:
        wanted = f"declared with --person: how many people there are in {file} cannot be told without reading it"
        raise checks.InvalidArgument("records", None, wanted)
    return source.count()


def label_of(file: Path) -> str:
    """The file's name up to its first point: its dataset's name in a ledger, if nobody says another. `patients.2024.csv` and
    `patients.2025.csv` are so one dataset, which may charge too much for those in one of them and never too little.
    """
    return file.name.split(".")[0] or file.name


def model_of(words: str, *, features: int, outputs: int) -> Callable[..., nn.Module]:
    """What makes the model that the option names."""
    from torch import nn

    match = re.fullmatch(r"logistic|linear|hidden(?::(\d+))?", words)
    if match is None or match[1] == "0":
        raise checks.InvalidArgument(
            "model", words, "logistic (or linear, the same for numbers), hidden, or hidden:WIDTH"
        )
    units = int(match[1] or 100)

    def logistic() -> nn.Module:
        return nn.Linear(features, outputs)

    def hidden(width: int = units) -> nn.Module:
        return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, outputs))

    return hidden if words.startswith("hidden") else logistic
