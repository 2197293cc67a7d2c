"""What a training of galli2024 takes here: seconds of a run's step, of its look at the test set, and before the first step.

    python benchmarks/galli_pace.py [--device cuda] [--tasks mnist fashion] [--runs 40 200] [--profile] [--json pace.json]

Steps are those of Online, made as the parts make them, in blocks of 50 of which 48 are replayed from a graph. With --profile on a
GPU also the 20 kernels of a block, and of a look, that take the most time. The numbers belong
into `price` and `look` of honestdp_papers/galli2024/setting.py, by which `run_device galli2024 --list` and `--within` reckon.
HONESTDP_DATA names the folder of the datasets.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from convolutions import top_kernels  # noqa: E402
from honestdp.boundary.capture import free_captured  # noqa: E402
from honestdp.boundary.seed import Seed  # noqa: E402
from honestdp.gradients.layout import stack  # noqa: E402
from honestdp.training.population import Population  # noqa: E402
from honestdp_papers.curves import placed, seeded  # noqa: E402
from honestdp_papers.galli2024 import setting, training  # noqa: E402
from honestdp_papers.galli2024.exam import Exam  # noqa: E402

TASKS = {"mnist": setting.MNIST, "fashion": setting.FASHION, "words": setting.STANDIN, "stride1": setting.UNSTRIDED}


def now(place: torch.device) -> float:
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    return time.perf_counter()


def measured(
    task: setting.Task, runs: int, place: torch.device, blocks: int, profile: bool = False
) -> dict[str, float]:
    """Of a population of Online: seconds, and GiB a run where there is a GPU."""
    began = now(place)
    intake, exam = training.taken_in(task, place)
    before = torch.cuda.memory_allocated(place) if place.type == "cuda" else 0
    if place.type == "cuda":
        torch.cuda.reset_peak_memory_stats(place)
    starts = stack([seeded(task.make, seed % 5) for seed in range(runs)], intake.layout, place)
    rules = [training.rule_of(setting.ONLINE, (0.3162,))] * runs
    noises = np.full(runs, 1.5)
    population = training.population_of(intake, task, rules, noises, starts, Seed.fixed(1))
    population.block()
    first = now(place)
    found = {"before": first - began, "steps of it": float(population.step)}
    done = population.step
    for _ in range(blocks):
        population.block()
    found["step"] = (now(place) - first) / runs / (population.step - done)
    print(f"{task.name}, {runs} runs: {1e6 * found['step']:.0f} us a run-step", flush=True)
    weights = population.weights()
    found |= {"look": _look(exam, weights, place)}
    if profile and place.type == "cuda":
        _profiled(population, exam, weights)
    if exam._links is not None:
        kept, exam._links = exam._links, None
        found["look by torch"] = _look(exam, weights[:8], place)
        exam._links = kept
    if place.type == "cuda":
        found["GiB"] = (torch.cuda.max_memory_allocated(place) - before) / 2**30 / runs
    del population, weights, starts
    free_captured()
    return found


def _profiled(population: Population, exam: Exam, weights: torch.Tensor) -> None:
    """Print the kernels of a block, in microseconds of a run's step, and of a look."""
    done, runs = population.step, len(weights)
    top_kernels(population.block, lambda: runs * (population.step - done), most=20)
    print("   a look:")
    top_kernels(lambda: exam.measured(weights), runs, most=20)


def _look(exam: Exam, weights: torch.Tensor, place: torch.device) -> float:
    """Seconds of a run's look at the test set, after a first one."""
    exam.measured(weights)
    began = now(place)
    exam.measured(weights)
    return (now(place) - began) / len(weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["mnist", "fashion"])
    parser.add_argument("--runs", nargs="+", type=int, default=[40, 200])
    parser.add_argument("--blocks", type=int, default=1, help="blocks of 50 steps that are timed, after one")
    parser.add_argument("--profile", action="store_true", help="also which kernels the time goes to")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    chosen = parser.parse_args()
    place, rows = placed(chosen.device), []
    for name in chosen.tasks:
        for runs in chosen.runs:
            task = TASKS[name]
            found = measured(task, runs, place, chosen.blocks, chosen.profile)
            speed = task.lot * task.flops / found["step"] / 1e12
            told = ", ".join(f"{what} {1e6 * value:.0f} us" for what, value in found.items() if "look" in what)
            print(
                f"{name}, {runs} runs: {1e6 * found['step']:.0f} us a run-step ({speed:.1f} TFLOP/s), {told}, "
                f"{found['before']:.1f} s for the first {found['steps of it']:.0f} steps, {found.get('GiB', 0):.2f} GiB a run",
                flush=True,
            )
            rows.append({"task": name, "runs": runs, **found})
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
