"""What the suite found: how far a rule is from the best of 48 candidates, in points of test accuracy, over all settings.

The best candidate of a setting has the highest mean over its repeats, on the test records. That is generous to it: among 48
means the highest is too high by their noise. Beside it stands the gap to a candidate that was chosen by the other repeats and is
measured by one left out, each in turn (`fair`): what a search that pays nothing reaches. It is hard on the candidates where there
are two repeats, for then one run of each chooses; the truth is between the two. Of one repeat there is no such number.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from honestdp_papers.parts import Array, Part, is_usable, read
from honestdp_papers.suite.settings import CANDIDATES, CLIPS, FAMILIES, STEP_SIZES, Setting
from honestdp_papers.suite.work import Named, oracle_part, rule_part

BELOW = -0.5


@dataclass(frozen=True)
class Found:
    """One setting. Accuracies and gaps are in percent and points; of a rule that is not trained yet there are none.

    chance: the part of the largest class. noise: the deviation of a run of the best candidate. border: the best candidate has the
    largest or the smallest step size and might be better beyond.
    """

    setting: Setting
    oracle: float
    fair: float | None
    median: float
    best: tuple[float, float]
    chance: float
    noise: float | None
    rules: dict[str, tuple[float, float]]
    seconds: float

    @property
    def border(self) -> bool:
        lr, clip = self.best
        return lr * clip in (STEP_SIZES[0] * CLIPS[0], STEP_SIZES[-1] * CLIPS[-1])

    def gap(self, rule: str) -> float:
        return self.rules[rule][0] - self.oracle

    def as_dict(self) -> dict[str, Any]:
        gaps = {
            rule: {"accuracy": round(mean, 3), "gap": round(self.gap(rule), 3), "deviation": round(spread, 3)}
            for rule, (mean, spread) in self.rules.items()
        }
        return {
            "setting": self.setting.identity, "oracle": round(self.oracle, 3), "fair": self.fair, "best": self.best,
            "median": round(self.median, 3), "largest class": round(self.chance, 3), "rules": gaps, "seconds": self.seconds,
        }  # fmt: skip


def found(settings: Sequence[Setting], rules: Sequence[Named], folder: Path) -> list[Found]:
    """Of every setting whose candidates are trained."""
    return [of_setting(setting, rules, folder) for setting in settings if kept(oracle_part(setting), folder)]


def kept(part: Part, folder: Path) -> bool:
    return is_usable(part, folder)


def of_setting(setting: Setting, rules: Sequence[Named], folder: Path) -> Found:
    arrays, about = read(oracle_part(setting), folder)
    accuracy = 100 * arrays["right"] / int(arrays["tests"])
    means = accuracy.mean(0)
    best, took, own = int(means.argmax()), about["seconds"], {}
    for named in rules:
        if kept(part := rule_part(setting, named), folder):
            numbers, about = read(part, folder)
            runs = 100 * numbers["right"][:, 0] / int(numbers["tests"])
            own[named.called], took = (float(runs.mean()), float(runs.std(ddof=1))), took + about["seconds"]
    return Found(
        setting,
        float(means[best]),
        left_out(accuracy),
        float(np.median(means)),
        CANDIDATES[best],
        100 * int(arrays["largest"]) / int(arrays["tests"]),
        float(accuracy[:, best].std(ddof=1)) if len(accuracy) > 1 else None,
        own,
        round(took, 1),
    )


def beside(settings: Sequence[Setting], rules: Sequence[Named], folder: Path) -> list[dict[str, Any]]:
    """Mean accuracies of the rules in settings in which all of them are trained, whether or not the oracle is."""
    rows = []
    for setting in settings:
        parts = {named.called: rule_part(setting, named) for named in rules}
        if all(kept(part, folder) for part in parts.values()):
            numbers = {called: read(part, folder)[0] for called, part in parts.items()}
            means = {called: 100 * float(each["right"].mean()) / int(each["tests"]) for called, each in numbers.items()}
            rows.append({"setting": setting.name, "words": str(setting), "accuracies": means})
    return rows


def beside_table(rows: Sequence[dict[str, Any]], rules: Sequence[Named]) -> str:
    first, *others = [named.called for named in rules]
    lines = [_row("setting", "", first, *(f"{rule} minus {first}" for rule in others)), "|---" * (2 + len(rules)) + "|"]
    gaps: dict[str, list[float]] = {
        rule: [row["accuracies"][rule] - row["accuracies"][first] for row in rows] for rule in others
    }
    for number, row in enumerate(rows):
        cells = [f"{gaps[rule][number]:+.2f}" for rule in others]
        lines.append(_row(row["setting"], row["words"], f"{row['accuracies'][first]:.2f}", *cells))
    for name, told in (("mean", statistics.mean), ("median", statistics.median), ("worst", min)):
        if rows and others:
            lines.append(_row(name, f"{len(rows)} settings", "", *(f"{told(gaps[rule]):+.2f}" for rule in others)))
    return "\n".join(lines)


def left_out(accuracy: Array) -> float | None:
    """The mean accuracy `[repeats, candidates]` of the candidate that the other repeats choose, over the repeat left out."""
    if len(accuracy) < 2:
        return None
    others = accuracy.sum(0) - accuracy
    return round(float(accuracy[np.arange(len(accuracy)), others.argmax(1)].mean()), 3)


def summary(rows: Sequence[Found], rule: str) -> dict[str, dict[str, float]]:
    """Numbers of a rule by family, and of all settings it was trained on."""
    told = {}
    for family in ("all", *FAMILIES):
        some = [row for row in rows if rule in row.rules and family in ("all", row.setting.family)]
        if not some:
            continue
        gaps, fair = (
            [row.gap(rule) for row in some],
            [row.rules[rule][0] - row.fair for row in some if row.fair is not None],
        )
        told[family] = {
            "settings": len(some),
            "mean": round(statistics.mean(gaps), 3),
            "median": round(statistics.median(gaps), 3),
            "worst": round(min(gaps), 3),
            "below": sum(gap < BELOW for gap in gaps),
            **({"fair mean": round(statistics.mean(fair), 3), "fair worst": round(min(fair), 3)} if fair else {}),
        }
    return told


def tables(rows: Sequence[Found], rules: Sequence[Named]) -> str:
    """Two tables of markdown: by rule and family, and by setting."""
    lines = [
        f"| rule | family | settings | mean | median | worst | below {BELOW:g} | fair mean | fair worst |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for named in rules:
        for family, numbers in summary(rows, named.called).items():
            gaps = [
                f"{numbers[key]:+.2f}" if key in numbers else ""
                for key in ("mean", "median", "worst", "fair mean", "fair worst")
            ]
            gaps.insert(3, str(numbers["below"]))
            lines.append(f"| {named.called} | {family} | {numbers['settings']} | {' | '.join(gaps)} |")
    called = [named.called for named in rules]
    lines += [
        "",
        _row("setting", "", "best of 48 (lr, clip)", "largest class", *called),
        "|---" * (4 + len(called)) + "|",
    ]
    for row in rows:
        gaps = [f"{row.gap(rule):+.2f}" if rule in row.rules else "" for rule in called]
        best = f"{row.oracle:.2f} ({row.best[0]:g}, {row.best[1]:g})"
        lines.append(_row(row.setting.name, str(row.setting), best, f"{row.chance:.0f}", *gaps))
    border = sum(row.border for row in rows)
    lines += ["", f"{len(rows)} settings; in {border} the best candidate is the largest or the smallest of all"]
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def as_dict(rows: Sequence[Found], rules: Sequence[Named]) -> dict[str, Any]:
    return {
        "rules": {named.called: summary(rows, named.called) for named in rules},
        "settings": [row.as_dict() for row in rows],
    }
