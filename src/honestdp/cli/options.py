"""Options that several commands of the command line share."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Option

from honestdp import checks


def whole_number(text: str) -> int:
    """A whole number, 1e6 included."""
    try:
        number = float(text)
        if number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(f"{text!r} is not a whole number")


def whole(help: str) -> Any:
    return Option(parser=whole_number, metavar="INTEGER", help=help)


def place(text: Any) -> Any:
    """Of a ledger: a path, or an address whose password nothing repeats."""
    from honestdp.ledger.address import place_of

    try:
        return place_of(text)
    except checks.InvalidArgument as error:  # in words of its own: typer would repeat what was typed
        raise typer.BadParameter(f"it must be {error.wanted}") from None


def with_password(ledger: Any) -> Any:
    """An address that was saved has none: it is taken from the environment's where that is the same one otherwise."""
    return getattr(ledger, "with_password", lambda: ledger)()


def ledger(help: str, *names: str) -> Any:
    return Option(*names, envvar="HONESTDP_LEDGER", parser=place, metavar="FILE|ADDRESS", help=help)


def shape_of_count(text: str) -> float | str:
    named: dict[str, float | str] = {"geometric": 1.0, "logarithmic": 0.0, "poisson": "poisson"}
    try:
        return named[text] if text in named else float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number above -1, geometric, logarithmic or poisson") from None


_K = (
    "K: the runs that are composed, or the grid with one winner; gamma = 1/K for liu-talwar; the mean number of runs of "
    "random stopping unless --runs is given."
)
_SHAPE = "Of the number of runs: above -1 (0 logarithmic, 1 geometric), or poisson. Geometric if left out."
Records = Annotated[int, whole("N: how many records there are, a public constant.")]
Lot = Annotated[float, Option(help="L: the expected size of a Poisson lot; the rate is lot/records.")]
Steps = Annotated[int | None, whole("T: noisy queries in one run; or give --epochs.")]
Epochs = Annotated[
    float | None,
    Option(help="In the place of --steps: how often a record is drawn on average; each is records/lot steps."),
]
ChosenLot = Annotated[float | None, Option(help="L: the expected size of a Poisson lot. Left out, it is chosen.")]
ChosenSteps = Annotated[
    int | None, whole("T: noisy queries in one run. Left out, they are chosen from public numbers.")
]
Noise = Annotated[float, Option(help="sigma: the noise multiplier. 0 is no privacy at all.")]
Delta = Annotated[float, Option(help="delta, well below 1/records.")]
Candidates = Annotated[int, whole(_K)]
SelectionName = Annotated[str, Option(help="How the winner is found: {selections}.")]
Runs = Annotated[float | None, Option(help="The mean number of runs of random stopping.")]
ShapeOption = Annotated[Any, Option(parser=shape_of_count, metavar="NUMBER|poisson", help=_SHAPE)]
Identical = Annotated[bool, Option("--identical", help="For winner: one setting with different seeds.")]
Accountant = Annotated[str | None, Option(help="pld (tight), rdp or moments; each selection has its own default.")]
Coverage = Annotated[float, Option(help="The chance that a given candidate is run at all.")]
MaxRuns = Annotated[float | None, Option(help="The most runs, on average, that you can afford.")]
Force = Annotated[bool, Option("--force", help="Write over a file that is there; a ledger, a model or a schema stays.")]
Json = Annotated[bool, Option("--json", help="Print JSON.")]
