"""While a search runs nothing is heard of it, SIGTERM is as Ctrl-C, no core is dumped, and no error makes it endless."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import honestdp
from honestdp.checks import HonestdpError
from honestdp.logs import muted, silence
from honestdp.search.failures import guarded
from honestdp.search.lifecycle import SearchStopped
from honestdp.search.runs import ROUNDS, Execution
from honestdp.training.population import Population
from tests.command_line import DIGITS, started
from tests.forked_python import forked
from tests.tiny_search import WHOLE, clouds, linear, once_charged


class Loud(nn.Module):
    """Says in every way how often it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if ARMED:
            print("used")
            print("used", file=sys.stderr)
            os.write(1, b"used\n")
            os.write(2, b"used\n")
            KEPT.write("used\n")
        return self.layer(x)


ARMED: list[bool] = []
KEPT = sys.stdout


def test_a_model_that_prints_is_not_heard_after_the_draws(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        honest = honestdp.search.secret.drawn
        patch.setattr(
            honestdp.search.secret, "drawn", lambda *args, **named: (ARMED.append(True), honest(*args, **named))[1]
        )
        honestdp.tune(Loud, clouds(), **WHOLE, out=tmp_path / "out")
    ARMED.clear()
    print("heard again")
    os.write(2, b"heard again\n")
    assert capfd.readouterr() == ("heard again\n", "heard again\n")


def test_without_the_silence_it_would_be_heard(capfd: pytest.CaptureFixture[str]) -> None:
    ARMED.append(True)
    Loud()(torch.zeros(1, 3))
    ARMED.clear()
    out, err = capfd.readouterr()
    assert "used" in out
    assert "used" in err


def test_two_silences_at_once_end_with_the_last(capfd: pytest.CaptureFixture[str]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with muted:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with silence():
        thread.start()
        inside.wait()
        print("secret")
    print("secret")
    leave.set()
    thread.join()
    print("heard")
    assert capfd.readouterr().out == "heard\n"


@pytest.mark.slow
def test_what_c_has_buffered_and_what_children_say_is_not_heard(tmp_path: Path) -> None:
    code = """
import ctypes, os, sys
from honestdp.logs import silence
libc, out = ctypes.CDLL(None), sys.stdout
with silence():
    libc.printf(b"secret"); os.system("echo secret; echo secret >&2"); out.write("secret"); sys.__stderr__.write("secret")
print("heard")
"""
    assert forked(tmp_path, code) == (0, "heard\n", "")


def test_a_logger_set_up_while_all_is_silent_is_heard_afterwards_and_only_then(tmp_path: Path) -> None:
    code = """
import logging
from honestdp.logs import silence
with silence():
    logging.warning("secret")  # makes a handler that keeps standard error as it is now
logging.warning("heard")
with silence():
    logging.root.handlers[0].stream.write("secret")
logging.warning("heard")
"""
    assert forked(tmp_path, code) == (0, "", "WARNING:root:heard\n" * 2)


# ---- Signals and cores


@pytest.mark.slow
def test_sigterm_stops_a_search_that_can_then_be_resumed(tmp_path: Path) -> None:
    words = ("tune", *DIGITS, "--selection", "compose", "--steps", "30000", "--out", "out")  # far from done
    process = started(tmp_path, *words)
    while not (tmp_path / "out" / ".secret" / "batch0").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "the search was stopped" in err
    assert (tmp_path / "out" / ".secret" / "key").exists()


class Limits:
    """A process's limits of a core, whatever those of the machine that runs the tests."""

    def __init__(self, patch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.now = soft, hard
        patch.setattr(resource, "getrlimit", lambda which: self.now)
        patch.setattr(resource, "setrlimit", self.set)

    def set(self, which: int, limits: tuple[int, int]) -> None:
        assert which == resource.RLIMIT_CORE
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "within"),
    [(5, resource.RLIM_INFINITY, 1), (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1), (0, 7, 1), (0, 0, 0)],
)
def test_within_a_search_a_core_has_a_byte_at_most_which_linux_hands_to_no_program(
    soft: int, hard: int, within: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(monkeypatch, soft, hard)
    with guarded():
        assert limits.now == (within, hard)
    assert limits.now == (soft, hard)


def test_sigterm_and_the_limit_of_cores_are_as_before_after_a_search() -> None:
    found = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (found[1], found[1]))  # not 0, where the machine allows it
    before = signal.getsignal(signal.SIGTERM), resource.getrlimit(resource.RLIMIT_CORE)

    def search() -> None:
        with guarded():
            assert resource.getrlimit(resource.RLIMIT_CORE)[0] in (0, 1)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        search()
    after = signal.getsignal(signal.SIGTERM), resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, found)
    assert after == before


def test_a_search_in_another_thread_leaves_signals_alone() -> None:
    found: list[Any] = []

    def search() -> None:
        with guarded():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]


def test_a_search_without_a_folder_writes_nothing_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    armed = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if armed and event == "open" and isinstance(args[0], str) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            written.append(args[0])

    sys.addaudithook(hook)
    try:
        honestdp.tune(linear, clouds(), **WHOLE)
        once_charged(monkeypatch, Population, "block", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(SearchStopped):
            honestdp.tune(linear, clouds(), **WHOLE)
    finally:
        armed.clear()
    assert [path for path in written if path != os.devnull and "__pycache__" not in path] == []


# ---- Errors that pass


def _failing(patch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Populations of several runs fail so many times; runs alone do not."""
    honest, tried = Execution._population, []

    def population(self: Execution, batch: list[int], *rest: Any) -> Any:
        tried.append(len(batch))
        if len(tried) > 100:
            raise HonestdpError("this search would never end")
        if len(batch) > 1 and sum(size > 1 for size in tried) <= times:
            raise RuntimeError("a hiccup")
        return honest(self, batch, *rest)

    once_charged(patch, Execution, "_population", population)
    return tried


def test_an_error_that_passes_is_passed_over_with_the_same_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go(name: str) -> bytes:
        honestdp.tune(linear, clouds(), **WHOLE, out=tmp_path / name, noise_seed=3)
        return (tmp_path / name / "model.safetensors").read_bytes()

    expected = go("whole")
    tried = _failing(monkeypatch, 1)
    assert go("hiccup") == expected
    assert tried == [2, 2]


def test_an_error_that_does_not_pass_and_is_no_run_s_stops_the_search_which_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**WHOLE, "out": tmp_path / "out"}
    with monkeypatch.context() as patch:
        tried = _failing(patch, 1000)
        with pytest.raises(
            HonestdpError,
            match=r"^the machine stopped the search \(an error that passed\); .* make the same call again",
        ):
            honestdp.tune(linear, clouds(), **settings)
        assert tried == [2, 2] + [1] * 2 * ROUNDS
    result = honestdp.tune(linear, clouds(), **settings, resume=True)
    assert result.score is not None
