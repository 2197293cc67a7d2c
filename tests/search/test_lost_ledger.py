"""A ledger that is lost while a search lasts: the advice is to restore it, and then the search is finished and not paid twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import honestdp
from honestdp.errors import HonestdpError
from honestdp.ledger import paying
from honestdp.search.runs import Execution
from tests.tiny_search import clouds, linear


@pytest.mark.slow
@pytest.mark.parametrize("place", ["the pending result", "the runs"])
@pytest.mark.parametrize("anew", [False, True], ids=["no ledger", "a new ledger"])
def test_a_lost_ledger_is_to_be_restored_and_the_same_call_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, anew: bool
) -> None:
    path, lost = tmp_path / "ledger.db", tmp_path / "lost.db"
    honestdp.Ledger(path).set_budget("clouds", honestdp.Budget(9.0, 1e-3))
    how: dict[str, Any] = {"budget": honestdp.Budget(3.0, 1e-3), "steps": 2, "lot": 40, "out": tmp_path / "run"}
    how |= {"ledger": path, "dataset": "clouds"}

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        where = (paying.Payment, "end") if place == "the pending result" else (Execution, "finish")
        patched.setattr(*where, stop)
        with pytest.raises(KeyboardInterrupt):
            honestdp.tune(linear, clouds(), **how)
    path.rename(lost)
    if anew:
        honestdp.Ledger(path).set_budget("clouds", honestdp.Budget(9.0, 1e-3))
    with pytest.raises(HonestdpError, match="restore it from a copy") as refused:
        honestdp.tune(linear, clouds(), **how)
    assert "set-budget" not in str(refused.value)
    path.unlink(missing_ok=True)
    lost.rename(path)
    assert honestdp.tune(linear, clouds(), **how).epsilon <= 3.0
    assert len(honestdp.Ledger(path).charges("clouds")) == 1
