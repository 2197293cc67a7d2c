"""What all commands share at a terminal: errors that name a command's own options, and a bar of progress."""

from __future__ import annotations

import importlib
import inspect
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any, get_type_hints

import typer
import typer.core
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from honestdp import checks

# typer's newer versions bring a copy of click of their own: its errors are those of the copy that typer uses.
_click = sys.modules[typer.BadParameter.__module__]
UsageError, NoArgsIsHelpError = _click.UsageError, _click.NoArgsIsHelpError


_FILES = dict.fromkeys(("data", "rows"), ("file", "name"))


class Command(typer.core.TyperCommand):
    """A command that blames its options for what is wrong with arguments of the library, and no option that it does not have."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except checks.InvalidArgument as error:
            got = "" if error.value is None else f"; got {_typed(error.value)}"
            raise UsageError(f"{self._blamed(error, ctx)} must be {error.wanted}{got}") from error
        except KeyboardInterrupt as stop:  # here, for some versions of typer make a silent exit of it
            typer.echo(f"honestdp: {str(stop) or 'stopped'}", err=True)
            raise typer.Exit(130) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of the command, with the texts that `_Texts` looks up: here alone, since their imports take a second."""
        texts = _Texts()
        hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True) if self.callback else {}
        for parameter in self.params:
            # Some versions of click forget the help of an argument, which the annotation of the function still has.
            about = getattr(hints.get(parameter.name), "__metadata__", ())
            text = parameter.help or next((one.help for one in about if getattr(one, "help", None)), None)
            parameter.help = text and text.format_map(texts)
        super().format_help(ctx, formatter)

    def _blamed(self, error: checks.InvalidArgument, ctx: Any) -> str:
        """The option that the user gave, or could have given; the library's own word where the command has none for it."""
        name = "resume" if error.argument == "out" and ctx.params.get("resume") else error.argument
        present = {parameter.name for parameter in self.params}
        if name not in present:  # the library's word for what a command is given as a file
            name = next((other for other in _FILES.get(name, ()) if other in present), name)
        for parameter in self.params:
            if parameter.name == name:
                if parameter.param_type_name == "option":
                    return parameter.opts[0]
                return (parameter.metavar or name.upper()).strip("[]").split("|")[0]  # [FILE|DATASET] is FILE
        return error.argument


class _Texts(dict[str, Any]):
    """Texts that help texts refer to: `{optimizers}` is the list of their names, `{spec.lot}` the help of a field of a spec."""

    def __missing__(self, name: str) -> Any:
        if name == "spec":
            return _of_specs()
        module, attribute = {
            "optimizers": ("honestdp.optimizers", "BY_NAME"),
            "selections": ("honestdp.selection.catalogue", "names"),
            "datasets": ("honestdp.data.named", "names"),
        }[name]
        found = getattr(importlib.import_module(module), attribute)
        return ", ".join(found() if callable(found) else found)


def _of_specs() -> SimpleNamespace:
    """The help of every field of the specs, without the sentences on Python alone."""
    from honestdp.search.request import SearchSpec
    from honestdp.training.spec import TrainSpec, help_texts

    texts = help_texts(TrainSpec) | help_texts(SearchSpec)
    here = {name: text.split(" In Python ")[0] for name, text in texts.items()}
    return SimpleNamespace(**{name: text[:1].upper() + text[1:] for name, text in here.items()})


def emit(value: Callable[[], object], *, as_json: bool, text: Callable[[], str]) -> None:
    """Print a result: as JSON where that is asked for, in words otherwise."""
    typer.echo(json.dumps(value(), indent=2) if as_json else text())


def words_of(command: Any, values: Mapping[str, Any], *, without: Iterable[str] = ()) -> str:
    """The command line that runs the command with these values. without: parameters that it leaves out, as it does defaults.

    Numbers have all their digits, for a rounded epsilon may be a larger one.
    """
    words = ["honestdp", command.name]
    for parameter in command.params:
        value = values.get(parameter.name)
        if value in (None, parameter.default) or parameter.name in without:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            text = repr(each).removesuffix(".0") if isinstance(each, float) else str(each)
            flag = [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
            words += flag if each is True else [*flag, text]
    return shlex.join(words)


def as_options(text: str) -> str:
    """A text of the library with an option in the place of an argument that it tells to ask for."""
    return text.replace("to ask for delta ", "to ask for --delta ")


def balance_line(balance: Any, delta: float | None = None) -> str:
    """Where a dataset stands after a charge, or that nothing was charged. delta: for which was made what was charged."""
    from honestdp.ledger.account import dear_by_delta
    from honestdp.plain_words import rounded_down, shown_delta

    if balance is None:
        alone = "this number knows of no other search or training on these data; --ledger keeps count"
        return f"{'ledger':<12}none: {alone}"
    budget = balance.budget
    left = f"epsilon {rounded_down(balance.left)} of {budget.epsilon:g} left at delta {shown_delta(budget.delta)}"
    dear = as_options(dear_by_delta(delta, budget, charged=True))
    return f"{'ledger':<12}{balance.dataset}: {left}{dear and f'; {dear}'}; entry {balance.entry}, head {balance.head}"


def _typed(value: object) -> str:
    """A value of the library as a user of the command line would type it, or name it."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_typed(of)}" for name, of in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(_typed(one) for one in value) or "none"
    if is_dataclass(value):
        return str(getattr(value, "name", None) or type(value).__name__)
    return str(value)


@contextmanager
def progress(title: str) -> Iterator[Any]:
    """A bar on standard error, seen only in a terminal and gone when done: a function of (done, total) and of new words."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)

        def update(done: float, total: float, words: str = title) -> None:
            bar.update(task, description=words, completed=done, total=total)

        yield update
