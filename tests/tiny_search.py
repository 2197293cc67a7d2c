"""A tiny problem that trains in no time: two clouds, a linear model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from honestdp import Budget
from honestdp.search.lifecycle import Search
from honestdp.training.spec import Compute

BUDGET = Budget(3.0, 1e-5)


def clouds(records: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    y = generator.integers(2, size=records)
    x = generator.normal(size=(records, 3)).astype(np.float32) + y[:, None].astype(np.float32)
    return x, y


def linear() -> nn.Module:
    return nn.Linear(3, 2)


def hidden(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2))


SEARCH = {
    "budget": BUDGET,
    "optimizer": "adam-wosm",
    "space": {"clip": [0.5, 1.0], "lr": [0.01, 0.1]},
    "lot": 40,
    "steps": 20,
    "compute": Compute(device="cpu"),
}


WHOLE: dict[str, Any] = {  # lots of all records: quick to account
    "budget": Budget(3.0, 1e-5),
    "optimizer": "sgd",
    "space": {"lr": [0.1, 1.0], "clip": [1.0]},
    "selection": "compose",
    "lot": 320,
    "steps": 3,
    "compute": Compute(device="cpu"),
}


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def once_charged(patch: pytest.MonkeyPatch, *what: Any) -> None:
    """`patch.setattr(*what)` from the charge on: what is rehearsed before on made-up records goes on as it is."""
    pay = Search._paid

    def paid(self: Search, begun: Any) -> Any:
        found = pay(self, begun)
        patch.setattr(*what)
        return found

    patch.setattr(Search, "_paid", paid)
