"""`Federation`: the clients of one process, trained one after another in each round, and averaged.

For simulations and figures. In a true federation each client is on a machine of its own (`flower`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.federated.client import AdaptiveClient, Weights
from honestdp.federated.promise import check_bills

Named = dict[str, np.ndarray[Any, Any]]


class Federation:
    """Clients of one process and the average of their weights.

    clients: of one model, each with its own records, constants and guarantee.

    >>> import torch, honestdp
    >>> from honestdp.federated import AdaptiveClient, Federation
    >>> x, y = honestdp.load_dataset("digits").train
    >>> run, model = honestdp.Run(records=500, lot=50, steps=10, noise=2.0), torch.nn.Linear(64, 10)
    >>> each = [(x[first : first + 500], y[first : first + 500]) for first in (0, 500)]
    >>> federation = Federation([AdaptiveClient(model, data, run=run, rounds=3, delta=1e-5) for data in each])
    >>> weights = federation.train(rounds=3)
    >>> [client.made for client in federation.clients]
    [3, 3]
    """

    def __init__(self, clients: Sequence[AdaptiveClient]) -> None:
        if not clients or not all(isinstance(client, AdaptiveClient) for client in clients):
            raise InvalidArgument("clients", clients, "a list of at least one AdaptiveClient")
        first = clients[0]
        for client in clients:
            if (client.layout, client.loss) != (first.layout, first.loss):
                raise InvalidArgument("clients", "two models or losses", "clients of one model and of one loss")
        self.clients = list(clients)

    def train(self, rounds: int, on_round: Callable[[int, Named], None] | None = None) -> Named:
        """So many rounds from the first client's model: the average after the last, by name.

        on_round: called as on_round(number, average) after each round, which is free: the server sees every average.
        """
        checks.whole(least=1, rounds=rounds)
        weights: Named = {n: v.detach().cpu().numpy() for n, v in self.clients[0].model.state_dict().items()}
        for number in range(1, rounds + 1):
            weights = self.round(weights)
            if on_round is not None:
                on_round(number, weights)
        return weights

    def round(self, weights: Weights) -> Named:
        """One round of all clients from these weights: their average, weighted by the declared numbers of records."""
        rows = [client.row(weights) for client in self.clients]
        made = self.clients[0].made
        if any(client.made != made for client in self.clients):
            raise InvalidArgument(
                "clients", "other numbers of rounds made", "clients that took part in the same rounds"
            )
        for client in self.clients:  # all of them, before one pays
            client.check_round()
        check_bills([bill for client in self.clients if (bill := client.bill()) is not None])
        seeds = [client.charge_round() for client in self.clients]
        after = [client.make(row, seed) for client, row, seed in zip(self.clients, rows, seeds, strict=True)]
        shares = [client.run.records for client in self.clients]
        row = average(after, shares)
        return self.clients[0].named(row, weights)


def average(rows: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """The rows' average by their shares, one after another as Flower's FedAvg adds them up."""
    whole = float(sum(shares))
    total = rows[0] * (shares[0] / whole)
    for row, share in zip(rows[1:], shares[1:], strict=True):
        total = total + row * (share / whole)
    return total
