"""`honestdp papers`: reproduce the figures and tables of papers, and see whether their claims hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from honestdp.cli.terminal import Command, progress
from honestdp.errors import HonestdpError
from honestdp_papers.claims import VERDICTS
from honestdp_papers.parts import RESULTS, is_done, replays
from honestdp_papers.registry import PAPERS, Item, Paper, lookup, paper, parts_folder, result_file
from honestdp_papers.replay import outcome

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
    """List every figure and table, its verdicts, and whether its result is kept, lacks parts or is not made yet."""
    from honestdp_papers.results import kept_result

    rows: list[dict[str, Any]] = []
    replayed: dict[str, dict[str, Any]] = {}
    for found in map(paper, PAPERS if name is None else (name,)):
        replayed |= {f"{found.name} {part}": one for part, one in replays(out / found.name).items()}
        for item in found.items:
            full, quick = (kept_result(found, item, out=out, quick=quick) for quick in (False, True))
            kept = full or quick
            rows.append(
                {
                    "name": f"{found.name}/{item.name}",
                    "about": item.about,
                    "size": "full" if full else "quick" if quick else None,
                    "state": _state(kept),
                    "verdicts": [claim["verdict"] for claim in kept["claims"]] if kept else [],
                }
            )
    if as_json:
        typer.echo(json.dumps({"items": rows, "replays": replayed}, indent=2))
        return
    table = Table(box=None, header_style="bold")
    for header in ("name", "state", "verdicts", "shows"):
        table.add_column(header, no_wrap=header != "shows")
    for row in rows:
        counts = [str(row["verdicts"].count(verdict)) for verdict in VERDICTS]
        table.add_row(row["name"], row["state"], "/".join(counts) if row["verdicts"] else "", row["about"])
    console = Console()
    console.print(table)
    console.print(f"verdicts in {out}: {' / '.join(VERDICTS)}", markup=False)
    for part, one in replayed.items():
        console.print(f"{part}: {outcome(one)}", markup=False)


def _state(kept: dict[str, Any] | None) -> str:
    if kept is None:
        return "not made"
    missing = len(kept["made"].get("missing", ()))
    return f"kept{', quick' if kept['quick'] else ''}{f', {missing} parts missing' if missing else ''}"


@app.command(cls=Command)
def run(
    name: Name,
    quick: Quick = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Make it, and train every part that is stale or not there.")
    ] = False,
    kept: Annotated[
        bool, typer.Option("--kept", help="Make it from the parts that are kept, as far as they go; train nothing.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one.")] = None,
    out: Out = RESULTS,
    as_json: Json = False,
) -> None:
    """Show a figure, a table or a whole paper as it is kept; --anew makes it.

    `honestdp papers run mohapatra2022/table1`

    Work that was stopped goes on where it was: run the same again.
    """
    found, items = lookup(name)
    if not (anew or kept):
        results = _shown(found, items, quick=quick, out=out)
    else:
        try:
            results = _made(found, items, quick=quick, device=device, out=out, kept=not anew)
        except KeyboardInterrupt:
            typer.echo("honestdp: stopped; the parts that are done are kept: run the same again to go on", err=True)
            raise typer.Exit(130) from None
    if as_json:
        each = [result for _, result in results]
        typer.echo(json.dumps(each if len(items) > 1 else each[0], indent=2))
        return
    for item, result in results:
        _print(found, item, result, out)


Results = list[tuple[Item, dict[str, Any]]]


def _shown(found: Paper, items: list[Item], *, quick: bool, out: Path) -> Results:
    from honestdp_papers.results import kept_result

    results = [(item, kept_result(found, item, out=out, quick=quick)) for item in items]
    present = [(item, result) for item, result in results if result is not None]
    if not present:
        name = found.name if len(items) > 1 else f"{found.name}/{items[0].name}"
        raise HonestdpError(
            f"{name}: no {'quick ' if quick else ''}result of it is kept in {out}; honestdp papers run {name}"
            f"{' --quick' if quick else ''} --anew makes one"
        )
    return present


def _made(found: Paper, items: list[Item], *, quick: bool, device: str | None, out: Path, kept: bool) -> Results:
    from honestdp_papers.results import reproduce

    place, results = _device(device), []
    for item in items:
        file = result_file(out, found.name, item.name, quick)
        if file.exists():
            typer.echo(f"note: replaces {file}", err=True)
        if place == "cpu" and not kept and not quick:
            _warn(found, item, out=out)
        with progress(f"{found.name}/{item.name}") as update:
            result = reproduce(
                found,
                item,
                out=out,
                quick=quick,
                device=place,
                kept_only=kept,
                tell=lambda part, done, total, update=update: update(done, total, part),
            )
        results.append((item, result))
    return results


@app.command(cls=Command)
def replay(
    name: Annotated[str | None, typer.Argument(metavar="[PAPER]", help="As in koskela2020; all, if left out.")] = None,
    only: Annotated[str, typer.Option(help="The parts of a pattern, such as 'honest/*'.")] = "*",
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one.")] = None,
    out: Out = RESULTS,
    as_json: Json = False,
) -> None:
    """Make one cheap part of each code path again and compare it with the part that is kept: minutes on a CPU.

    The outcomes are written beside the results, to replay.json; `document` prints them. A part whose replay differs is stale.
    """
    from honestdp_papers.replay import replay as replay_of

    place = _device(device)
    found = {
        one.name: replay_of(one, out=out, device=place, only=only, tell=lambda line: typer.echo(line, err=as_json))
        for one in map(paper, PAPERS if name is None else (name,))
    }
    if as_json:
        typer.echo(json.dumps(found, indent=2))


@app.command(cls=Command)
def document(
    name: Annotated[str, typer.Argument(metavar="PAPER", help="As in mohapatra2022.")],
    out: Out = RESULTS,
    page: Annotated[Path | None, typer.Option(help="The file to write; papers/docs/PAPER.md if left out.")] = None,
    as_json: Json = False,
) -> None:
    """Write the page of a paper from its full-size results.

    What they conclude is written into pages of docs/ that have a place for it.
    """
    from honestdp_papers.document import fill
    from honestdp_papers.document import page as written
    from honestdp_papers.parts import write_whole

    found = paper(name)
    file = page or Path("papers/docs") / f"{name}.md"
    write_whole(file, written(found, out=out, beside=file).encode())
    others = fill(Path("docs"), found, out=out) if page is None else []
    files = [str(one) for one in (file, *others)]
    typer.echo(json.dumps({"written": files}, indent=2) if as_json else "\n".join(files))


def _device(device: str | None) -> str:
    import torch

    from honestdp_papers.run_device import check_device

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    check_device(device)
    return device


def _warn(found: Paper, item: Item, *, out: Path) -> None:
    """Say that work made for a GPU is about to begin without one, in full size."""
    folder = parts_folder(out, found.name, False)
    todo = [part for part in item.parts(False) if not part.optional and not is_done(part, folder)]
    seconds = sum(part.weight for part in todo)
    if seconds > LONG:
        here = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
        typer.echo(
            f"note: {found.name}/{item.name} in full trains for {here} on a large GPU and a hundred times that here; --quick "
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
    trained = [command for command in made["training by"] if command != made["command"]]
    if trained:
        console.print(f"trained by  {trained[0]}", markup=False)
    if len(trained) > 1:
        console.print(f"            and {len(trained) - 1} other commands: --json has them", markup=False)
    console.print(f"on          {', '.join(made['device'])}, {seconds:.0f} s, {made['on']}", markup=False)
    if made.get("missing"):
        console.print(f"not trained {', '.join(made['missing'])}", markup=False)
    own = {one.part for one in found.replays if one.item == item.name}
    for part, one in replays(out / found.name).items():
        if part in own and not result["quick"]:
            console.print(f"replay      {part}: {outcome(one)}", markup=False)
