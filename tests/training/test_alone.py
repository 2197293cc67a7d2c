"""The engine needs torch and numpy alone: everything else is imported where it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

ALONE = """
import importlib.abc, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        heavy = {"opendp", "cryptography", "dp_accounting"}
        if name.split(".")[0] in heavy | {"scipy", "rich", "typer", "safetensors", "randomgen", "matplotlib", "opacus"}:
            raise ImportError(name)

sys.meta_path.insert(0, Without())
import torch
from honestdp import Compute, Run, optimizers as rules
from honestdp.training.train import train, train_population

x = torch.randn(100, 4)
y = (x[:, 0] > 0).long()
run = Run(records=100, lot=10, steps=5, noise=1.0)
train(torch.nn.Linear(4, 2), (x, y), run=run, optimizer=rules.Horizon(), delta=1e-5, compute=Compute(progress=True))
train_population(torch.nn.Linear(4, 2), (x, y), run=run, optimizers=[rules.Adam(clip=1.0), rules.OSO(lr=0.1)])
try:
    train(torch.nn.Linear(4, 2), (x, y), run=run, optimizer=rules.Horizon(), secure=True)
except ImportError as missing:
    print(missing)
"""


@pytest.mark.slow
def test_training_needs_torch_and_numpy_alone() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install randomgen" in done.stdout
