"""Options that several commands of the command line share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from honestdp.selection import Selection


def whole_number(text: str) -> int:
    """A whole number, 1e6 included."""
    try:
        number = float(text)
        if number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(f"{text!r} is not a whole number")


def shape_of_count(text: str) -> float | str:
    named: dict[str, float | str] = {"geometric": 1.0, "logarithmic": 0.0, "poisson": "poisson"}
    try:
        return named[text] if text in named else float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number above -1, geometric, logarithmic or poisson") from None


Records = Annotated[
    int, typer.Option(parser=whole_number, metavar="INTEGER", help="N: how many records there are, a public constant.")
]
Lot = Annotated[float, typer.Option(help="L: the expected size of a Poisson lot; the rate is lot/records.")]
Steps = Annotated[int, typer.Option(parser=whole_number, metavar="INTEGER", help="T: noisy queries in one run.")]
Noise = Annotated[float, typer.Option(help="sigma: the noise multiplier. 0 is no privacy at all.")]
Delta = Annotated[float, typer.Option(help="delta, well below 1/records.")]
Candidates = Annotated[
    int,
    typer.Option(
        parser=whole_number,
        metavar="INTEGER",
        help="K: the runs that are composed, or the grid with one winner; gamma = 1/K for liu-talwar; the mean number of runs of "
        "random stopping unless --runs is given.",
    ),
]
SelectionName = Annotated[
    str,
    typer.Option(help="How the winner is found: compose, winner, liu-talwar, papernot-steinke, profile or envelope."),
]
Runs = Annotated[float | None, typer.Option(help="The mean number of runs of random stopping.")]
ShapeOption = Annotated[
    Any,
    typer.Option(
        parser=shape_of_count,
        metavar="NUMBER|poisson",
        help="Of the number of runs: above -1 (0 logarithmic, 1 geometric), or poisson. Geometric if left out.",
    ),
]
Identical = Annotated[
    bool, typer.Option("--identical", help="For winner: all candidates are one setting with different seeds.")
]
Accountant = Annotated[
    str | None,
    typer.Option(help="pld (tight), rdp or moments (what the papers print). Each selection has its own default."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def selection_of(
    name: str,
    *,
    candidates: int,
    runs: float | None,
    shape: float | str | None,
    accountant: str | None,
    identical: bool,
) -> Selection:
    """The selection that the options name."""
    from honestdp.selection import named

    return named(name, candidates=candidates, runs=runs, shape=shape, accountant=accountant, identical=identical)
