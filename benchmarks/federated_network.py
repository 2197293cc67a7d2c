"""Microseconds of a run's step of the federated network on a GPU, whole and by pieces; first, that it computes what torch does.

    PYTHONPATH=src python benchmarks/federated_network.py

Random images stand for CIFAR-10. Takes a minute and prints as it goes. Without a GPU it compares alone, in Triton's interpreter:

    TRITON_INTERPRET=1 PYTHONPATH=src python benchmarks/federated_network.py

With --tiles it seeks the fastest tiles of every kernel first (100 s in all). Measured on an H200: by torch (windows written out,
batched products, autograd) 155 microseconds a run-step; 60 runs of SGD and 30 of ADADP by these kernels 11.9, 60 of Adam 17.9. By
pieces, without a graph: forward 1.8, dense 6.4, backward 3.0, the update of SGD 2.0, of ADADP 5.6, of Adam 9.2. Gradients differ
from torch's by 0.05 of themselves and less: half precision moves a sum by some 5e-4 of it, so that here and there a unit near 0
wakes or falls silent and a pool picks another place. Emulated in torch by rounding the factors alone it is 0.046 in the first
layer, 0.03 in the following ones and 0.002 in the last, as the kernels have it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

from honestdp.gradients.layout import layout_of, stack
from honestdp.optimizers import ADADP, SGD, Adam, Rule
from honestdp_papers.koskela2020.federated_compare import compare
from honestdp_papers.koskela2020.federated_network import LAUNCH, Network, tf32
from honestdp_papers.koskela2020.federation import UNCLIPPED, convolutional

IMAGES, LOT = 50000, 10
POPULATIONS = ((60, 30, 0), (0, 0, 60), (20, 10, 0), (180, 90, 60))
"""Runs of SGD, ADADP and Adam. A part of full size is the first or the second."""


_BLOCKS = [{"BLOCK": block, "num_warps": warps} for block, warps in ((64, 4), (128, 4), (128, 8), (64, 8))]
_SMALL = [{"BLOCK": block, "num_warps": warps} for block, warps in ((32, 4), (32, 2), (64, 4), (16, 2))]
_TILES = [
    {"ROWS": rows, "COLUMNS": columns, "num_warps": warps}
    for rows, columns, warps in ((64, 128, 4), (32, 128, 4), (64, 128, 8), (16, 128, 4), (16, 256, 4))
]
ALTERNATIVES = {
    "_Adam": _TILES, "_SGD": _TILES, "_ADADP": _TILES, "conv2": _BLOCKS, "conv2_back": _BLOCKS, "conv2_weights": _BLOCKS,
    "conv1": _SMALL, "conv1_weights": _SMALL,
}  # fmt: skip


def rules_for(sgd: int, adadp: int, adam: int) -> list[Rule]:
    adaptive = ADADP(clip=UNCLIPPED, lr=0.1, tau=1.0, accept=True)
    return [SGD(clip=UNCLIPPED, lr=0.03)] * sgd + [adaptive] * adadp + [Adam(clip=UNCLIPPED, lr=1e-4)] * adam


def timed(work: Callable[[], object], seconds: float = 0.5) -> float:
    """Microseconds of some work, repeated for about so long."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    took = 0.0
    for times in (1, 1, None):
        times = times or max(3, int(seconds * 1e3 / took))
        first.record()
        for _ in range(times):
            work()
        last.record()
        torch.cuda.synchronize()
        took = first.elapsed_time(last) / times
    return took * 1e3


def told(name: str, work: Callable[[], str]) -> None:
    began = time.time()
    try:
        print(f"{name}: {work()}  [{time.time() - began:.0f} s]", flush=True)
    except Exception as trouble:  # the other variants are to be measured nevertheless
        print(f"{name}: FAILED {type(trouble).__name__}: {str(trouble)[:600]}", flush=True)


def main() -> None:
    there = torch.cuda.is_available()
    device, count, lot_size = (torch.device("cuda", 0), IMAGES, LOT) if there else (torch.device("cpu"), 20, 2)
    torch.manual_seed(0)
    images = torch.randn(count, 3, 32, 32, device=device).half()
    classes = torch.randint(10, (count,), device=device)
    model = convolutional()
    row = stack([model], layout_of(model), device)

    def network(counts: tuple[int, int, int]) -> Network:
        made = Network(convolutional(), rules_for(*counts), images, classes, lot=lot_size)
        made.weights = row.repeat(sum(counts), 1)
        return made

    def alike() -> str:
        counts = (3, 3, 3) if there else (1, 1, 1)
        lots = torch.randint(count, (3, sum(counts), lot_size), device=device, dtype=torch.int32)
        compare(
            convolutional,
            rules_for(*counts),
            images,
            classes,
            lots,
            lambda found: print("apart by:", found, flush=True),
        )
        return "gradients, weights and step sizes as torch's"

    def whole(counts: tuple[int, int, int]) -> str:
        runs, made = sum(counts), network(counts)
        lots = torch.randint(IMAGES, (100, runs, LOT), device=device, dtype=torch.int32)
        step = timed(lambda: made.make(lots)) / 100
        return f"{step:.0f} us a step, {step / runs:.2f} us a run-step"

    def pieces(counts: tuple[int, int, int]) -> str:
        """Without a graph: the time of launching is in it where kernels are short."""
        runs, made = sum(counts), network(counts)
        lot = torch.randint(IMAGES, (runs * LOT,), device=device, dtype=torch.int32)
        made.differentiate(lot)
        slope = 1e-3 * torch.randn(runs, LOT, 1600, device=device)
        work: dict[str, Callable[[], object]] = {
            "forward": lambda: made._forward(lot),
            "dense": lambda: made._dense(lot),
            "backward": lambda: made._backward(lot, slope),
        }
        for update in made._updates:
            work[type(update).__name__] = lambda u=update: u(True, made._factors)  # type: ignore[misc]
        with tf32():
            return ", ".join(f"{name} {timed(one, 0.1) / runs:.2f}" for name, one in work.items())

    def piece(name: str) -> tuple[int, Callable[[], object]]:
        """Runs, and the piece of their work that has the kernels of this name; of updates both steps of an iteration."""
        counts = {"_SGD": (60, 0, 0), "_ADADP": (0, 30, 0), "_Adam": (0, 0, 60)}.get(name, (60, 30, 0))
        runs, made = sum(counts), network(counts)
        lot = torch.randint(IMAGES, (runs * LOT,), device=device, dtype=torch.int32)
        made.differentiate(lot)
        if name.startswith("_"):
            return runs, lambda: [made._updates[0](second, made._factors) for second in (False, True)]
        if name in ("conv1", "conv2"):
            return runs, lambda: made._forward(lot)
        slope = 1e-3 * torch.randn(runs, LOT, 1600, device=device)
        return runs, lambda: made._backward(lot, slope)

    def tiles(name: str) -> str:
        """The fastest of the alternatives, which is in force afterwards."""
        took = []
        for launch in ALTERNATIVES[name]:
            LAUNCH[name] = launch
            runs, work = piece(name)
            took.append(timed(work, 0.05) / runs)
        LAUNCH[name] = ALTERNATIVES[name][took.index(min(took))]
        each = (f"{tuple(launch.values())} {us:.2f}" for launch, us in zip(ALTERNATIVES[name], took, strict=True))
        return f"{', '.join(each)} us a run; best {LAUNCH[name]}"

    told("alike", alike)
    if there and "--tiles" in sys.argv:
        told("whole before", lambda: f"{whole((60, 30, 0))}; Adam {whole((0, 0, 60))}")
        with tf32():
            for name in ALTERNATIVES:
                told(f"tiles of {name}", lambda n=name: tiles(n))  # type: ignore[misc]
        told("alike", alike)
    for counts in POPULATIONS if there else ():
        told(f"whole {counts}", lambda c=counts: whole(c))  # type: ignore[misc]
    for counts in POPULATIONS[:2] if there else ():
        told(f"pieces {counts}, us a run", lambda c=counts: pieces(c))  # type: ignore[misc]


if __name__ == "__main__":
    main()
