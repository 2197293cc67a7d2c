"""The library's own fixtures guard these tests too: nothing of whoever runs them is read, and no process outlives a test."""

from __future__ import annotations

from tests.conftest import (
    environment_of_the_tests,
    no_process_outlives_its_test,
    no_process_outlives_the_tests,
    nothing_waits_for_the_disk,
    prices_are_computed_once,
)

__all__ = [
    "environment_of_the_tests",
    "no_process_outlives_its_test",
    "no_process_outlives_the_tests",
    "nothing_waits_for_the_disk",
    "prices_are_computed_once",
]
