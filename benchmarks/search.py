"""Whole searches within one budget, from the records to the winner: what they take, what they cost, how good the winner is.

    HONESTDP_DATA=DATA python benchmarks/search.py [--device cuda] [--searches 3] [--json results.json]

MNIST, one hidden layer of 100, lot 250, 2000 steps, epsilon 1 at delta 1e-6 for everything: every run, every score and the
choice among them. Each search draws its own number of runs, its own lots and its own noise, and starts from its own
weights. Accuracies are those of the released model on the test records, which no search has seen. Seconds are of tune()
alone: calibration, training, scores. They tell of the number of runs, which is secret for private records; MNIST is public.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.mnist_models import MODELS  # noqa: E402

import honestdp  # noqa: E402
from honestdp.boundary.records import prepared  # noqa: E402
from honestdp.data.named import NamedDataset, load_dataset  # noqa: E402
from honestdp.training.spec import Compute  # noqa: E402

MODEL = "one hidden layer of 100"
BUDGET = honestdp.Budget(1.0, 1e-6)
SEARCHES = [
    ("horizon", "auto"),
    ("adam-wosm", "envelope"),
    ("sgd", "envelope"),
    ("momentum", "envelope"),
    ("momentum", "papernot-steinke"),
    ("momentum", "compose"),
]
"""Each optimizer with the grid of its paper: 4, 40 and 280 candidates; Horizon has nothing to tune."""


def search(data: NamedDataset, optimizer: str, selection: str, *, steps: int, device: str) -> dict[str, float]:
    began = time.perf_counter()
    found = honestdp.tune(
        MODELS[MODEL],
        data.train,
        budget=BUDGET,
        optimizer=optimizer,
        selection=selection,
        lot=250,
        steps=steps,
        records=len(data.train_rows),
        compute=Compute(device=device),
    )
    seconds = time.perf_counter() - began
    x, y = (torch.from_numpy(part) for part in data.test)
    with torch.no_grad():
        right = found.model.cpu()(prepared(x, torch.float32)).argmax(dim=1) == y
    return {"accuracy": right.float().mean().item(), "epsilon": found.epsilon, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--searches", type=int, default=3, help="of each kind")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    data = load_dataset("mnist")
    found = []
    print(f"{'optimizer':12}{'selection':18}{'accuracy':>22}{'epsilon':>9}{'seconds':>16}")
    for optimizer, selection in SEARCHES:
        made = [
            search(data, optimizer, selection, steps=chosen.steps, device=chosen.device) for _ in range(chosen.searches)
        ]
        columns = {name: [one[name] for one in made] for name in made[0]}
        found.append({"optimizer": optimizer, "selection": selection, **columns})
        accuracy, seconds = columns["accuracy"], columns["seconds"]
        spread = f"{statistics.mean(accuracy):.4f} ({min(accuracy):.4f}-{max(accuracy):.4f})"
        times = f"{min(seconds):.0f}-{max(seconds):.0f}"
        print(f"{optimizer:12}{selection:18}{spread:>22}{max(columns['epsilon']):9.4f}{times:>16}", flush=True)
    if chosen.json:
        about = {
            "model": MODEL,
            "steps": chosen.steps,
            "budget": [BUDGET.epsilon, BUDGET.delta],
            "device": chosen.device,
        }
        chosen.json.write_text(json.dumps({**about, "searches": found}, indent=1))


if __name__ == "__main__":
    main()
