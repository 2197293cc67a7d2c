"""Some of the random models of `random_models`: none is refused, and none accepted with gradients that are wrong.

All 200 of them take minutes and are run by that module.
"""

from __future__ import annotations

import pytest
import torch

from honestdp import kernels

from ..kernels import plain_convolution
from . import random_models

CPU = torch.device("cpu")


@pytest.mark.parametrize("number", range(200, 208))
@pytest.mark.parametrize("runs", [1, 3])
def test_a_random_model_is_accepted_with_the_gradients_of_autograd_in_float64(number: int, runs: int) -> None:
    assert random_models.trouble(number, runs, CPU)[0] is None


@pytest.mark.parametrize("number", [200, 201])
def test_a_random_model_is_so_too_by_what_stands_in_for_the_kernels_of_a_gpu(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "convolutions", lambda device: plain_convolution)
    monkeypatch.setattr(random_models, "made", lambda number: random_models.images(random_models.random.Random(number)))
    assert random_models.trouble(number, 3, CPU)[0] is None


def test_a_wrong_gradient_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = random_models.per_example

    class Wrong:
        def __init__(self, found: object) -> None:
            self.norms, self._found = found.norms, found

        def weighted_sum(self, weights: torch.Tensor) -> dict[str, torch.Tensor]:
            return {name: 1.01 * value for name, value in self._found.weighted_sum(weights).items()}

    monkeypatch.setattr(random_models, "per_example", lambda *arguments: Wrong(right(*arguments)))
    found = random_models.trouble(200, 1, CPU)[0]
    assert found is not None
    assert "is off by" in found
