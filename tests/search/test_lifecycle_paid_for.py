"""What was paid for is not lost, its end is in the ledger, and a folder keeps neither its key nor loses a file of the user's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import honestdp
from honestdp import Accuracy, Budget
from honestdp.boundary.data import PrivateData
from honestdp.boundary.scores import ScoreDoor
from honestdp.checks import InvalidArgument
from honestdp.ledger import Ledger, Locked, NoBudget, ReadOnly
from honestdp.ledger.store import Store
from honestdp.search import planning, secret, vault
from honestdp.search import runs as execution
from honestdp.search import tune_result as leaving
from honestdp.search.failures import SearchFailed
from honestdp.search.lifecycle import SearchStopped
from honestdp.search.runs import Execution
from honestdp.training.population import Population
from honestdp.training.spec import Compute
from tests.tiny_search import WHOLE, clouds, linear, once_charged


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.db")
    made.set_budget("a", Budget(50.0, 1e-5))
    return made


def tune(ledger: Ledger | None, data: Any = None, **named: Any) -> honestdp.TuneResult:
    paid = {} if ledger is None else {"ledger": ledger.path, "dataset": "a"}
    return honestdp.tune(linear, clouds() if data is None else data, **WHOLE | paid | named)


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for entry in ledger.entries("a")]


def stopped(out: Path, data: Any = None, **named: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        once_charged(patch, Population, "block", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(SearchStopped):
            tune(None, data, out=out, **named)


# ---- The charge


@pytest.mark.slow
@pytest.mark.parametrize("refusal", [Locked, ReadOnly])
def test_a_charge_that_could_not_be_read_back_is_not_lost(
    refusal: type[Exception], ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def confirm(self: Store, entry: Any) -> None:
            raise refusal("it was written, and cannot be read back")

        patch.setattr(Store, "_confirm", confirm)
        with pytest.raises(refusal, match="cannot be read back"):
            tune(ledger, out=tmp_path / "out")
    assert kinds(ledger) == ["budget", "charge"]
    assert tune(ledger, out=tmp_path / "out", resume=True).balance is not None
    assert kinds(ledger).count("charge") == 1


def test_a_refusal_that_charged_nothing_leaves_no_folder(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Ledger, *_: Any, **__: Any) -> None:
        raise NoBudget("a", Path("ledger.db"))

    monkeypatch.setattr(Ledger, "charge", refuse)
    with pytest.raises(NoBudget):
        tune(ledger, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- The end


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_the_end_of_a_search_is_in_the_ledger_with_a_folder_and_without(
    kept: bool, ledger: Ledger, tmp_path: Path
) -> None:
    tune(ledger, **({"out": tmp_path / "out"} if kept else {}))
    assert kinds(ledger) == ["budget", "charge", "over"]


@pytest.mark.parametrize("kept", [True, False])
def test_so_is_the_end_of_one_that_failed(
    kept: bool, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Execution, "_trained", lambda self, number, batch: [None] * len(batch))
    with pytest.raises(SearchFailed):
        tune(ledger, **({"out": tmp_path / "out"} if kept else {}))
    assert kinds(ledger) == ["budget", "charge", "over"]


def _busy(patch: pytest.MonkeyPatch) -> None:
    def end(self: Ledger, *_: Any, **__: Any) -> None:
        raise Locked("another process has it")

    patch.setattr(Ledger, "end", end)


@pytest.mark.slow
def test_a_ledger_that_is_busy_at_the_end_costs_no_result(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call reads it when the ledger is free again, with a folder that was named or without."""
    named: list[dict[str, Any]] = [{}, {"out": tmp_path / "out"}]
    with monkeypatch.context() as patch:
        _busy(patch)
        for each in named:
            with pytest.raises(Locked):
                tune(ledger, **each)
    for each in named:
        assert tune(ledger, **each).balance is not None
    assert kinds(ledger) == ["budget", "charge", "charge", "over", "over"]


@pytest.mark.slow
def test_nor_the_word_that_a_search_failed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Execution, "_trained", lambda self, number, batch: [None] * len(batch))
    with monkeypatch.context() as patch:
        _busy(patch)
        with pytest.raises(Locked):
            tune(ledger)
    with pytest.raises(SearchFailed):
        tune(ledger)
    assert [kind for kind in kinds(ledger) if kind != "resume"] == ["budget", "charge", "over"]


@pytest.mark.slow
def test_a_result_beside_a_key_is_returned_and_the_key_erased(ledger: Ledger, tmp_path: Path) -> None:
    out, copy = tmp_path / "out", tmp_path / "copy"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vault, "erase", lambda folder: None)  # copied before it was erased
        before = tune(ledger, out=out)
    shutil.copytree(out, copy)
    assert (copy / "result.json").exists()
    assert (copy / ".secret" / "key").exists()
    assert not (copy / ".lock").exists()
    after = tune(ledger, out=copy, resume=True)
    assert after.hyperparameters == before.hyperparameters
    assert not (copy / ".secret").exists()
    assert not (copy / ".lock").exists()


# ---- Files of the user's


@pytest.mark.slow
def test_files_that_no_search_wrote_are_neither_removed_nor_touched(tmp_path: Path) -> None:
    out = tmp_path / "out"
    stopped(out)
    (out / "mine").mkdir()
    theirs = [
        ".notes.new",
        ".model.safetensors.new",
        ".notes.12.new",
        "notes",
        "mine/.search.json.12.new",
        "mine/notes",
    ]
    ours = [".model.safetensors.12.new", "..result.json.pending.7.new", ".report.html.99.new"]
    for name in (*theirs, *ours):
        (out / name).write_text("a")
        os.utime(out / name, ns=(10**18, 10**18))
    os.utime(out / "mine", ns=(10**18, 10**18))
    tune(None, out=out, resume=True)
    for name in (*theirs, "mine"):
        assert (out / name).stat().st_mtime_ns == 10**18, name
    assert not [name for name in ours if (out / name).exists()]
    begun = (out / "search.json").stat().st_mtime_ns
    for name in ("model.safetensors", "result.json", "report.html", "candidates", "candidates/0000.safetensors", "."):
        assert (out / name).stat().st_mtime_ns == begun, name


def test_half_written_candidates_go_too(tmp_path: Path) -> None:
    tune(None, out=tmp_path / "out")
    left = tmp_path / "out" / "candidates" / ".0001.safetensors.12.new"
    theirs = tmp_path / "out" / "candidates" / ".notes.12.new"
    for path in (left, theirs):
        path.write_text("a")
    leaving.settle(tmp_path / "out")
    assert (left.exists(), theirs.exists()) == (False, True)


@pytest.mark.parametrize("name", [".notes.new", ".notes.12.new", "notes.new", ".search.json.new"])
def test_a_folder_with_a_file_of_the_user_s_is_not_a_new_one(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(InvalidArgument, match="a new or an empty folder"):
        tune(None, out=tmp_path)
    assert (tmp_path / name).read_text() == "mine"


def test_what_a_kill_left_of_a_search_is_no_file_of_the_user_s(tmp_path: Path) -> None:
    (tmp_path / ".search.json.12.new").write_text("half")
    tune(None, out=tmp_path)
    assert not (tmp_path / ".search.json.12.new").exists()


# ---- The plan


@pytest.mark.slow
@pytest.mark.parametrize("free", [0, 1 << 30])
def test_a_search_goes_by_the_memory_of_its_plan(free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "free_memory", lambda device: free)
    stopped(tmp_path / "out")
    monkeypatch.setattr(planning, "free_memory", lambda device: 12345)
    real, found = execution.assemble, []

    def assemble(*args: Any, **named: Any) -> Any:
        found.append(named["memory"])
        return real(*args, **named)

    once_charged(monkeypatch, execution, "assemble", assemble)
    tune(None, out=tmp_path / "out", resume=True)
    assert set(found) == {free}


def test_a_plan_without_a_memory_has_none() -> None:
    assert secret.Secret.__dataclass_fields__["memory"].default is None


class Blurred(Dataset[Any]):
    """Records that are never the same twice."""

    def __init__(self) -> None:
        self.x, self.y = clouds()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(self.x[index]) + torch.randn(3), self.y[index]


@pytest.mark.slow
def test_two_copies_score_the_same_records_with_the_same_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"metric": Accuracy(), "compute": Compute(device="cpu", workers=0)}
    stopped(tmp_path / "out", Blurred(), **settings)
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    real_score, real_gathered, found = ScoreDoor.score, PrivateData._gathered, list[torch.Tensor]()

    def score(self: Any, *args: Any) -> Any:
        found.append(torch.rand(4))
        return real_score(self, *args)

    def gathered(*args: Any, **named: Any) -> Any:
        x, y = real_gathered(*args, **named)
        found.append(x.clone())
        return x, y

    once_charged(monkeypatch, ScoreDoor, "score", score)
    monkeypatch.setattr(PrivateData, "_gathered", gathered)
    for number, name in enumerate(("out", "copy")):
        torch.manual_seed(number)
        tune(None, Blurred(), out=tmp_path / name, resume=True, **settings)
    one, other = found[: len(found) // 2], found[len(found) // 2 :]
    assert len(one) == 3  # the records, and two runs
    assert all(torch.equal(*both) for both in zip(one, other, strict=True))


# ---- The records


def test_labels_in_memory_count_beside_inputs_on_a_disk_and_the_other_way_round(tmp_path: Path) -> None:
    x, y = clouds()
    other = 1 - y
    for name, values in (("x", x), ("y", y)):
        np.save(tmp_path / f"{name}.npy", values)
    mapped_x, mapped_y = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy")
    assert PrivateData((mapped_x, y)).fingerprint() != PrivateData((mapped_x, other)).fingerprint()
    assert PrivateData((x, mapped_y)).fingerprint() != PrivateData((x + 1, mapped_y)).fingerprint()
    assert PrivateData((mapped_x, mapped_y)).fingerprint() == PrivateData((mapped_x, mapped_y)).fingerprint()
