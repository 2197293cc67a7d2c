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


@pytest.mark.parametrize("which", [0, 1], ids=["the first", "the second"])
@pytest.mark.parametrize("wrong", [None, *NAMES])
def test_kernels_are_used_only_where_they_give_what_torch_gives(wrong: str | None, which: int) -> None:
    """Also where what a kernel gives beside is wrong: gradients that are kept, the sum for a bias."""
    made = SimpleNamespace(**{name: getattr(plain_convolution, name) for name in NAMES})
    if wrong is not None:

        def off(*args: object, **kwargs: object) -> object:
            right = getattr(plain_convolution, wrong)(*args, **kwargs)
            if isinstance(right, torch.Tensor):
                return 1.1 * right
            return tuple(
                0.9 * part if at == which and part is not None and part.is_floating_point() else part
                for at, part in enumerate(right)
            )

        setattr(made, wrong, off)
    assert kernels._agrees(made, torch.device("cpu")) == (wrong is None or (wrong, which) == ("forward", 1))
