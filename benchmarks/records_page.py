"""What `records.py` found, in words: the table that it prints, and the places of pages that `records.py --document` fills.

    <!-- records/epsilons -->
    ...
    <!-- /records/epsilons -->

One way is the headline of each data set and model, named here and not picked cell by cell: Horizon, the default of that time,
lot and steps by the public rule, features centred, and for photographs scaled, and mirrored where the model is linear, as was
taken on held-out training images (docs/notes/records.md).
"""

from __future__ import annotations

import itertools
import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = tuple(ROOT / page for page in ("README.md", "docs/index.md", "docs/records.md", "docs/notes/records.md"))
PUBLISHED = {  # Tramer & Boneh 2021, at epsilon 3, their searches not counted
    ("mnist", "linear"): 98.7,
    ("fashion-mnist", "linear"): 89.7,
    ("cifar10", "linear"): 67.0,
    ("mnist", "cnn"): 98.7,
    ("fashion-mnist", "cnn"): 89.0,
    ("cifar10", "cnn"): 69.3,
}
HEADLINE = dict.fromkeys(PUBLISHED, "untuned, centred") | {
    ("cifar10", "linear"): "untuned, centred, mirrored, scaled",
    ("cifar10", "cnn"): "untuned, centred, scaled",
}
EPSILONS, SEEDS = (3.0, 2.0, 1.0, 0.5), 5
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "linear": "linear", "cnn": "CNN"}
DATA = tuple(dict.fromkeys(name for name, _ in PUBLISHED))
DEVICES = {"cuda": "GPU", "cpu": "CPU"}
WIDTH = 120
DIGIT = 0.05  # half of the last digit of what is published
Found = dict[str, Any]
Accuracies = dict[tuple[str, str, str, float], list[float]]


def grouped(lines: Sequence[Found]) -> Accuracies:
    """Accuracies of all seeds by data, model, way and epsilon."""
    found: Accuracies = {}
    for line in lines:
        name, model, way, epsilon, _ = line["cell"]
        found.setdefault((name, model, way, epsilon), []).append(line["accuracy"])
    return found


def table(lines: Sequence[Found]) -> Iterator[str]:
    yield "| data | model | way | epsilon | accuracy, mean (range) | seeds | Tramer & Boneh 2021 |"
    yield "|---|---|---|---|---|---|---|"
    for (name, model, way, epsilon), found in sorted(grouped(lines).items()):
        theirs = PUBLISHED.get((name, model), "") if epsilon == 3 else ""
        told = f"{statistics.mean(found):.2f} ({_range(found)})"
        yield f"| {name} | {model} | {way} | {epsilon:g} | {told} | {len(found)} | {theirs} |"


def judged(found: Sequence[float], published: float) -> str:
    """Of all seeds, beside a number that was rounded to one digit."""
    if min(found) > published + DIGIT:
        return "above"
    return "below" if max(found) < published - DIGIT else "level"


def headline(lines: Sequence[Found]) -> Iterator[str]:
    """The headline way at epsilon 3 beside what is published."""
    known = grouped(lines)
    yield "| data | model | here: mean of five seeds (range) | published | here is | way |"
    yield "|---|---|---|---|---|---|"
    for (name, model), theirs in PUBLISHED.items():
        found = known[name, model, HEADLINE[name, model], 3.0]
        told = f"**{statistics.mean(found):.2f}** ({_range(found)})"
        verdict, way = judged(found, theirs), HEADLINE[name, model]
        yield f"| {NAMES[name]} | {NAMES[model]} | {told} | {theirs} | {verdict} | `{way}` |"


def epsilons(lines: Sequence[Found]) -> Iterator[str]:
    """The headline way at every epsilon."""
    known = grouped(lines)
    yield "| data | model | " + " | ".join(f"epsilon {each:g}" for each in EPSILONS) + " |"
    yield "|---|---|" + "---|" * len(EPSILONS)
    for name, model in PUBLISHED:
        cells = (known.get((name, model, HEADLINE[name, model], each)) for each in EPSILONS)
        yield f"| {NAMES[name]} | {NAMES[model]} | " + " | ".join(map(_spread, cells)) + " |"


def ways(lines: Sequence[Found]) -> Iterator[str]:
    """Everything, a way a line, and what it was made on."""
    known = grouped(lines)
    yield "| data | model | way | " + " | ".join(f"epsilon {each:g}" for each in EPSILONS) + " |"
    yield "|---|---|---|" + "---|" * len(EPSILONS)
    for name, model in PUBLISHED:
        for way in sorted({key[2] for key in known if key[:2] == (name, model)}, key=_order):
            words = f"**{way}**" if way == HEADLINE[name, model] else way
            cells = (known.get((name, model, way, each)) for each in EPSILONS)
            yield f"| {NAMES[name]} | {NAMES[model]} | {words} | " + " | ".join(map(_spread, cells)) + " |"


def sentence(lines: Sequence[Found]) -> Iterator[str]:
    """For newcomers: every number of the headline beside the published one."""
    known, told = grouped(lines), dict[str, list[str]]()
    for (name, model), theirs in PUBLISHED.items():
        found = known[name, model, HEADLINE[name, model], 3.0]
        missed = ", which is not reached" if judged(found, theirs) == "below" else ""
        told.setdefault(model, []).append(f"{statistics.mean(found):.2f} on {NAMES[name]} ({theirs}{missed})")
    text = (
        "Beside published records, those of Tramer & Boneh 2021 in brackets, whose searches are not in their epsilon: on "
        "scattering features, at epsilon 3 and delta 1e-5 for everything that reads a record, `Horizon` with nothing tuned has a "
        f"test accuracy of {_listed(told['linear'])} with linear models, and of {_listed(told['cnn'])} with CNNs."
    )
    yield textwrap.fill(text, WIDTH, break_on_hyphens=False)


def made(lines: Sequence[Found]) -> Iterator[str]:
    """On which devices, and what has fewer seeds than the others."""
    counts = Counter((line["cell"][2].startswith("search"), line["device"]) for line in lines)
    several = [
        f"{'Searches' if is_search else 'Trainings'} on a {DEVICES[device]}: {count}"
        for (is_search, device), count in counts.items()
    ]
    fewer = [
        f"{NAMES[name]} {NAMES[model]} `{way}` at epsilon {epsilon:g} ({len(found)})"
        for (name, model, way, epsilon), found in grouped(lines).items()
        if len(found) != SEEDS
    ]
    text = f"{'. '.join(several)}. Mean ± standard deviation of {SEEDS} seeds"
    text += f", fewer for {_listed(fewer)}." if fewer else "."
    yield textwrap.fill(text, WIDTH, break_on_hyphens=False)


def searches(lines: Sequence[Found]) -> Iterator[str]:
    """A search beside one training with nothing to tune: accuracies, what was chosen, and noise of a run."""
    known = grouped(lines)
    yield "| data | model | epsilon | search | untuned | chosen | noise of a run, of the untuned one's |"
    yield "|---|---|---|---|---|---|---|"
    for (name, model), epsilon in itertools.product(PUBLISHED, EPSILONS):
        way = HEADLINE[name, model]
        cells = [
            [line for line in lines if tuple(line["cell"][:4]) == (name, model, each, epsilon)]
            for each in (_search(way), way)
        ]
        if not all(cells):
            continue
        noises = [statistics.mean(line["run"]["noise"] for line in each) for each in cells]
        chosen = Counter(line["hyperparameters"]["optimizer"] for line in cells[0]).most_common()
        told = [NAMES[name], NAMES[model], f"{epsilon:g}"]
        told += [_spread(known[name, model, each, epsilon]) for each in (_search(way), way)]
        told += [", ".join(f"{rule} {count}" for rule, count in chosen), f"{noises[0] / noises[1]:.2f}"]
        yield f"| {' | '.join(told)} |"


def looks(lines: Sequence[Found]) -> Iterator[str]:
    """How often this table has looked at each test set."""
    by_data = Counter(line["cell"][0] for line in lines)
    several = _listed([f"{by_data[name]} on {NAMES[name]}" for name in DATA])
    text = f"- The table: {sum(by_data.values())} models, each scored once on its test set: {several}."
    yield textwrap.fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


PLACES: dict[str, Callable[[Sequence[Found]], Iterator[str]]] = {
    "sentence": sentence,
    "headline": headline,
    "epsilons": epsilons,
    "ways": ways,
    "made": made,
    "searches": searches,
    "looks": looks,
}


def filled(text: str, lines: Sequence[Found]) -> str:
    """A page's text with what the lines say in its places."""
    from honestdp_papers.places import placed

    for name, tell in PLACES.items():
        text = placed(text, f"records/{name}", "".join(f"{line}\n" for line in tell(lines)))
    return text


def fill(lines: Sequence[Found]) -> list[Path]:
    """Fill the places of all pages that have some; those that have changed."""
    changed = []
    for page in PAGES:
        before = page.read_text()
        if (after := filled(before, lines)) != before:
            page.write_text(after)
            changed.append(page)
    return changed


def _search(way: str) -> str:
    return "search" + way.removeprefix("untuned")


def _listed(several: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(several[:-1]), several[-1])))


def _range(found: Sequence[float]) -> str:
    return f"{min(found):.2f} to {max(found):.2f}"


def _spread(found: Sequence[float] | None) -> str:
    if not found:
        return ""
    mean = f"{statistics.mean(found):.2f}"
    return f"{mean} ± {statistics.stdev(found):.2f}" if len(found) > 1 else mean


def _order(way: str) -> tuple[Any, ...]:
    return way.startswith("search"), way.partition(",")[0], way.count(","), way
