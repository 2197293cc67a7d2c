"""Clients of a tiny federation: ten features, three classes, a few records each."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from honestdp.federated import AdaptiveClient
from honestdp.optimizers import ADADP
from honestdp.run import Run

RECORDS = 60


def records_of(place: int, count: int = RECORDS) -> tuple[Any, Any]:
    """Records of a client, whose classes have other shares than those of the next."""
    drawn = np.random.default_rng(place)
    y = drawn.choice(3, size=count, p=np.roll([0.7, 0.2, 0.1], place))
    x = drawn.normal(size=(count, 10)) + np.eye(10)[y]
    return x.astype(np.float32), y.astype(np.int64)


def model() -> nn.Module:
    """In float64: what ADADP rejects may turn on the last digit, which is another where products are taken together."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return nn.Sequential(nn.Linear(10, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def client(place: int = 0, *, noise: float = 1.0, rounds: int = 3, data: Any = None, **more: Any) -> AdaptiveClient:
    """A client with settings of its own: its clip and its noise differ from the others'. Its tolerance is one at which steps are
    taken back and step sizes part: at 1 every client would only ever grow its own, and all of them by as much.
    """
    run = Run(records=RECORDS, lot=6, steps=8, noise=noise * (1 + place / 10))
    more.setdefault("optimizer", ADADP(clip=0.5 + place / 2, tau=0.1, accept=True))
    more.setdefault("delta", 1e-4)
    return AdaptiveClient(model(), records_of(place) if data is None else data, run=run, rounds=rounds, **more)


def start() -> dict[str, Any]:
    return {name: value.numpy() for name, value in model().state_dict().items()}
