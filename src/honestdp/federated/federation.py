"""`Federation`: the clients of one process, trained side by side as one population a round, and averaged.

For simulations and figures: what a client does here is what it does alone, with the same lots, noise and guarantee; only the
products of all of them are taken together. In a true federation each client is on a machine of its own (`flower`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from honestdp import checks
from honestdp.boundary.rounds import check_beside
from honestdp.checks import InvalidArgument
from honestdp.federated.client import AdaptiveClient, Rounds, Weights, failed
from honestdp.federated.promise import check_bills
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
            if (client.layout, client.loss) != (first.layout, first.loss) or not alike(client.model, first.model):
                wanted = "clients of one model, in the same mode and with the same frozen weights, and of one loss"
                raise InvalidArgument("clients", "two models or losses", wanted)
        self.clients = list(clients)
        self._places = _grouped(self.clients)
        self._rounds: dict[int, Rounds] = {}

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
        for client in self.clients:  # all of them, before one pays
            client.check_round()
        for places in self._places:
            check_beside([self.clients[place].data for place in places])
        check_bills([bill for client in self.clients if (bill := client.bill()) is not None])
        seeds = [client.charge_round() for client in self.clients]
        for places in self._places:
            try:
                rounds = self._opened(places)
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

    def _opened(self, places: list[int]) -> Rounds:
        """Of one population. Labels are read for it, so that it is opened when its first round is paid for."""
        if places[0] in self._rounds:
            return self._rounds[places[0]]
        rounds = Rounds([self.clients[place] for place in places])
        self._rounds[places[0]] = rounds
        return rounds


def _grouped(clients: Sequence[AdaptiveClient]) -> list[list[int]]:
    """The places of clients that can be one population, by public constants."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, client in enumerate(clients):
        run, how = client.run, (client.secure, client.strict, client.compute, client.rounds)
        groups.setdefault((run.records, run.lot, run.steps, kind(client.rule), how), []).append(place)
    return list(groups.values())


def alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether two models are one as far as can be seen, but for the weights that are trained, which the server sends."""
    made_of = [
        [(path, type(part), part.extra_repr(), part.training) for path, part in model.named_modules()]
        for model in (one, other)
    ]
    fixed = [
        {name: value for name, value in (*model.named_parameters(), *model.named_buffers()) if not value.requires_grad}
        for model in (one, other)
    ]
    if made_of[0] != made_of[1] or fixed[0].keys() != fixed[1].keys():
        return False
    return all(torch.equal(value.cpu(), fixed[1][name].cpu()) for name, value in fixed[0].items())


def average(rows: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """The rows' average by their shares, one after another as Flower's FedAvg adds them up."""
    whole = float(sum(shares))
    total = rows[0] * (shares[0] / whole)
    for row, share in zip(rows[1:], shares[1:], strict=True):
        total = total + row * (share / whole)
    return total
