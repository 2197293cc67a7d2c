"""A resume goes on with the same search or says in one line why it does not; nothing is charged for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import honestdp
from honestdp import Budget, ClippedLoss, DeclaredMetric
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.ledger import Ledger
from honestdp.search import configuration as public
from honestdp.search.lifecycle import SearchStopped
from honestdp.search.runs import Execution
from honestdp.training.population import Population
from honestdp.training.spec import Compute
from tests.tiny_search import WHOLE, clouds, linear, once_charged, weights

BUDGET = Budget(50.0, 1e-5)


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


class Stopped:
    """A search that was stopped in a training: charged once, with a checkpoint. early: before it had one."""

    def __init__(self, folder: Path, *, early: bool = False, **changes: Any) -> None:
        self.folder, self.out, self.ledger = folder, folder / "out", Ledger(folder / "ledger.db")
        self.ledger.set_budget("a", BUDGET)
        self.settings = {**WHOLE, "out": self.out, "ledger": folder / "ledger.db", "dataset": "a", **changes}
        self.model = self.settings.pop("model", linear)
        with pytest.MonkeyPatch.context() as patch:
            once_charged(patch, *((Execution, "finish") if early else (Population, "block")), _interrupted)
            with pytest.raises(SearchStopped, match="make the same call again"):
                honestdp.tune(self.model, clouds(), **self.settings)
        assert self.out.is_dir()

    def resume(self, data: Any = None, **changes: Any) -> honestdp.TuneResult:
        settings = {**self.settings, **changes}
        return honestdp.tune(
            settings.pop("model", self.model), clouds() if data is None else data, resume=True, **settings
        )

    def refuses(self, wanted: str, data: Any = None, **changes: Any) -> None:
        """In one line, charging nothing, and the search can still be resumed as it was."""
        before = self.ledger.balance("a").spent, _files(self.out)
        with pytest.raises(HonestdpError, match=wanted) as raised:
            self.resume(data, **changes)
        assert "\n" not in str(raised.value)
        assert (self.ledger.balance("a").spent, _files(self.out)) == before


def _files(folder: Path) -> dict[str, bytes]:
    """All but the token of the last resume, which a resume that is refused after the charge leaves too."""
    own = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "resumes"]
    return {str(path): path.read_bytes() for path in own}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    return Stopped(tmp_path_factory.mktemp("stopped"))


def _cosine(step: int) -> float:
    return 1.0


def _first(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return output[0].sigmoid()


def _last(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return output[-1].sigmoid()


def _loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, y, reduction="none")


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "budget": ("budget", {"budget": Budget(2.0, 1e-5)}),
    "delta": ("budget", {"budget": Budget(3.0, 1e-6)}),
    "optimizer": ("space", {"optimizer": "adam", "space": {"lr": [0.1, 1.0], "clip": [1.0]}}),
    "space": ("space", {"space": {"lr": [0.1, 0.5], "clip": [1.0]}}),
    "selection": ("selection", {"selection": "papernot-steinke"}),
    "coverage": ("coverage", {"coverage": 0.8}),
    "lot": ("space", {"lot": 300}),
    "steps": ("space", {"steps": 4}),
    "validation": ("validation", {"validation": 0.1}),
    "metric": ("metric", {"metric": ClippedLoss(1.0)}),
    "max_runs": ("max_runs", {"max_runs": 9}),
    "published": ("published", {"published": True}),
    "space_seed": ("space_seed", {"space_seed": 1}),
    "records": ("declared", {"records": 400}),
    "loss": ("loss", {"loss": _loss}),
    "schedule": ("schedule", {"schedule": "cosine"}),
    "schedule of one's own": ("schedule", {"schedule": _cosine}),
    "secure": ("secure", {"secure": True}),
    "strict": ("strict", {"strict": True}),
    "model": ("model", {"model": lambda: nn.Sequential(nn.Linear(3, 2))}),
    "no ledger": ("dataset", {"ledger": None, "dataset": None}),
    "reproduce": ("reproduce", {"reproduce": "another command"}),
}


@pytest.mark.slow
@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("name", OTHERS)
def test_other_settings_are_refused_by_name(name: str, stopped: Stopped) -> None:
    differing, changes = OTHERS[name]
    stopped.refuses(rf"resume must be a search with the same settings; it differs in .*\b{differing}\b", **changes)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ClippedLoss(1.0), ClippedLoss(2.0)),
        (DeclaredMetric(_first, low=0, high=1), DeclaredMetric(_first, low=0, high=2)),
        (DeclaredMetric(_first, low=0, high=1), DeclaredMetric(_last, low=0, high=1)),
    ],
)
def test_a_metric_with_another_bound_is_another(first: Any, second: Any, tmp_path: Path) -> None:
    Stopped(tmp_path, metric=first).refuses("differs in metric", metric=second)


@pytest.mark.usefixtures("unread")
def test_another_dataset_name_is_refused(stopped: Stopped) -> None:
    stopped.ledger.set_budget("b", BUDGET)
    stopped.refuses("differs in dataset", dataset="b")
    assert stopped.ledger.balance("b").charges == 0


@pytest.mark.slow
@pytest.mark.usefixtures("unread")
def test_another_ledger_is_refused_and_not_charged(stopped: Stopped, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other.db")
    other.set_budget("a", BUDGET)
    stopped.refuses("ledger must be the one that this was charged to when it was begun", ledger=tmp_path / "other.db")
    assert other.balance("a").charges == 0
    stopped.refuses("ledger must be the one that this was charged to when it was begun", ledger=tmp_path / "none.db")


@pytest.mark.slow
def test_a_ledger_that_was_moved_is_the_same_ledger(tmp_path: Path) -> None:
    search = Stopped(tmp_path)
    shutil.move(tmp_path / "ledger.db", tmp_path / "moved.db")
    search.resume(ledger=tmp_path / "moved.db")
    assert Ledger(tmp_path / "moved.db").balance("a").charges == 1


@pytest.mark.usefixtures("unread")
def test_other_code_is_refused(stopped: Stopped, monkeypatch: pytest.MonkeyPatch) -> None:
    own = public.versions()
    monkeypatch.setattr(public, "versions", lambda: {**own, "code": "another"})
    stopped.refuses("differs in code")


def test_other_records_of_the_same_shape_are_refused(stopped: Stopped) -> None:
    stopped.refuses("data must be the records that this search was begun with", data=clouds(seed=1))


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("number", [401, 420])
def test_another_number_of_records_is_refused(stopped: Stopped, number: int) -> None:
    stopped.refuses(r"differs in .*\brecords\b", data=clouds(number))


@pytest.mark.usefixtures("unread")
def test_records_of_another_kind_are_refused(stopped: Stopped) -> None:
    x, y = clouds()
    stopped.refuses("differs in data", data=(x.astype(np.float64), y))


@pytest.mark.slow
def test_a_resume_in_another_process_may_have_other_workers_and_show_its_progress(tmp_path: Path) -> None:
    search = Stopped(tmp_path)
    search.resume(compute=Compute(device="cpu", workers=0, progress=True))
    assert search.ledger.balance("a").charges == 1


@pytest.mark.slow
def test_initial_weights_are_those_that_the_search_began_with(tmp_path: Path) -> None:
    """A script makes its module anew when it is run again, with other weights."""
    torch.manual_seed(1)
    settings = {"model": linear(), "ledger": None, "dataset": None, "noise_seed": 1}
    whole = honestdp.tune(settings["model"], clouds(), **WHOLE, noise_seed=1)
    search = Stopped(tmp_path, early=True, **settings)
    assert torch.equal(weights(search.resume(model=linear()).model), weights(whole.model))


@pytest.mark.slow
def test_a_finished_search_gives_its_result_again(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    search = Stopped(tmp_path)
    result = search.resume()
    before, files = search.ledger.balance("a"), _files(search.out)
    request.getfixturevalue("unread")
    again = search.resume(data=clouds(seed=1))  # it does not look at them
    assert again.as_dict() == result.as_dict()
    assert torch.equal(weights(again.model), weights(result.model))
    assert [one.hyperparameters for one in again.candidates] == [one.hyperparameters for one in result.candidates]
    for one, other in zip(again.candidates, result.candidates, strict=True):
        assert torch.equal(weights(one.model), weights(other.model))
    assert (search.ledger.balance("a"), _files(search.out)) == (before, files)
    search.refuses("differs in budget", budget=Budget(2.0, 1e-5))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["result.json", "model.safetensors", "candidates/0000.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "cut off", "nonsense"])
def test_a_finished_search_with_a_damaged_file_says_so(name: str, damage: str, finished: Stopped) -> None:
    path = finished.out / name
    whole = path.read_bytes()
    _damage(path, damage)
    try:
        finished.refuses("out must be the folder of a search that can go on or is over")
    finally:
        path.write_bytes(whole)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    search = Stopped(tmp_path_factory.mktemp("finished"))
    search.resume()
    return search


def _damage(path: Path, damage: str) -> None:
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if damage == "cut off" else b"[1]")


DAMAGED = {
    "search.json": "search.json, which is missing|search.json cannot be read",
    ".secret/key": "secret state .* cannot be read .* stays charged",
    ".secret/plan": "secret state .* cannot be read .* stays charged|plan of this search cannot be read",
    ".secret/batch0": "secret state .* cannot be read .* stays charged",
    ".secret/standing": "secret state .* cannot be read .* stays charged",
    ".secret/data": "secret state .* cannot be read .* stays charged",
}
NEEDED = ("search.json", ".secret/key", ".secret/plan")  # the others are not there before a search has come so far


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((name, damage) for name in DAMAGED for damage in ("cut off", "nonsense")),
        *((name, "missing") for name in NEEDED),
    ],
)
def test_a_damaged_search_says_so(name: str, damage: str, stopped: Stopped) -> None:
    path = stopped.out / name
    whole = path.read_bytes() if path.exists() else None
    try:
        if whole is None:
            path.write_bytes(b"0123456789")
        _damage(path, damage)
        stopped.refuses(DAMAGED[name])
    finally:
        path.unlink(missing_ok=True)
        if whole is not None:
            path.write_bytes(whole)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("inside", [None, "notes.txt", ""])
def test_a_folder_that_is_no_search_is_refused(inside: str | None, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("a", BUDGET)
    out = tmp_path / "out"
    if inside is not None:
        out.mkdir()
    if inside:
        (out / inside).write_text("mine")
    with pytest.raises(InvalidArgument, match="out must be the folder of a search that was begun"):
        honestdp.tune(linear, clouds(), **WHOLE, out=out, resume=True, ledger=tmp_path / "ledger.db", dataset="a")
    assert ledger.balance("a").charges == 0
    assert out.exists() is (inside is not None)
    assert not inside or (out / inside).read_text() == "mine"


@pytest.mark.usefixtures("unread")
def test_without_resume_another_search_in_the_folder_is_refused_by_what_differs(stopped: Stopped) -> None:
    for differing, changes in OTHERS.values():
        settings = {**stopped.settings, **changes}
        with pytest.raises(
            InvalidArgument, match=rf"out must be a new folder, or .* it differs in .*\b{differing}\b.*anew"
        ):
            honestdp.tune(settings.pop("model", linear), clouds(), **settings)
    assert stopped.ledger.balance("a").charges == 1


def test_the_search_that_refused_all_this_still_goes_on_by_the_same_call(stopped: Stopped) -> None:
    """Last in this file: the others leave it as it was."""
    result = honestdp.tune(linear, clouds(), **stopped.settings)
    assert json.loads((stopped.out / "result.json").read_text())["hyperparameters"] == result.hyperparameters
    assert stopped.ledger.balance("a").charges == 1
