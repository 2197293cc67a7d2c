"""The same call again goes on or reads the result, without `out` and without `resume`; the dataset is charged once."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import honestdp
from honestdp import Budget
from honestdp.checks import InvalidArgument
from honestdp.ledger import Ledger
from honestdp.search import configuration as public
from honestdp.search import folder as folders
from honestdp.search import lifecycle
from honestdp.search.lifecycle import Search
from honestdp.search.runs import Execution
from tests.tiny_search import WHOLE, clouds, linear, weights


class Daily:
    """One call, made again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger = folder, Ledger(folder / "ledger.db")
        self.ledger.set_budget("daily data", Budget(30.0, 1e-5))

    def call(self, model: Any = linear, **changes: Any) -> honestdp.TuneResult:
        settings = {**WHOLE, "ledger": self.ledger.path, "dataset": "daily data", **changes}
        return honestdp.tune(model, clouds(), **settings)

    @property
    def charges(self) -> int:
        return self.ledger.balance("daily data").charges

    @property
    def folders(self) -> list[str]:
        return sorted(path.name for path in (self.folder / folders.SEARCHES).iterdir())

    def forked(self, before: Callable[[], object], **changes: Any) -> int:
        """A process that makes the call. Its exit code: 0 for a result, 1 for a refusal."""
        number = os.fork()
        if number:
            return number
        code = 2
        try:
            torch.set_num_threads(1)
            before()
            self.call(**changes)
            code = 0
        except InvalidArgument as refusal:
            code = 1 if "no other process works" in str(refusal) else 3
        finally:
            os._exit(code)


def code_of(number: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


@pytest.fixture
def daily(tmp_path: Path) -> Daily:
    return Daily(tmp_path)


def same(one: honestdp.TuneResult, other: honestdp.TuneResult) -> None:
    assert one.as_dict() == other.as_dict()
    assert torch.equal(weights(one.model), weights(other.model))


def test_the_same_call_from_anywhere_reads_the_result(
    daily: Daily, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    result = daily.call()
    assert result.folder is not None
    assert result.folder.parent == daily.folder / "searches"
    assert result.folder.name.startswith("daily-data-")
    elsewhere = daily.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert not caplog.messages or "is over" not in caplog.text
    with caplog.at_level(logging.WARNING):
        same(daily.call(), result)
    assert "is over: this is its result, and nothing was charged" in caplog.text
    assert daily.charges == 1
    assert len(daily.folders) == 1
    assert list(elsewhere.iterdir()) == []


@pytest.mark.slow
def test_other_versions_and_devices_find_the_same_folder(daily: Daily, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result is read by any version; a search that is not over goes on with its own alone, and is not begun anew."""
    result = daily.call()
    own = public.versions()
    monkeypatch.setattr(public, "versions", lambda: {**own, "code": "another", "honestdp": "another"})
    same(daily.call(), result)
    killed(daily, steps=4)
    monkeypatch.undo()
    with pytest.raises(
        InvalidArgument, match=r"out must be a new folder, or .*differs in code, honestdp; nothing was charged"
    ):
        daily.call(steps=4)
    assert daily.charges == 2


@pytest.mark.slow
def test_another_call_is_another_search(daily: Daily) -> None:
    daily.call()
    for changes in ({"steps": 4}, {"budget": Budget(2.0, 1e-5)}, {"model": lambda: nn.Sequential(nn.Linear(3, 2))}):
        daily.call(**changes)
    assert daily.charges == len(daily.folders) == 4


@pytest.mark.slow
def test_other_code_under_the_same_name_is_refused_and_not_charged(daily: Daily) -> None:
    killed(daily, loss=_loss)
    with pytest.raises(InvalidArgument, match=r"differs in the loss's code; nothing was charged now.*again"):
        daily.call(loss=_others())
    assert daily.charges == 1


def _frozen(model: nn.Module) -> nn.Module:
    for weight in list(model.parameters())[:1]:
        weight.requires_grad_(False)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "whose"),
    [
        ({"loss": lambda o, y: nn.functional.cross_entropy(o, y, reduction="none")},
         {"loss": lambda o, y: nn.functional.cross_entropy(o, y, reduction="none", label_smoothing=0.1)}, "loss"),
        ({"model": linear()}, {"model": _frozen(linear())}, "model"),
        ({"model": lambda: linear()}, {"model": lambda: linear().eval()}, "model"),
    ],
)  # fmt: skip
def test_a_result_is_not_read_for_another_model_or_loss_and_each_finds_its_own(
    daily: Daily, first: dict[str, Any], second: dict[str, Any], whose: str
) -> None:
    """What they are called is the same, and the search is over: without its text nothing would tell them apart."""
    one = daily.call(**first)
    with pytest.raises(InvalidArgument, match=rf"differs in the {whose}'s text; nothing was charged now.*again"):
        daily.call(**second)
    assert daily.charges == 1
    other = daily.call(**second, again=True)
    same(daily.call(**second), other)
    same(daily.call(**first), one)
    assert daily.charges == len(daily.folders) == 2


@pytest.mark.slow
def test_numbers_that_code_holds_are_in_no_file_of_a_search_that_is_over(daily: Daily) -> None:
    """They may be of the records, and a digest of a number can be guessed: only what was written may differ."""
    texts = []
    for held in (1.0, 2.0):
        result = daily.call(loss=_scaled(held), again=bool(texts))
        assert result.folder is not None
        texts.append(json.loads((result.folder / "search.json").read_text())["text"])
    assert texts[0] == texts[1]


def _scaled(factor: float) -> Any:
    def loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return factor * nn.functional.cross_entropy(output, y, reduction="none")

    return loss


@pytest.mark.slow
def test_what_code_holds_is_compared_in_the_process_that_ended_the_search(daily: Daily) -> None:
    """As in a notebook, where a number is changed and everything is run again. Another process cannot know, and says so."""
    result = daily.call(loss=_scaled(1.0))
    with pytest.raises(InvalidArgument, match=r"differs in the loss's code; nothing was charged now.*again"):
        daily.call(loss=_scaled(2.0))
    with pytest.raises(InvalidArgument, match=r"differs in the loss's code"):
        honestdp.dry_run(linear, clouds(), **WHOLE, loss=_scaled(2.0), ledger=daily.ledger.path, dataset="daily data")
    assert daily.charges == 1
    other = daily.call(loss=_scaled(2.0), again=True)
    same(daily.call(loss=_scaled(2.0)), other)
    same(daily.call(loss=_scaled(1.0)), result)
    assert daily.charges == len(daily.folders) == 2


def _loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, y, reduction="none")


def _others() -> Any:
    def _loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 2 * nn.functional.cross_entropy(output, y, reduction="none")

    _loss.__qualname__ = "_loss"
    return _loss


@pytest.mark.slow
def test_again_is_a_new_search_where_the_last_is_over_and_goes_on_where_it_is_not(daily: Daily) -> None:
    first = daily.call()
    second = daily.call(again=True)
    assert daily.charges == len(daily.folders) == 2
    assert second.folder is not None
    assert first.folder is not None
    assert second.folder.name == f"{first.folder.name}-2"
    same(daily.call(), second)
    killed(daily, again=True)
    assert daily.charges == 3
    third = daily.call(again=True)
    assert daily.charges == len(daily.folders) == 3
    same(daily.call(), third)


@pytest.mark.slow
def test_again_is_a_new_search_where_another_version_began_the_last(daily: Daily) -> None:
    killed(daily)
    (folder,) = daily.folders
    file = daily.folder / folders.SEARCHES / folder / "search.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "code": "another"}))
    with pytest.raises(InvalidArgument, match="code"):
        daily.call()
    assert daily.charges == 1
    daily.call(again=True)
    assert daily.charges == len(daily.folders) == 2


def test_again_is_refused_with_a_folder_of_ones_own(daily: Daily) -> None:
    with pytest.raises(InvalidArgument, match="again must be left out with out"):
        daily.call(again=True, out=daily.folder / "out")


def test_without_a_ledger_and_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert honestdp.tune(linear, clouds(), **WHOLE).folder is None
    assert list(tmp_path.iterdir()) == []


# ---- Killed, and at once


def _die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(daily: Daily, **changes: Any) -> None:
    """kill -9 after the charge and before the first step."""

    def before() -> None:
        Execution.finish = _die  # type: ignore[method-assign, assignment]

    assert code_of(daily.forked(before, **changes)) == -signal.SIGKILL


@pytest.mark.slow
def test_killed_between_the_charge_and_the_first_step_the_same_call_goes_on(daily: Daily) -> None:
    killed(daily)
    assert daily.charges == 1
    head = daily.ledger.balance("daily data").head
    result = daily.call()
    assert result.balance is not None
    assert result.balance.head == head
    assert daily.charges == 1
    kinds = [entry.kind for entry in daily.ledger.entries("daily data")]
    assert kinds == ["budget", "charge", "resume", "over"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["_begin", "_paid"])
def test_killed_before_the_charge_the_same_call_begins(moment: str, daily: Daily) -> None:
    """_begin: before anything of it is on the disk. _paid: when all is, but for the charge."""

    def before() -> None:
        setattr(Search, moment, _die)

    assert code_of(daily.forked(before)) == -signal.SIGKILL
    assert daily.charges == 0
    daily.call()
    assert daily.charges == len(daily.folders) == 1


@pytest.mark.slow
def test_of_two_processes_that_make_the_same_call_one_is_refused_while_the_other_works(daily: Daily) -> None:
    working, refused = daily.folder / "working", daily.folder / "refused"

    def slowly() -> None:
        honest = Execution.finish

        def finish(self: Execution) -> Any:
            working.touch()
            limit = time.monotonic() + 120
            while not refused.exists() and time.monotonic() < limit:
                time.sleep(0.01)
            return honest(self)

        Execution.finish = finish  # type: ignore[method-assign]

    first = daily.forked(slowly)
    while not working.exists():
        time.sleep(0.01)
    assert code_of(daily.forked(lambda: None)) == 1
    refused.touch()
    assert code_of(first) == 0
    daily.call()
    assert daily.charges == len(daily.folders) == 1


def test_two_processes_that_begin_at_the_same_moment_charge_once(daily: Daily) -> None:
    """Both have planned, and neither has a folder, when they go on together."""
    marks = [daily.folder / "one", daily.folder / "two"]

    def together(mine: Path) -> Callable[[], None]:
        def before() -> None:
            honest = Search.carry_out

            def carry_out(self: Search, *args: Any, **named: Any) -> Any:
                mine.touch()
                limit = time.monotonic() + 120
                while not all(mark.exists() for mark in marks) and time.monotonic() < limit:
                    time.sleep(0.0005)
                return honest(self, *args, **named)

            Search.carry_out = carry_out  # type: ignore[method-assign]

        return before

    codes = [code_of(number) for number in [daily.forked(together(mark)) for mark in marks]]
    assert 0 in codes
    assert set(codes) <= {0, 1}
    assert daily.charges == len(daily.folders) == 1


# ---- Planted faults: each charges twice, and the checks above would see it


@pytest.mark.slow
def test_a_folder_that_the_same_call_does_not_find_is_noticed(daily: Daily, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_digest", lambda _: f"{time.time_ns():x}")
    daily.call()
    daily.call()
    assert daily.charges == 2


@pytest.mark.slow
def test_a_search_that_is_begun_over_another_is_noticed(daily: Daily, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(daily)
    monkeypatch.setattr(lifecycle, "look", lambda *_, **__: None)
    daily.call()
    assert daily.charges == 2
