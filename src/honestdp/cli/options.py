"""Options that several commands share, and what their words mean: numbers, ledgers, spaces, and a number for each class.

An option of a search has the help text of its field in `SearchSpec` or `TrainSpec`, which `of_spec` takes from there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer import Option

from honestdp import checks


def of_spec(name: str, *flags: str, more: str = "", whole: bool = False) -> Any:
    """An option of a field of the specs, with the field's help text. more: a sentence on the words of the command line.

    The text is looked up when help is asked for (`terminal.Command`): the specs import torch.
    """
    text = f"{{spec.{name}}} {more}".strip()
    return Option(*flags, parser=whole_number, metavar="INTEGER", help=text) if whole else Option(*flags, help=text)


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
    """The place of a ledger: a path, or an address whose password nothing repeats."""
    from honestdp.ledger.address import place_of

    try:
        return place_of(text)
    except checks.InvalidArgument as error:  # in words of its own: typer would repeat what was typed
        raise typer.BadParameter(f"it must be {error.wanted}") from None


def with_password(ledger: Any) -> Any:
    """The address of a ledger with the password of the environment's, where that is the same address otherwise."""
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
_SHAPE = "The law of the number of runs: above -1 (0 logarithmic, 1 geometric), or poisson. Geometric if left out."
Records = Annotated[int, whole("N: how many records there are, a public constant.")]
Lot = Annotated[float, Option(help="L: the expected size of a Poisson lot; the rate is lot/records.")]
Steps = Annotated[int | None, whole("T: noisy queries in one run; or give --epochs.")]
Epochs = Annotated[
    float | None,
    Option(help="Instead of --steps: how often a record is drawn on average; each is records/lot steps."),
]
ChosenLot = Annotated[float | None, of_spec("lot")]
ChosenSteps = Annotated[int | None, of_spec("steps", whole=True)]
ChosenEpochs = Annotated[float | None, of_spec("epochs")]
Noise = Annotated[float, Option(help="sigma: the noise multiplier. 0 is no privacy at all.")]
Delta = Annotated[float, Option(help="delta, well below 1/records.")]
Candidates = Annotated[int, whole(_K)]
SelectionName = Annotated[str, Option(help="How the winner is found: {selections}.")]
Runs = Annotated[float | None, Option(help="The mean number of runs of random stopping.")]
ShapeOption = Annotated[Any, Option(parser=shape_of_count, metavar="NUMBER|poisson", help=_SHAPE)]
Identical = Annotated[bool, Option("--identical", help="For winner: one setting with different seeds.")]
Accountant = Annotated[str | None, Option(help="pld (tight), rdp or moments; each selection has its own default.")]
Coverage = Annotated[float, of_spec("coverage")]
MaxRuns = Annotated[float | None, of_spec("max_runs")]
Published = Annotated[bool, of_spec("published", "--published")]
Validation = Annotated[float, of_spec("validation")]
Metric = Annotated[str | None, of_spec("metric", more="Squared error for numbers.")]
Prevalence = Annotated[
    str | None, of_spec("prevalence", more="Written as `no=0.9,yes=0.1`, or in the order of the schema.")
]
Note = Annotated[str, of_spec("note")]
Force = Annotated[bool, Option("--force", help="Write over a file that is there; a ledger, a model or a schema stays.")]
Json = Annotated[bool, Option("--json", help="Print JSON.")]


# ---- Spaces, and a number for each class

DEFAULT = "the default"
"""The optimizer where none is named: it follows from the data."""


def spaces_of(texts: list[str] | None, optimizers: list[str] | None) -> dict[str, Any] | None:
    """The space of each optimizer, from words such as clip=0.1,0.2 or sgd.lr=log:0.001:1. optimizers: the named ones."""
    optimizers = optimizers or [DEFAULT]
    if not texts:
        return None
    spaces: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = re.fullmatch(r"(?:([\w-]+)\.)?(\w+)=(.+)", text)
        if match is None:
            raise checks.InvalidArgument("space", text, "NAME=VALUES, such as clip=0.1,0.2 or sgd.lr=log:0.001:1")
        optimizer, name, values = match.groups()
        if optimizer is not None and optimizer not in optimizers:
            raise checks.InvalidArgument("space", text, f"for one of the optimizers asked for: {', '.join(optimizers)}")
        for each in [optimizer] if optimizer else optimizers:
            if name in spaces.setdefault(each, {}):
                raise checks.InvalidArgument("space", text, f"{name} once, with all its values: {name}=A,B,C")
            spaces[each][name] = _values(text, values)
    return spaces


def _values(text: str, values: str) -> Any:
    from honestdp.search.space import LogUniform, Uniform

    try:
        law = re.fullmatch(r"(log|uniform):([^:]+):([^:]+)", values)
        if law is not None:
            return {"log": LogUniform, "uniform": Uniform}[law[1]](float(law[2]), float(law[3]))
        return [_value(one) for one in values.split(",")]
    except (ValueError, OverflowError) as trouble:
        laws = "log:LOW:HIGH or uniform:LOW:HIGH with LOW below HIGH"
        wanted = f"NAME=VALUES with finite numbers: a list 0.1,0.2 or {laws}"
        raise checks.InvalidArgument("space", text, wanted) from trouble


def _value(text: str) -> Any:
    words = {"auto": "auto", "true": True, "false": False, "half": "half", "full": "full"}
    if (word := text.strip().lower()) in words:
        return words[word]
    number = float(text)
    return int(number) if number == int(number) and "." not in text and "e" not in text.lower() else number


def by_class(argument: str, text: str | None, classes: Sequence[object]) -> list[float] | str | None:
    """A number for each class, as no=0.9,yes=0.1 or in the order of the classes; or the word balanced."""
    if text is None or text == "balanced":
        return text
    named = [part.rpartition("=") for part in text.split(",")]
    labels = [str(label) for label in classes]
    wanted = f"a number for each class, such as {','.join(f'{label}=0.5' for label in labels[:3])}"
    try:
        numbers = {name.strip() or place: float(number) for place, (name, _, number) in enumerate(named)}
    except ValueError as trouble:
        raise checks.InvalidArgument(argument, text, wanted) from trouble
    if set(numbers) <= set(range(len(named))):
        each = ", ".join(f"{label} {number:g}" for label, number in zip(labels, numbers.values(), strict=False))
        typer.echo(f"honestdp: {argument}, in the order in which the classes are declared: {each}", err=True)
        return list(numbers.values())
    if len(named) != len(labels) or set(numbers) != set(labels):
        raise checks.InvalidArgument(argument, text, wanted)
    return [numbers[label] for label in labels]
