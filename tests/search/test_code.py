"""Other code is refused on resume, whatever its name: with copies of a folder it would be the same noise on two functions."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import honestdp
from honestdp import ClippedLoss, DeclaredMetric
from honestdp.checks import InvalidArgument
from honestdp.identity import identity
from honestdp.training import train_population
from tests.search.test_resume import Stopped
from tests.search.tiny import clouds


def written(source: str, **names: Any) -> Any:
    """What `made` is in a module of this source."""
    space: dict[str, Any] = {"__name__": "users_own", "torch": torch, "nn": nn, **names}
    exec(compile(textwrap.dedent(source), "users_own.py", "exec"), space)
    return space["made"]


MODEL = """
SCALE = 1.0
def helper(x):
    return x * SCALE
class Own(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.layer, self.factor = nn.Linear(3, 2), factor
    def forward(self, x):
        return helper(self.layer(x))
def made():
    return Own()
"""
LOSS = """
def made(output, y):
    return nn.functional.cross_entropy(output, y, reduction="none")
"""
CLOSED = """
def outer(weight):
    def made(output, y):
        return nn.functional.cross_entropy(output, y, reduction="none") * weight
    return made
made = outer(1.0)
"""
SCHEDULE = """
def made(step):
    return 1.0
"""
CHANGES: dict[str, tuple[str, str, str, str]] = {
    "a model's forward": ("model", MODEL, "return helper(self.layer(x))", "return helper(self.layer(x)).tanh()"),
    "what it calls": ("model", MODEL, "return x * SCALE", "return x * SCALE + 1"),
    "a constant it names": ("model", MODEL, "SCALE = 1.0", "SCALE = 2.0"),
    "an attribute": ("model", MODEL, "return Own()", "return Own(2.0)"),
    "a loss's body": ("loss", LOSS, 'reduction="none")', 'reduction="none") * 2'),
    "what a loss closes over": ("loss", CLOSED, "outer(1.0)", "outer(2.0)"),
    "a schedule": ("schedule", SCHEDULE, "return 1.0", "return 1.0 / (1 + step)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_code_under_the_same_name_is_refused_by_name(change: str, tmp_path: Path) -> None:
    what, source, old, new = CHANGES[change]
    assert old in source
    search = Stopped(tmp_path, **{what: written(source)})
    search.refuses(f"differs in the {what}'s code", **{what: written(source.replace(old, new))})
    commented = source + "# a comment\n"
    search.resume(**{what: written(commented)})


def _metric(scale: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda output, y: (output.argmax(-1) == y).float() * scale


def test_another_metric_s_function_is_refused(tmp_path: Path) -> None:
    search = Stopped(tmp_path, metric=DeclaredMetric(_metric(1.0), low=0.0, high=1.0))
    search.refuses("differs in the metric's code", metric=DeclaredMetric(_metric(0.5), low=0.0, high=1.0))


class Weighted(nn.Module):
    def __init__(self, weight: float) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor([1.0, weight]))

    def forward(self, output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output, y, weight=self.weight, reduction="none")


def test_other_numbers_in_a_loss_are_refused(tmp_path: Path) -> None:
    search = Stopped(tmp_path, loss=Weighted(1.0))
    search.refuses("resume must be a search with the same numbers in its code", loss=Weighted(2.0))
    search.resume(loss=Weighted(1.0))


class Decoded(Dataset[Any]):
    def __init__(self, transform: Callable[[Any], Any]) -> None:
        self.x, self.y = clouds()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.x[index]), self.y[index]


def test_another_transform_of_a_dataset_is_refused(tmp_path: Path) -> None:
    named = {"metric": ClippedLoss(1.0), "workers": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.search.test_resume.clouds", lambda: Decoded(lambda x: x))
        search = Stopped(tmp_path, **named)
        search.refuses("differs in the Dataset's code", data=Decoded(lambda x: x * 2))


@pytest.mark.parametrize("change", ["a model's forward", "a loss's body"])
def test_a_checkpoint_of_other_code_is_refused(change: str, tmp_path: Path) -> None:
    what, source, old, new = CHANGES[change]
    run = honestdp.Run(records=400, lot=40, steps=3, noise=1.0)

    def go(text: str) -> None:
        given = written(text)
        model, loss = (given(), None) if what == "model" else (nn.Linear(3, 2), given)
        rules = [honestdp.optimizers.SGD(lr=0.1, clip=1.0)]
        train_population(
            model, clouds(), run=run, optimizers=rules, loss=loss, checkpoint=tmp_path / "kept", device="cpu"
        )

    go(source)
    go(source + "# a comment\n")
    with pytest.raises(InvalidArgument, match=f"differs in .*the {what}'s code"):
        go(source.replace(old, new))


# ---- Identities


def test_identities_are_the_same_in_every_process() -> None:
    code = textwrap.dedent("""
        import logging, functools, torch
        from torch import nn
        from honestdp.identity import identity
        log = logging.getLogger("mine")
        WORDS = {"a", "b", "c", "d"}
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)
            def forward(self, x):
                log.debug("used")
                return self.layer(x) * len(WORDS) if "x" in {"x", "y", "z"} else x
        @functools.lru_cache
        def cached(a, b={"u": 1, "v": 2}):
            return a
        print(identity(Own(), cached, functools.partial(cached, b=3), lambda x: x + 1).digest)
    """)
    found = set()
    for number in range(4):
        env = {**os.environ, "PYTHONHASHSEED": str(number), "PYTHONPATH": str(Path(honestdp.__file__).parents[1])}
        found.add(
            subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
        )
    assert len(found) == 1


def test_records_that_a_factory_closes_over_are_not_read_before_the_charge() -> None:
    """Their shape is, as everywhere; their numbers only for the digest that is made after the charge."""
    one, other = np.zeros((5, 3)), np.ones((5, 3))

    def factory(x: Any) -> Callable[[], nn.Module]:
        return lambda: nn.Linear(x.shape[1], 2)

    assert identity(factory(one)) == identity(factory(other)) != identity(factory(np.zeros((6, 3))))
    assert identity(factory(one), values=True) != identity(factory(other), values=True)


def test_what_has_no_byte_code_is_named() -> None:
    class Odd:
        __slots__ = ()

    assert identity(Odd()).unseen
    assert identity(functools.partial(nn.functional.cross_entropy, reduction="none")).unseen == ()
    assert identity(nn.Linear(2, 2), torch.relu, np.mean, len).unseen == ()


def test_things_that_hold_each_other_come_to_an_end() -> None:
    class Node:
        def __init__(self) -> None:
            self.other: Any = self

    assert identity(Node()) == identity(Node())
