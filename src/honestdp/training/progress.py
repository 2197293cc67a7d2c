"""Progress on a terminal that can show it; silent otherwise, and where rich is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from honestdp.logs import heard_stream

Advance = Callable[[int], object]


def unshown(steps: int) -> None:
    """An advance that nobody sees."""


@contextmanager
def bar(*, total: int) -> Iterator[Advance]:
    """Counts run-steps. Shows nothing that depends on a record: the length of a training is public."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield unshown
        return
    columns, console = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()), Console()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield partial(progress.advance, progress.add_task("training", total=total))


@contextmanager
def spinner(words: str) -> Iterator[None]:
    """Says that work goes on, and for how long it has. How much there is to do is secret, so no part of it is shown."""
    try:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        yield
        return
    columns = (SpinnerColumn(), TextColumn(words), TimeElapsedColumn())
    # A stream of its own, for standard error is muted meanwhile; nothing that is printed is taken in and shown.
    stream = heard_stream()
    console = Console(file=stream)
    shown = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    try:
        with shown:
            shown.add_task(words, total=None)
            yield
    finally:
        if stream is not sys.stderr:
            stream.close()
