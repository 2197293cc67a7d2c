"""How a thing is computed is one object, checked once."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch

from honestdp import Compute
from honestdp.checks import InvalidArgument


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
