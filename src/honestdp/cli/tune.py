"""`honestdp tune`: a whole search on a file or a named dataset, from the ledger's charge to the report and the model folder."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from honestdp import checks
from honestdp.cli import datasets
from honestdp.cli import options as option
from honestdp.cli.options import DEFAULT, by_class, spaces_of
from honestdp.cli.terminal import as_options, balance_line, emit, words_of
from honestdp.notebook import as_text

if TYPE_CHECKING:
    from honestdp.search.request import Requested
    from honestdp.search.tune import TuneResult

_DATASET = typer.Argument(
    metavar="[FILE|DATASET]",
    help=(
        "What to train on: a CSV or Parquet file, with --schema; or by name {datasets}. digits and breast-cancer need no files. "
        "Required, but for --resume."
    ),
)

_EPSILON = "**Required**, but for --resume. What the whole search may spend: every run, every score, the choice."
_BOUNDS = 'Part of --epsilon for bounds = "private" in the schema, learnt from the rows first; a tenth if left out.'
_MODEL = "logistic (linear for numbers), or hidden:100 for one hidden layer of 100 units."
_LEDGER = "{spec.ledger} DATASET, or FILE's name up to its first point, must have a budget in it: `honestdp ledger set-budget`."
_OUT = (
    "{spec.out} Of a FILE it is a model folder, for predict, evaluate and report. The same command again goes on with the search "
    "in it, or reads its result, and charges nothing. Left out: searches/DATASET-DIGEST, beside the ledger if there is one in a "
    "file."
)
_DRY_RUN = (
    "Print cost, noise, time and the files to be written, all of it rehearsed. Nothing is charged, trained or made."
)
_SPACE = (
    "The space: `clip=0.1,0.2,0.5` (a grid) or `lr=log:0.001:1` or `lr=uniform:0:1`. With several optimizers `sgd.lr=...`. May "
    "hold weight_decay, lot, steps or epochs, and width of a hidden model. Left out, or without a hyperparameter of the "
    "optimizer's own: the papers' grid. May repeat."
)
_CLUSTER = (
    "Train the runs on the nodes of a Ray cluster: auto (the one that this machine is in), HOST:PORT, or ray://HOST:PORT. The "
    "result is that of one machine, and --resume may leave it out or name another. Its operator sees the records and every run."
)

_WHERE = ("out", "again", "dry_run", "resume", "cluster", "as_json")
"""Parameters that do not define the search."""


def tune(
    context: typer.Context,
    name: Annotated[str | None, _DATASET] = None,
    epsilon: Annotated[float | None, Option(help=_EPSILON)] = None,
    delta: datasets.Delta = None,
    schema: datasets.Schema = None,
    target: datasets.Target = None,
    person: datasets.Person = None,
    rows_per_person: datasets.RowsPerPerson = None,
    records: datasets.Records = None,
    bounds_epsilon: Annotated[float | None, Option(help=_BOUNDS)] = None,
    model: Annotated[str, Option(help=_MODEL)] = "logistic",
    optimizer: Annotated[list[str] | None, option.of_spec("optimizer", more="One of {optimizers}. May repeat.")] = None,
    space: Annotated[list[str] | None, Option(help=_SPACE)] = None,
    selection: Annotated[str, option.of_spec("selection", more="Or {selections}.")] = "auto",
    coverage: option.Coverage = 0.9,
    lot: option.ChosenLot = None,
    steps: option.ChosenSteps = None,
    epochs: option.ChosenEpochs = None,
    schedule: Annotated[str, option.of_spec("schedule")] = "constant",
    validation: option.Validation = 0.2,
    metric: option.Metric = None,
    prevalence: option.Prevalence = None,
    class_weights: Annotated[
        str | None, option.of_spec("class_weights", more="Written as `no=1,yes=9`, or `balanced`.")
    ] = None,
    max_runs: option.MaxRuns = None,
    published: option.Published = False,
    candidates: Annotated[int | None, option.of_spec("candidates")] = None,
    ledger: Annotated[Any, option.ledger(_LEDGER)] = None,
    dataset: Annotated[str | None, option.of_spec("dataset", more="Left out: DATASET, or FILE's name.")] = None,
    note: option.Note = "",
    preprocessing: Annotated[str | None, option.of_spec("preprocessing")] = None,
    out: Annotated[Path | None, Option(help=_OUT)] = None,
    again: Annotated[bool, option.of_spec("again", "--again")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help=_DRY_RUN)] = False,
    resume: Annotated[Path | None, Option(help="Go on with the search in this folder; needs nothing else.")] = None,
    device: Annotated[str | None, Option(help="cpu or cuda; a GPU if there is one.")] = None,
    cluster: Annotated[str | None, Option(help=_CLUSTER)] = None,
    strict: Annotated[bool, option.of_spec("strict", "--strict")] = False,
    noise_seed: Annotated[int | None, option.of_spec("noise_seed")] = None,
    as_json: option.Json = False,
) -> None:
    """Search for hyperparameters and train, all within one budget, and say what is guaranteed.

    `honestdp tune patients.csv --schema patients.toml --target readmitted --epsilon 3 --out model/`

    `honestdp tune digits --epsilon 3 --optimizer sgd --space lr=0.1,0.5,2,10 --space clip=0.3 --lot 256 --steps 300 --out sgd`

    With no optimizer it is one run with nothing to tune and the whole budget in it: by echo for classes, by horizon for numbers,
    which find their steps themselves (docs/optimizers.md says how, and when to name another).

    First see what it would do:  the same with  `--dry-run`
    """
    if resume is not None:
        _resume(context, resume, as_json=as_json)
        return
    if name is None:
        wanted = "honestdp tune FILE --schema SCHEMA, honestdp tune DATASET, or honestdp tune --resume DIR"
        raise checks.HonestdpError(f"a file or a dataset must be named: {wanted}")
    if epsilon is None:
        raise checks.InvalidArgument("epsilon", None, "given: the budget of the whole search, such as --epsilon 3")
    _stoppable(context, as_json=as_json, resumed=None)


def _stoppable(context: Any, *, as_json: bool, resumed: Path | None) -> None:
    """The search; after Ctrl-C how to go on, and the exit code of a command that was interrupted."""
    folders = [] if resumed is None else [resumed]
    try:
        _search(context, folders, as_json=as_json)
    except KeyboardInterrupt as stop:
        folder = next(iter(folders), None)
        begun = folder is not None and (folder / "search.json").exists()
        if context.params["dry_run"]:
            words = "nothing was charged"
        elif not getattr(stop, "charged", False) and datasets.LEARNT_ONCE in context.meta:
            words = datasets.LEARNT_ONCE
        elif not getattr(stop, "charged", False):
            words = "nothing more was charged" if begun else "nothing was charged"
        else:
            words = getattr(stop, "paid", "") + ("; to go on:" if begun else "")
        typer.echo(f"honestdp: the search was stopped; {words}", err=True)
        if begun and not context.params["dry_run"]:
            where = [] if context.params["cluster"] is None else ["--cluster", context.params["cluster"]]
            typer.echo(shlex.join(["honestdp", "tune", "--resume", str(folder), *where]), err=True)
        raise typer.Exit(130) from None


def _resume(context: typer.Context, folder: Path, *, as_json: bool) -> None:
    """The search in the folder, by the command that began it."""
    source = {p.opts[0]: context.get_parameter_source(p.name) for p in context.command.params if p.name}
    typed = [name for name, where in source.items() if where is not None and where.name == "COMMANDLINE"]
    others = [name for name in typed if name not in ("--resume", "--json", "--dry-run", "--cluster")]
    if others:
        wanted = f"given alone: the search goes on with the settings that it was begun with, so leave out {', '.join(others)}"
        raise checks.InvalidArgument("resume", str(folder), wanted)
    try:
        command = shlex.split(str(json.loads((folder / "search.json").read_text())["reproduce"]))
    except (OSError, ValueError, KeyError, TypeError):
        command = []
    if command[:2] != ["honestdp", "tune"]:
        wanted = (
            "the folder of a search that was begun on the command line, with its search.json: there is none in it. Begin one "
            "with its whole command and --out; one that was begun in Python goes on by the same call"
        )
        raise checks.InvalidArgument("resume", str(folder), wanted)
    began = context.command.make_context("tune", command[2:], parent=context.parent)
    began.params |= {name: context.params[name] for name in ("dry_run", "cluster")}
    if "--ledger" not in command:
        began.params["ledger"] = None  # whatever the environment says now
    else:
        began.params["ledger"] = option.with_password(began.params["ledger"])
    _stoppable(began, as_json=as_json, resumed=folder)


def _search(context: Any, folders: list[Path], *, as_json: bool) -> None:
    """folders: that of a search to go on with; where there is none, that of this search is put there once it is known."""
    from honestdp.planner.prospects import WARNING
    from honestdp.search import dry_run, tune

    resumed = folders[0] if folders else None
    folder = resumed or (context.params["out"] and Path(context.params["out"]))
    source = datasets.source_of(context.params, folder)
    what = _requested(context, source, resumed)
    folders[:] = [] if what.folder is None else [what.folder]
    first = datasets.charged_first(source, context.params)
    if context.params["dry_run"]:
        ahead = dry_run.looked_ahead(what, first)
        later = datasets.files_handed_over(source, what.folder)
        words = as_options(str(ahead)) + (f"\n{'':<12}and for predict {', '.join(later)}" if later else "")
        emit(lambda: ahead.as_dict() | {"files_of_the_model": later}, as_json=as_json, text=lambda: words)
        if ahead.refusal:
            raise checks.HonestdpError(ahead.refusal)
        return
    if source.to_learn is not None:  # first what can fail without a row of it
        ahead = dry_run.looked_ahead(what, first)
        if ahead.refusal:
            raise checks.HonestdpError(f"{ahead.refusal}; nothing was charged")
        source = datasets.with_bounds(source, context.params, folder)
        if what.books is not None:
            context.meta[datasets.LEARNT_ONCE] = True
        what = _requested(context, source, resumed)
    result = tune.carried_out(what)
    digest = datasets.handed_over(source, result)
    warned = [each.removeprefix(WARNING) for each in result.statement.notes if each.startswith(WARNING)]
    more = {"folder": str(what.folder), "warnings": warned} | ({} if digest is None else {"digest": digest})
    emit(lambda: result.as_dict() | more, as_json=as_json, text=lambda: _in_words(result, source.standin, digest))


def _requested(context: Any, source: datasets.Source, resumed: Path | None) -> Requested:
    from honestdp.budget import Budget
    from honestdp.search.request import SearchSpec, requested
    from honestdp.training.spec import Compute, TrainSpec, help_texts

    options = context.params
    names = options["optimizer"] or None
    spaces = spaces_of(options["space"], names)
    if not options["model"].startswith("hidden") and any("width" in space for space in (spaces or {}).values()):
        raise checks.InvalidArgument("model", options["model"], "hidden, since the space has widths")
    own = help_texts(SearchSpec).keys() | help_texts(TrainSpec).keys()
    as_given = {name: value for name, value in options.items() if name in own}
    meant = {
        "records": source.declared,
        "budget": Budget(options["epsilon"], source.delta if options["delta"] is None else options["delta"]),
        "optimizer": names,
        "space": spaces if names or spaces is None else spaces[DEFAULT],
        "dataset": options["dataset"] or (None if options["ledger"] is None else source.label),
        "metric": options["metric"] or source.metric,
        "prevalence": by_class("prevalence", options["prevalence"], source.classes),
        "class_weights": by_class("class_weights", options["class_weights"], source.classes),
        "compute": Compute(device=options["device"], progress=True, cluster=options["cluster"]),
        "out": resumed or options["out"],
        "resume": resumed is not None,
        "reproduce": words_of(context.command, options, without=_WHERE),
        "label": source.label,
    }
    spec = SearchSpec.of(**as_given | meant)
    model = datasets.model_of(options["model"], features=source.features, outputs=source.outputs)
    return requested(model, source.data, spec)


def _in_words(result: TuneResult, standin: str | None, digest: str | None) -> str:
    rows = [("winner", ", ".join(f"{name} {value}" for name, value in result.hyperparameters.items()))]
    if result.score is not None:
        rows.append(("score", result.score.in_words(of_a_winner=result.statement.runs != 1)))
    if standin:
        rows.append(("data", standin))
    files = []
    if result.folder is not None:
        files.append(("model", str(result.folder / ("model.safetensors" if digest is None else ""))))
        files.append(("report", str(result.folder / "report.html")))
    if digest is not None:
        noted = "note it elsewhere, and nobody can change the folder unseen"
        files.append(("digest", f"{digest}, of the model folder: {noted}"))
    guarantee = [f"\n{result.statement}", f"\n{balance_line(result.balance, result.delta)}"]
    return "\n".join([as_text(rows, width=12), *guarantee, *[as_text(files, width=12)] * bool(files)])
