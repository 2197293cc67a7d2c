"""The GPU kernels, in Triton's interpreter, against the tensor operations they stand for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip(
    "triton", reason="TRITON IS NOT INSTALLED: the GPU kernels are checked by benchmarks/gpu_checks.py on a GPU alone"
)

CHECK = """
import math, torch
from honestdp.data.records import prepared
from honestdp.gradients.pieces import Outer
from honestdp.kernels import fused

torch.manual_seed(1)
inf, nan = math.inf, math.nan
index = torch.randint(0, 40, (7,))
for width in (1, 3, 784, 2048, 5000):
    for rows, scale in (
        (torch.randint(0, 256, (40, width), dtype=torch.uint8), 1 / 255),
        (torch.randn(40, width), 1.0),
        (torch.randn(40, width).half(), 1.0),
    ):
        x, norms = fused.gather(rows, index, scale)
        assert torch.equal(x, prepared(rows[index], torch.float32)), (width, rows.dtype)
        torch.testing.assert_close(norms, torch.linalg.vector_norm(x, dim=1))
wild = torch.tensor([[nan, 1.0], [inf, 1.0], [1e30, 1.0], [1e-30, 0.0], [0.0, 0.0], [3.0, 4.0]])
_, norms = fused.gather(wild, torch.arange(6), 1.0)
assert norms.isnan().tolist() == [True, False, False, False, False, False]
assert norms[1:].tolist() == [inf, inf, 0.0, 0.0, 5.0]

for width in (1, 10, 100, 3000):
    for shift in (False, True):
        left, right = torch.randn(2, 5, 1, width), torch.randn(2, 5, 1, 784)
        left[0, 0, 0, 0], left[0, 1, 0, 0], left[0, 2] = nan, inf, 0
        right[1, 0, 0, 0], right[1, 1, 0, 0], right[1, 2] = nan, inf, 0
        left[1, 3], right[1, 3] = 1e-30, 1e25
        plain = Outer(left, right, (width, 784), shift=shift).square_norms()
        squares = fused.outer_square_norms(left.flatten(2), right.flatten(2), right_is_norms=False, shift=shift)
        torch.testing.assert_close(squares, plain, equal_nan=True)
        norms = torch.linalg.vector_norm(right.flatten(2), dim=-1)
        known = fused.outer_square_norms(left.flatten(2), norms, right_is_norms=True, shift=shift)
        torch.testing.assert_close(known, plain, equal_nan=True)
"""


def test_the_kernels_agree_with_tensor_operations_also_where_numbers_are_none() -> None:
    told = {**os.environ, "TRITON_INTERPRET": "1"}
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", CHECK], env=told, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
