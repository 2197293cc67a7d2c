"""What all tests share: nothing is remembered in the home of whoever runs them; a grid so fine that sums can be read."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from honestdp.boundary import rounding
from honestdp.ledger import remembered


@pytest.fixture(scope="session", autouse=True)
def memory_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get(remembered.VARIABLE) is None:
            patch.setenv(remembered.VARIABLE, str(tmp_path_factory.mktemp("remembered") / "composed"))
        yield


@pytest.fixture
def fine_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of a step can be read to ten digits. What the true grid does is tested in boundary/test_rounding.py."""
    monkeypatch.setattr(rounding, "FINENESS", 2.0**-48)
