"""The watch over processes that outlive their test sees children, forked ones and orphans, and lets the others be."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests import leftover_processes
from tests.leftover_processes import left_over, living_children


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftover_processes, "_TO_DIE", 0.2)


def test_a_child_that_lives_on_is_named_and_killed() -> None:
    before = living_children()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    left = left_over(before)
    assert list(left) == [child.pid]
    assert "time.sleep(600)" in left[child.pid]
    assert child.wait(60) == -9
    assert left_over(before) == {}


def test_a_forked_child_is_named_and_killed() -> None:
    before = living_children()
    if (number := os.fork()) == 0:
        time.sleep(600)
        os._exit(0)
    assert list(left_over(before)) == [number]
    os.waitpid(number, 0)


def test_an_orphan_is_named_and_killed() -> None:
    """The shell that started it has ended: it is a child of the tests' process since."""
    before = living_children()
    subprocess.run(["sh", "-c", "sleep 600 >/dev/null 2>&1 &"], check=True)
    left = left_over(before)
    assert list(left.values()) == ["sleep 600 "]


def test_a_child_that_was_there_before_or_has_ended_is_not_named() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as there:
        before = living_children()
        assert there.pid in before
        ended = subprocess.Popen([sys.executable, "-c", ""])  # not waited for: dead all the same
        while ended.pid in living_children():
            time.sleep(0.01)
        assert left_over(before) == {}
        there.communicate(b"\n")
    ended.wait()
