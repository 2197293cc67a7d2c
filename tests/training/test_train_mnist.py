"""Horizon on MNIST reaches the reference accuracies: logistic regression, lot 250, 5000 steps, sigma 4 and 1.

The long version, with the papers' whole grid and the other models, is benchmarks/accuracies.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from honestdp import Compute, Run
from honestdp import optimizers as rules
from honestdp.data.named import load_dataset as load
from honestdp.training.train import train_population

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("HONESTDP_DATA", ROOT.parent / "shared" / "data")) / "mnist"
REFERENCE = {4.0: 0.8973, 1.0: 0.9170}


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"MNIST NOT FOUND in {FOLDER}: set HONESTDP_DATA to check accuracies")
def test_horizon_on_mnist_meets_the_reference_within_half_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONESTDP_DATA", str(FOLDER.parent))
    data = load("mnist")
    test_x, test_y = (torch.from_numpy(part) for part in data.test)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(784, 10)
    runs = [Run(records=60000, lot=250, steps=5000, noise=sigma) for sigma in REFERENCE]
    results = train_population(
        model, data.train, run=runs, optimizers=[rules.Horizon()] * 2, compute=Compute(device="cpu"), noise_seed=0
    )
    for result in results:
        right = result.model(test_x / 255).argmax(dim=1) == test_y
        assert right.float().mean().item() == pytest.approx(REFERENCE[result.run.noise], abs=0.005)
