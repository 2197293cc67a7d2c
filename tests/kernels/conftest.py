"""For all tests of kernels: how long trials take, on whatever machine, is not spoken of."""

from __future__ import annotations

import math

import pytest

from honestdp.kernels import checked


@pytest.fixture(autouse=True)
def _in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a slow machine adds a line to those that a test reads: that kernels are being compiled."""
    monkeypatch.setattr(checked, "_spent", -math.inf)
