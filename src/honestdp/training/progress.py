"""Progress on a terminal that can show it; silent otherwise."""

from __future__ import annotations

import sys
from typing import Any, Self, TextIO

from honestdp.logs import heard_stream


class Bar:
    """Counts run-steps. Shows nothing that depends on a record: the length of a training is public."""

    def __init__(self, *, total: int) -> None:
        self._total = total
        self._shown: Any = None

    def __enter__(self) -> Self:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        except ImportError:
            return self
        columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console()
        if not console.is_terminal:
            return self
        self._shown = Progress(*columns, console=console, transient=True)
        self._task = self._shown.add_task("training", total=self._total)
        self._shown.start()
        return self

    def advance(self, steps: int) -> None:
        if self._shown is not None:
            self._shown.advance(self._task, steps)

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown.stop()


class Spinner:
    """Says that work goes on, and for how long it has. How much there is to do is secret, so no part of it is shown."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._shown: Any = None
        self._stream: TextIO

    def __enter__(self) -> Self:
        try:
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        except ImportError:
            return self
        columns = (SpinnerColumn(), TextColumn(self._words), TimeElapsedColumn())
        # A stream of its own, for standard error is muted meanwhile; nothing that is printed is taken in and shown.
        self._stream = heard_stream()
        console = Console(file=self._stream)
        self._shown = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        self._shown.add_task(self._words, total=None)
        self._shown.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown.stop()
            if self._stream is not sys.stderr:
                self._stream.close()
