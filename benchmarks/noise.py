"""What Gaussian noise costs: torch's generator on one and two streams, numpy's ziggurats, and cryptographic generators.

    python benchmarks/noise.py

Nanoseconds per number, medians, for the weights of logistic regression, of one hidden layer of 100 (MNIST), and of 16
of the latter.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

from honestdp.boundary.noise import CpuNoise, SecureNoise  # noqa: E402
from honestdp.boundary.seed import Seed  # noqa: E402

CPU = torch.device("cpu")
SIZES = (7850, 79510, 16 * 79510)


def nanoseconds(draw: Callable[[], object], numbers: int) -> float:
    draw()
    times = []
    for _ in range(15):
        began = time.perf_counter()
        draw()
        times.append(time.perf_counter() - began)
    return 1e9 * statistics.median(times) / numbers


def sources(numbers: int) -> dict[str, Callable[[], object]]:
    out = torch.empty(numbers)
    single = np.empty(numbers, np.float32)
    engine, twister = CpuNoise(CPU, Seed.fresh()), torch.Generator()
    found: dict[str, Callable[[], object]] = {
        "torch, one stream (Box-Muller)": lambda: out.normal_(generator=twister),
        "honestdp": lambda: engine.normal((numbers,)),
    }
    for bits in (np.random.SFC64, np.random.PCG64DXSM, np.random.Philox):
        maker = np.random.Generator(bits())
        found[f"numpy {bits.__name__} (ziggurat)"] = lambda maker=maker: maker.standard_normal(
            out=single, dtype=np.float32
        )
    if importlib.util.find_spec("randomgen"):
        import randomgen

        for name in ("AESCounter", "ChaCha", "HC128"):
            maker = np.random.Generator(getattr(randomgen, name)())
            found[f"randomgen {name}"] = lambda maker=maker: maker.standard_normal(out=single, dtype=np.float32)
        secure = SecureNoise(CPU, Seed.fresh())
        found["honestdp, secure (AES, sum of four)"] = lambda: secure.normal((numbers,))
    return found


def main() -> None:
    print(f"{'ns per number':38}" + "".join(f"{size:>12}" for size in SIZES))
    columns = [sources(size) for size in SIZES]
    for label in columns[0]:
        row = [nanoseconds(column[label], size) for column, size in zip(columns, SIZES, strict=True)]
        print(f"{label:38}" + "".join(f"{value:12.2f}" for value in row))


if __name__ == "__main__":
    main()
