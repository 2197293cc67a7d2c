"""What several tests of searches share."""

from __future__ import annotations

from typing import Any

import pytest

from honestdp.search import lifecycle as carrying
from honestdp.search.runs import Execution


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record may be read: neither their fingerprint nor a search."""

    def read(*_: Any, **__: Any) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr(carrying, "fingerprint", read)
    monkeypatch.setattr(Execution, "__init__", read)
