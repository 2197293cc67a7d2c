"""A Dataset that declares a made-up record is rehearsed in its layout: slips are found before the charge, without a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

import honestdp
from honestdp import Budget, Run
from honestdp.boundary.data import PrivateData
from honestdp.checks import InvalidArgument
from honestdp.ledger import Ledger
from tests.tiny_search import WHOLE, clouds


class Declared(Dataset[Any]):
    """Records as dicts; reads: how many were read."""

    def __init__(self) -> None:
        (self._x, self._y), self.read = clouds(), 0

    @property
    def made_up(self) -> dict[str, Any]:
        return {"words": [0.0, 0.0, 0.0], "label": 0}

    def __len__(self) -> int:
        return len(self._y)

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.read += 1
        return {"words": self._x[index], "label": int(self._y[index])}


class Reads(nn.Module):
    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        self.layer = nn.Linear(3, outputs)

    def forward(self, words: Tensor) -> Tensor:
        return self.layer(words)


class Misnamed(Reads):
    def forward(self, word: Tensor) -> Tensor:
        return self.layer(word)


SLIPS: dict[str, tuple[Any, str]] = {
    "another name": (Misnamed, "unexpected keyword argument 'words'"),
    "one output": (lambda: Reads(1), "the model's outputs must be one for each class"),
    "another width": (lambda: nn.Sequential(nn.Linear(4, 2)), "unexpected keyword argument|cannot be multiplied"),
}


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("how", ["tune", "train"])
def test_a_slip_costs_nothing_and_reads_nothing(how: str, slip: str, tmp_path: Path) -> None:
    ledger, data = Ledger(tmp_path / "ledger.db"), Declared()
    ledger.set_budget("declared", Budget(9.0, 1e-5))
    model, words = SLIPS[slip]
    settings: dict[str, Any] = WHOLE if how == "tune" else {"run": Run(records=400, lot=40, steps=2, noise=2.0)}
    call: Any = getattr(honestdp, how)
    with pytest.raises(InvalidArgument, match=words):
        call(model if how == "tune" else model(), data, ledger=ledger, dataset="declared", **settings)
    assert (ledger.balance("declared").charges, data.read) == (0, 0)


@pytest.mark.slow
def test_the_search_is_that_of_the_dataset_and_says_so() -> None:
    result = honestdp.tune(Reads, Declared(), **WHOLE)
    assert result.score is not None
    assert result.score.name == "accuracy"  # by the kind of the made-up label
    assert "the Dataset fails on no record" in str(result.statement)
    assert "the Dataset fails on no record" not in str(
        honestdp.tune(lambda: nn.Linear(3, 2), clouds(), **WHOLE).statement
    )


def test_parts_of_it_are_declared_too_and_a_record_without_a_layout_is_refused() -> None:
    shapes = PrivateData(Subset(Declared(), [0, 1])).shapes
    assert shapes is not None
    assert shapes.words == ("'words' [3] torch.float64", "[] torch.int64")
    assert isinstance(shapes.x, dict)
    assert len(shapes.y) == 0

    class Torn(Declared):
        made_up = torch.zeros(3)  # type: ignore[assignment]

    with pytest.raises(InvalidArgument, match="a Dataset whose records are dicts"):
        honestdp.tune(Reads, Torn(), **WHOLE)
