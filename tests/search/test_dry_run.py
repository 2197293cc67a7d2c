"""A dry run says what a search would cost, take and write; it charges, reads and makes nothing, and the search then does so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import honestdp
from honestdp import Budget
from honestdp.checks import InvalidArgument
from honestdp.ledger import Ledger, NoBudget
from tests.command_line import called
from tests.tiny_search import WHOLE, clouds, linear


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.db")
    made.set_budget("a", Budget(5.0, 1e-5))
    return made


def settings(ledger: Ledger, **changes: Any) -> dict[str, Any]:
    return {**WHOLE, "ledger": ledger.path, "dataset": "a", **changes}


def ahead(ledger: Ledger, **changes: Any) -> honestdp.DryRun:
    """With nothing left in the ledger or on the disk that was not there before."""
    before = ledger.path.read_bytes(), sorted(ledger.path.parent.rglob("*"))
    found = honestdp.dry_run(linear, clouds(), **settings(ledger, **changes))
    assert (ledger.path.read_bytes(), sorted(ledger.path.parent.rglob("*"))) == before
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("unread")
def test_a_dry_run_reads_no_record_and_leaves_nothing(ledger: Ledger) -> None:
    for selection in ("compose", "winner", "envelope"):
        found = ahead(ledger, selection=selection)
        assert found.standing == "begins"
        assert found.selection == selection
        assert found.seconds is not None
        assert found.seconds > 0
        assert found.memory is not None
        assert found.memory > 0


def test_the_search_then_costs_and_writes_what_was_said(ledger: Ledger) -> None:
    said = ahead(ledger)
    result = honestdp.tune(linear, clouds(), **settings(ledger))
    assert result.folder == said.folder
    assert result.epsilon == said.epsilon
    assert result.run in said.noise
    assert result.statement == said.statement
    assert result.balance is not None
    assert result.balance.spent == said.after
    assert said.folder is not None
    there = {path.name + "/" * path.is_dir() for path in said.folder.iterdir()}
    assert there == set(said.files)
    for name in ("model.safetensors", "candidates/0000.safetensors"):
        size = said.files["model.safetensors"]
        assert (said.folder / name).stat().st_size == size
    assert ahead(ledger).standing == "over"
    assert "nothing more is charged" in str(ahead(ledger))


def test_what_would_be_refused_is_refused_or_said(ledger: Ledger) -> None:
    with pytest.raises(NoBudget, match="b has no budget"):
        ahead(ledger, dataset="b")
    with pytest.raises(InvalidArgument, match="the model's outputs must be one for each class"):
        honestdp.dry_run(lambda: torch.nn.Linear(3, 1), clouds(), **settings(ledger))
    with pytest.raises(TypeError, match="stepz"):
        honestdp.dry_run(linear, clouds(), budget=Budget(1.0, 1e-5), stepz=3)
    found = ahead(ledger, budget=Budget(6.0, 1e-5))
    assert "over budget" in found.refusal
    assert found.refusal in str(found)
    assert json.loads(json.dumps(found.as_dict()))["refusal"] == found.refusal


def test_of_a_dataset_the_time_is_not_known() -> None:
    class Own(Dataset[Any]):
        def __len__(self) -> int:
            return 400

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("a record was read")

    named = {**WHOLE, "metric": honestdp.Accuracy()}
    found = honestdp.dry_run(linear, Own(), **named)
    assert (found.seconds, found.memory, found.folder, found.files) == (None, None, None, {})
    assert "not known before a record of the Dataset is read" in str(found)


# ---- The command line

SMALL = ("tune", "digits", "--epsilon", "3", "--lot", "64", "--steps", "30", "--ledger", "ledger.db")


@pytest.mark.slow
def test_the_command_line_keeps_what_it_charged_for_and_charges_once(tmp_path: Path) -> None:
    """Without --out: the folder is beside the ledger, a dry run names it, and the same command reads the result."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("digits", Budget(4.0, 1e-5))
    code, out, _ = called(tmp_path, *SMALL, "--dry-run", "--json")
    said = json.loads(out)
    assert (code, said["standing"], ledger.balance("digits").charges) == (0, "begins", 0)
    assert not (tmp_path / "searches").exists()
    code, out, _ = called(tmp_path, *SMALL, "--json")
    assert code == 0
    result = json.loads(out)
    assert result["folder"] == said["folder"]
    assert result["epsilon"] == said["epsilon"]
    assert (tmp_path / said["folder"] / "model.safetensors").exists()
    code, out, err = called(tmp_path, *SMALL, "--json")
    assert (code, json.loads(out)) == (0, result)
    assert ledger.balance("digits").charges == 1
    code, out, err = called(tmp_path, *SMALL, "--dry-run")
    assert code == 0
    assert "its result is read, and nothing more is charged" in out
    code, out, err = called(tmp_path, *SMALL, "--again")
    assert (code, out) == (2, "")
    assert "over budget" in err
    assert ledger.balance("digits").charges == 1


def test_without_a_ledger_too_the_model_is_kept(tmp_path: Path) -> None:
    code, out, _ = called(tmp_path, *SMALL[:-2], "--json")
    assert code == 0
    folder = tmp_path / json.loads(out)["folder"]
    assert folder.parent == tmp_path / "searches"
    assert (folder / "model.safetensors").exists()


def test_help_describes_the_dataset_names_what_is_required_and_lists_the_catalogues(tmp_path: Path) -> None:
    from honestdp.data import named
    from honestdp.optimizers import BY_NAME
    from honestdp.selection import catalogue

    _, out, _ = called(tmp_path, "tune", "--help")
    words = " ".join(out.replace("│", " ").split())
    assert "What to train on:" in words
    assert "Required, but for --resume. What the whole search may spend" in words
    for name in (*BY_NAME, *catalogue.names(), *named.names()):
        assert name in words, name
    assert "{" not in words


@pytest.mark.parametrize("typed", ["--space lr=1 --space clip=1,1", "--validation 2"])
def test_what_the_command_line_says_is_not_python(typed: str, tmp_path: Path) -> None:
    code, _, err = called(tmp_path, "tune", "digits", "--epsilon", "1", "--optimizer", "sgd", *typed.split())
    assert code == 2
    assert not any(sign in err for sign in ("None", "{", "(", "['"))
