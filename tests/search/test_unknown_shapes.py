"""Of a Dataset whose shapes are not known before a record is read, every architecture of a search is tested as it is scored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import honestdp
from honestdp.boundary.scores import BATCH, ScoreDoor, one_by_one
from honestdp.errors import HonestdpError
from tests.tiny_search import SEARCH, clouds


class Records(Dataset[Any]):
    def __init__(self) -> None:
        self.x, self.y = clouds()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.from_numpy(self.x[index]), int(self.y[index])


class Kind(nn.Module):
    """kind: what it does in `eval()` to a batch that a record is scored in."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(3, 2), kind

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x)
        if self.training or self.kind == "honest":
            return output
        if self.kind == "mixes":
            return output - output.mean(0) if len(x) > 500 else output
        return -output if bool((output > 1e6).any()) else output


def tuned(second: str) -> None:
    """Both architectures, whichever is run 0."""
    space = {"kind": ["honest", second], "clip": [1.0], "lr": [0.1]}
    honestdp.tune(Kind, Records(), selection="compose", metric="accuracy", **{**SEARCH, "space": space, "steps": 3})


def test_an_architecture_that_mixes_the_scored_records_is_refused_though_it_is_not_the_first() -> None:
    with pytest.raises(HonestdpError, match="mix examples"):
        tuned("mixes")


def test_an_architecture_that_reads_numbers_is_scored_record_by_record_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    score, ways = ScoreDoor.score, {}

    def noted(self: ScoreDoor, run: int, model: Any, forward: Any = None) -> tuple[int, ...]:
        if self._width == BATCH:
            ways[model.kind] = forward
        return score(self, run, model, forward)

    monkeypatch.setattr(ScoreDoor, "score", noted)
    tuned("reads")
    assert ways["reads"] is one_by_one
    assert ways["honest"] not in (None, one_by_one)
