"""Rules, multiples of their steps, clips, decays and averages of the last weights beside each other, on the same lots and noise.

    python benchmarks/paired.py reference --rules horizon outlook echo            # 28 settings: lot 250, 5000 steps
    python benchmarks/paired.py suite FOLDER --only A-014,A-023 --rules echo --factors 0.5 1 2 --tails 0.1 0.3

`reference` trains logistic regression and one hidden layer of 100 on four datasets under noise 1, 2, 4 and 8, and shows
accuracies. `suite FOLDER` trains settings of `suite.py` and shows their gaps to the oracle that FOLDER has kept (accuracies where
it has none).

Every run of a setting begins with the same weights and meets the same lots and noise, so that two of them differ by what they
do and hardly by luck. A rule is its own `pace`, with the records' mean log-norm known from the first step; `--tails` are parts of
the run over whose iterates the weights are averaged at its end. All of it is simulation in float32 with torch's generator: it
protects nobody.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

from honestdp.boundary.query import HALF_RANGE, Constants  # noqa: E402
from honestdp.boundary.records import prepared  # noqa: E402
from honestdp.data.named import load_dataset  # noqa: E402
from honestdp.gradients.echo import echoes  # noqa: E402
from honestdp.gradients.layout import Layout, layout_of, stack  # noqa: E402
from honestdp.optimizers.rule import rule_of  # noqa: E402
from honestdp_papers.curves import seeded  # noqa: E402
from suite_data import loaded  # noqa: E402
from suite_models import maker  # noqa: E402
from suite_settings import settings  # noqa: E402

BETA, MORE_NOISE = 0.9, 1.01
"""What asking how large the records are leaves to the gradient."""
AHEAD: dict[str, Callable[[float], float]] = {
    "sqrt": lambda part: math.sqrt(1 - part),
    "linear": lambda part: 1 - part,
    "cosine": lambda part: (1 + math.cos(math.pi * part)) / 2,
    "none": lambda part: 1.0,
}
REFERENCE = [
    ("mnist", 0), ("mnist", 100), ("fashion-mnist", 0), ("fashion-mnist", 100), ("adult", 0), ("adult", 100), ("enron", 0),
]  # fmt: skip
"""Datasets, and how wide the hidden layer is, if there is one."""


@dataclass(frozen=True)
class Task:
    name: str
    sides: tuple[Tensor, Tensor, Tensor, Tensor]
    make: Callable[[], nn.Module]
    noise: float
    lot: float
    steps: int
    oracle: float | None = None


@dataclass(frozen=True)
class Way:
    """One run of a setting."""

    rule: str
    factor: float
    clip: float
    ahead: str
    beta: float

    def __str__(self) -> str:
        words = [self.rule, f"x{self.factor:g}"]
        words += [f"clip {self.clip:g}"] * (self.clip != 1) + [self.ahead] * (self.ahead != "sqrt")
        return " ".join(words + [f"beta {self.beta:g}"] * (self.beta != momentum_of(self.rule)))


def momentum_of(rule: str) -> float:
    return 0.0 if rule_of(rule).by_echo else BETA


def paces(model: nn.Module, task: Task, rules: Sequence[str]) -> dict[str, Tensor]:
    """Of each rule the first step size of every weight, `[width]`: sizes of records are known as well as they come to be."""
    x = prepared(task.sides[0][:500], torch.float32)
    sized = x.is_floating_point()
    layout = replace(layout_of(model), entering=x[0].numel() if sized else 0)
    params = stack([model], layout, torch.device("cpu"))
    noise = torch.tensor([task.noise], dtype=torch.float64).to(params)
    constants = Constants(len(task.sides[0]), task.lot, task.steps, noise, layout, torch.ones(task.steps))
    if any(rule_of(name).by_echo for name in rules):
        constants = replace(constants, echo=echoes(model, layout, params, x[:2]))
    log_norm = float(((1 + x.flatten(1).square().sum(1)).log() / 2).clamp(0, 2 * HALF_RANGE).mean()) if sized else 0.0
    found = {}
    for name in rules:
        rule = rule_of(name)
        state = rule.init(params, constants)
        first = _level(rule, state, log_norm, constants) if "size" in state else rule.pace(state, constants)
        found[name] = first.expand(1, layout.width)[0].clone()
    return found


def _level(rule: Any, state: dict[str, Tensor], log_norm: float, constants: Constants) -> Tensor:
    """The pace, before any decay, after a million releases that said so."""
    count = torch.tensor([10**6])
    size = (log_norm * count).to(state["size"])
    if "allowed" in state:
        return rule._eta(size, count, state, constants)  # type: ignore[no-any-return]
    each, spread = rule._paces(size, count, state["through"], constants), torch.zeros_like(state["first"])
    for view, pace in zip(constants.layout.views(spread).values(), each.unbind(1), strict=True):
        view.add_(pace.view(-1, *[1] * (view.dim() - 1)))
    return spread


Sums = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Weights `[runs, width]`, examples and labels -> sums of clipped gradients over the clip, `[runs, width]`."""


def dense_sums(model: nn.Module, layout: Layout, clips: Tensor) -> Sums | None:
    """For a chain of linear layers; None of any other model."""
    parts = [part for part in model.modules() if not isinstance(part, nn.Sequential)]
    acts = {type(part) for part in parts if not isinstance(part, nn.Linear)}
    if not all(isinstance(part, (nn.Linear, nn.ReLU, nn.Tanh)) for part in parts) or len(acts) > 1:
        return None
    tanh = nn.Tanh in acts

    def sums(params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        views = list(layout.views(params).values())
        weights, biases = views[::2], views[1::2]
        flat, (runs, width) = x.flatten(1), biases[0].shape
        entered = [flat[None]]  # the same of all runs, so that one product does for them
        for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            if number:
                out = torch.baddbmm(bias[:, None], entered[-1], weight.transpose(1, 2))
            else:
                out = (flat @ weight.flatten(0, 1).t() + bias.flatten()).view(-1, runs, width).transpose(0, 1)
            entered.append(out if number == len(weights) - 1 else out.tanh() if tanh else out.relu())
        back = entered.pop().softmax(2)
        back[:, torch.arange(len(y)), y] -= 1
        backs, squares = [back], back.square().sum(2) * (1 + entered[-1].square().sum(2))
        for number in range(len(weights) - 1, 0, -1):
            here = entered[number]
            back = torch.bmm(back, weights[number]) * (1 - here.square() if tanh else here > 0)
            backs.insert(0, back)
            squares = squares + back.square().sum(2) * (1 + entered[number - 1].square().sum(2))
        weigh = (1 / squares.sqrt().clamp(min=1e-30)).minimum(1 / clips[:, None])[:, :, None]
        found = torch.empty_like(params)
        for number, view in enumerate(layout.views(found).values()):
            back = backs[number // 2] * weigh
            if number == 0:
                view.copy_((back.transpose(0, 1).flatten(1).t() @ flat).view_as(view))
            else:
                view.copy_(back.sum(1) if number % 2 else torch.bmm(back.transpose(1, 2), entered[number // 2]))
        return found

    return sums


def any_sums(model: nn.Module, layout: Layout, clips: Tensor) -> Sums:
    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, values, (x[None],)), y[None])

    each = vmap(grad(loss), (None, 0, 0))

    def sums(params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        found = torch.zeros_like(params)
        for row, whole, clip in zip(params, found, clips, strict=True):
            values = {name: value[0] for name, value in layout.views(row[None]).items()}
            for some, labels in zip(x.split(64), y.split(64), strict=True):
                gradients = torch.cat([part.flatten(1) for part in each(values, some, labels).values()], 1)
                whole += (1 / gradients.norm(dim=1).clamp(min=1e-30)).clamp(max=1 / float(clip)) @ gradients
        return found

    return sums


@torch.no_grad()
def trained(task: Task, ways: Sequence[Way], tails: Sequence[float], repeat: int) -> dict[str, float]:
    """Test accuracy of each way, in percent, and of each with its last iterates averaged."""
    x, y, tested, answers = task.sides
    model = seeded(task.make, repeat).eval()
    layout = layout_of(model)
    steps = paces(model, task, list(dict.fromkeys(way.rule for way in ways)))
    pace = torch.stack([way.factor * steps[way.rule] for way in ways])
    params = stack([model] * len(ways), layout, torch.device("cpu"))
    clips, betas = torch.tensor([way.clip for way in ways]), torch.tensor([way.beta for way in ways])[:, None]
    sums = dense_sums(model, layout, clips) or any_sums(model, layout, clips)
    first, averages = torch.zeros_like(params), {tail: torch.zeros_like(params) for tail in tails}
    more = torch.tensor([MORE_NOISE if rule_of(way.rule).asks else 1.0 for way in ways])[:, None]
    drawn, noise = torch.Generator().manual_seed(1000 + repeat), torch.empty(layout.width)
    for step in range(task.steps):
        rows = (torch.rand(len(x), generator=drawn) < task.lot / len(x)).nonzero()[:, 0]
        found = sums(params, prepared(x[rows], torch.float32), y[rows])
        noise.normal_(generator=drawn)
        found.add_(more * noise, alpha=task.noise).div_(task.lot)
        first.mul_(betas).add_((1 - betas) * found)
        ahead = torch.tensor([AHEAD[way.ahead](step / task.steps) for way in ways])[:, None]
        params.addcmul_(pace * (ahead / (1 - betas ** (step + 1))), first, value=-1)
        for tail, average in averages.items():
            if (after := step - (task.steps - math.ceil(tail * task.steps))) >= 0:
                average.lerp_(params, 1 / (after + 1))
    reached = {}
    for label, rows in {"": params, **{f" tail {tail:g}": average for tail, average in averages.items()}}.items():
        for way, row in zip(ways, rows, strict=True):
            values = {name: value[0] for name, value in layout.views(row[None]).items()}
            right = [
                (functional_call(model, values, (prepared(part, torch.float32),)).argmax(1) == answer).sum()
                for part, answer in zip(tested.split(1000), answers.split(1000), strict=True)
            ]
            reached[f"{way}{label}"] = 100 * float(sum(right)) / len(answers)
    return reached


def reference(asked: argparse.Namespace) -> Iterator[Task]:
    for name, width in REFERENCE:
        named = load_dataset(name)
        x, y, tested, answers = (
            torch.as_tensor(np.asarray(part)) for side in (named.train, named.test) for part in side
        )
        sides = x.flatten(1), y.long(), tested.flatten(1), answers.long()
        features, classes = sides[0].shape[1], named.classes

        def make(features: int = features, width: int = width, classes: int = classes) -> nn.Module:
            if not width:
                return nn.Linear(features, classes)
            return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, classes))

        for noise in asked.noises:
            yield Task(f"{name} {width or 'linear'}, noise {noise:g}", sides, make, noise, 250.0, 5000)


def suite(asked: argparse.Namespace) -> Iterator[Task]:
    for setting in settings(asked.seed, asked.count):
        if asked.only and setting.name not in asked.only.split(","):
            continue
        kept, oracle = asked.folder / "parts" / setting.name / "oracle.npz", None
        if kept.exists():
            with np.load(kept, allow_pickle=False) as arrays:
                oracle = float((100 * arrays["right"].mean(0) / arrays["tests"]).max())
        x, y, tested, answers = loaded(setting.data, "cpu")
        sides = x[: setting.records], y[: setting.records], tested, answers
        make = maker(setting.data, setting.net)
        yield Task(f"{setting.name} {setting}", sides, make, setting.noise, float(setting.lot), setting.steps, oracle)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("verb", choices=("reference", "suite"))
    parser.add_argument("folder", type=Path, nargs="?", default=HERE.parent / "results" / "suite", help="of the suite")
    parser.add_argument("--seed", default="A", help="of the suite; A if left out")
    parser.add_argument("--count", type=int, default=48, help="settings of the suite, from the first; 48 if left out")
    parser.add_argument("--only", default="", help="settings by commas; of reference, part of a name")
    parser.add_argument("--rules", nargs="+", default=["horizon", "outlook", "echo"], help="names, or echo*2")
    parser.add_argument("--factors", type=float, nargs="+", default=[1.0], help="of a rule's steps")
    parser.add_argument("--clips", type=float, nargs="+", default=[1.0], help="noise and steps stay as they are")
    parser.add_argument("--aheads", nargs="+", default=["sqrt"], choices=list(AHEAD), help="how steps decay")
    parser.add_argument(
        "--betas", type=float, nargs="+", default=[math.nan], help="of the momentum; the rule's own if left out"
    )
    parser.add_argument("--tails", type=float, nargs="*", default=[], help="parts of the run to average over")
    parser.add_argument("--noises", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0], help="of reference")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first repeat, to go on from")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no setting after so long")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    end = time.monotonic() + asked.seconds
    named = [(name, float(factor or 1)) for name, _, factor in (rule.partition("*") for rule in asked.rules)]
    ways = [
        Way(rule, own * factor, clip, ahead, momentum_of(rule) if math.isnan(beta) else beta)
        for (rule, own), factor, clip, ahead, beta in product(
            named, asked.factors, asked.clips, asked.aheads, asked.betas
        )
    ]
    for task in (reference if asked.verb == "reference" else suite)(asked):
        if time.monotonic() > end:
            break
        if asked.verb == "reference" and asked.only and not any(one in task.name for one in asked.only.split(";")):
            continue
        began = time.monotonic()
        runs = [trained(task, ways, asked.tails, asked.first + repeat) for repeat in range(asked.repeats)]
        means = {name: round(float(np.mean([run[name] for run in runs]) - (task.oracle or 0)), 2) for name in runs[0]}
        said = {"setting": task.name, "oracle": task.oracle and round(task.oracle, 2), **means}
        print(json.dumps({**said, "seconds": round(time.monotonic() - began, 1)}), flush=True)


if __name__ == "__main__":
    main()
