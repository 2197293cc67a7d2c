"""Time and memory of one training step, per run, against Opacus (all its modes) and jax-privacy.

    python benchmarks/engine.py [--device cuda] [--runs 1 16] [--strict] [--json results.json]

Every case is DPSGD at lot 250 on data of MNIST's size (60000 records of 784 bytes; the values do not matter to the
time). All cases run in this process, one after the other, round by round, and each figure is the median over the
rounds, so that a ratio compares like with like. Every library draws true Poisson lots by its own sampler (Opacus'
UniformWithReplacementSampler, jax-privacy's CyclicPoissonSampling) and gathers them by tensor indexing. With
--free-lots the peers get lots of the expected size, prepared outside the clock; ours are drawn all the same. Memory is
the peak above what was held before the first step. Peers are imported from the folder carry/ beside benchmarks/ if they
are not installed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.util
import itertools
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
if (ROOT / "carry").is_dir():
    sys.path.append(str(ROOT / "carry"))

from tests.mnist_models import MODELS  # noqa: E402

from honestdp import Compute, Run, optimizers  # noqa: E402
from honestdp.training.spec import TrainSpec  # noqa: E402
from honestdp.training.train import assemble  # noqa: E402

RECORDS, LOT, NOISE, CLIP, LR = 60000, 250, 4.0, 1.0, 0.1
Step = Callable[[], None]


class Data:
    """Random pixels and labels, and, where the peers' lots are free, some of exactly the expected size."""

    def __init__(self, device: torch.device, *, free_lots: bool) -> None:
        self.free_lots = free_lots
        maker = torch.Generator().manual_seed(1)
        self.x = torch.randint(0, 256, (RECORDS, 784), dtype=torch.uint8, generator=maker).to(device)
        self.y = torch.randint(0, 10, (RECORDS,), generator=maker).to(device)
        self.lots = [torch.randint(0, RECORDS, (LOT,), generator=maker).to(device) for _ in range(64)]


def ours(make: Callable[[], nn.Module], data: Data, runs: int, *, strict: bool) -> tuple[Step, int]:
    """A block of steps of every run, in the chunks that a training would choose, and how many steps that is."""
    run = Run(records=RECORDS, lot=LOT, steps=100_000, noise=NOISE)
    rules = [optimizers.SGD(lr=LR, clip=CLIP)] * runs
    job = assemble(
        make,
        (data.x, data.y),
        run=run,
        optimizers=rules,
        spec=TrainSpec(compute=Compute(device=data.x.device), strict=strict),
    )
    populations = [job.population(chunk) for chunk in job.chunks()]

    def step() -> None:
        for population in populations:
            population.block()

    step()
    return step, populations[0].step


def opacus_step(mode: str, make: Callable[[], nn.Module], data: Data) -> Step:
    from opacus.grad_sample import (
        GradSampleModule,
        GradSampleModuleExpandedWeights,
        GradSampleModuleFastGradientClipping,
    )
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    module = make().to(data.x.device)
    criterion = nn.CrossEntropyLoss()
    common = {"noise_multiplier": NOISE, "max_grad_norm": CLIP, "expected_batch_size": LOT}
    if mode == "ghost":
        wrapped = GradSampleModuleFastGradientClipping(module, max_grad_norm=CLIP, use_ghost_clipping=True)
        optimizer = DPOptimizerFastGradientClipping(torch.optim.SGD(wrapped.parameters(), lr=LR), **common)
        criterion = DPLossFastGradientClipping(wrapped, optimizer, criterion)
    else:
        if mode == "ew":
            wrapped = GradSampleModuleExpandedWeights(module)
        else:
            wrapped = GradSampleModule(module, force_functorch=mode == "functorch")
        optimizer = DPOptimizer(torch.optim.SGD(wrapped.parameters(), lr=LR), **common)
    lots = itertools.cycle(data.lots) if data.free_lots else map(torch.tensor, _opacus_lots())

    def step() -> None:
        lot = next(lots).to(data.x.device)
        x, y = data.x.index_select(0, lot).float().mul_(1 / 255), data.y.index_select(0, lot)
        optimizer.zero_grad()
        criterion(wrapped(x), y).backward()
        optimizer.step()

    return step


def _opacus_lots() -> Iterator[list[int]]:
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler

    return iter(UniformWithReplacementSampler(num_samples=RECORDS, sample_rate=LOT / RECORDS, steps=10**9))


def jax_step(name: str, make: Callable[[], nn.Module], data: Data) -> Step:
    """The compiled step of one run, weights donated, the way the package's examples are written."""
    import jax
    import jax.numpy as jnp
    import jax_privacy

    if data.x.is_cuda and jax.default_backend() != "gpu":
        raise RuntimeError(f"jax sees no GPU here, its backend is {jax.default_backend()}")
    weights = [jnp.asarray(p.detach().cpu().numpy()) for p in make().parameters()]

    def logits(params, x):
        if name == "small CNN":
            return _jax_cnn(params, x)
        for i in range(0, len(params) - 2, 2):
            x = jax.nn.relu(x @ params[i].T + params[i + 1])
        return x @ params[-2].T + params[-1]

    def loss(params, x, y):
        scores = jax.nn.log_softmax(logits(params, x))
        return -jnp.take_along_axis(scores, y[:, None], axis=1).mean()

    gradient = jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP, normalize_by=LOT, batch_argnums=(1, 2))

    def update(params, key, pixels, labels, lot):
        x, y = pixels[lot] * jnp.float32(1 / 255), labels[lot]
        found = gradient(params, x, y, is_padding_example=lot < 0)
        key, *keys = jax.random.split(key, len(params) + 1)
        blur = NOISE * CLIP / LOT
        noised = [g + blur * jax.random.normal(k, g.shape) for g, k in zip(found, keys, strict=True)]
        return [p - LR * g for p, g in zip(params, noised, strict=True)], key

    compiled = jax.jit(update, donate_argnums=(0, 1))
    pixels, labels = jnp.asarray(data.x.cpu().numpy()), jnp.asarray(data.y.cpu().numpy().astype("int32"))
    prepared = itertools.cycle([jnp.asarray(lot.cpu().numpy().astype("int32")) for lot in data.lots])
    lots = prepared if data.free_lots else _jax_lots()
    holder = [weights, jax.random.key(1), 0]

    def step() -> None:
        weights, key, turn = holder
        new, key = compiled(weights, key, pixels, labels, next(lots))
        holder[:] = [new, key, turn + 1]
        if turn % 16 == 15:
            jax.block_until_ready(new)

    return step


def _jax_lots() -> Iterator[Any]:
    """Poisson lots padded to one shape by -1, so that the step is compiled once."""
    import numpy as np
    from jax_privacy import batch_selection

    width = LOT + math.ceil(4.5 * math.sqrt(LOT))
    plan = batch_selection.CyclicPoissonSampling(LOT / RECORDS, 10**9, truncated_batch_size=width)
    for lot in plan.batch_iterator(RECORDS, rng=1):
        padded = np.full(width, -1, dtype=np.int32)
        padded[: len(lot)] = lot
        yield padded


def _jax_cnn(params, x):
    import jax
    from jax import lax

    def conv(x, weight, bias, stride, pad):
        out = lax.conv_general_dilated(x, weight, (stride, stride), [(pad, pad)] * 2)
        return jax.nn.relu(out + bias[:, None, None])

    def pool(x):
        return lax.reduce_window(x, -float("inf"), lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")

    x = pool(conv(x.reshape(-1, 1, 28, 28), params[0], params[1], 2, 3))
    x = pool(conv(x, params[2], params[3], 2, 0)).reshape(x.shape[0], -1)
    return jax.nn.relu(x @ params[4].T + params[5]) @ params[6].T + params[7]


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(step: Step, count: int, device: torch.device) -> float:
    wait(device)
    began = time.perf_counter()
    for _ in range(count):
        step()
    wait(device)
    return (time.perf_counter() - began) / count


def peak_memory(make_step: Callable[[], Step], device: torch.device) -> tuple[Step, float]:
    """The step, and the peak memory in MiB of making it and running it a few times (state included)."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step = make_step()
        for _ in range(3):
            step()
        return step, (torch.cuda.max_memory_allocated() - before) / 2**20
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    step = make_step()
    for _ in range(3):
        step()
    return step, (_status("VmHWM") - before) / 1024


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def cases(name: str, data: Data, runs: list[int], *, strict: bool) -> dict[str, dict[str, object]]:
    """label -> step, how many runs and steps one call makes, peak memory."""
    make, device = MODELS[name], data.x.device
    found: dict[str, dict[str, object]] = {}
    for count, mapped in itertools.product(runs, [False, True] if strict else [False]):
        made: list[int] = []

        def make_ours(count: int = count, mapped: bool = mapped, made: list[int] = made) -> Step:
            step, steps = ours(make, data, count, strict=mapped)
            made.append(steps)
            return step

        step, memory = peak_memory(make_ours, device)
        found[f"honestdp{' strict' if mapped else ''}, {count} runs"] = {
            "step": step,
            "share": count * made[0],
            "calls": 1,
            "memory": memory,
        }
    peers: dict[str, Callable[[], Step]] = {}
    if importlib.util.find_spec("opacus"):
        for mode in ("hooks", "functorch", "ew", "ghost"):
            peers[f"opacus {mode}"] = lambda mode=mode: opacus_step(mode, make, data)
    if importlib.util.find_spec("jax_privacy"):
        peers["jax-privacy"] = lambda: jax_step(name, make, data)
    for label, build in peers.items():
        try:
            step, memory = peak_memory(build, device)
        except Exception as trouble:
            print(f"  {label}: does not run here ({type(trouble).__name__}: {str(trouble)[:90]})")
            continue
        once = seconds(step, 2, device)
        found[label] = {"step": step, "share": 1, "calls": max(2, min(32, int(0.2 / once))), "memory": memory}
    return found


def measure(name: str, data: Data, runs: list[int], rounds: int, *, strict: bool) -> dict[str, dict[str, float]]:
    found = cases(name, data, runs, strict=strict)
    times: dict[str, list[float]] = {label: [] for label in found}
    for _ in range(rounds):
        for label, case in found.items():
            times[label].append(seconds(case["step"], case["calls"], data.x.device) / case["share"])
    return {
        label: {"microseconds per run and step": 1e6 * statistics.median(times[label]), "MiB": case["memory"]}
        for label, case in found.items()
    }


def show(name: str, rows: dict[str, dict[str, float]]) -> None:
    key = "microseconds per run and step"
    opacus = min((row[key] for label, row in rows.items() if label.startswith("opacus")), default=None)
    jax = rows.get("jax-privacy", {}).get(key)
    print(f"\n{name}\n{'':28}{'us/run/step':>12}{'peak MiB':>10}{'x opacus':>10}{'x jax-p.':>10}")
    for label, row in rows.items():
        ratios = [f"{peer / row[key]:10.2f}" if peer else f"{'-':>10}" for peer in (opacus, jax)]
        print(f"{label:28}{row[key]:12.1f}{row['MiB']:10.1f}{''.join(ratios)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--runs", type=int, nargs="+", default=None, help="how many of ours are trained together")
    parser.add_argument("--rounds", type=int, default=7, help="of which each figure is the median")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--free-lots", action="store_true", help="give the peers their lots outside the clock")
    parser.add_argument("--strict", action="store_true", help="ours also with each example under a map of its own")
    parser.add_argument("--json", type=Path, help="write the figures there")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device(chosen.device)
    data = Data(device, free_lots=chosen.free_lots)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    lots = "lots given to the peers" if chosen.free_lots else "every library draws its own Poisson lots"
    print(f"torch {torch.__version__} on {where}; lot {LOT}, {RECORDS} records; {lots}")
    everything = {}
    for name in chosen.models:
        rows = measure(
            name,
            data,
            chosen.runs or ([1, 40] if device.type == "cuda" else [1, 16]),
            chosen.rounds,
            strict=chosen.strict,
        )
        show(name, rows)
        everything[name] = rows
    if chosen.json:
        chosen.json.write_text(
            json.dumps(
                {
                    "command": _command(),
                    "where": where,
                    "torch": torch.__version__,
                    "lots": lots,
                    "results": everything,
                },
                indent=1,
            )
        )


def _command() -> str:
    """How this was called, but for where the results went."""
    words = sys.argv[1:]
    at = words.index("--json")
    return " ".join(["python benchmarks/engine.py", *words[:at], *words[at + 2 :]])


if __name__ == "__main__":
    main()
