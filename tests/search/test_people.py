"""Searches and trainings of people: which rows count is drawn once, resumes see the same, and units are not mixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import honestdp
from honestdp import Compute
from honestdp.boundary.people import People
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.optimizers import SGD

PEOPLE = 40
SPACE: dict[str, Any] = {"optimizer": "sgd", "space": {"lr": 0.5, "clip": 1.0}, "lot": 8, "steps": 4}


def visits(cap: int = 2) -> Any:
    maker = np.random.default_rng(0)
    ids = np.concatenate([np.arange(PEOPLE), maker.integers(0, PEOPLE, 160)])
    x = torch.from_numpy(maker.normal(size=(200, 3))).float()
    return honestdp.by_person((x, (x[:, 0] > 0).long()), ids, rows=cap, name="patient_id")


def search(cap: int = 2, **more: Any) -> honestdp.TuneResult:
    given = {"budget": honestdp.Budget(2.0, 1e-3), "selection": "compose", **SPACE, **more}
    return honestdp.tune(still(), visits(cap), **given)


def still() -> nn.Module:
    model = nn.Linear(3, 2)
    for value in model.parameters():
        nn.init.zeros_(value)
    return model


def weights(result: Any) -> Tensor:
    return torch.cat([value.detach().flatten() for value in result.model.parameters()])


def test_which_rows_count_is_drawn_once_for_all_runs_of_a_search_and_follows_from_its_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[bytes] = []
    usual = People.draw

    def watched(self: People, seed: Seed) -> People:
        if (self.counts > self.unit.rows).any():
            drawn.append(seed.key)
        return usual(self, seed)

    monkeypatch.setattr(People, "draw", watched)
    one = search(noise_seed=1, space={"lr": [0.5, 1.0], "clip": 1.0})
    assert len(drawn) == 1
    again = search(noise_seed=1, space={"lr": [0.5, 1.0], "clip": 1.0})
    assert drawn[0] == drawn[1]
    assert torch.equal(weights(one), weights(again))
    assert str(one.score) == str(again.score)
    search(noise_seed=2)
    assert drawn[2] != drawn[0]


def train(place: Path | None = None, *, cap: int = 2, stop: int | None = None) -> honestdp.Result:
    def seen(step: int, model: nn.Module) -> None:
        if stop is not None and step >= stop:
            raise RuntimeError("the machine went down")

    return honestdp.train(
        nn.Linear(3, 2),
        visits(cap),
        run=honestdp.Run(records=PEOPLE, lot=8, steps=20, noise=1.0),
        optimizer=SGD(lr=0.5, clip=1.0),
        delta=1e-3,
        on_step=seen,
        every=5,
        compute=Compute(checkpoint=place),
        preprocessing="none",
    )


def test_a_training_that_resumes_goes_on_with_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed is a secret of the checkpoint: with rows drawn anew, the same noise would be on other sums."""
    seeds: list[bytes] = []
    usual = People.draw

    def watched(self: People, seed: Seed) -> People:
        seeds.append(seed.key)
        return usual(self, seed)

    monkeypatch.setattr(People, "draw", watched)
    with pytest.raises(RuntimeError, match="went down"):
        train(tmp_path / "kept", stop=10)
    train(tmp_path / "kept")
    assert len(seeds) == 2
    assert seeds[0] == seeds[1]


def test_a_checkpoint_of_another_cap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="went down"):
        train(tmp_path / "kept", stop=10)
    with pytest.raises(InvalidArgument, match="data"):
        train(tmp_path / "kept", cap=3)


def test_a_folder_of_another_cap_is_refused(tmp_path: Path) -> None:
    search(out=tmp_path / "search")
    with pytest.raises(InvalidArgument, match="data"):
        search(3, out=tmp_path / "search")


def test_a_dry_run_says_that_units_do_not_mix(tmp_path: Path) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clinic", honestdp.Budget(9.0, 1e-3))
    rows, given = (torch.zeros(PEOPLE, 3), torch.zeros(PEOPLE).long()), {"ledger": ledger, "dataset": "clinic"}
    run = honestdp.Run(records=PEOPLE, lot=8, steps=1, noise=5.0)
    honestdp.train(nn.Linear(3, 2), rows, run=run, optimizer=SGD(lr=0.5, clip=1.0), delta=1e-3, **given)
    budget = honestdp.Budget(2.0, 1e-3)
    what = honestdp.dry_run(still(), visits(), budget=budget, selection="compose", **SPACE, **given)
    assert "people (patient_id)" in what.refusal
    with pytest.raises(honestdp.errors.OtherUnit, match="nothing was charged"):
        search(**given)
    assert ledger.balance("clinic").charges == 1
