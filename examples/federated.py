"""Federated averaging on Flower: five clients with digits of two classes each, and what each of them is promised.

    make federated

runs Flower's simulation engine, one process a client: the clients of the paper (noise 0, NOT PRIVATE) and private ones, whose
noise is calculated so that all of their rounds together meet a budget. The same clients in one process end in the same
weights.
Reference: Koskela & Honkela 2020, supplement, section 3.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import numpy as np
import torch
from torch import nn

import honestdp
from honestdp.federated import AdaptiveClient, Federation, client_app
from honestdp.optimizers import ADADP

CLIENTS, ROUNDS, STEPS, LOT = 5, 6, 40, 28
RECORDS = 280
RANDOM = 0.33
"""The part of every client's records that is of any class."""


def shares() -> list[tuple[Any, Any]]:
    """The records of each client: two classes of its own, and a random part."""
    x, y = honestdp.load_dataset("digits").train
    order = np.random.default_rng(2020).permutation(len(y))
    own = round(RECORDS * (1 - RANDOM))
    pairs = [order[np.isin(y[order], (2 * place, 2 * place + 1))][:own] for place in range(CLIENTS)]
    rest = np.setdiff1d(order, np.concatenate(pairs), assume_unique=True)
    rest = np.random.default_rng(1).permutation(rest)
    ends = np.cumsum([0, *(RECORDS - len(pair) for pair in pairs)])
    rows = [np.concatenate([pair, rest[a:b]]) for pair, a, b in zip(pairs, ends, ends[1:], strict=False)]
    return [(x[some], y[some]) for some in rows]


def model() -> nn.Module:
    """In float64: products that are taken together are rounded otherwise, and what is rejected may turn on the last digit."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).double()


def client(place: int, *, private: bool) -> AdaptiveClient:
    """A fixed seed, to compare two engines: leave noise_seed out where records are anybody's."""
    run = honestdp.Run(records=RECORDS, lot=LOT, steps=STEPS, noise=0)
    budget = honestdp.Budget(epsilon=8.0, delta=1e-4) if private else None
    rule = ADADP(clip=1.0 if private else 1e6, tau=1.0, accept=True)
    return AdaptiveClient(
        model(), shares()[place], run=run, rounds=ROUNDS, optimizer=rule, budget=budget, delta=1e-4, noise_seed=place,
        compute=honestdp.Compute(device="cpu"), preprocessing="pixels divided by 16, a public constant",
    )  # fmt: skip


def accuracy(weights: dict[str, Any]) -> float:
    """On the public test records."""
    trained = model()
    trained.load_state_dict({name: torch.as_tensor(value) for name, value in weights.items()})
    x, y = honestdp.load_dataset("digits").test
    with torch.no_grad():
        return float((trained(torch.as_tensor(x).double()).argmax(1).numpy() == y).mean())


def on_flower(*, private: bool) -> dict[str, Any]:
    """The average after the last round, by Flower's simulation engine."""
    from flwr.app import ArrayRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)  # here: Flower sets a level of its own when it is imported
    ended: dict[str, Any] = {}
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS, min_train_nodes=CLIENTS)
        result = strategy.start(grid=grid, initial_arrays=ArrayRecord(model().state_dict()), num_rounds=ROUNDS)
        ended.update({name: array.numpy() for name, array in result.arrays.items()})

    def of_node(context: Context) -> AdaptiveClient:
        torch.set_num_threads(1)
        return client(int(context.node_config["partition-id"]), private=private)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client_app(of_node), num_supernodes=CLIENTS, backend_config=resources)
    return ended


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--no-flower", action="store_true", help="in one process alone; needs no Flower")
    chosen = parser.parse_args()
    for private in (False, True):
        clients = [client(place, private=private) for place in range(CLIENTS)]
        together = Federation(clients).train(ROUNDS)
        print(
            f"\n{'private clients' if private else 'the clients of the paper'}, {ROUNDS} rounds of {STEPS} local steps"
        )
        print(f"in one process: test accuracy {accuracy(together):.3f}")
        if not chosen.no_flower:
            ended = on_flower(private=private)
            apart = max(float(np.abs(ended[name] - together[name]).max()) for name in together)
            print(f"on Flower:         test accuracy {accuracy(ended):.3f}; weights differ by at most {apart:.1e}")
            if not apart < 1e-6:
                raise SystemExit("the two engines disagree")
        print(f"\nwhat the first of {CLIENTS} clients is promised\n{clients[0].statement}")
        if private:
            print(
                "\nNOT PRIVATE here because the seed is fixed, to compare the two engines: leave out noise_seed, and it is."
            )


if __name__ == "__main__":
    main()
