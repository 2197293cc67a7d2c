"""Time, memory and FLOP/s of one training step of convolutional networks, per run.

    python benchmarks/convolutions.py --device cuda [--runs 1 40] [--nets "32-64"] [--profile] [--json results.json]
        [--tiles tiles.json]      # as python -m tests.kernels.convolution_kernels cuda --tune --json tiles.json has found them
    python benchmarks/convolutions.py --opacus --threads 2 --runs 1          # on a CPU, beside Opacus' modes

Every case is DPSGD on 60000 records of random pixels; the values do not matter to the time. FLOP are those that the lots of the
expected size need: a product of the forward pass, one for the gradient of the input (but for the first layer's), and one for the
weight's; what padding and a second look at a gradient cost beside is not counted. Memory is the peak above what was held before.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks"), str(ROOT)]

from honestdp import Compute, Run, optimizers  # noqa: E402
from honestdp.training.spec import TrainSpec  # noqa: E402
from honestdp.training.train import assemble  # noqa: E402

RECORDS, NOISE, CLIP, LR = 60000, 4.0, 1.0, 0.1


def net_32_64() -> nn.Module:
    """Two convolutions of 32 and 64 channels, each with its pool, and a dense layer of 128."""
    body = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))


def net_551322() -> nn.Module:
    """The network of 551322 parameters for MNIST."""
    body = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2)]
    body += [nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 10))


class Block(nn.Module):
    """Two convolutions with GroupNorm, and a way around them."""

    def __init__(self, channels: int, rows: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Conv2d(channels, rows, 3, stride, 1, bias=False),
            nn.Conv2d(rows, rows, 3, 1, 1, bias=False),
        )
        self.norm_one, self.norm_two = nn.GroupNorm(8, rows), nn.GroupNorm(8, rows)
        self.around = nn.Identity() if channels == rows else nn.Conv2d(channels, rows, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm_two(self.two(F.relu(self.norm_one(self.one(x))))) + self.around(x))


class ResNet20(nn.Module):
    """The 20-layer ResNet for images of 32x32, with GroupNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.GroupNorm(8, 16)
        widths = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
        self.blocks, self.head = nn.Sequential(*(Block(*width) for width in widths)), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(F.relu(self.norm(self.first(x)))).mean((2, 3)))


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "32-64": (net_32_64, (1, 28, 28), 250),
    "551322": (net_551322, (1, 28, 28), 512),
    "resnet20": (ResNet20, (3, 32, 32), 250),
}
"""Model, shape of a record, lot."""


def flop(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> float:
    """Of one example: see above."""
    model, total, first = make(), 0.0, True
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):

            def count(layer: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> None:
                nonlocal total, first
                weight = layer.weight
                product = 2 * weight.numel() * (out.shape[2:].numel() if isinstance(layer, nn.Conv2d) else 1)
                total += product * (2 if first else 3)
                first = False

            layer.register_forward_hook(count)
    model(torch.zeros(1, *shape))
    return total


def ours(make: Callable[[], nn.Module], x: Tensor, y: Tensor, lot: int, runs: int) -> tuple[Callable[[], None], int]:
    """A block of steps of every run, and how many steps that is."""
    run = Run(records=RECORDS, lot=lot, steps=100_000, noise=NOISE)
    rules = [optimizers.SGD(lr=LR, clip=CLIP)] * runs
    job = assemble(make, (x, y), run=run, optimizers=rules, spec=TrainSpec(compute=Compute(device=x.device)))
    population = job.population(list(range(runs)))
    most = 16 if x.is_cuda else 1
    population.block(most=most)
    return lambda: population.block(most=most), most


def clock(step: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def wait_for(turn: str) -> None:
    """Until all processes that share a folder have compiled, and those before this one have been timed; at most 20 s."""
    folder, place, of = turn.rsplit("/", 2)
    (Path(folder) / f"ready-{place}").touch()
    before = [f"ready-{i}" for i in range(int(of))] + [f"timed-{i}" for i in range(int(place))]
    until = time.monotonic() + 20
    while time.monotonic() < until and not all((Path(folder) / name).exists() for name in before):
        time.sleep(0.1)


def measure(
    name: str, runs: int, device: torch.device, rounds: int, *, profile: bool, turn: str | None = None
) -> dict[str, Any]:
    make, shape, lot = NETS[name]
    maker = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (RECORDS, *shape), dtype=torch.uint8, generator=maker).to(device)
    y = torch.randint(0, 10, (RECORDS,), generator=maker).to(device)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    began = time.perf_counter()
    step, steps = ours(make, x, y, lot, runs)
    ready = time.perf_counter() - began
    if turn is not None:
        wait_for(turn)
    times = [clock(step, device) / (steps * runs) for _ in range(rounds)]
    one = statistics.median(times)
    row: dict[str, Any] = {
        "microseconds per run and step": 1e6 * one,
        "TFLOP/s": lot * flop(make, shape) / one / 1e12,
        "seconds before the first step": ready,
    }
    if device.type == "cuda":
        row["GiB per run"] = (torch.cuda.max_memory_allocated() - before) / 2**30 / runs
        if profile:
            row["kernels"] = top_kernels(step, steps * runs)
    if turn is not None:
        folder, place, _ = turn.rsplit("/", 2)
        (Path(folder) / f"timed-{place}").touch()
    return row


def top_kernels(step: Callable[[], object], shares: int | Callable[[], int], most: int = 16) -> dict[str, float]:
    """The kernels that take the most time, in microseconds per run and step. shares: how many of these it is, also afterwards."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    share = shares if isinstance(shares, int) else shares()
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_device_time_total)
    total = sum(row.self_device_time_total for row in rows)
    print(f"   all kernels {total / share:.1f} us")
    for row in rows[:most]:
        print(f"   {row.self_device_time_total / share:7.1f} us {row.count:6d} x {row.key[:100]}", flush=True)
    return {row.key[:100]: row.self_device_time_total / share for row in rows[:most]} | {"all": total / share}


def use_tiles(file: Path) -> None:
    """The best tiles of a tuning in place of the usual ones, where these are slower."""
    from tests.kernels.convolution_kernels import LAYERS

    from honestdp.kernels import tiles

    for key, found in json.loads(file.read_text()).items():
        name, what = key.split()
        if what.endswith("-of-pool"):  # not what the engine does
            continue
        channels, height, _, rows, pad, _ = LAYERS[name]
        best, its_tiles = found["times"][0]
        where = (channels, rows, height + 2 * pad - 2)
        if best >= found["now"]:
            continue
        if what == "norms":
            tiles.MEASURED[("kept" if its_tiles[5] == tiles.BY_TAPS else what, *where)] = tuple(its_tiles)
            continue
        # Those of one position are used beside blocks: where an output is flattened.
        single = [each for _, each in found["times"] if len(each) != tiles.BY_BLOCKS]
        tiles.MEASURED[(what, *where)] = tuple(single[0])
        tiles.MEASURED.pop((f"{what} by blocks", *where), None)
        if len(its_tiles) == tiles.BY_BLOCKS:
            tiles.MEASURED[(f"{what} by blocks", *where)] = tuple(its_tiles)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--runs", type=int, nargs="+", default=[1], help="trained together")
    parser.add_argument("--nets", nargs="+", default=list(NETS), choices=list(NETS))
    parser.add_argument("--rounds", type=int, default=5, help="of which each figure is the median")
    parser.add_argument("--threads", type=int, default=2, help="of a CPU")
    parser.add_argument(
        "--opacus", action="store_true", help="also Opacus' modes, one run, lots of their expected size"
    )
    parser.add_argument("--profile", action="store_true", help="the kernels of a GPU that take the most time")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument(
        "--turn", help="FOLDER/0/3: the first of three processes that compile at once, timed one by one"
    )
    parser.add_argument("--tiles", type=Path, help="of the kernels, as their tuning has written them")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.basicConfig(
        level=logging.WARNING, format="%(levelname)s %(message)s"
    )  # kernels that are not used are heard
    if chosen.tiles:
        use_tiles(chosen.tiles)
    torch.set_num_threads(chosen.threads)
    device = torch.device(chosen.device)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"torch {torch.__version__} on {where}")
    found: dict[str, dict[str, Any]] = {}
    for name in chosen.nets:
        for runs in chosen.runs:
            try:
                row = measure(name, runs, device, chosen.rounds, profile=chosen.profile, turn=chosen.turn)
            except (torch.OutOfMemoryError, RuntimeError) as trouble:
                print(f"{name}, {runs} runs: {type(trouble).__name__}: {str(trouble)[:200]}", flush=True)
                continue
            found[f"{name}, {runs} runs"] = row
            print(f"{name}, {runs} runs: " + _said(row), flush=True)
        if chosen.opacus:
            found[f"{name}, Opacus"] = opacus(name, chosen.rounds)
    if chosen.json:
        words = [word for word in sys.argv[1:] if word not in ("--json", str(chosen.json))]
        command = " ".join(["python benchmarks/convolutions.py", *words])
        facts = {"command": command, "where": where, "torch": torch.__version__, "results": found}
        chosen.json.write_text(json.dumps(facts, indent=1) + "\n")


def _said(row: dict[str, Any]) -> str:
    return ", ".join(f"{value:.3g} {key}" for key, value in row.items() if not isinstance(value, dict))


def opacus(name: str, rounds: int) -> dict[str, float]:
    """Milliseconds a step of every mode that runs."""
    import engine

    make, shape, lot = NETS[name]
    engine.RECORDS, engine.LOT = RECORDS, lot
    data = engine.Data(torch.device("cpu"), free_lots=True)
    row = {}
    for mode in ("hooks", "functorch", "ew", "ghost"):
        try:
            step = engine.opacus_step(mode, lambda: nn.Sequential(nn.Unflatten(1, shape), *make()), data)
            step()
            row[f"microseconds per step, {mode}"] = 1e6 * statistics.median(
                clock(step, torch.device("cpu")) for _ in range(rounds)
            )
        except Exception as trouble:  # a mode that does not take this model
            print(f"   Opacus {mode}: does not run here ({type(trouble).__name__}: {str(trouble)[:90]})")
    print(f"{name}, Opacus: " + ", ".join(f"{value:.3g} {key}" for key, value in row.items()), flush=True)
    return row


if __name__ == "__main__":
    main()
