"""Signs of life: where there is no terminal a line now and then, of public numbers and the clock alone."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import honestdp
from honestdp import Compute, Run
from honestdp.selection import RandomStopping, count_of
from honestdp.training import progress
from honestdp.training.progress import bar, in_words, searching_line, spinner, training_line
from tests.search import closed_form_search as closed_form
from tests.search.forced_draws import Forced, force, remember_public_numbers, tune
from tests.toy_training import toy_data, toy_model


class Clock:
    """A clock that only the waiting of the lines' thread moves on, for so many lines; and what they were."""

    def __init__(self, patch: pytest.MonkeyPatch, lines: int) -> None:
        self.now, self.waits, self.stream, self.enough = 0.0, list[float](), io.StringIO(), threading.Event()
        patch.setattr(progress, "monotonic", lambda: self.now)
        patch.setattr(sys, "stderr", self.stream)
        clock = self

        class Event(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                if len(clock.waits) == lines:
                    clock.enough.set()
                    return super().wait()
                clock.now += timeout or 0.0
                clock.waits.append(clock.now)
                return False

        patch.setattr(progress, "Event", Event)

    def heard(self) -> list[str]:
        assert self.enough.wait(60)
        return self.stream.getvalue().splitlines()


def test_a_training_says_soon_and_then_every_thirty_seconds_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, lines=3)
    with bar(total=1250, done=250):
        found = clock.heard()
    assert found == ["honestdp: training, step 250 of 1250"] * 3
    assert clock.waits == [5.0, 35.0, 65.0]


def test_time_left_is_by_the_pace_since_the_resume() -> None:
    said = training_line(600, 1000, begun=500, runs=1, elapsed=50.0)
    assert said == "honestdp: training, step 600 of 1000, about 3.3 min left"
    assert training_line(500, 1000, begun=500, runs=1, elapsed=50.0) == "honestdp: training, step 500 of 1000"
    many = training_line(800, 1600, begun=0, runs=16, elapsed=60.0)
    assert many == "honestdp: training, 50% of 16 runs of 100 steps, about 60 s left"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "about 1 s"), (119, "about 119 s"), (125, "about 2.1 min"), (7300, "about 2 h"), (1e6, "about 12 days")],
)
def test_times_are_words_of_two_digits(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_a_search_says_the_clock_and_an_average_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, lines=5)
    with spinner("searching", expected=600.0):
        found = clock.heard()
    assert found[0] == "honestdp: searching for about 30 s; such a search takes about 10 min on average"
    assert clock.waits == pytest.approx([30, 60, 90, 135, 202.5])
    assert searching_line("searching", 90.0, "") == "honestdp: searching for about 90 s"


def test_work_shorter_than_that_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    run, rule = Run(records=60, lot=10, steps=5, noise=1.0), honestdp.optimizers.SGD(lr=0.1, clip=1.0)
    honestdp.train(toy_model(), toy_data(), run=run, optimizer=rule, compute=Compute(progress=True))
    with spinner("searching"):
        pass
    assert capfd.readouterr() == ("", "")


def test_a_resumed_training_counts_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, int]] = []

    @contextmanager
    def counted(*, total: int, done: int, runs: int) -> Iterator[Callable[[int], None]]:
        counts = [done]

        def advance(steps: int) -> None:
            counts[0] += steps

        yield advance
        seen.append((done, counts[0], total))

    monkeypatch.setattr("honestdp.training.loop.bar", counted)
    run, rule = Run(records=60, lot=10, steps=150, noise=1.0), honestdp.optimizers.SGD(lr=0.1, clip=1.0)
    given = {"run": run, "optimizer": rule, "compute": Compute(progress=True, checkpoint=tmp_path / "kept")}

    def stop(step: int, model: Any) -> None:
        if step == 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        honestdp.train(toy_model(), toy_data(), on_step=stop, **given)
    honestdp.train(toy_model(), toy_data(), **given)
    assert seen == [(64, 150, 150)]


# ---- A search's lines tell nothing of its runs

ENVELOPE = RandomStopping(count=count_of(runs=4.0, shape=1.0))


def lines_of(how: Forced, folder: Path, plant: Callable[[pytest.MonkeyPatch], None] | None = None) -> set[str]:
    """Everything that is said in a search with these draws, by a clock that stands at five minutes."""
    made = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        remember_public_numbers(patch)
        force(patch, how)
        if plant is not None:
            plant(patch)
        patch.setattr(sys, "stderr", made)
        patch.setattr(progress, "SECONDS", 0.02)
        patch.setattr(progress, "GROWTH", 1.0)
        patch.setattr(progress, "monotonic", standing_at(300.0))
        patch.setattr("honestdp.search.tune.expected", lambda *public, **how: (600.0, None))
        folder.mkdir()
        tune(folder, ENVELOPE, compute=Compute(progress=True))
    # The planning may be over before a thread has begun.
    return set(made.getvalue().splitlines()) - {"honestdp: planning for about 5 min"}


def standing_at(elapsed: float) -> Callable[[], float]:
    """The clock of a piece of work that began so long ago, for the thread that writes lines."""
    return lambda: elapsed if threading.current_thread().name == "honestdp-sign-of-life" else 0.0


@pytest.mark.slow
def test_the_lines_of_a_search_are_the_same_whatever_its_runs_are(tmp_path: Path) -> None:
    one = lines_of(Forced(runs=1), tmp_path / "one")
    many = lines_of(Forced(runs=5, place=3), tmp_path / "many")
    assert "honestdp: searching for about 5 min; such a search takes about 10 min on average" in one
    assert one == many
    assert closed_form.RATES  # more than one candidate, so that losers are there to be seen


def _runs_done(patch: pytest.MonkeyPatch) -> None:
    from honestdp.search.runs import Execution

    real, done = Execution._batch, [0]

    def batch(self: Execution, number: int, runs: list[int], standing: Any) -> None:
        real(self, number, runs, standing)
        done[0] += len(runs)
        time.sleep(0.05)

    patch.setattr(Execution, "_batch", batch)
    true = progress.searching_line
    patch.setattr(progress, "searching_line", lambda *rest: f"{true(*rest)}, {done[0]} runs done")


@pytest.mark.slow
def test_a_line_with_the_runs_that_are_done_is_noticed(tmp_path: Path) -> None:
    one = lines_of(Forced(runs=1), tmp_path / "one", _runs_done)
    many = lines_of(Forced(runs=5, place=3), tmp_path / "many", _runs_done)
    assert one != many
