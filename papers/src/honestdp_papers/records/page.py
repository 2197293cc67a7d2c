"""What `records.py` found, in words: the table that it prints, and the places of pages that `records.py --document` fills.

    <!-- records/epsilons -->
    ...
    <!-- /records/epsilons -->

The headline is not picked cell by cell. The models are Tramer & Boneh's. Lot and steps are by the public rule, features centred,
and for photographs scaled, and mirrored where the model is linear, as was taken on held-out training images
(docs/notes/records.md). Side by side stand Horizon, the default when the first lines were made, Echo, the default since, and one
training by whichever of the two a pilot search has chosen. What was not measured is an empty cell.

A line with a `form` was made in another way than today's, under the same words. FORMS has them. Such a line is of a way of its
own, with a mark behind the rule, stands in for today's until its cell is made again, and is never averaged with others. It stays
when that is done: it was a look at a test set.
"""

from __future__ import annotations

import itertools
import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
PAGES = tuple(
    ROOT / page for page in ("README.md", "docs/index.md", "papers/docs/records.md", "papers/docs/notes/records.md")
)
PUBLISHED = {  # Tramer & Boneh 2021, at epsilon 3, their searches not counted
    ("mnist", "linear"): 98.7,
    ("fashion-mnist", "linear"): 89.7,
    ("cifar10", "linear"): 67.0,
    ("mnist", "published-cnn"): 98.7,
    ("fashion-mnist", "published-cnn"): 89.0,
    ("cifar10", "published-cnn"): 69.3,
}
OURS = {  # networks that nobody published, beside the number of the published one
    (name, model): PUBLISHED[name, "published-cnn"]
    for name, model in (("cifar10", "mirror-cnn"), ("mnist", "cnn"), ("fashion-mnist", "cnn"), ("cifar10", "cnn"))
}
HEADLINE = {
    (name, model): "untuned, centred" + (", mirrored" if (name, model) == ("cifar10", "linear") else "")
    for name, model in (*PUBLISHED, *OURS)
}
HEADLINE |= {key: f"{way}, scaled" for key, way in HEADLINE.items() if key[0] == "cifar10"}
RULES = {"Horizon": "untuned", "Echo": "untuned echo", "search, then one training": "pilot echo"}
"""Ways to set the step, side by side."""
CANDIDATES = {"search echo": ("horizon", "echo"), "pilot echo": ("horizon", "echo"), "search": ("horizon", "outlook")}
"""What a search decides between: rules that have nothing to tune."""
EPSILONS, SEEDS = (3.0, 2.0, 1.0, 0.5), 5
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
NAMES |= {
    "linear": "linear",
    "published-cnn": "CNN",
    "cnn": "CNN, ours",
    "mirror-cnn": "CNN of both mirror images, ours",
}
DATA = tuple(dict.fromkeys(name for name, _ in PUBLISHED))
DEVICES = {"cuda": "GPU", "cpu": "CPU"}
WIDTH = 120
EARLIER, ADDED, AGAIN = " †", " ‡", " §"
FORMS = {
    "before 2026-11-18": EARLIER,  # Echo had a momentum, and let a network's outputs be moved by 1
    "mean by addition": ADDED,  # of a search: the mean had 2 % of epsilon and a tenth of delta, by plain addition
    "made again": AGAIN,  # the same, whose test on both mirror images mirrored the mean too
}
DIGIT = 0.05  # half of the last digit of what is published
Found = dict[str, Any]
Accuracies = dict[tuple[str, str, str, float], list[float]]


def grouped(lines: Sequence[Found]) -> Accuracies:
    """Accuracies of all seeds by data, model, way and epsilon. Those of an earlier form are of a way of their own."""
    found: Accuracies = {}
    for line in lines:
        name, model, way, epsilon, _ = line["cell"]
        found.setdefault((name, model, earlier(way, _mark(line)), epsilon), []).append(line["accuracy"])
    return found


def is_search(way: str) -> bool:
    """Whether its winner is the model. Of such a search no time is told: its number of runs is secret."""
    return way.startswith("search")


def is_pilot(way: str) -> bool:
    """Whether a search comes before the training."""
    return way.startswith("pilot")


def earlier(way: str, mark: str = EARLIER) -> str:
    """A way as it was: "untuned echo †, centred"."""
    kind, comma, others = way.partition(",")
    return f"{kind}{mark}{comma}{others}"


def plain(way: str) -> str:
    """Without the mark of an earlier form."""
    for mark in FORMS.values():
        way = way.replace(mark, "")
    return way


def of_today(known: Accuracies, name: str, model: str, way: str, epsilon: float) -> tuple[list[float] | None, str]:
    """Accuracies of a way as it is, else as it was, with the mark of the latter."""
    for mark in ("", *FORMS.values()):
        if found := known.get((name, model, earlier(way, mark), epsilon)):
            return found, mark
    return None, ""


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


def reaches(found: Sequence[float], published: float) -> bool:
    """Whether the mean is not below a number that was rounded to one digit."""
    return statistics.mean(found) >= published - DIGIT


def ruled(name: str, model: str, kind: str) -> str:
    """The headline way of a model with its step set in another way."""
    return kind + HEADLINE[name, model].removeprefix("untuned")


def headline(lines: Sequence[Found], models: dict[tuple[str, str], float] = PUBLISHED) -> Iterator[str]:
    """Horizon, Echo and a search at epsilon 3 beside what is published."""
    known, theirs = grouped(lines), "published" if models is PUBLISHED else "published, of another network"
    yield f"| data | model | {' | '.join(RULES)} | {theirs} |"
    yield "|---|---|" + "---|" * len(RULES) + "---|"
    for (name, model), published in models.items():
        found = [of_today(known, name, model, ruled(name, model, kind), 3.0) for kind in RULES.values()]
        if not any(each for each, _ in found) and models is not PUBLISHED:
            continue
        cells = " | ".join(_judged_cell(each, published, mark) for each, mark in found)
        yield f"| {NAMES[name]} | {NAMES[model]} | {cells} | {published} |"


def ours(lines: Sequence[Found]) -> Iterator[str]:
    """The same of networks that are ours, where there are lines."""
    yield from headline(lines, OURS)


def epsilons(lines: Sequence[Found]) -> Iterator[str]:
    """Horizon, Echo and a search at every epsilon, where there are lines."""
    known = grouped(lines)
    yield "| data | model | step by | " + " | ".join(f"epsilon {each:g}" for each in EPSILONS) + " |"
    yield "|---|---|---|" + "---|" * len(EPSILONS)
    for (name, model), (words, kind) in itertools.product(HEADLINE, RULES.items()):
        found = [of_today(known, name, model, ruled(name, model, kind), each) for each in EPSILONS]
        if any(each for each, _ in found):
            cells = " | ".join(_spread(each) + mark for each, mark in found)
            yield f"| {NAMES[name]} | {NAMES[model]} | {words} | {cells} |"


def ways(lines: Sequence[Found]) -> Iterator[str]:
    """Everything, a way a line, and what it was made on."""
    known = grouped(lines)
    yield "| data | model | way | " + " | ".join(f"epsilon {each:g}" for each in EPSILONS) + " |"
    yield "|---|---|---|" + "---|" * len(EPSILONS)
    for name, model in HEADLINE:
        in_headline = [ruled(name, model, kind) for kind in RULES.values()]
        for way in sorted({key[2] for key in known if key[:2] == (name, model)}, key=_order):
            words = f"**{way}**" if plain(way) in in_headline else way
            cells = (known.get((name, model, way, each)) for each in EPSILONS)
            yield f"| {NAMES[name]} | {NAMES[model]} | {words} | " + " | ".join(map(_spread, cells)) + " |"


def sentence(lines: Sequence[Found]) -> Iterator[str]:
    """For newcomers: every number of the headline beside the published one. CNNs are the published ones once all are measured."""
    known, rules, marks = grouped(lines), list(RULES)[:2], set[str]()
    whole = all((*key, HEADLINE[key], 3.0) in known for key in PUBLISHED)
    told: dict[str, list[str]] = {"linear": [], "cnn": []}
    for (name, model), theirs in PUBLISHED.items():
        shown = model if whole or model == "linear" else "cnn"
        several = [of_today(known, name, shown, ruled(name, shown, RULES[rule]), 3.0) for rule in rules]
        marks |= {mark for _, mark in several}
        found = {rule: each for rule, (each, _) in zip(rules, several, strict=True) if each}
        reached = [rule for rule, each in found.items() if reaches(each, theirs)]
        missed = "" if len(reached) == len(found) else f", which `{reached[0]}` alone reaches" if reached else _MISSED
        numbers = " and ".join(f"{statistics.mean(each):.2f}" for each in found.values())
        told["linear" if model == "linear" else "cnn"].append(f"{numbers} on {NAMES[name]} ({theirs}{missed})")
    text = (
        "Beside published records, those of Tramer & Boneh 2021 in brackets, whose searches are not in their epsilon: on "
        "scattering features, at epsilon 3 and delta 1e-5 for everything that reads a record and with nothing tuned, test "
        f"accuracies of `Horizon` and then of `Echo`, {_ECHO[EARLIER in marks]}, are {_listed(told['linear'])} with linear "
        f"models, and {_listed(told['cnn'])} with {'their CNNs' if whole else 'CNNs, which are ours and not theirs'}."
    )
    yield textwrap.fill(text + _searched(known), WIDTH, break_on_hyphens=False)


_ECHO = {False: "today's default", True: "the default, in its form before 2026-11-18"}


def _searched(known: Accuracies) -> str:
    """The same of a pilot and a training on the published models, once all are measured."""
    found = {key: known.get((*key, ruled(*key, "pilot echo"), 3.0)) for key in PUBLISHED}
    told: dict[str, list[str]] = {"linear models": [], "their CNNs": []}
    missed = []
    for (name, model), each in found.items():
        if not each:
            return ""
        fewer = "" if len(each) == SEEDS else f" ({len(each)} {'seeds' if len(each) > 1 else 'seed'})"
        told["linear models" if model == "linear" else "their CNNs"].append(f"{statistics.mean(each):.2f}{fewer}")
        if not reaches(each, PUBLISHED[name, model]):
            missed.append(f"{NAMES[name]}'s {'linear model' if model == 'linear' else 'CNN'}")
    numbers = ", and ".join(f"{_listed(several)} with {which}" for which, several in told.items())
    last = f"below what is published for {_listed(missed)}" if missed else "nowhere below what is published"
    words = "Where a search between the two comes first, on a tenth of the same epsilon's budget, one training with the rest has"
    return f" {words} {numbers}: {last}."


_MISSED = ", which is not reached"


def made(lines: Sequence[Found]) -> Iterator[str]:
    """On which devices, and what has fewer seeds than the others."""
    counts = Counter((_sort(line["cell"][2]), line["device"]) for line in lines)
    several = [f"{sort} on a {DEVICES[device]}: {count}" for (sort, device), count in counts.items()]
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
    yield "| data | model | epsilon | | between | search | untuned | chosen | noise of a run, of the untuned one's |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for (name, model), epsilon, kind in itertools.product(HEADLINE, EPSILONS, CANDIDATES):
        way, alone = ruled(name, model, kind), HEADLINE[name, model]
        found, mark = of_today(known, name, model, way, epsilon)
        made, untuned = (
            [line for line in lines if (*line["cell"][:4], _mark(line)) == (name, model, each, epsilon, own)]
            for each, own in ((way, mark), (alone, ""))
        )
        if not found or not untuned:
            continue
        noises = [statistics.mean(line["run"]["noise"] for line in each) for each in (made, untuned)]
        chosen = Counter(line["hyperparameters"]["optimizer"] for line in made).most_common()
        told = [NAMES[name], NAMES[model], f"{epsilon:g}", kind.split()[0] + mark, ", ".join(CANDIDATES[kind])]
        told += [_spread(found), _spread(known[name, model, alone, epsilon])]
        told += [", ".join(f"{rule} {count}" for rule, count in chosen), f"{noises[0] / noises[1]:.2f}"]
        yield f"| {' | '.join(told)} |"


def both(lines: Sequence[Found]) -> Iterator[str]:
    """Models tested on an image, and on it and its mirror image."""
    twice = [line for line in lines if any(kind in line for kind in BOTH)]
    if not twice:
        yield "Not measured yet."
        return
    alone = grouped(twice)
    averaged = [grouped([line | {"accuracy": line[kind]} for line in twice if kind in line]) for kind in BOTH]
    yield f"| data | model | way | epsilon | an image | {' | '.join(BOTH.values())} |"
    yield "|---|---|---|---|---|" + "---|" * len(BOTH)
    for (name, model, way, epsilon), found in alone.items():
        told = " | ".join(map(_spread, (found, *(each.get((name, model, way, epsilon)) for each in averaged))))
        yield f"| {NAMES[name]} | {NAMES[model]} | {way} | {epsilon:g} | {told} |"


BOTH = {"both": "and its mirror image", "both_of_centred": "the same, the mean's noise mirrored too"}
"""What a line may have besides: the second is of lines that were made before the mean was taken off after the mirroring."""


def looks(lines: Sequence[Found]) -> Iterator[str]:
    """How often this table has looked at each test set."""
    by_data = Counter(line["cell"][0] for line in lines)
    twice = sum(any(kind in line for kind in BOTH) for line in lines)
    several = _listed([f"{by_data[name]} on {NAMES[name]}" for name in DATA])
    text = f"- The table: {sum(by_data.values())} models, each scored once on its test set: {several}."
    text += f" {twice} of them were scored once more, on images and their mirror images." if twice else ""
    yield textwrap.fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


PLACES: dict[str, Callable[[Sequence[Found]], Iterator[str]]] = {
    "sentence": sentence,
    "headline": headline,
    "ours": ours,
    "both": both,
    "epsilons": epsilons,
    "ways": ways,
    "made": made,
    "searches": searches,
    "looks": looks,
}


def filled(text: str, lines: Sequence[Found]) -> str:
    """A page's text with what the lines say in its places."""
    from honestdp_papers.document import placed

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


def _judged_cell(found: Sequence[float] | None, published: float, mark: str = "") -> str:
    """The mean over seeds and their range, and what they are beside a published number; fewer seeds are said."""
    if not found:
        return ""
    fewer = "" if len(found) == SEEDS else f", of {len(found)}"
    return f"**{statistics.mean(found):.2f}** ({_range(found)}{fewer}): {judged(found, published)}{mark}"


def _mark(line: Found) -> str:
    return FORMS[line["form"]] if "form" in line else ""


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
    return is_search(way) or is_pilot(way), way.partition(",")[0], way.count(","), way


def _sort(way: str) -> str:
    return "Searches" if is_search(way) else "Pilots with their training" if is_pilot(way) else "Trainings"
