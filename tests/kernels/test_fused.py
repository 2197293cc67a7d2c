"""The GPU kernels, in Triton's interpreter, against the tensor operations they stand for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "triton", reason="TRITON IS NOT INSTALLED: the GPU kernels are checked by tests/gpu_checks.py on a GPU alone"
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_kernels_agree_with_tensor_operations_also_where_numbers_are_none() -> None:
    told = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.fused_kernels"]
    found = subprocess.run(command, env=told, capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stderr
