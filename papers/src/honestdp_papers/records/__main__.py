"""The published records, honestly: order-2 scattering features, (3, 1e-5) for everything, nothing tuned or a search inside of it.

    python -m honestdp_papers.records --quick                      # digits, on a CPU, a minute
    python -m honestdp_papers.records --prepare                    # the noises: needs the accountant
    HONESTDP_DATA=folder python -m honestdp_papers.records --list  # what is still to be made
    HONESTDP_DATA=folder python -m honestdp_papers.records --device cuda --seconds 500 [--data mnist] [--epsilon 3] [--ways ...]
    python -m honestdp_papers.records --document                   # the tables of docs/records.md, and what other pages quote

Features are `scattering.py`'s, 81 channels a colour, group-normalised image by image: no statistic of any data is in them. On
them the models of `records_models.py`: a linear one and the CNNs as Tramer & Boneh published them, and by `--models` two CNNs of
ours. Three ways, and more by words behind them, as in `--ways "untuned echo, long" "search echo"`; if left out, those of
the headline (`records_page.py`):

- `untuned`: one training with Horizon, all records, lot and steps by the public rule of `honestdp.planner.shapes`. Where the
  noises were prepared it needs torch, numpy and honestdp's source, and nothing else. `untuned echo` names another rule with
  nothing to tune.
- `search echo`: `honestdp.tune` over two rules that have nothing to tune, Horizon and today's default, Echo, the same lot and
  steps, a twentieth of the records to validate, all runs, scores and the choice inside the same epsilon. It needs
  accountants, OpenDP and cryptography besides (papers/docs/notes/records.md says how to carry them); where they are not
  installed it is left out, and that is said. Kept lines have `search` alone too, between Horizon and Outlook, which is retired.
- `pilot echo`: the same two rules by a search on a tenth of the budget, and one training on all records with what is left, by the
  rule that was chosen. Both searches are those of `records_search.py`, which has their privacy argument.
- `, long`: more and larger lots. `, centred`: features less their mean, which is released out of the same epsilon
  (`centring.py`). `, mirrored`: left and right of an image are taken for the same
  (`scattering.mirrored`; of linear models on CIFAR-10). `, scaled`: channels are divided by public constants in the place of the
  group normalisation (`scattering.scaled`; of CIFAR-10).

Test accuracy is of the public test set, after the model has left. Every cell (data, model, way, epsilon, seed) is a line of
`--out`, by default papers/results/records.jsonl; cells that are there are not made again, so the same command goes on where it
was stopped. Cells of one data set and model whose lots and steps agree are one population: all seeds of an epsilon, and
several epsilons. At the end means over seeds, beside Tramer & Boneh 2021 where they have a number: theirs do not count their
searches.

Of photographs a line also has `both`, unless the model sees both anyway: the accuracy of the same model where its logits are
averaged over an image and its mirror image. That is done to what has left, and costs nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import honestdp
from honestdp.optimizers.rule import BY_NAME
from honestdp.planner.shapes import STEPS, chosen_shape, share
from honestdp_papers.records.centring import REACH, mean_run, released_mean, run_after
from honestdp_papers.records.models import MODELS
from honestdp_papers.records.page import (
    CANDIDATES,
    EPSILONS,
    HEADLINE,
    PUBLISHED,
    RULES,
    SEEDS,
    fill,
    is_pilot,
    is_search,
    ruled,
    table,
)
from honestdp_papers.records.scattering import Scattering, mirror_image, mirrored, normalised, scaled
from honestdp_papers.run_device import end_lost, is_lost, quietly

DELTA = 1e-5
DATA = {"mnist": (60_000, 28, 1), "fashion-mnist": (60_000, 28, 1), "cifar10": (50_000, 32, 3), "digits": (1437, 8, 1)}
VALIDATION, RUNS = 0.05, 2.0  # a part of the records, and runs on average
KEPT = Path(__file__).resolve().parents[3] / "results"
NOISES, RESULTS = KEPT / "records_noises.json", KEPT / "records.jsonl"
LONG, CENTRED, MIRRORED, SCALED = KINDS = ", long", ", centred", ", mirrored", ", scaled"  # in this order
PHOTOGRAPHS = ("cifar10",)  # whose amplitudes fall as 1/f and whose mirror images are photographs, which is public
WORDS = "scattering of each image by itself, public"
Cell = tuple[str, str, str, float, int]
Found = dict[str, Any]
Sides = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


def features(images: Any, pixels: int, colours: int, device: str, way: str = "untuned") -> Tensor:
    """Bytes, or numbers from 0 to 1, to normalised scattering coefficients `[n, channels, side, side]`, on the device."""
    flat = torch.as_tensor(images)
    scatter, parts = Scattering(pixels), []
    for part in torch.split(flat, 1000):
        part = part.to(device)
        part = part.float() / 255 if part.dtype == torch.uint8 else part.float()
        made = scatter(part.reshape(-1, colours, pixels, pixels))
        made = scaled(made, pixels) if SCALED in way else made
        made = mirrored(made) if MIRRORED in way else made
        parts.append(made if SCALED in way else normalised(made))
    return torch.cat(parts)


def shape_of(name: str, epsilon: float, way: str = "untuned") -> tuple[int, float, int]:
    """Records, lot and steps, by the public rule: of a run that has the budget to itself. A long one has 2000 steps, of lots that
    keep 99 % of the signal in the place of 95: also a calculation from the budget and the number of records alone.
    """
    records, budget = DATA[name][0], honestdp.Budget(epsilon, DELTA)
    if LONG in way:
        lots = (
            lot for lot in itertools.count(100, 100) if share(budget, records=records, lot=lot, steps=STEPS) >= 0.99
        )
        return records, float(min(next(lots), records // 2)), STEPS
    chosen = chosen_shape(budget, records=records)
    return records, chosen.lot, chosen.steps


def run_of(name: str, epsilon: float, way: str = "untuned") -> honestdp.Run:
    """Lot and steps by the public rule; the noise as it was prepared for them, or by the accountant where it is installed."""
    records, lot, steps = shape_of(name, epsilon, way)
    known = json.loads(NOISES.read_text()) if NOISES.exists() else {}
    noise = known.get(_named(records, lot, steps, epsilon, way))
    if noise is not None:
        return honestdp.Run(records=records, lot=lot, steps=steps, noise=noise)
    budget = honestdp.Budget(epsilon, DELTA)
    if is_pilot(way):
        from honestdp_papers.records.search import run_after_pilot

        return run_after_pilot(budget, records=records, lot=lot, steps=steps, mean=CENTRED in way)
    return (run_after if CENTRED in way else honestdp.least_noise)(budget, records=records, lot=lot, steps=steps)


def _named(records: int, lot: float, steps: int, epsilon: float, way: str) -> str:
    kinds = f"{CENTRED if CENTRED in way else ''}{', pilot' if is_pilot(way) else ''}"
    return f"{records} {lot:g} {steps} {epsilon:g} {DELTA:g}{kinds}"


def prepare() -> None:
    NOISES.unlink(missing_ok=True)  # of a rule that was another
    noises = {}
    ways = [f"untuned{kind}" for kind in ("", LONG, CENTRED, f"{LONG}{CENTRED}")] + [f"pilot echo{CENTRED}"]
    for name, epsilon, way in itertools.product(DATA, EPSILONS, ways):
        run = run_of(name, epsilon, way)
        noises[_named(run.records, run.lot, run.steps, epsilon, way)] = run.noise
    NOISES.write_text(json.dumps(noises, indent=1) + "\n")


@dataclass(frozen=True)
class Batch:
    """Cells that are made at once: one population, or one search."""

    cells: tuple[Cell, ...]
    lot: float
    steps: int

    @property
    def name(self) -> str:
        return self.cells[0][0]

    @property
    def model(self) -> str:
        return self.cells[0][1]

    @property
    def way(self) -> str:
        return self.cells[0][2]

    @property
    def searches(self) -> bool:
        """Of a search no time is kept or told: it would tell how many runs were drawn (docs/guarantees.md)."""
        return is_search(self.way)

    def __str__(self) -> str:
        epsilons = " ".join(f"{epsilon:g}" for epsilon in dict.fromkeys(cell[3] for cell in self.cells))
        seeds = " ".join(str(seed) for seed in dict.fromkeys(cell[4] for cell in self.cells))
        return f"{self.name} {self.model} {self.way}, epsilon {epsilons}, seeds {seeds}"


def batches(cells: Sequence[Cell]) -> list[Batch]:
    """The order of the cells is kept, but for those that join an earlier one's population."""
    joined: dict[tuple[Any, ...], list[Cell]] = {}
    for number, cell in enumerate(cells):
        name, model, way, epsilon, _ = cell
        _, lot, steps = shape_of(name, epsilon, way)
        alone = (number,) if is_search(way) else (epsilon,) if CENTRED in way or is_pilot(way) else ()
        joined.setdefault((lot, steps, name, model, way, *alone), []).append(cell)
    return [Batch(tuple(found), lot=key[0], steps=key[1]) for key, found in joined.items()]


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)  # of the initial weights; lots and noise are the operating system's
    return make()


def untuned(make: Callable[[], nn.Module], data: tuple[Tensor, Tensor], batch: Batch, device: str) -> list[Any]:
    """Every run by itself meets its cell's (epsilon, delta): a table of runs, each of which is the only one of its user."""
    return trained(make, data, batch, device, [optimizer_of(batch.way)] * len(batch.cells))


def trained(
    make: Callable[[], nn.Module], data: tuple[Tensor, Tensor], batch: Batch, device: str, rules: list[str]
) -> list[Any]:
    """A run for every cell, by its rule, all of them as one population."""
    models = [seeded(make, cell[4]) for cell in batch.cells]
    runs = [run_of(batch.name, cell[3], batch.way) for cell in batch.cells]
    how: dict[str, Any] = {"compute": honestdp.Compute(device=device), "preprocessing": WORDS}
    return honestdp.train_population(models, data, run=runs, optimizers=rules, **how)


def search(make: Callable[[], nn.Module], data: tuple[Tensor, Tensor], batch: Batch, device: str) -> list[Any]:
    """The budget is for the mean too, where there was one: the selection counts it."""
    budget, model = honestdp.Budget(batch.cells[0][3], DELTA), seeded(make, batch.cells[0][4])
    how: dict[str, Any] = {"compute": honestdp.Compute(device=device), "preprocessing": WORDS}
    how |= {"validation": VALIDATION, "lot": batch.lot, "steps": batch.steps}
    if CENTRED in batch.way:
        from honestdp_papers.records.search import search_after

        how["selection"] = search_after(budget, records=DATA[batch.name][0], runs=RUNS)
    else:
        how |= {"selection": "envelope", "max_runs": RUNS}
    return [honestdp.tune(model, data, budget=budget, optimizer=CANDIDATES[kind_of(batch.way)], **how)]


def pilot(make: Callable[[], nn.Module], data: tuple[Tensor, Tensor], batch: Batch, device: str) -> list[Any]:
    """A pilot for every cell, and then all last runs as one population, each by the rule that its own pilot chose."""
    from honestdp_papers.records.search import chosen_by_pilot

    budget = honestdp.Budget(batch.cells[0][3], DELTA)
    how: dict[str, Any] = {"compute": honestdp.Compute(device=device), "preprocessing": WORDS}
    asked = how | {"budget": budget, "records": DATA[batch.name][0], "rules": CANDIDATES[kind_of(batch.way)]}
    rules = [chosen_by_pilot(seeded(make, cell[4]), data, **asked) for cell in batch.cells]
    return trained(make, data, batch, device, rules)


def kind_of(way: str) -> str:
    """Without what is done to the features, lots and steps."""
    return way.partition(",")[0]


def optimizer_of(way: str) -> str:
    """ "untuned" is Horizon; others are named behind it."""
    return kind_of(way).partition(" ")[2] or "horizon"


def way_of(text: str) -> str:
    """A way as it stands in the table."""
    kind, *others = text.split(",")
    asked = [f",{other}" for other in others]
    rules = CANDIDATES.get(kind, (optimizer_of(kind),) if kind.startswith("untuned") else ())
    known = bool(rules) and all(rule in BY_NAME for rule in rules)
    if not known or asked != [each for each in KINDS if each in asked]:
        kinds = "search echo, pilot echo, untuned horizon, untuned echo"
        words = f"{text!r} is no way: it is one of {kinds}, and behind it, in this order, any of{''.join(KINDS)[1:]}"
        raise argparse.ArgumentTypeError(words)
    return text


def ways_of(name: str, model: str) -> list[str]:
    """Those of the headline; of data that have none, centred."""
    if (name, model) in HEADLINE:
        return [ruled(name, model, kind) for kind in RULES.values()]
    return [f"{kind}{CENTRED}" for kind in RULES.values()]


def mean_of(x: Tensor, batch: Batch, device: str) -> Tensor:
    """Of the training records, as it leaves with noise. All seeds of a cell share it: that and a run are what meets the epsilon,
    and each of them is the only one of its user."""
    run = mean_run(honestdp.Budget(batch.cells[0][3], DELTA), DATA[batch.name][0])
    reach = REACH if SCALED in batch.way else 1.0
    return released_mean(x, run, device=device, preprocessing=WORDS, reach=reach)


def accuracy(
    model: nn.Module, tested: Tensor, labels: Tensor, *, mean: Tensor | float = 0.0, both: bool = False
) -> float:
    """mean: taken off the features. both: of the logits averaged over an image and its mirror image, whose features are mirrored
    before the mean is taken off: the model has learned with the mean's noise where it is."""
    model = model.to(tested.device)

    def logits(part: Tensor) -> Tensor:
        found: Tensor = model(part - mean)
        return found + model(mirror_image(part) - mean) if both else found

    with torch.no_grad():
        sides = zip(torch.split(tested, 1000), torch.split(labels, 1000), strict=True)
        return 100 * sum(int((logits(part).argmax(1) == answer).sum()) for part, answer in sides) / len(labels)


def carry_out(batch: Batch, sides: Sides, device: str) -> list[Found]:
    """A line for each cell."""
    began = time.perf_counter()
    (x, y), tested = sides
    mean = mean_of(x, batch, device) if CENTRED in batch.way else torch.zeros((), device=x.device)
    carried = search if batch.searches else pilot if is_pilot(batch.way) else untuned
    results = carried(partial(MODELS[batch.model], *x.shape[1:]), (x - mean, y), batch, device)
    found = [{"accuracy": accuracy(result.model, *tested, mean=mean)} for result in results]
    seconds = time.perf_counter() - began
    if batch.name in PHOTOGRAPHS and MIRRORED not in batch.way and batch.model != "mirror-cnn":
        for result, scores in zip(results, found, strict=True):
            scores["both"] = accuracy(result.model, *tested, mean=mean, both=True)
    return [
        {
            "cell": cell,
            **scores,
            "run": vars(result.run),
            "hyperparameters": result.hyperparameters,
            "device": device,
            **({} if batch.searches else {"seconds": round(seconds, 1)}),
            "together": len(results),
        }
        for cell, scores, result in zip(batch.cells, found, results, strict=True)
    ]


def loaded(name: str, device: str, way: str = "untuned") -> Sides:
    began = time.perf_counter()
    data, (_, pixels, colours) = honestdp.load_dataset(name), DATA[name]
    train, test = (
        (features(x, pixels, colours, device, way), torch.as_tensor(y).to(device)) for x, y in (data.train, data.test)
    )
    print(f"{name}: features {list(train[0].shape)} in {time.perf_counter() - began:.1f} s", flush=True)
    return train, test


def make_cells(asked: argparse.Namespace, todo: Sequence[Batch], until: float) -> None:
    held: dict[tuple[str, ...], Sides] = {}  # a GPU holds all of them: 20 GB
    for batch in todo:
        if time.perf_counter() > until:
            print("stopped in time; run the same again to go on", flush=True)
            return
        try:
            kind = batch.name, *(each for each in (MIRRORED, SCALED) if each in batch.way)
            held[kind] = held[kind] if kind in held else loaded(batch.name, asked.device, batch.way)
            found = carry_out(batch, held[kind], asked.device)
        except ImportError as missing:
            print(f"left out: {batch}, for {missing.name} is not installed here", flush=True)
            continue
        except RuntimeError as trouble:  # a GPU's memory, say: the others are still wanted
            print(f"failed: {batch}\n{traceback.format_exc()}", flush=True)
            if is_lost(trouble):
                end_lost("the device is lost to this process: run the same again to go on")
            continue
        with asked.out.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in found)
        several = ", ".join(f"{line['accuracy']:.2f}" for line in found)
        took = "" if batch.searches else f" in {found[0]['seconds']} s"
        print(f"{batch}: {several} %{took}", flush=True)


def remembering() -> AbstractContextManager[None]:
    """Within, seeds of one search share its calibration, which is of public numbers; where there is no accountant, nothing."""
    try:
        from honestdp.accounting.calibration import once
    except ImportError:
        return nullcontext()
    return once()


def lines(path: Path) -> list[Found]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def show(path: Path) -> None:
    print("", *table(lines(path)), sep="\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="digits at epsilon 3, one seed")
    parser.add_argument("--prepare", action="store_true", help="write the noises and stop")
    parser.add_argument("--list", action="store_true", help="what is to be made, and stop")
    parser.add_argument("--table", action="store_true", help="print the table of what is there and stop")
    parser.add_argument("--document", action="store_true", help="fill the places of pages by what is there and stop")
    parser.add_argument("--data", nargs="+", default=["mnist", "fashion-mnist", "cifar10"], choices=list(DATA))
    models = list(dict.fromkeys(model for _, model in PUBLISHED))
    parser.add_argument(
        "--models", nargs="+", default=models, choices=list(MODELS), help=f"default: {' '.join(models)}"
    )
    parser.add_argument("--all-models", action="store_true", help="CNNs of MNIST and Fashion-MNIST too")
    parser.add_argument("--ways", nargs="+", type=way_of, help="see above; those of the headline if left out")
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS), help="in this order")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so long")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="default: papers/results/records.jsonl, or records_quick.jsonl")
    return parser.parse_args()


@quietly()
def main() -> None:
    until = time.perf_counter()
    asked = arguments()
    if asked.prepare:
        prepare()
        return
    if asked.quick:
        asked.data, asked.epsilon, asked.seeds = ["digits"], [3.0], 1
    asked.out = asked.out or (RESULTS.with_name("records_quick.jsonl") if asked.quick else RESULTS)
    if asked.table:
        show(asked.out)
        return
    if asked.document:
        print("\n".join(f"{page} is filled anew" for page in fill(lines(asked.out))) or "no page has changed")
        return
    if asked.quick and not asked.list:
        asked.out.unlink(missing_ok=True)  # drawn anew each time
    done = {
        tuple(each["cell"]) for each in lines(asked.out) if "form" not in each
    }  # what a rule as it was has made is made again
    orders = itertools.product(asked.epsilon, asked.data, asked.models)
    cells = [
        (name, model, way, epsilon, seed)
        for epsilon, name, model in orders
        for way, seed in itertools.product(asked.ways or ways_of(name, model), range(asked.seeds))
    ]
    if not asked.all_models:
        cells = [cell for cell in cells if cell[1] == "linear" or cell[0] in ("cifar10", "digits")]
    cells = [cell for cell in cells if MIRRORED not in cell[2] or (cell[0] in PHOTOGRAPHS and cell[1] == "linear")]
    cells = [cell for cell in cells if SCALED not in cell[2] or cell[0] in PHOTOGRAPHS]
    cells = [cell for cell in cells if cell[1] != "mirror-cnn" or cell[0] in PHOTOGRAPHS]
    todo = batches([cell for cell in cells if cell not in done])
    if asked.list:
        for batch in todo:
            print(f"{batch}, {batch.steps} steps of lots of {batch.lot:g}")
        print(f"{len(todo)} populations and searches, on {asked.device}")
        return
    with remembering():
        make_cells(asked, todo, until + asked.seconds)
    show(asked.out)


if __name__ == "__main__":
    main()
