"""Per-example gradients of a population: time and memory beside plain `vmap(grad)`, and that both agree.

    python benchmarks/gradients.py --device cpu
    python benchmarks/gradients.py --device cuda      # steps are captured in a CUDA graph, and the replay is checked

One line a model and number of runs: milliseconds for norms and one weighted sum, medians of interleaved repeats.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from honestdp.gradients import per_example  # noqa: E402

Sums = dict[str, Tensor]
Step = Callable[[], Sums]


def logistic() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def hidden() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


def convolutions() -> nn.Module:
    """The small network of the private MNIST tutorials."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


class Words(nn.Module):
    """Pixels as words: an embedding, a norm and a linear layer at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(16, 32), nn.LayerNorm(32)
        self.mix, self.head = nn.Linear(32, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        words = (x.flatten(1)[:, :64] * 16).long().clamp(0, 15)
        return self.head(self.mix(self.norm(self.table(words))).relu().mean(1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "logistic regression": logistic,
    "one hidden layer of 100": hidden,
    "small CNN": convolutions,
    "embedding and norm": Words,
}


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none")


def ours(model: nn.Module, params: Sums, x: Tensor, y: Tensor) -> Step:
    def step() -> Sums:
        result = per_example(model, cross_entropy, params, x, y)
        return result.weighted_sum((1 / result.norms).clamp(max=1))

    return step


def mapped(model: nn.Module, params: Sums, x: Tensor, y: Tensor) -> Step:
    def one(own: Sums, example: Tensor, label: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, own, (example[None],)), label[None])[0]

    each = vmap(vmap(grad(one), in_dims=(None, 0, 0)))

    def step() -> Sums:
        made = each(params, x, y)
        norms = torch.stack([value.flatten(2).square().sum(2) for value in made.values()]).sum(0).sqrt()
        weights = (1 / norms).clamp(max=1)
        return {name: torch.einsum("rl,rl...->r...", weights, value) for name, value in made.items()}

    return step


def captured(step: Step) -> Step:
    """The step as a CUDA graph, after the warm-up on a side stream that capture asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay() -> Sums:
        graph.replay()
        return result

    return replay


def milliseconds(steps: dict[str, Step], *, repeats: int, cuda: bool) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(repeats + 2):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if cuda:
                torch.cuda.synchronize()
            if turn >= 2:
                times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def furthest(one: Sums, other: Sums) -> float:
    """The largest difference of two sums, relative to the norm of the whole."""
    whole = torch.stack([value.flatten().norm() for value in other.values()]).norm()
    return max(((one[name] - other[name]).norm() / whole).item() for name in other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--lot", type=int, default=250)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    chosen = parser.parse_args()
    cuda = chosen.device.startswith("cuda")
    torch.backends.cudnn.allow_tf32 = False  # convolutions too keep all digits, or the two ways would differ by 1e-4
    torch.manual_seed(0)
    for name in chosen.models:
        for runs in chosen.runs:
            model = MODELS[name]().to(chosen.device)
            params = {key: several(value.detach(), runs) for key, value in model.named_parameters()}
            x = torch.rand(runs, chosen.lot, 1, 28, 28, device=chosen.device)
            y = torch.randint(0, 10, (runs, chosen.lot), device=chosen.device)
            report(name, runs, ours(model, params, x, y), mapped(model, params, x, y), chosen.repeats, cuda=cuda)


def several(value: Tensor, runs: int) -> Tensor:
    """`[runs, ...]`: the value with a little noise of its own for every run."""
    return value + 0.05 * torch.randn(runs, *value.shape, device=value.device)


def report(name: str, runs: int, own: Step, plain: Step, repeats: int, *, cuda: bool) -> None:
    wrong = furthest(own(), plain())
    if wrong > 1e-4:
        raise SystemExit(f"{name}, {runs} runs: sums differ by {wrong:.1e}")
    steps = {"ours": own, "vmap(grad)": plain}
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        own()
        peak = (torch.cuda.max_memory_allocated() - before) / 2**20
        steps["ours, captured"] = captured(own)
        if furthest(steps["ours, captured"](), plain()) > 1e-4:
            raise SystemExit(f"{name}, {runs} runs: the captured step gives another sum")
    times = milliseconds(steps, repeats=repeats, cuda=cuda)
    shown = "  ".join(f"{key} {value:.3f} ms" for key, value in times.items())
    print(f"{name}, {runs} runs: {shown}" + (f"  peak {peak:.0f} MiB" if cuda else ""), flush=True)


if __name__ == "__main__":
    main()
