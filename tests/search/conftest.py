"""What several tests of searches share."""

from __future__ import annotations

from typing import Any

import pytest

from honestdp.boundary.data import PrivateData, Shapes
from honestdp.search.dress_rehearsal import _Trial
from honestdp.search.runs import Execution


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record may be read: neither their fingerprint nor a search. Those that are made up are nobody's."""
    made_up: list[PrivateData] = []
    make, split = Shapes.made_up, PrivateData.split

    def making(self: Shapes, *args: Any) -> PrivateData:
        made_up.append(make(self, *args))
        return made_up[-1]

    def guarded(method: str) -> Any:
        honest = getattr(PrivateData, method)

        def read(self: PrivateData, *args: Any, **named: Any) -> Any:
            assert any(self is one for one in made_up), "a record was read"
            found = honest(self, *args, **named)
            if honest is split:
                made_up.extend(found)
            return found

        return read

    def begun(self: Execution, *args: Any, **named: Any) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr(Shapes, "made_up", making)
    for method in ("fingerprint", "_gathered", "split", "check_labels"):
        monkeypatch.setattr(PrivateData, method, guarded(method))
    monkeypatch.setattr(_Trial, "__init__", Execution.__init__)
    monkeypatch.setattr(Execution, "__init__", begun)
