"""A grid so fine that sums can be read to ten digits. What the true grid does is tested in test_rounding."""

from __future__ import annotations

import pytest

from honestdp.boundary import rounding


@pytest.fixture
def fine_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "FINENESS", 2.0**-48)
