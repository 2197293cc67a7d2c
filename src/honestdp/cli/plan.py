"""The command `plan`: which selection, noise, lot and steps to take for a search, before any record is read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from honestdp import checks
from honestdp.cli import datasets
from honestdp.cli import options as option
from honestdp.cli.terminal import emit, progress, words_of
from honestdp.plain_words import rounded_up
from honestdp.run import ROW

if TYPE_CHECKING:
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
    from honestdp.accounting.calibration import once
    from honestdp.planner import comparison
    from honestdp.report import chart as charts
    from honestdp.report import console
    from honestdp.selection.cost import statement as statement_of

    unit, spent, usual = ROW, 0.0, datasets.DELTA
    if name is None:
        records = _checked_records(records, context.params)
    else:
        source = datasets.to_plan(context.params)
        records, unit, usual, spent = source.counted, source.data.known.unit, source.delta, source.data.known.spent
        parameters = source.weights(model) if parameters is None else parameters
    delta = usual if delta is None else delta
    if (epsilon is None) == (noise is None):
        got = "neither" if epsilon is None else "both"
        wanted = "the noises that meet an epsilon are compared, or the epsilons at a noise"
        raise checks.HonestdpError(f"one of --epsilon and --noise must be given: {wanted}; got {got}")
    for argument, file in (("plot", plot), ("chart", chart)):
        if file is not None:
            charts.check(file, argument, force=force)
    if chart is not None and epsilon is None:
        raise checks.InvalidArgument("chart", str(chart), "left out with --noise: it shows what an --epsilon buys")
    if epsilon is not None and spent:
        if not epsilon > spent:
            raise checks.InvalidArgument("epsilon", epsilon, f"above {spent:g}, which was spent to learn bounds")
        epsilon -= spent
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
        made = replace(made, unit=unit)
        run = made.run_of(made.recommended)
        crossed = []
        if candidates > 1 and (table or as_json):
            crossed = comparison.crossovers(run, delta=delta, coverage=coverage)
        chosen = made.recommended.selection
        of = None if name is None else unit
        statement = statement_of(chosen, run, delta=delta, records=records, unit=of, spent=spent)
    with progress("drawing") as tick:
        if plot is not None:
            charts.draw(
                run, delta=delta, candidates=candidates, coverage=coverage, file=plot, force=force, progress=tick
            )
        if chart is not None:
            charts.draw_choices(made, file=chart, force=force, progress=tick)
    command = _command(made, context, spent)
    drawn = {name: None if file is None else str(file) for name, file in (("plot", plot), ("chart", chart))}
    more = {"command": command, "epsilon_of_bounds": spent} | drawn
    bounds = f"{'bounds':<13}epsilon {spent:g} is for what is learnt of the columns; what follows is the rest\n"
    files = [f"\n{name:<13}{drawn[name]}" for name in ("chart", "plot") if drawn[name]]
    emit(
        lambda: console.plan_as_dict(made, crossed, statement) | more,
        as_json=as_json,
        text=lambda: "".join(
            [bounds if spent else "", console.plan_text(made, crossed, statement, command, table=table), *files]
        ),
    )


def _checked_records(records: int | None, options: Mapping[str, Any]) -> int:
    """The declared number of records of a plan that is made for no file."""
    given = next((f"--{each.replace('_', '-')}" for each in datasets.OF_A_FILE if options[each] is not None), None)
    if given is not None:
        raise checks.HonestdpError(f"{given} must be left out without a file: it says what is in it")
    if records is None:
        raise checks.InvalidArgument("records", None, "given, or a file with its --schema to count them in")
    return records


def _command(made: Plan, context: typer.Context, spent: float) -> str | None:
    """The command that does it; the words in capitals are the reader's to fill in. None where `tune` would refuse."""
    if made.candidates > 1 and made.validation == 0:
        return None
    options = context.params
    values: dict[str, Any] = {"name": "DATASET"}
    if options["name"] is not None:  # where bounds are learnt, out must be given, so that they are paid for once
        named = ("name", "model", "records", *datasets.OF_A_FILE)
        values = {each: options[each] for each in named} | {"out": "MODEL"}
    epsilon = options["epsilon"] if made.budget else rounded_up(made.recommended.epsilon + spent)
    values |= {"epsilon": epsilon, "delta": made.delta, "validation": made.validation}
    values |= {"lot": made.run.lot, "steps": made.run.steps}
    if made.candidates > 1:
        values |= {"optimizer": "OPTIMIZER", "space": "NAME=VALUES"}
        values |= {each: options[each] for each in ("coverage", "max_runs", "published")}
    assert context.parent is not None
    tune = context.parent.command.get_command(context.parent, "tune")  # type: ignore[attr-defined]
    return words_of(tune, values)
