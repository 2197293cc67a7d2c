"""`Federation`: the clients of one process, trained side by side as one population a round, and averaged.

For simulations and figures: what a client does here is what it does alone, with the same lots, noise and guarantee; only the
products of all of them are taken together. In a true federation each client is on a machine of its own (`flower`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.federated.client import AdaptiveClient, Weights, failed
from honestdp.federated.rounds import Rounds
from honestdp.optimizers.rule import kind

Named = dict[str, np.ndarray[Any, Any]]


class Federation:
    """Clients that are trained together. Those with other sizes or rules of another kind form populations of their own.

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
                raise InvalidArgument("clients", "two models or losses", "clients of one model and one loss")
        self.clients = list(clients)
        self._groups: dict[tuple[Any, ...], tuple[list[int], Rounds]] | None = None

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
        after: dict[int, Tensor] = {}
        made = self.clients[0].made
        if any(client.made != made for client in self.clients):
            raise InvalidArgument(
                "clients", "other numbers of rounds made", "clients that took part in the same rounds"
            )
        seeds = [client.begin_round() for client in self.clients]
        for places, rounds in self._populations().values():
            try:
                start, own = torch.cat([rows[place] for place in places]), [seeds[place] for place in places]
                ended = rounds.make(start, own, number=made)
            except Exception as trouble:
                raise failed(made + 1) from trouble
            for number, place in enumerate(places):
                self.clients[place].keep({name: value[number : number + 1] for name, value in rounds.state.items()})
                after[place] = ended[number].cpu()
        shares = [client.run.records for client in self.clients]
        row = average([after[place] for place in range(len(self.clients))], shares)
        return self.clients[0].named(row, weights)

    def _populations(self) -> dict[tuple[Any, ...], tuple[list[int], Rounds]]:
        if self._groups is None:
            groups: dict[tuple[Any, ...], list[int]] = {}
            for place, client in enumerate(self.clients):
                run, how = client.run, (client.secure, client.strict, client.compute, client.rounds)
                groups.setdefault((run.records, run.lot, run.steps, kind(client.rule), how), []).append(place)
            self._groups = {alike: (places, self._opened(places)) for alike, places in groups.items()}
        return self._groups

    def _opened(self, places: list[int]) -> Rounds:
        clients = [self.clients[place] for place in places]
        first = clients[0]
        rounds = Rounds(
            first.model, [client.member for client in clients], rounds=first.rounds, loss=first.loss,
            device=first.compute.place(), workers=first.compute.workers, secure=first.secure, strict=first.strict,
        )  # fmt: skip
        remembered = [client.state() for client in clients]
        if all(remembered):
            rounds.state = {name: torch.cat([state[name] for state in remembered]) for name in remembered[0]}
        return rounds


def average(rows: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """The rows' average by their shares, one after another as Flower's FedAvg adds them up."""
    whole = float(sum(shares))
    total = rows[0] * (shares[0] / whole)
    for row, share in zip(rows[1:], shares[1:], strict=True):
        total = total + row * (share / whole)
    return total
