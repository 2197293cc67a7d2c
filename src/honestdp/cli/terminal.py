"""What all commands share at a terminal: errors that name a command's own options, and a bar of progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer.core
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from honestdp import checks

# typer's newer versions bring a copy of click of their own: its errors are those of the copy that typer uses.
_click = sys.modules[typer.BadParameter.__module__]
UsageError, NoArgsIsHelpError = _click.UsageError, _click.NoArgsIsHelpError


class Command(typer.core.TyperCommand):
    """A command that blames its options for what is wrong with arguments of the library, and no option that it does not have."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except checks.InvalidArgument as error:
            raise UsageError(f"{self._blamed(error, ctx)} must be {error.wanted}; got {error.value}") from error

    def _blamed(self, error: checks.InvalidArgument, ctx: Any) -> str:
        """The option that the user gave, or could have given; the library's own word where the command has none for it."""
        name = "resume" if error.argument == "out" and ctx.params.get("resume") else error.argument
        for parameter in self.params:
            if parameter.name == name:
                return parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar or name.upper()
        return error.argument


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
