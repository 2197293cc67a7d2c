"""`honestdp papers`: reproduce the figures and tables of papers, and see whether their claims hold."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from honestdp.checks import HonestdpError
from honestdp.cli.terminal import Command, progress
from honestdp_papers.parts import RESULTS, is_done
from honestdp_papers.registry import PAPERS, Item, Paper, lookup, paper, parts_folder, result_file

app = typer.Typer(
    help=(
        "Reproduce the figures and tables of papers.\n\nEach has its claims beside it, with a verdict computed from the numbers. "
        "Start with **list**."
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Name = Annotated[
    str, typer.Argument(metavar="PAPER[/NAME]", help="As in mohapatra2022/table1; a paper alone is all of it.")
]
Out = Annotated[Path, typer.Option(help="Where results, figures and parts are kept.")]
Quick = Annotated[bool, typer.Option("--quick", help="A small version of the same shape: minutes on two cores.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LONG = 10.0  # seconds on a large GPU from which on a CPU is a poor idea


@app.command("list", cls=Command)
def list_papers(
    name: Annotated[str | None, typer.Argument(metavar="[PAPER]", help="As in koskela2020; all, if left out.")] = None,
    out: Out = RESULTS,
    as_json: Json = False,
) -> None:
    """Every figure and table that can be reproduced, and the verdicts of those that have been."""
    from honestdp_papers.results import kept_result

    rows: list[dict[str, Any]] = []
    for found in map(paper, PAPERS if name is None else (name,)):
        for item in found.items:
            full, quick = (kept_result(found, item, out=out, quick=quick) for quick in (False, True))
            kept = full or quick
            verdicts = [claim["verdict"] for claim in kept["claims"]] if kept else []
            size = "full" if full else "quick" if quick else None
            rows.append({"name": f"{found.name}/{item.name}", "about": item.about, "size": size, "verdicts": verdicts})
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("name", "shows", f"verdicts in {out}", box=None, header_style="bold")
    for row in rows:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(row["verdicts"]).most_common())
        table.add_row(row["name"], row["about"], f"{row['size']}: {counts}" if row["size"] else "")
    Console().print(table)


@app.command(cls=Command)
def run(
    name: Name,
    quick: Quick = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one.")] = None,
    out: Out = RESULTS,
    kept: Annotated[
        bool,
        typer.Option(
            "--kept", help="Train nothing: use kept parts, stale or not, as far as they go; the result says so."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Reproduce a figure, a table or a whole paper. Stopped work goes on where it was: run the same again.

    `honestdp papers run mohapatra2022/table1`
    """
    try:
        _run(name, quick=quick, device=device, out=out, kept=kept, as_json=as_json)
    except KeyboardInterrupt:
        typer.echo("honestdp: stopped; the parts that are done are kept: run the same again to go on", err=True)
        raise typer.Exit(130) from None


def _run(name: str, *, quick: bool, device: str | None, out: Path, kept: bool, as_json: bool) -> None:
    from honestdp_papers.results import reproduce

    found, items = lookup(name)
    place = _device(device)
    results = []
    for item in items:
        file = result_file(out, found.name, item.name, quick)
        if file.exists():
            typer.echo(f"note: replaces {file}", err=True)
        if place == "cpu" and not kept and not quick:
            _warn(found, item, out=out)
        with progress(f"{found.name}/{item.name}") as update:
            results.append(
                reproduce(
                    found,
                    item,
                    out=out,
                    quick=quick,
                    device=place,
                    kept_only=kept,
                    tell=lambda part, done, total, update=update: update(done, total, part),
                )
            )
        if not as_json:
            _print(found, item, results[-1], out)
    if as_json:
        typer.echo(json.dumps(results if len(items) > 1 else results[0], indent=2))


@app.command(cls=Command)
def show(name: Name, quick: Quick = False, out: Out = RESULTS, as_json: Json = False) -> None:
    """Print a result that was made before: claims, verdicts, tables, and how it was made."""
    from honestdp_papers.results import kept_result

    found, items = lookup(name)
    results = [(item, kept_result(found, item, out=out, quick=quick)) for item in items]
    present = [(item, result) for item, result in results if result is not None]
    if not present:
        size = " --quick" if quick else ""
        raise HonestdpError(
            f"{name}: there is no {'quick ' if quick else ''}result of it in {out}; honestdp papers run {name}{size} makes one"
        )
    if as_json:
        shown = [result for _, result in present]
        typer.echo(json.dumps(shown if len(items) > 1 else shown[0], indent=2))
        return
    for item, result in present:
        _print(found, item, result, out)


@app.command(cls=Command)
def document(
    name: Annotated[str, typer.Argument(metavar="PAPER", help="As in mohapatra2022.")],
    out: Out = RESULTS,
    page: Annotated[Path | None, typer.Option(help="The file to write; papers/docs/PAPER.md if left out.")] = None,
) -> None:
    """Write the page of a paper from its full-size results.

    What they conclude is written into pages of docs/ that have a place for it.
    """
    from honestdp_papers.document import page as written
    from honestdp_papers.parts import write_whole
    from honestdp_papers.places import fill

    found = paper(name)
    file = page or Path("papers/docs") / f"{name}.md"
    write_whole(file, written(found, out=out, beside=file).encode())
    others = fill(Path("docs"), found, out=out) if page is None else []
    for one in (file, *others):
        typer.echo(str(one))


def _device(device: str | None) -> str:
    import torch

    from honestdp_papers.run_device import check_device

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    check_device(device)
    return device


def _warn(found: Paper, item: Item, *, out: Path) -> None:
    """That work made for a GPU is about to begin without one, in full size."""
    folder = parts_folder(out, found.name, False)
    todo = [part for part in item.parts(False) if not part.optional and not is_done(part, folder)]
    seconds = sum(part.weight for part in todo)
    if seconds > LONG:
        here = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
        typer.echo(
            f"note: {found.name}/{item.name} in full takes some {here} on a large GPU and a hundred times that here; --quick "
            "takes minutes. It can be stopped and goes on where it was.",
            err=True,
        )


def _print(found: Paper, item: Item, result: dict[str, Any], out: Path) -> None:
    console = Console()
    size = " (quick version)" if result["quick"] else ""
    console.print(f"\n[bold]{found.name}/{item.name}[/bold]{size}: {item.about}")
    table = Table("claim", "found", "verdict", box=None, header_style="bold", padding=(0, 2, 1, 0))
    colours = {"holds": "green", "holds in part": "yellow", "does not hold": "red", "cannot be told": "cyan"}
    for claim in result["claims"]:
        table.add_row(claim["claim"], claim["found"], f"[{colours[claim['verdict']]}]{claim['verdict']}[/]")
    console.print(table)
    for kept in result["tables"]:
        shown = Table(box=None, header_style="bold", title=kept["title"], title_justify="left")
        for name in kept["header"]:
            shown.add_column(name, overflow="fold")
        for row in kept["rows"]:
            shown.add_row(*row)
        console.print(shown)
    for note in result["notes"]:
        console.print(f"note: {note}", markup=False)
    if "figure" in result:
        console.print(f"figure      {out / found.name / result['figure']}", markup=False)
    made = result["made"]
    seconds = made["seconds of training"] + made["seconds of the rest"]
    console.print(f"made by     {made['command']}", markup=False)
    for command in made["training by"]:
        if command != made["command"]:
            console.print(f"trained by  {command}", markup=False)
    console.print(f"on          {', '.join(made['device'])}, {seconds:.0f} s, {made['on']}", markup=False)
    for words in _doubtful(made):
        console.print(words, markup=False)


def _doubtful(made: dict[str, Any]) -> list[str]:
    """Of which parts the numbers are not those of today's code, or not there."""
    stale, missing, said = made.get("stale", {"parts": 0}), made.get("missing", []), []
    if stale["parts"]:
        files = len(stale["changed since"])
        said.append(
            f"stale       {stale['parts']} of {stale['of']} parts: code that they rest on has changed since they were trained "
            f"({files} file{'s' * (files != 1)}); without --kept they are made again"
        )
    if missing:
        said.append(f"not trained {', '.join(missing)}")
    return said
