"""The noises of table 1: ADADP's, found by its printed accuracy, and for every selection the least that meets ADADP's budget.

    python -m honestdp_papers.koskela2020.table1_noise --out papers/results

reads ADADP's trainings on CIFAR-10 (parts `cifar10/sigma*/ADADP-published`, made by `run_device koskela2020/table1 --only
'*ADADP-published'`), finds the sigma at which their mean accuracy is the printed one, and writes `table1_noise.json` beside this
file. The trainings of the selections read the file, so that a bare GPU machine needs no accountants. Without such trainings a
provisional sigma is taken, and the file says so.

ADADP is that of the published code here, from which the printed numbers are: the text's rule, whose steps are some three times
as long, does not reach the printed accuracy at any sigma of the paper.

Liu & Talwar's searches are accounted as in the paper, by moments, at what ADADP's run costs by moments. Today's selections are
given what one run costs by the tight accountant (PLD), which is less.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from honestdp_papers.koskela2020.setting import CIFAR, DELTA, LOT, half_decades
from honestdp_papers.koskela2020.training import PUBLISHED, epochs_of, optimizer_part, part_name, sized
from honestdp_papers.parts import RESULTS, is_usable, read
from honestdp_papers.registry import parts_folder

FILE = Path(__file__).with_name("table1_noise.json")
GAMMAS = tuple(2.0**-i for i in range(9, 0, -1))
QUICK_GAMMAS = (2.0**-7, 2.0**-4, 2.0**-1)
SIZES, QUICK_SIZES = half_decades(1, 10), half_decades(1, 10)[::3]
"""Step sizes of the candidates."""
ADADP_NOISES = (1.0, 1.5, 2.0, 4.0, 6.0, 8.0)
PRINTED, PROVISIONAL = 63.49, 4.0
COVERAGE = 0.9


def liu_talwar(gamma: float) -> str:
    return f"liu-talwar 2^{int(np.log2(gamma))}"


WINNER, STOPPING = "winner", ("papernot-steinke", "envelope")


def noises(quick: bool) -> dict[str, Any]:
    """As written: `adadp`, `provisional`, `epsilon` by accountant, and `noise` by selection."""
    found: dict[str, Any] = json.loads(FILE.read_text())["quick" if quick else "full"]
    return found


def selections(quick: bool) -> dict[str, Any]:
    """Every selection by name, as the accountants know it. Needs them."""
    from honestdp.selection import LiuTalwar, named
    from honestdp.selection.counts import mean_for_coverage

    candidates = len(QUICK_SIZES if quick else SIZES)
    runs = mean_for_coverage(COVERAGE, candidates=candidates, shape=1.0)
    found: dict[str, Any] = {
        liu_talwar(gamma): LiuTalwar(gamma=gamma, accountant="moments") for gamma in (QUICK_GAMMAS if quick else GAMMAS)
    }
    return found | {WINNER: named(WINNER, candidates=candidates)} | {name: named(name, runs=runs) for name in STOPPING}


def found_noise(accuracies: dict[float, float], printed: float = PRINTED) -> float:
    """The noise at which the accuracy is the printed one, between two that were trained; the nearer end where it is beyond."""
    noise = sorted(accuracies)
    values = [accuracies[one] for one in noise]
    # Accuracy falls with the noise: numpy wants it to rise.
    return float(np.exp(np.interp(-printed, [-value for value in values], np.log(noise))))


def _trained(out: Path) -> dict[float, float]:
    """Mean accuracies of ADADP at the end, by noise, as far as they were trained."""
    folder, found = parts_folder(out, "koskela2020", False), {}
    for noise in ADADP_NOISES:
        part = optimizer_part(CIFAR, PUBLISHED, noise, False)
        if is_usable(part, folder):
            kept, _ = read(part, folder)
            found[noise] = 100 * float(kept["right"][:, 0, -1].mean()) / float(kept["tests"])
    return found


def computed(quick: bool, adadp: float, provisional: bool, tell: Callable[[str], None] = print) -> dict[str, Any]:
    from honestdp import Budget, least_noise
    from honestdp.accounting import epsilon

    task = sized(CIFAR, quick)
    run = task.run(noise=adadp, epochs=epochs_of(quick))
    spent = {name: epsilon(run.event, delta=DELTA, accountant=name) for name in ("moments", "pld")}
    noise = {}
    for name, selection in selections(quick).items():
        budget = Budget(spent["moments" if name.startswith("liu") else "pld"], DELTA)
        found = least_noise(budget, records=run.records, lot=LOT, steps=run.steps, selection=selection).noise
        noise[name] = found  # with every digit: a little more noise may cost more by the accountant's grid
        tell(f"{name}: sigma {noise[name]:g} at epsilon {budget.epsilon:.3f}")
    return {"adadp": adadp, "provisional": provisional, "epsilon": spent, "noise": noise}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help=f"where parts are kept; {RESULTS} if left out")
    accuracies = _trained(parser.parse_args().out)
    enough = len(accuracies) > 1
    sigma = round(found_noise(accuracies), 3) if enough else PROVISIONAL
    for noise, value in accuracies.items():
        print(f"{part_name(CIFAR, PUBLISHED, noise)}: {value:.2f} %")
    print(f"ADADP at {PRINTED} %: sigma {sigma:g}{'' if enough else ' (provisional: nothing is trained)'}")
    written = {"full": computed(False, sigma, not enough), "quick": computed(True, PROVISIONAL, False)}
    FILE.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
