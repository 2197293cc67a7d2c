"""A row's prediction has the same bits in any company and place, on every processor's products."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from honestdp.gradients.predictions import exact, forward, predictions, probabilities

PROCESSORS = [
    {"MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    {"ATEN_CPU_CAPABILITY": "default"},
]
CHAINS = {
    "linear 1": (lambda: nn.Linear(1, 1), (1,)),
    "linear 10": (lambda: nn.Linear(10, 2), (10,)),
    "linear 40": (lambda: nn.Linear(40, 1), (40,)),
    "linear 784": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False)), (1, 28, 28)),
    "tanh": (lambda: nn.Sequential(nn.Linear(33, 101), nn.Tanh(), nn.Linear(101, 5)), (33,)),
    "sigmoid": (lambda: nn.Sequential(nn.Linear(33, 101), nn.Sigmoid(), nn.Linear(101, 5)), (33,)),
    "silu": (lambda: nn.Sequential(nn.Sequential(nn.Linear(33, 101), nn.SiLU()), nn.Linear(101, 1)), (33,)),
    "elu": (lambda: nn.Sequential(nn.Linear(33, 101), nn.ELU(), nn.Linear(101, 5), nn.Hardtanh()), (33,)),
    "a sequence": (lambda: nn.Sequential(nn.Linear(9, 7), nn.GELU(), nn.Linear(7, 3)), (5, 9)),
}


class Residual(nn.Module):
    """No chain: it goes in blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(33, 33), nn.Linear(33, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(x + self.first(x).tanh())
        return out


class OwnNumbers(nn.Module):
    """A module that cannot work in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return x.float() @ torch.eye(4) @ self.last.weight.T


OTHERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "residual": (Residual, (33,)),
    "own numbers": (OwnNumbers, (4,)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 6, 5, 2), nn.Tanh(), nn.Flatten(), nn.Linear(864, 3)),
        (1, 28, 28),
    ),
    "batch norm": (lambda: nn.Sequential(nn.Linear(33, 9), nn.BatchNorm1d(9), nn.Linear(9, 2)), (33,)),
}


def made(name: str, rows: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    make, shape = (CHAINS | OTHERS)[name]
    x = torch.randn(rows, *shape) * 10 ** torch.empty(rows, *shape).uniform_(-3, 1)
    return make().eval(), x


def outputs(model: nn.Module, x: Tensor) -> np.ndarray[Any, Any]:
    """All that is predicted: the outputs, and beside them their softmax."""
    found = predictions(model, x)
    rows = found.reshape(len(x), -1)
    return np.concatenate([rows, probabilities(rows)], axis=1)


def check_company(names: list[str]) -> None:
    """Bit for bit: alone, in pairs, permuted, some of them, and beside huge rows."""
    for name in names:
        model, x = made(name, 1100)
        whole = outputs(model, x)
        places = torch.randperm(len(x))
        assert (outputs(model, x[places]) == whole[places]).all(), name
        assert (outputs(model, x[places[:77]]) == whole[places[:77]]).all(), name
        for i in (0, 7, 1023, 1099):
            assert (outputs(model, x[i : i + 1]) == whole[i]).all(), name
            assert (outputs(model, torch.stack([x[i - 5] * 1e30, x[i]]))[1] == whole[i]).all(), name


@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda one: "-".join(one.values()))
def test_a_rows_prediction_has_the_same_bits_in_any_company(processor: dict[str, str]) -> None:
    """Three threads cut a tensor where no vector ends."""
    program = """from tests.gradients.test_predictions import *
for threads in (1, 3):
    torch.set_num_threads(threads)
    check_company([*CHAINS, *OTHERS])
"""
    environment = os.environ | processor | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_company_changes_the_bits_of_plain_products() -> None:
    """What would go wrong: on this machine, some plain model's rows change with the width of a batch."""
    changed = []
    for name in CHAINS:
        model, x = made(name, 503)
        with torch.no_grad():
            changed.append(bool((model(x)[::50] != torch.cat([model(one[None]) for one in x[::50]])).any()))
    assert any(changed)


@pytest.mark.parametrize("name", CHAINS)
def test_exact_sums_are_as_close_as_float32_products(name: str) -> None:
    model, x = made(name, 300)
    found = predictions(model, x)
    with torch.no_grad():
        plain = model(x).double().numpy()
        right = model.double()(x.double()).numpy()
    assert np.abs(found - right).max() <= max(np.abs(plain - right).max(), 1e-7 * np.abs(right).max())


@pytest.mark.parametrize("inputs", [1, 2, 100, 1000, 1025, 70_000])
def test_a_sum_is_exact_where_its_terms_are_as_large_as_can_be(inputs: int) -> None:
    """The terms in another order: all factors just below a power of two, with all of their digits."""
    layer, x = nn.Linear(inputs, 3, bias=False), 2 - torch.rand(2, inputs).double() * 1e-3
    with torch.no_grad():
        layer.weight.copy_(1 - torch.rand(3, inputs) * 1e-3)
    chain = exact(layer)
    assert chain is not None
    columns = torch.randperm(inputs)
    usual = chain(x)
    with torch.no_grad():
        layer.weight.copy_(layer.weight[:, columns].clone())
    mixed = exact(layer)
    assert mixed is not None
    assert torch.equal(usual, mixed(x[:, columns]))


def test_columns_of_very_different_scales_keep_their_digits() -> None:
    """A weight of a millionth for an input of millions, beside one of 1 for an input of 1."""
    layer = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1e-6, 1.0]]))
    x = torch.tensor([[3e6, 0.123456]])
    right = (x.double() @ layer.weight.detach().double().T).numpy()
    assert np.allclose(predictions(layer, x), right, rtol=2**-24, atol=0)


def test_a_row_that_is_no_number_stays_alone() -> None:
    model, x = made("tanh", 10)
    whole = predictions(model, x)
    x[3, 0], x[4, 0] = torch.nan, torch.inf
    found = predictions(model, x)
    assert np.isnan(found[3:5]).all()
    others = [0, 1, 2, *range(5, 10)]
    assert (found[others] == whole[others]).all()


def test_no_rows_have_no_predictions() -> None:
    for name in ("tanh", "convolution"):
        model, x = made(name, 3)
        assert predictions(model, x[:0]).shape == (0, 5 if name == "tanh" else 3)


def test_neither_the_model_nor_its_rows_are_changed() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2), nn.Dropout(0.5)).train()
    x = torch.randn(5, 4)
    before, weights = x.clone(), model[1].weight.clone()
    predictions(model, x)
    assert torch.equal(x, before)
    assert model.training
    assert model[1].weight.dtype == torch.float32
    assert torch.equal(model[1].weight, weights)


def test_only_what_is_known_is_computed_by_exact_sums() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    watched = nn.Linear(4, 2)
    watched.register_forward_hook(lambda _module, _x, out: out + 1)
    drawing = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5))
    for model in (Doubled(4, 2), watched, drawing, nn.Sequential(nn.Linear(4, 2), nn.LayerNorm(2))):
        assert exact(model) is None
        x = torch.randn(5, 4)
        with torch.no_grad():
            assert np.allclose(predictions(model, x), model.eval()(x).numpy(), atol=1e-6)


def test_a_score_reads_the_same_outputs_wherever_a_record_stands() -> None:
    """The forward pass of a score, in the model's own dtype."""
    for name in CHAINS:
        model, x = made(name, 1024)
        with torch.no_grad():
            places = torch.randperm(1024)
            outputs_of = forward(model)
            whole = outputs_of(x)
            assert whole.dtype == torch.float32
            assert torch.equal(outputs_of(x[places]), whole[places])
