"""Which kernels of convolutions a first training compiles, and for how long: for an H200 (sm_90), without a GPU.

    python benchmarks/compiled_kernels.py

Two steps of the network of 551322 weights, as on a GPU: its trial, then steps in TensorFloat-32. Kernels are compiled by Triton,
which has to be installed, into an empty cache, and tensor operations stand in for what they would compute. For every list of
dtypes and constants there is a launcher beside, which the C compiler makes on a machine with a GPU, in about half a second.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]

NAMES = ("forward", "back", "unpool", "channels_last", "square_norms", "sum_rows", "weighted_sum")


def _pretend(target: Any) -> SimpleNamespace:
    """A driver of Triton's for a GPU that is not there."""
    return SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        get_current_stream=lambda device=None: 0,
        get_active_torch_device=lambda: torch.device("cpu"),
    )


class Compiled:
    """Kernels that were compiled, as they come: name, precision and seconds; and their launchers."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, str, float]] = {}
        self.launchers: set[str] = set()

    def watch(self) -> Any:
        """Within, every launch compiles its kernel and no more."""
        from triton.runtime.jit import JITFunction

        run = JITFunction.run

        def compiled(this: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> Any:
            began = time.perf_counter()
            made = run(this, *args, grid=grid, warmup=True, **named)
            row = (this.__name__, str(named.get("PRECISION", "")), time.perf_counter() - began)
            if made.hash not in self.rows:
                self.rows[made.hash] = row
                self.launchers.add(f"{made.src.signature} {list(made.src.constants)}")
            return made

        return mock.patch.object(JITFunction, "run", compiled)


def network() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3)),
        *(
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4096, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        ),
    )


def trained(found: Any) -> None:
    """Two steps of two runs, with the precision that steps have on a GPU."""
    import honestdp
    from honestdp import kernels
    from honestdp.boundary import release
    from honestdp.gradients.precision import products

    x, y = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(0)), torch.arange(6)
    with (
        mock.patch.object(kernels, "convolutions", return_value=found),
        mock.patch.object(release, "products", lambda precision, device: products("high", device)),
    ):
        honestdp.train_population(
            [network(), network()], (x, y), run=honestdp.Run(records=6, lot=3, steps=2, noise=1.0),
            optimizers=[honestdp.optimizers.SGD(lr=0.1, clip=1.0)] * 2, noise_seed=1,
        )  # fmt: skip


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        from triton.backends.compiler import GPUTarget
        from triton.runtime import driver

        driver.set_active(_pretend(GPUTarget("cuda", 90, 32)))
        from honestdp.kernels import convolution
        from honestdp.kernels.tensors import EXACT
        from honestdp.kernels.tried import Tried

        def stood_in(name: str) -> Any:
            def kernel(*args: Any, **how: Any) -> Any:
                getattr(convolution, name)(*args, **how)
                return getattr(EXACT, name)(*args, **how)

            return kernel

        compiled = Compiled()
        with compiled.watch():
            found: Any = Tried(SimpleNamespace(**{name: stood_in(name) for name in NAMES}))
            assert found.works(torch.device("cpu"))
            trained(found)
    for name, precision, seconds in compiled.rows.values():
        print(f"{seconds:5.2f} s  {name} {precision}")
    rows = list(compiled.rows.values())
    parts = Counter(precision or "no products" for _, precision, _ in rows)
    told = ", ".join(f"{count} in {precision}" for precision, count in parts.items())
    print(f"{len(rows)} kernels ({told}), {sum(row[2] for row in rows):.1f} s, and {len(compiled.launchers)} launchers")


if __name__ == "__main__":
    main()
