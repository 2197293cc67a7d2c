"""Writes the files beside it, as the honestdp of commit 32f4bd8 did: they are kept, and later versions must read them.

    git archive 32f4bd8 src | tar x -C SOMEWHERE
    PYTHONPATH=SOMEWHERE/src python tests/kept/write.py FOLDER

The names of modules and arguments are those of that commit. A format that changes gets a folder of its own beside these
files, written by the version before the change; nothing here is written anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from honestdp.population import Population
from honestdp.spending import Spending
from safetensors.torch import save_file

import honestdp
from honestdp import Budget, Ledger, Run, optimizers
from honestdp.selection import SELECTIONS, Compose, named


def records() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    y = generator.integers(2, size=400)
    return generator.normal(size=(400, 3)).astype(np.float32) + y[:, None].astype(np.float32), y


def model() -> torch.nn.Module:
    linear = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    return linear


def checkpoint(folder: Path) -> None:
    """Two runs of logistic regression, stopped in the middle, and the weights that they end with."""
    data, rules = tuple(map(torch.from_numpy, records())), [optimizers.Adam(clip=0.5), optimizers.Adam(clip=1.0)]
    settings = {
        "run": Run(records=400, lot=50, steps=400, noise=1.0),
        "optimizers": rules,
        "device": "cpu",
        "noise_seed": 7,
    }
    whole = honestdp.train_population(model(), data, **settings)
    save_file(
        {f"{i}.{name}": value for i, one in enumerate(whole) for name, value in one.model.state_dict().items()},
        folder / "trained.safetensors",
    )
    honest, blocks = Population.block, []

    def block(self: Population) -> None:
        blocks.append(self)
        if len(blocks) > 1:
            raise KeyboardInterrupt
        honest(self)

    Population.block = block
    try:
        honestdp.train_population(model(), data, **settings, checkpoint=folder / "checkpoint", checkpoint_seconds=0.0)
        raise AssertionError("not stopped")
    except KeyboardInterrupt as stop:
        print(stop)
    Population.block = honest


def ledger(folder: Path) -> None:
    """Entries of every kind: budgets, charges of every selection with and without scores and a choice, resumes, ends."""
    book = Ledger(folder / "ledger.db")
    run, sampled = Run(records=10, lot=10, steps=1, noise=20.0), Run(records=400, lot=40, steps=20, noise=10.0)
    for dataset in ("plain", "scored", "one by one"):
        book.set_budget(dataset, Budget(50.0, 1e-5))
    for name in SELECTIONS:
        selection = named(name, candidates=4)
        book.charge("plain", Spending(selection, ((run, 4),)), key=f"plain {name}", what=f"a search by {name}")
        if name in ("compose", "winner", "envelope"):
            book.charge("scored", Spending(selection, ((run, 4),), score=30.0, sensitivity=1), key=f"scored {name}")
    book.charge(
        "scored", Spending(Compose(candidates=4), ((run, 4),), score=30.0, choice=0.1, sensitivity=2), key="chosen"
    )
    book.charge("one by one", Spending(Compose(candidates=3), ((sampled, 2), (run, 1))), key="a")
    book.resume("one by one", key="a", token="first", after="")
    book.resume("one by one", key="a", token="second", after="first")
    book.end("one by one", key="a")
    book.charge("one by one", Spending(Compose(candidates=1), ((sampled, 1),)), key="b")
    spent = {dataset: book.balance(dataset).spent for dataset in book.datasets()}
    entries = [[entry.dataset, entry.kind, entry.key] for entry in book.entries()]
    (folder / "ledger.json").write_text(
        json.dumps({"head": book.verify(), "spent": spent, "entries": entries}, indent=1)
    )


def search(folder: Path) -> None:
    """A search that is over, with scores and a report."""
    settings = {"optimizer": "sgd", "space": {"lr": [0.1, 1.0], "clip": [1.0]}, "selection": "compose", "steps": 3}
    honestdp.tune(
        model,
        records(),
        budget=Budget(3.0, 1e-5),
        **settings,
        lot=320,
        device="cpu",
        noise_seed=3,
        out=folder / "search",
    )


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    for write in (checkpoint, ledger, search):
        write(where)
