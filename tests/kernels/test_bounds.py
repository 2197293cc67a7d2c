"""No GPU kernel reads or writes beyond its tensors, and guarded memory sees every one that would.

In Triton's interpreter, in a process of its own: the kernels have to be made for it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "triton", reason="TRITON IS NOT INSTALLED: bounds of kernels are checked by compute-sanitizer on a GPU"
)

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "src" / "honestdp" / "kernels"


def interpreted(*words: str) -> subprocess.CompletedProcess[str]:
    told = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", *words]
    return subprocess.run(command, env=told, capture_output=True, text=True, cwd=ROOT)


def launched(source: Path) -> set[str]:
    """The kernels of a module: functions for Triton that no other of them calls."""
    tree = ast.parse(source.read_text())
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    jitted = [
        each for each in functions if any(ast.unparse(how).startswith("triton.jit") for how in each.decorator_list)
    ]
    used = {
        name.id for each in jitted for name in ast.walk(each) if isinstance(name, ast.Name) and name.id != each.name
    }
    return {f"{source.stem}.{each.name}" for each in jitted if each.name not in used}


@pytest.mark.slow
def test_no_kernel_leaves_its_tensors_in_shapes_that_are_drawn() -> None:
    found = interpreted("-m", "tests.kernels.kernel_bounds", "--many", "3")
    assert found.returncode == 0, found.stderr
    every = {kernel for source in KERNELS.glob("*.py") for kernel in launched(source)} - {
        "hidden.nought"
    }  # a part of others
    assert len(every) >= 15
    for kernel in every:
        assert f"{kernel} " in found.stdout


@pytest.mark.slow
def test_every_planted_read_or_write_beyond_a_tensor_is_seen_with_its_kernel_and_its_tensor() -> None:
    found = interpreted("-m", "tests.kernels.planted")
    assert found.returncode == 0, found.stdout + found.stderr
    lines = found.stdout.splitlines()
    assert len(lines) >= 18
    for line in lines:
        assert line.startswith("seen: ")
        assert " beyond its last " in line or " before its first " in line
