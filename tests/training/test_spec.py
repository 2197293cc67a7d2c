"""How a thing is computed is one object, checked once."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch

from honestdp import Compute, optimizers
from honestdp.boundary.mechanism import Mechanism
from honestdp.checks import InvalidArgument
from honestdp.training import population as module
from tests.toy_training import population_of, toy_data, toy_model


@pytest.mark.parametrize(
    ("argument", "value"),
    [("workers", -1), ("workers", 1.5), ("checkpoint_seconds", "a"), ("checkpoint_seconds", -1.0)],
)
def test_a_bad_number_is_refused_by_name(argument: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"^{argument} must be"):
        Compute(**{argument: value})


def test_it_cannot_be_changed_and_has_no_positions() -> None:
    with pytest.raises(FrozenInstanceError):
        Compute().workers = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Compute("cuda")  # type: ignore[misc]


def test_the_place_is_there_and_has_a_number() -> None:
    assert Compute(device="cpu").place() == torch.device("cpu")
    assert Compute(device=torch.device("cpu")).place() == torch.device("cpu")
    with pytest.raises(InvalidArgument, match="device must be cpu, or a device that torch has here"):
        Compute(device="abacus").place()


@pytest.mark.parametrize(("small", "threads"), [(2**18, 1), (0, 2)])
def test_a_step_of_little_work_takes_one_thread_and_gives_the_others_back(
    small: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it fails."""
    seen, before = list[int](), torch.get_num_threads()

    def eager(self: Mechanism, *_: object) -> None:
        seen.append(torch.get_num_threads())
        raise ZeroDivisionError

    monkeypatch.setattr(Mechanism, "_eager", eager)
    monkeypatch.setattr(module, "SMALL", small)
    rule = optimizers.SGD(lr=0.1, clip=1.0)
    population, _ = population_of([toy_model(seed=1)], toy_data(), [rule], lot=20.0, steps=3, noise=[1.0])
    torch.set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError):
            population.block()
        assert (seen, torch.get_num_threads()) == ([threads], 2)
    finally:
        torch.set_num_threads(before)
