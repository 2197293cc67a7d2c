"""Judges and draws a kept result of `honest` again, from the accuracies that it holds, where its parts are not kept.

    python -m honestdp_papers.mohapatra2022.honest_again

reads `honest.json` and writes it and its figure anew: claims, tables and figure are those of today's code, the accuracies and how
they were made are as they were. What only the trainings tell, how many of them a search made, is left out of the notes.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from honestdp_papers.claims import Outcome
from honestdp_papers.mohapatra2022.honest import outcome_of
from honestdp_papers.mohapatra2022.honest_cases import Case, Cell, title_of
from honestdp_papers.mohapatra2022.honest_training import OPTIMIZERS, SELECTIONS, SINGLE, epsilons, pairs
from honestdp_papers.mohapatra2022.setting import RELU, Pair, pair_title
from honestdp_papers.parts import RESULTS, write_whole
from honestdp_papers.registry import result_file
from honestdp_papers.results import readable

KEPT = (
    "The accuracies are those of an earlier run, in our form, whose parts were not kept; claims, tables and figure were made "
    "from them again."
)


def judged_again(accuracies: dict[str, dict[str, list[float]]]) -> Outcome:
    cases, present = [], []
    for epsilon in epsilons(False):
        for pair in pairs(False):
            kept = next((accuracies[name] for name in _names(pair, epsilon) if name in accuracies), None)
            if kept is None:
                continue
            cells = {(o, s): Cell(kept[f"{o}, {s}"]) for o in OPTIMIZERS for s in SELECTIONS}
            cases.append(Case(title_of(pair), epsilon, cells, Cell(kept[SINGLE])))
            present += [pair] if pair not in present else []
    outcome = outcome_of(cases, present, quick=False)
    return replace(outcome, notes=[*outcome.notes, KEPT])


def _names(pair: Pair, epsilon: float) -> list[str]:
    """As the case is called now, as it was called when there was one form of MNIST, and when there was one network."""
    titles = [title_of(pair), pair_title(pair), f"{pair[0].title}, {pair[1].replace(RELU, 'TLNN')}"]
    return [f"{title}, epsilon {epsilon:g}" for title in titles]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    file = result_file(parser.parse_args().out, "mohapatra2022", "honest", False)
    result = json.loads(file.read_text())
    outcome = judged_again(result["numbers"]["accuracies"])
    assert outcome.draw is not None
    outcome.draw(file.with_suffix(".png"))
    again = "python -m honestdp_papers.mohapatra2022.honest_again"
    made = {**result["made"], "command": again}
    write_whole(file, readable({**result, **outcome.as_dict(), "made": made}).encode())


if __name__ == "__main__":
    main()
