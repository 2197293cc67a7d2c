"""Models of several inputs and outputs, records for them, and Datasets of such records, for tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

RECORDS, LENGTH, WORDS = 60, 5, 11


def records(count: int = RECORDS) -> tuple[dict[str, Tensor], Tensor]:
    """Token numbers, a mask of bools and a table of numbers by name; the label is whether the first number is positive."""
    maker = torch.Generator().manual_seed(0)
    ids = torch.randint(0, WORDS, (count, LENGTH), generator=maker)
    mask = torch.arange(LENGTH) < torch.randint(1, LENGTH + 1, (count, 1), generator=maker)
    table = torch.randn(count, 3, generator=maker, dtype=torch.float64)
    return {"ids": ids, "mask": mask, "table": table}, (table[:, 0] > 0).long()


class Reader(nn.Module):
    """The mean of the words that count, and a table: inputs of three kinds. It insists on a mask of bools."""

    def __init__(self, wrap: Any = lambda logits, hidden: logits) -> None:
        super().__init__()
        self.words, self.table, self.out = nn.Embedding(WORDS, 4), nn.Linear(3, 4), nn.Linear(4, 2)
        self.wrap = wrap

    def hidden(self, ids: Tensor, mask: Tensor, table: Tensor) -> Tensor:
        assert ids.dtype == torch.int64
        assert mask.dtype == torch.bool
        counted = mask.unsqueeze(-1).to(table.dtype)
        mean = (self.words(ids) * counted).sum(1) / counted.sum(1)
        return torch.tanh(mean + self.table(table))

    def forward(self, ids: Tensor, mask: Tensor, table: Tensor) -> Any:
        hidden = self.hidden(ids, mask, table)
        return self.wrap(self.out(hidden), hidden)


class Named(Dataset[Any]):
    """Records as Hugging Face's datasets give them: a dict each, with lists and numbers, and the label under "labels"."""

    def __init__(self, x: dict[str, Tensor], y: Tensor) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._y)

    def __getitem__(self, index: int) -> dict[str, Any]:
        x = {name: part[index] for name, part in self._x.items()}
        return {**x, "ids": x["ids"].tolist(), "table": x["table"].numpy(), "labels": int(self._y[index])}


class InTwo(Named):
    """Records as ((ids, mask, table), y)."""

    def __getitem__(self, index: int) -> Any:
        return tuple(part[index] for part in self._x.values()), self._y[index]
