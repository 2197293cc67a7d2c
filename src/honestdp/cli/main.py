"""The command line's entry point, and its commands `epsilon` and `noise`. Results go to standard output,
progress and notes to standard error, and a bad argument is one line."""

from __future__ import annotations

import shlex
import sys
import warnings
from importlib.metadata import entry_points
from typing import Annotated

import typer
from typer import Option

import honestdp
from honestdp import checks
from honestdp.cli import ledger as ledger_cli
from honestdp.cli import models as models_cli
from honestdp.cli import options as option
from honestdp.cli import plan as plan_cli
from honestdp.cli import tables as tables_cli
from honestdp.cli import tune as tune_cli
from honestdp.cli.terminal import Command, NoArgsIsHelpError, UsageError, as_options, emit
from honestdp.plain_words import rounded_up

app = typer.Typer(
    help=(
        "Differentially private training whose reported epsilon includes the hyperparameter search.\n\n"
        "A table in, a private model out: **schema** writes what is to be declared of a file, **check** counts what it can read, "
        "**tune** trains on it, **predict**, **evaluate** and **report** use the model folder.\n\n"
        "**tune** searches and trains within one budget. **plan** says beforehand how to: selection, noise, lot, steps; "
        "**epsilon** and **noise** answer for one. **ledger** keeps what a dataset may spend and has spent."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)
app.command(cls=Command)(tune_cli.tune)
app.command(cls=Command)(plan_cli.plan)
app.command(cls=Command)(tables_cli.schema)
app.command(cls=Command)(tables_cli.check)
app.command(cls=Command)(models_cli.predict)
app.command(cls=Command)(models_cli.evaluate)
app.command(cls=Command)(models_cli.report)
app.add_typer(ledger_cli.app, name="ledger")
for entry in entry_points(group="honestdp.commands"):  # of packages beside this one
    app.add_typer(entry.load(), name=entry.name)
if "papers" not in {group.name for group in app.registered_groups}:

    @app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def papers() -> None:
        """Reproductions of papers: a distribution of its own, which is not installed."""
        raise checks.HonestdpError("papers is not installed: in a checkout of honestdp, run pip install -e papers")


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"honestdp {honestdp.__version__}")
        raise typer.Exit


@app.command(cls=Command)
def epsilon(
    records: option.Records,
    lot: option.Lot,
    noise: option.Noise,
    delta: option.Delta,
    steps: option.Steps = None,
    epochs: option.Epochs = None,
    candidates: option.Candidates = 1,
    selection: option.SelectionName = "compose",
    runs: option.Runs = None,
    shape: option.ShapeOption = None,
    identical: option.Identical = False,
    accountant: option.Accountant = None,
    as_json: option.Json = False,
) -> None:
    """The epsilon of a run, or of a whole search.

    One run on MNIST:  `honestdp epsilon --records 60000 --lot 250 --steps 10000 --noise 4 --delta 1e-6`

    Best of 40 on average:  the same with  `--selection envelope --candidates 40`
    """
    from honestdp.selection import named
    from honestdp.selection.cost import statement

    run = honestdp.Run(records=records, lot=lot, steps=steps, epochs=epochs, noise=noise)
    checks.probability(delta=delta)
    chosen = named(selection, candidates=candidates, runs=runs, shape=shape, accountant=accountant, identical=identical)
    _print_statement(statement(chosen, run, delta=delta, records=records), run, candidates=candidates, as_json=as_json)


@app.command(cls=Command)
def noise(
    records: option.Records,
    lot: option.Lot,
    epsilon: Annotated[float, Option(help="The epsilon that the whole search may spend.")],
    delta: option.Delta,
    steps: option.Steps = None,
    epochs: option.Epochs = None,
    candidates: option.Candidates = 1,
    selection: option.SelectionName = "compose",
    runs: option.Runs = None,
    shape: option.ShapeOption = None,
    identical: option.Identical = False,
    accountant: option.Accountant = None,
    as_json: option.Json = False,
) -> None:
    """The least noise with which a run, or a whole search, meets a budget. It never overshoots.

    `honestdp noise --records 60000 --lot 250 --steps 10000 --epsilon 1 --delta 1e-6 --selection envelope --candidates 40`
    """
    from honestdp.accounting.calibration import least_noise
    from honestdp.selection import named
    from honestdp.selection.cost import statement

    budget = honestdp.Budget(epsilon, delta)
    chosen = named(selection, candidates=candidates, runs=runs, shape=shape, accountant=accountant, identical=identical)
    with warnings.catch_warnings(action="ignore"):
        length = honestdp.Run(records=records, lot=lot, steps=steps, epochs=epochs, noise=0).steps
        run = least_noise(budget, records=records, lot=lot, steps=length, selection=chosen)
    _print_statement(statement(chosen, run, delta=delta, records=records), run, candidates=candidates, as_json=as_json)


def _print_statement(result: honestdp.Statement, run: honestdp.Run, *, candidates: int, as_json: bool) -> None:
    constants = f"noise {rounded_up(run.noise, 6)}, {run.records} records, lot {run.lot:g}, {run.steps} steps"
    value = {**vars(run), "candidates": candidates, **result.as_dict()}
    emit(lambda: value, as_json=as_json, text=lambda: f"{'run':<11}{constants}\n{result}")


def main() -> None:
    """Runs the command line; a bad argument is one line on standard error and exit code 2."""
    try:
        code = typer.main.get_command(app).main(prog_name="honestdp", standalone_mode=False)
    except typer.Abort:
        sys.exit(130)
    except KeyboardInterrupt as stop:
        print(f"honestdp: {str(stop) or 'stopped'}", file=sys.stderr)
        sys.exit(130)
    except NoArgsIsHelpError as error:
        print(error.format_message())
        sys.exit(0)
    except UsageError as error:
        _fail(error.format_message())
    except (checks.HonestdpError, OSError) as error:
        _fail(_in_words(error))
    else:
        sys.exit(code or 0)


def _in_words(error: Exception) -> str:
    """An error as the command line says it: with a command in the place of a call."""
    from honestdp.errors import NoBudget

    if not isinstance(error, NoBudget):
        return as_options(str(error))
    where = shlex.join(["--ledger", str(error.ledger), "--dataset", error.dataset])
    return f"{error.lack}: set it once with `honestdp ledger set-budget {where} --epsilon EPSILON --delta DELTA`"


def _fail(message: str) -> None:
    print("honestdp: error: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(2)
