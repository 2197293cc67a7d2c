"""What all tests share: nothing of whoever runs them is read or written, and no process outlives the test that started it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from honestdp.boundary import rounding
from tests import forked_python
from tests.known_epsilons import known_epsilons
from tests.leftover_processes import adopt_orphans, left_over, living_children


@pytest.fixture(scope="session", autouse=True)
def environment_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever caches and ledger the tests are started with. (HONESTDP_DATA alone is heard: it says where real data is.)"""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HONESTDP_") and name != "HONESTDP_DATA"]:
            patch.delenv(name)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """What a process has written every other one reads, killed or not: to wait for the disk guards against power loss alone,
    which no test makes. (SQLite and the processes that tests start wait as ever.)
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_process_outlives_the_tests() -> Iterator[None]:
    adopt_orphans()
    before = living_children()
    yield
    forked_python.end()
    assert left_over(before) == {}, "processes outlive the tests"


@pytest.fixture(autouse=True)
def no_process_outlives_its_test() -> Iterator[None]:
    """A browser that several tests share is there before each of them, and so is no part of any."""
    before = living_children()
    yield
    assert left_over(before) == {}, "processes outlive the test"


@pytest.fixture(scope="session", autouse=True)
def prices_are_computed_once() -> Iterator[None]:
    with known_epsilons():
        yield


@pytest.fixture
def fine_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of a step can be read to ten digits. What the true grid does is tested in boundary/test_rounding.py."""
    monkeypatch.setattr(rounding, "FINENESS", 2.0**-48)
