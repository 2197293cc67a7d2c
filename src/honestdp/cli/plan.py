"""The command `plan`: which selection, noise, lot and steps to take for a search, before any record is read."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from honestdp import checks
from honestdp.cli import datasets
from honestdp.cli import options as option
from honestdp.cli.terminal import emit, progress
from honestdp.plain_words import rounded_up
from honestdp.run import ROW, Unit

if TYPE_CHECKING:
    from honestdp.data.tables.table import Table
    from honestdp.planner.comparison import Plan

_FILE = "A CSV or Parquet file with its --schema: rows are counted and no value of one is looked at."
_RECORDS = "N: how many records there are, of training and validation together; of a FILE they are counted if left out."
_NOISE = "Compare the methods' epsilons at this noise; or give --epsilon."
_PARAMETERS = "Of a linear model, inputs times outputs, hidden layers or not: says whether noise would drown it."
_CHART = "Draw which lot, steps and epsilon to take into this PNG or SVG file."


def plan(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[FILE]", help=_FILE)] = None,
    records: Annotated[int | None, option.whole(_RECORDS)] = None,
    epsilon: Annotated[float | None, Option(help="What the whole search may spend; or give --noise.")] = None,
    delta: datasets.Delta = None,
    schema: datasets.Schema = None,
    target: datasets.Target = None,
    person: datasets.Person = None,
    rows_per_person: datasets.RowsPerPerson = None,
    model: Annotated[str, Option(help="Of a FILE: logistic, or hidden:100, as in tune.")] = "logistic",
    candidates: Annotated[int, option.whole("How many candidates the search has.")] = 1,
    lot: option.ChosenLot = None,
    steps: option.ChosenSteps = None,
    epochs: option.ChosenEpochs = None,
    noise: Annotated[float | None, Option(help=_NOISE)] = None,
    validation: option.Validation = 0.2,
    coverage: option.Coverage = 0.9,
    max_runs: option.MaxRuns = None,
    published: option.Published = False,
    parameters: Annotated[int | None, option.whole(_PARAMETERS)] = None,
    table: Annotated[bool, Option("--table", "--all", help="Show every method, and the crossovers.")] = False,
    chart: Annotated[Path | None, Option(help=_CHART)] = None,
    plot: Annotated[Path | None, Option(help="Draw epsilon against candidates into this PNG or SVG file.")] = None,
    force: option.Force = False,
    as_json: option.Json = False,
) -> None:
    """How to search within a budget: one recommendation, with the command that carries it out.

    `honestdp plan --records 60000 --epsilon 1 --candidates 40`

    `honestdp plan patients.csv --schema patients.toml --epsilon 3` for a file, of which no value is read.

    Its noise is the very noise of `honestdp tune` with the same numbers. With --table every way to search side by side:

    `honestdp plan --records 70000 --lot 250 --steps 10000 --noise 4 --delta 1e-6 --candidates 280 --table`
    """
    from honestdp.accounting.once import once
    from honestdp.budget import with_learning
    from honestdp.planner import comparison
    from honestdp.report import chart as charts
    from honestdp.report import console
    from honestdp.selection.cost import statement as statement_of

    source = planned_on(context.params)
    records, delta = source.counted, source.delta if delta is None else delta
    parameters = source.parameters if parameters is None else parameters
    if (epsilon is None) == (noise is None):
        got = "neither" if epsilon is None else "both"
        wanted = "the noises that meet an epsilon are compared, or the epsilons at a noise"
        raise checks.HonestdpError(f"one of --epsilon and --noise must be given: {wanted}; got {got}")
    for argument, file in (("plot", plot), ("chart", chart)):
        if file is not None:
            charts.check(file, argument, force=force)
    if chart is not None and epsilon is None:
        raise checks.InvalidArgument("chart", str(chart), "left out with --noise: it shows what an --epsilon buys")
    if epsilon is not None and source.spent:
        if not epsilon > source.spent:
            raise checks.InvalidArgument("epsilon", epsilon, f"above {source.spent:g}, which was spent to learn bounds")
        epsilon -= source.spent
    with warnings.catch_warnings(action="ignore"), progress("comparing methods") as tick, once():
        made = comparison.plan(
            records=records,
            lot=lot,
            steps=steps,
            epochs=epochs,
            delta=delta,
            candidates=candidates,
            noise=noise,
            epsilon=epsilon,
            validation=validation,
            coverage=coverage,
            max_runs=max_runs,
            published=published,
            parameters=parameters,
            eligible=not (table or as_json),
            progress=tick,
        )
        run = made.run_of(made.recommended)
        crossed = []
        if candidates > 1 and (table or as_json):
            crossed = comparison.crossovers(run, delta=delta, coverage=coverage)
        chosen = made.recommended.selection
        statement = statement_of(chosen, run, delta=delta, records=records, unit=source.unit)
        statement = with_learning(statement, source.spent, source.unit or ROW)
    with progress("drawing") as tick:
        if plot is not None:
            charts.draw(
                run, delta=delta, candidates=candidates, coverage=coverage, file=plot, force=force, progress=tick
            )
        if chart is not None:
            from honestdp.report import choices

            choices.draw(made, file=chart, force=force, progress=tick)
    command = _command(made, max_runs, published, context, source.spent)
    drawn = {name: None if file is None else str(file) for name, file in (("plot", plot), ("chart", chart))}
    more = {"command": command, "epsilon_of_bounds": source.spent} | drawn
    bounds = f"{'bounds':<13}epsilon {source.spent:g} is for what is learnt of the columns; what follows is the rest\n"
    files = [f"\n{name:<13}{drawn[name]}" for name in ("chart", "plot") if drawn[name]]
    emit(
        lambda: console.plan_as_dict(made, crossed, statement) | more,
        as_json=as_json,
        text=lambda: "".join(
            [bounds if source.spent else "", console.plan_text(made, crossed, statement, command, table=table), *files]
        ),
    )


@dataclass(frozen=True)
class Planned:
    """Public numbers of the records: N, the default delta, the model's weights, the protected unit, and the epsilon that was
    spent, or is set apart, to learn bounds.
    """

    counted: int
    delta: float = datasets.DELTA
    parameters: int | None = None
    unit: Unit | None = None
    spent: float = 0.0


def planned_on(options: Mapping[str, Any]) -> Planned:
    """Public numbers of the named file, of which no value is read; or the declared number of records."""
    from honestdp.budget import default_delta
    from honestdp.planner.prospects import counting

    if options["name"] is None:
        given = next((f"--{each.replace('_', '-')}" for each in datasets.OF_A_FILE if options[each] is not None), None)
        if given is not None:
            raise checks.HonestdpError(f"{given} must be left out without a file: it says what is in it")
        if options["records"] is None:
            raise checks.InvalidArgument("records", None, "given, or a file with its --schema to count them in")
        return Planned(options["records"])
    table, file = datasets.table_of(options), Path(options["name"])
    counted = _counted(table, file, options["schema"])
    checks.whole(least=datasets.FEWEST, records=counted)
    units, inputs, outputs = datasets.hidden_units(options["model"]), table.width, table.outputs
    hidden = [(units, inputs), (units,), (outputs, units)] if units else [(outputs, inputs)]
    parameters = counting([*hidden, (outputs,)])
    unit = ROW if table.person is None else Unit(table.person, table.rows_per_person or 1)
    spent = table.spent + (datasets.share_of(options) if table.to_learn and options["epsilon"] is not None else 0.0)
    return Planned(counted, default_delta(counted), parameters, unit, spent)


def _counted(table: Table, file: Path, schema: Path) -> int:
    """N as declared, or counted without a look at a value; the header fits the schema."""
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


def _exactly(value: float) -> str:
    """With all its digits, for a rounded epsilon may be a larger one."""
    return repr(float(value)).removesuffix(".0")


def _command(
    made: Plan, max_runs: float | None, published: bool, context: typer.Context, spent: float = 0.0
) -> str | None:
    """What does it: the words in capitals are the reader's to fill in. None where `tune` would refuse."""
    if made.candidates > 1 and made.validation == 0:
        return None
    whole = context.params["epsilon"]
    epsilon = _exactly(whole) if made.budget else rounded_up(made.recommended.epsilon + spent)
    words = ["honestdp", "tune", *_trained_on(context), "--epsilon", epsilon, "--delta", _exactly(made.delta)]
    words += ["--lot", _exactly(made.run.lot), "--steps", str(made.run.steps)]
    if made.validation != 0.2:
        words += ["--validation", _exactly(made.validation)]
    if made.candidates > 1:
        words += ["--optimizer", "OPTIMIZER", "--space", "NAME=VALUES"]
        if made.coverage != 0.9:
            words += ["--coverage", _exactly(made.coverage)]
        if max_runs is not None:
            words += ["--max-runs", _exactly(max_runs)]
        words += ["--published"] if published else []
    if context.params["name"] is not None:  # where bounds are learnt it must be named, so that they are paid for once
        words += ["--out", "MODEL"]
    return shlex.join(words)


def _trained_on(context: typer.Context) -> list[str]:
    """The file, with the options that say what it is; DATASET where none was named."""
    given = context.params
    if given["name"] is None:
        return ["DATASET"]
    named = [name for name in (*datasets.OF_A_FILE, "records") if given[name] is not None]
    model = [] if given["model"] == "logistic" else ["--model", given["model"]]
    return [
        given["name"],
        *(word for name in named for word in (f"--{name.replace('_', '-')}", str(given[name]))),
        *model,
    ]
