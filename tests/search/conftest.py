"""What several tests of searches share."""

from __future__ import annotations

from typing import Any

import pytest

from honestdp.boundary.data import PrivateData, Shapes
from honestdp.search.runs import Execution


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record may be read: neither their fingerprint nor a search. Those that are made up are nobody's."""
    made_up: list[Any] = []  # labels: the data may be wrapped anew
    make, split = Shapes.made_up, PrivateData.split

    def making(self: Shapes, *args: Any) -> PrivateData:
        made = make(self, *args)
        made_up.append(made._pair[1])
        return made

    def guarded(method: str) -> Any:
        honest = getattr(PrivateData, method)

        def read(self: PrivateData, *args: Any, **named: Any) -> Any:
            own = self._pair is not None and any(self._pair[1] is labels for labels in made_up)
            assert own, "a record was read"
            found = honest(self, *args, **named)
            if honest is split:
                made_up.extend(side._pair[1] for side in found)
            return found

        return read

    begin = Execution.__init__

    def begun(self: Execution, design: Any, secret: Any, setting: Any, data: PrivateData, **named: Any) -> None:
        assert any(data._pair is not None and data._pair[1] is labels for labels in made_up), "a record was read"
        begin(self, design, secret, setting, data, **named)

    monkeypatch.setattr(Shapes, "made_up", making)
    for method in ("fingerprint", "_gathered", "_open", "split"):
        monkeypatch.setattr(PrivateData, method, guarded(method))
    monkeypatch.setattr(Execution, "__init__", begun)
