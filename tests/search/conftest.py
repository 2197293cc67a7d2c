"""What several tests of searches share."""

from __future__ import annotations

from typing import Any

import pytest

from honestdp.boundary.data import PrivateData
from honestdp.search.runs import Execution


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record may be read: neither their fingerprint nor a search."""

    def read(*_: Any, **__: Any) -> None:
        raise AssertionError("a record was read")

    for method in ("fingerprint", "_gathered", "split", "check_labels"):
        monkeypatch.setattr(PrivateData, method, read)
    monkeypatch.setattr(Execution, "__init__", read)
