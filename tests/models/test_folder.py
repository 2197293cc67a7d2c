"""A model folder: what is saved comes back, no code of it is run, and a change of any file is noticed."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import honestdp
from honestdp.errors import InvalidArgument, TamperedFolder
from honestdp.models.architecture import built, described
from honestdp.models.digests import digests

FILES = {"model.safetensors", "model.json", "statement.json", "README.md", "report.html"}


def trained(model: nn.Module | None = None) -> honestdp.Result:
    x, y = torch.randn(40, 4), torch.arange(40) % 2
    run = honestdp.Run(records=40, lot=8, steps=2, noise=2.0)
    return honestdp.train(model or nn.Linear(4, 2), (x, y), run=run, optimizer="horizon", delta=1e-3)


@pytest.fixture(scope="module")
def result() -> honestdp.Result:
    return trained()


@pytest.fixture(scope="module")
def saved_once(result: honestdp.Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    honestdp.save(folder, result)
    return folder


@pytest.fixture
def folder(saved_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_once, tmp_path / "model"))


def test_what_is_saved_comes_back(result: honestdp.Result, folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == FILES | {"digests.json"}
    loaded = honestdp.load(folder)
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), result.model.parameters(), strict=True))
    assert not loaded.model.training
    assert loaded.statement == result.statement
    assert loaded.hyperparameters == result.hyperparameters
    assert loaded.run == vars(result.run)
    assert loaded.as_dict()["statement"] == result.statement.as_dict()
    for words in ("epsilon", "delta", "add or remove one record", "NOT PRIVATE"):
        assert (words in loaded.card) == (words != "NOT PRIVATE")


def test_a_model_that_is_not_private_says_so_on_its_card(tmp_path: Path) -> None:
    x, y = torch.randn(10, 4), torch.arange(10) % 2
    run = honestdp.Run(records=10, lot=5, steps=1, noise=0.0)
    result = honestdp.train(nn.Linear(4, 2), (x, y), run=run, optimizer="horizon", delta=1e-3)
    saved = honestdp.save(tmp_path / "model", result)
    assert "**NOT PRIVATE" in saved.card
    assert saved.statement.not_private


# ---- Tampering


def edit(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_byte_of_any_file_is_noticed(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(TamperedFolder, match=f"{name} is not what was saved"):
        honestdp.load(folder)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_is_missing_is_noticed(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(TamperedFolder, match=f"{name} is missing"):
        honestdp.load(folder)


def test_a_smaller_epsilon_in_the_statement_is_noticed(folder: Path, result: honestdp.Result) -> None:
    edit(folder / "statement.json", str(result.epsilon).encode(), b"0.01")
    with pytest.raises(TamperedFolder, match=r"statement\.json"):
        honestdp.load(folder)


def test_a_file_of_another_saved_model_is_noticed(folder: Path, tmp_path: Path) -> None:
    honestdp.save(tmp_path / "other", trained())
    shutil.copy(tmp_path / "other" / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(TamperedFolder, match=r"model\.safetensors"):
        honestdp.load(folder)


def forged(folder: Path, **changed: bytes) -> None:
    """Files changed together with their digests, as somebody does who can write the folder and knows how."""
    for name, content in changed.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    names = [path.name for path in folder.iterdir() if path.name != "digests.json"]
    (folder / "digests.json").write_text(json.dumps(digests({n: (folder / n).read_bytes() for n in names})))


def test_whoever_forges_the_digests_too_is_noticed_by_the_digest_that_was_noted_elsewhere(folder: Path) -> None:
    noted = honestdp.load(folder).digest
    written = json.loads((folder / "statement.json").read_text())
    forged(folder, statement__json=json.dumps({**written, "epsilon": 0.01}).encode())
    assert honestdp.load(folder).statement.epsilon == 0.01  # which the digests in the folder cannot notice
    with pytest.raises(TamperedFolder, match=noted):
        honestdp.load(folder, digest=noted)
    with pytest.raises(InvalidArgument, match="64 digits"):
        honestdp.load(folder, digest=noted[:20])


def test_a_file_that_is_left_out_of_the_digests_is_not_read(folder: Path) -> None:
    written = json.loads((folder / "digests.json").read_text())
    del written["files"]["statement.json"]
    (folder / "digests.json").write_text(json.dumps(written))
    with pytest.raises(TamperedFolder, match=r"digests\.json is not what was saved"):
        honestdp.load(folder)
    named = {n: (folder / n).read_bytes() for n in FILES - {"statement.json"}}
    (folder / "digests.json").write_text(json.dumps(digests(named)))
    with pytest.raises(TamperedFolder, match="cannot be read"):
        honestdp.load(folder)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"format": 1}', b'{"format": 1, "files": [], "digest": ""}', b"[" * 100000]
)
def test_digests_that_are_none_are_refused(folder: Path, content: bytes) -> None:
    (folder / "digests.json").write_bytes(content)
    with pytest.raises(TamperedFolder, match=r"digests\.json"):
        honestdp.load(folder)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", ".hidden", "candidates/../x"])
def test_digests_name_no_file_outside_the_folder(folder: Path, name: str) -> None:
    (folder.parent / "outside").write_bytes(b"x")
    files = {name: hashlib.sha256(b"x").hexdigest()}
    written = digests({})
    (folder / "digests.json").write_text(json.dumps({**written, "files": files}))
    with pytest.raises(TamperedFolder, match=r"digests\.json is not what was saved"):
        honestdp.load(folder)


@pytest.mark.parametrize("put", [lambda p, o: p.symlink_to(o), lambda p, o: os.mkfifo(p), lambda p, o: p.mkdir()])
def test_a_link_a_pipe_or_a_folder_in_a_files_place_is_not_read(
    folder: Path, put: Callable[[Path, Path], object]
) -> None:
    other = folder.parent / "other"
    (folder / "README.md").rename(other)
    put(folder / "README.md", other)
    with pytest.raises(TamperedFolder, match=r"README\.md"):
        honestdp.load(folder)


# ---- No code


class Alarm:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


def test_a_pickle_in_the_weights_place_is_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    forged(folder, model__safetensors=pickle.dumps(Alarm()))
    with pytest.raises(honestdp.errors.HonestdpError, match=r"model\.safetensors cannot be read"):
        honestdp.load(folder)
    assert not (folder.parent / "ran").exists()


LAYER = {"kind": "linear", "inputs": 4, "outputs": 2, "bias": True}


@pytest.mark.parametrize(
    "architecture",
    [
        {"kind": "os.system"},
        {"kind": "sequential", "layers": [{"kind": "torch.nn.Linear"}]},
        {"kind": "sequential", "layers": []},
        {"kind": "sequential", "layers": "relu"},
        {**LAYER, "inputs": 10**15},
        {**LAYER, "inputs": True},
        {**LAYER, "inputs": -4},
        {"kind": "linear"},
        {"kind": ["linear"]},
        [],
    ],
)
def test_an_architecture_that_was_forged_builds_nothing(folder: Path, architecture: Any) -> None:
    written = json.loads((folder / "model.json").read_text())
    forged(folder, model__json=json.dumps({**written, "architecture": architecture}).encode())
    with pytest.raises(honestdp.errors.HonestdpError):
        honestdp.load(folder)


def test_networks_in_a_row_are_data_and_others_are_not() -> None:
    rows = [
        nn.Linear(3, 2),
        nn.Linear(3, 2, bias=False),
        nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)),
        nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 5), nn.SiLU(), nn.Linear(5, 1)),
    ]
    x = torch.randn(7, 3)
    for model in rows:
        again = built(json.loads(json.dumps(described(model))), model.state_dict())
        assert torch.equal(again(x), model(x))

    class Doubled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    hooked = nn.Linear(3, 2)
    hooked.register_forward_hook(lambda *_: torch.zeros(7, 2))
    patched = nn.Linear(3, 2)
    patched.forward = lambda x: x  # type: ignore[method-assign]
    named = nn.Sequential()
    named.add_module("first", nn.Linear(3, 2))
    for model in (Doubled(3, 2), hooked, patched, named, nn.Conv1d(3, 2, 1), nn.Sequential(), nn.ReLU()):
        assert described(model) is None


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_a_model_of_ones_own_is_brought_along(tmp_path: Path) -> None:
    result = trained(Own())
    saved = honestdp.save(tmp_path / "model", result)
    assert "whose code is not in this folder" in saved.card
    with pytest.raises(InvalidArgument, match="Own, whose code you bring"):
        honestdp.load(tmp_path / "model")
    for own in (Own, Own()):
        loaded = honestdp.load(tmp_path / "model", model=own)
        assert torch.equal(loaded.model.inner.weight, result.model.inner.weight)  # type: ignore[union-attr, arg-type]
        assert loaded.model is not own
    with pytest.raises(honestdp.errors.HonestdpError, match="weights are of another model"):
        honestdp.load(tmp_path / "model", model=nn.Linear(4, 2))
    with pytest.raises(InvalidArgument, match=r"torch\.nn\.Module"):
        honestdp.load(tmp_path / "model", model=lambda: 3)  # type: ignore[arg-type, return-value]


# ---- Where it is saved


def test_nothing_of_somebody_elses_is_written_over(result: honestdp.Result, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="holds a saved model"):
        honestdp.save(folder, result)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidArgument, match=r"this one has notes\.txt"):
        honestdp.save(tmp_path / "full", result)
    with pytest.raises(InvalidArgument, match="this is a file"):
        honestdp.save(tmp_path / "full" / "notes.txt", result)
    with pytest.raises(InvalidArgument, match="no such folder"):
        honestdp.load(tmp_path / "none")
    with pytest.raises(InvalidArgument, match=r"has a file digests\.json"):
        honestdp.load(tmp_path / "full")
    with pytest.raises(InvalidArgument, match="what train or tune returned"):
        honestdp.save(tmp_path / "new", result.model)  # type: ignore[arg-type]


def test_a_folder_that_was_half_saved_is_none_and_can_be_saved_again(result: honestdp.Result, folder: Path) -> None:
    (folder / "digests.json").unlink()
    with pytest.raises(InvalidArgument, match=r"digests\.json"):
        honestdp.load(folder)
    assert honestdp.save(folder, result).statement == result.statement


def test_the_folder_of_a_search_becomes_one_of_a_model(tmp_path: Path) -> None:
    """Its own files stay as they are, and no file tells how long it took."""
    data = torch.randn(40, 4), torch.arange(40) % 2
    how: dict[str, Any] = {"budget": honestdp.Budget(5.0, 1e-3), "lot": 8, "steps": 2, "out": tmp_path / "run"}
    first = nn.Linear(4, 2)
    result = honestdp.tune(first, data, **how)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    saved = honestdp.save(tmp_path / "run", result, title="Readmission")
    assert saved.score == result.score
    assert saved.card.startswith("# Readmission")
    after = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert before.items() <= after.items()
    times = {path.stat().st_mtime_ns for path in ((tmp_path / "run"), *(tmp_path / "run").iterdir())}
    assert len(times) == 1
    assert honestdp.save(tmp_path / "run", honestdp.tune(first, data, **how)).digest != saved.digest  # another title
    edit(tmp_path / "run" / "result.json", b'"hyperparameters"', b'"hyperparameterS"')
    with pytest.raises(TamperedFolder, match=r"result\.json"):
        honestdp.load(tmp_path / "run")


@pytest.mark.parametrize("value", [math.nan, "0.5", math.inf, None])
@pytest.mark.parametrize("place", ["value", "low", "high", "noise"])
def test_a_score_with_a_number_that_is_none_is_refused(folder: Path, place: str, value: Any) -> None:
    written = json.loads((folder / "model.json").read_text())
    score = {"name": "accuracy", "value": 0.5, "low": 0.4, "high": 0.6, "confidence": 0.95, "noise": 0.01} | {
        place: value
    }
    forged(folder, model__json=json.dumps(written | {"score": score}).encode())
    with pytest.raises(InvalidArgument, match=f"{place} must be a finite number"):
        honestdp.load(folder)


@pytest.mark.parametrize("value", [math.nan, "NaN", -1.0])
@pytest.mark.parametrize("place", ["epsilon", "delta", "runs", "published"])
def test_a_statement_with_a_number_that_is_none_is_refused(folder: Path, place: str, value: Any) -> None:
    """Also one whose digests fit: NaN compares with nothing, so that every check of an epsilon lets it pass."""
    written = json.loads((folder / "statement.json").read_text())
    written[place] = {"bound": "a bound", "epsilon": value} if place == "published" else value
    with pytest.raises(InvalidArgument, match="must be"):
        honestdp.Statement.from_dict(written)
    forged(folder, statement__json=json.dumps(written).encode())
    with pytest.raises(TamperedFolder, match="states what nothing can"):
        honestdp.load(folder)
