"""The rule of one's own that the page on optimizers shows can be trained, alone and in a population."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest
import torch

from honestdp import Run
from honestdp import optimizers as rules
from honestdp.training.train import train_population
from tests.toy_training import toy_data, toy_model

PAGE = Path(__file__).resolve().parents[2] / "docs" / "optimizers.md"


def test_the_documented_rule_trains_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[-1]
    module = types.ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    exec(example, vars(module))
    own = module.SignSGD
    mixed = [own(lr=0.01, clip=1.0), rules.SGD(lr=0.1, clip=1.0), own(lr=0.02, clip=0.5)]
    results = train_population(
        toy_model(), toy_data(), run=Run(records=60, lot=10, steps=9, noise=1.0), optimizers=mixed
    )
    start = torch.cat([p.flatten() for p in toy_model().parameters()])
    for result, pace in ((results[0], 0.01), (results[2], 0.02)):
        moved = (torch.cat([p.flatten() for p in result.model.parameters()]) - start) / pace
        torch.testing.assert_close(moved, moved.round())
        assert moved.abs().max() < 9.5
