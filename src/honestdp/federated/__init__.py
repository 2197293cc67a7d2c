"""Federated averaging: clients that train on their own records and give weights to a server, each with its own guarantee.

`AdaptiveClient` is one client, for Flower or for any other way that weights travel; `client_app` makes Flower's ClientApp of it.
`Federation` trains the clients of one process one after another in each round, and averages them.

>>> import torch, honestdp
>>> x, y = honestdp.load_dataset("digits").train
>>> run = honestdp.Run(records=len(x), lot=64, steps=10, noise=2.0)
>>> client = honestdp.federated.AdaptiveClient(torch.nn.Linear(64, 10), (x, y), run=run, rounds=5, delta=1e-5)
>>> print(client.statement.leaves.split(";")[0])
to the server, this client's weights after each of its rounds and what follows from them, such as its step size
"""

from __future__ import annotations

from honestdp.federated.client import AdaptiveClient, RoundFailed, RoundsOver
from honestdp.federated.federation import Federation
from honestdp.federated.flower import client_app

__all__ = ["AdaptiveClient", "Federation", "RoundFailed", "RoundsOver", "client_app"]
