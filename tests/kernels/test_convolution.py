"""The GPU kernels of convolutions, in Triton's interpreter, against the tensor operations they stand for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from honestdp import kernels

from . import plain_convolution

CHECK = Path(__file__).resolve().parents[2] / "benchmarks" / "convolution_kernels.py"
NAMES = ("forward", "back", "unpool", "square_norms", "sum_rows", "weighted_sum")


def test_the_kernels_of_convolutions_agree_with_tensor_operations() -> None:
    pytest.importorskip(
        "triton",
        reason="TRITON IS NOT INSTALLED: the kernels are checked by benchmarks/convolution_kernels.py on a GPU",
    )
    told = {**os.environ, "TRITON_INTERPRET": "1"}
    found = subprocess.run([sys.executable, "-W", "ignore", str(CHECK)], env=told, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("wrong", [None, *(name for name in NAMES if name != "square_norms")])
def test_kernels_are_used_only_where_they_give_what_torch_gives(wrong: str | None) -> None:
    made = SimpleNamespace(**{name: getattr(plain_convolution, name) for name in NAMES})
    if wrong is not None:

        def off(*args: object, **kwargs: object) -> object:
            right = getattr(plain_convolution, wrong)(*args, **kwargs)
            return 1.1 * right if isinstance(right, torch.Tensor) else (1.1 * right[0], right[1])

        setattr(made, wrong, off)
    assert kernels._agrees(made, torch.device("cpu")) == (wrong is None)
