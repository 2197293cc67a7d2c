"""Signs of life: a bar or a spinner on a terminal, and elsewhere a line on standard error now and then.

The length of a training is public, so its steps and the time left are shown. How many runs a search makes is secret, and so is
how many are done: what is shown of it is made from its public words, from the clock, and from the time that such a search takes
on average. That is so by construction: `spinner` is told nothing while it lasts. Lines of a search come ever more rarely, so that
a log that is passed on tells its length only within half as much again; the length itself is for the operator's eyes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from honestdp.logs import heard_stream

if TYPE_CHECKING:
    from rich.console import Console

Advance = Callable[[int], object]
SECONDS = 30.0  # between two lines, at least
FIRST = 5.0  # before the first of a training, so that who waits soon knows for how long
GROWTH = 1.5  # of the time that a search has taken, from one line to the next


def unshown(steps: int) -> None:
    """An advance that nobody sees."""


@contextmanager
def bar(*, total: int, done: int = 0, runs: int = 1) -> Iterator[Advance]:
    """Counts run-steps. Shows nothing that depends on a record: the length of a training is public.

    done: what an earlier process did of it.
    """
    console, began, counted = _terminal(sys.stderr), monotonic(), [done]

    def advance(steps: int) -> None:
        counted[0] += steps

    def line(elapsed: float) -> str:
        return training_line(counted[0], total, begun=done, runs=runs, elapsed=elapsed)

    if console is None:
        with _lines(line, sys.stderr, began, lambda elapsed: elapsed + SECONDS, first=FIRST):
            yield advance
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("training", total=total, completed=done)
        yield lambda steps: progress.advance(task, steps)


def training_line(done: int, total: int, *, begun: int, runs: int, elapsed: float) -> str:
    """How far a training is, and how long it will take at the pace since it began or was resumed."""
    what = f"step {done} of {total}" if runs == 1 else f"{done / total:.0%} of {runs} runs of {total // runs} steps"
    left = "" if done <= begun else f", {in_words(elapsed * (total - done) / (done - begun))} left"
    return f"honestdp: training, {what}{left}"


@contextmanager
def spinner(words: str, *, expected: float | None = None, first: float | None = None) -> Iterator[None]:
    """Says that work goes on, and for how long it has. How much there is to do is secret, so no part of it is shown.

    expected: seconds that such work takes on average, from public numbers and made-up records.
    first: seconds to the first line where there is no terminal.
    """
    # A stream of its own, for standard error is muted meanwhile; nothing that is printed is taken in and shown.
    stream, began = heard_stream(), monotonic()
    console, about = _terminal(stream), "" if expected is None else f"{in_words(expected)} on average"
    try:
        if console is None:
            with _lines(
                lambda elapsed: searching_line(words, elapsed, about),
                stream,
                began,
                lambda elapsed: elapsed * GROWTH,
                first=first,
            ):
                yield
            return
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        told = f"{words}, {about}" if about else words
        columns = (SpinnerColumn(), TextColumn(told), TimeElapsedColumn())
        shown = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        with shown:
            shown.add_task(words, total=None)
            yield
    finally:
        if stream is not sys.stderr:
            stream.close()


def searching_line(words: str, elapsed: float, about: str) -> str:
    """Of a search: its words, the clock, and a public average."""
    return f"honestdp: {words} for {in_words(elapsed)}" + (f"; such a search takes {about}" if about else "")


def in_words(seconds: float) -> str:
    """A time with at most two digits, for it is an estimate."""
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"about {float(f'{seconds / unit:.2g}'):g} {name}"
    return f"about {max(1, round(seconds))} s"


@contextmanager
def _lines(
    line: Callable[[float], str],
    stream: TextIO,
    began: float,
    following: Callable[[float], float],
    *,
    first: float | None = None,
) -> Iterator[None]:
    """Lines from a thread of their own, by the clock alone: the first after so long, or SECONDS, then when `following` says."""
    over = Event()

    def write() -> None:
        due = SECONDS if first is None else first
        while not over.wait(max(0.0, due - (monotonic() - began))):
            elapsed = monotonic() - began
            try:
                stream.write(line(elapsed) + "\n")
                stream.flush()
            except (OSError, ValueError):  # closed: nobody listens any more
                return
            due = max(following(elapsed), elapsed + SECONDS)

    writer = Thread(target=write, name="honestdp-sign-of-life", daemon=True)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def _terminal(stream: TextIO) -> Console | None:
    """A console of rich's over the stream where that is a terminal; None elsewhere, and where rich is missing."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=stream)
    return console if console.is_terminal else None
