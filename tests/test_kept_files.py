"""Files of an earlier version are still read: its checkpoint goes on, its ledger balances, its search is a result.

They are in kept/, written once by kept/write.py with the code of that time.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import honestdp
from honestdp import Budget, Ledger, Run, optimizers

KEPT = Path(__file__).parent / "kept"
EXPECTED: dict[str, Any] = json.loads((KEPT / "ledger.json").read_text(encoding="utf-8"))


def records() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    y = generator.integers(2, size=400)
    return generator.normal(size=(400, 3)).astype(np.float32) + y[:, None].astype(np.float32), y


def model() -> torch.nn.Module:
    linear = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    return linear


def weights(models: list[nn.Module]) -> dict[str, torch.Tensor]:
    return {f"{i}.{name}": value for i, one in enumerate(models) for name, value in one.state_dict().items()}


def trained(checkpoint: Path) -> dict[str, torch.Tensor]:
    data = tuple(torch.from_numpy(part) for part in records())
    results = honestdp.train_population(
        model(),
        data,
        run=Run(records=400, lot=50, steps=400, noise=1.0),
        optimizers=[optimizers.Adam(clip=0.5), optimizers.Adam(clip=1.0)],
        noise_seed=7,
        compute=honestdp.Compute(device="cpu", checkpoint=checkpoint),
    )
    return weights([result.model for result in results])


def test_a_checkpoint_goes_on_to_the_weights_that_its_own_version_ended_with(tmp_path: Path) -> None:
    """To the digits that processors agree on: another noise or another lot would change the first one."""
    shutil.copy(KEPT / "checkpoint", tmp_path / "checkpoint")
    assert step_of((tmp_path / "checkpoint").read_bytes()) == 64
    found, expected = trained(tmp_path / "checkpoint"), load_file(KEPT / "trained.safetensors")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
        assert float(value.abs().max()) > 0.01


def step_of(content: bytes) -> int:
    """How far the training is, by the header of its checkpoint: a safetensors file."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return int(json.loads(header["__metadata__"]["honestdp"])["step"])


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    shutil.copy(KEPT / "ledger.db", tmp_path / "ledger.db")
    return Ledger(tmp_path / "ledger.db")


def test_a_ledger_holds_and_its_entries_are_what_they_were(ledger: Ledger) -> None:
    assert ledger.verify() == EXPECTED["head"]
    assert [[entry.dataset, entry.kind, entry.key] for entry in ledger.entries()] == EXPECTED["entries"]
    assert {kind for _, kind, _ in EXPECTED["entries"]} == {"budget", "charge", "resume", "over"}


@pytest.mark.slow
@pytest.mark.parametrize("dataset", EXPECTED["spent"])
def test_a_ledger_has_the_balance_that_it_had(dataset: str, ledger: Ledger) -> None:
    balance = ledger.balance(dataset)
    assert balance.spent == pytest.approx(EXPECTED["spent"][dataset], rel=1e-9)
    assert balance.budget == Budget(50.0, 1e-5)


def test_a_ledger_is_charged_and_ended_as_before(ledger: Ledger) -> None:
    with pytest.raises(honestdp.ledger.KeyEnded):
        ledger.resume("one by one", key="a", token="third", after="second")
    ledger.resume("one by one", key="b", token="first", after="")
    before = ledger.balance("one by one")
    again = ledger.charge("one by one", ledger.charges("one by one")[1].spending, key="b")
    assert (again.charged, again.spent) == (False, before.spent)


def tuned(out: Path) -> honestdp.TuneResult:
    settings: dict[str, Any] = {"optimizer": "sgd", "space": {"lr": [0.1, 1.0], "clip": [1.0]}, "selection": "compose"}
    settings |= {"steps": 3, "lot": 320, "compute": honestdp.Compute(device="cpu"), "noise_seed": 3}
    return honestdp.tune(model, records(), budget=Budget(3.0, 1e-5), **settings, out=out)


def test_the_folder_of_a_finished_search_is_its_result(tmp_path: Path) -> None:
    """A search goes on with its own version alone; the result of one that is over is read by any, and by the same call."""
    shutil.copytree(KEPT / "search", tmp_path / "search")
    found = tuned(tmp_path / "search")
    written = json.loads((KEPT / "search" / "result.json").read_text(encoding="utf-8"))
    assert found.hyperparameters == written["hyperparameters"]
    assert found.score is not None
    assert found.score.value == written["score"]["value"]
    expected = load_file(KEPT / "search" / "model.safetensors")
    assert {name: value.tolist() for name, value in found.model.state_dict().items()} == {
        name: value.tolist() for name, value in expected.items()
    }
    assert len(found.candidates) == 2
    assert found.statement.as_dict() == json.loads((KEPT / "search" / "statement.json").read_text(encoding="utf-8"))
