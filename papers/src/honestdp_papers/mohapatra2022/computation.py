"""What DPAdamWOSM saves: time and memory of a step, against DPAdam's."""

from __future__ import annotations

import numpy as np

from honestdp_papers.claims import ERRORS, Claim, Outcome, Table, judged
from honestdp_papers.mohapatra2022.setting import Pair, pair_title, pairs
from honestdp_papers.mohapatra2022.step_times import BLOCKS, OPTIMIZERS, RUNS, STEPS, name_of
from honestdp_papers.parts import Array, Arrays
from honestdp_papers.registry import Finished

ADAM, WOSM = OPTIMIZERS.index("DPAdam"), OPTIMIZERS.index("DPAdamWOSM")


def computation(parts: Finished, quick: bool) -> Outcome:
    chosen = [pair for pair in pairs(quick) if name_of(pair) in parts]
    cases = [(pair, i) for pair in chosen for i in range(len(RUNS))]
    kept = {pair: parts[name_of(pair)] for pair in chosen}
    state = [kept[pair]["state"][i, WOSM] / kept[pair]["state"][i, ADAM] for pair, i in cases]
    claims = [
        judged(
            "DPAdamWOSM keeps no second moment: less memory than DPAdam",
            [share < 1 for share in state],
            f"between steps it keeps {_range(state)} of the bytes that DPAdam keeps",
        ),
        *(
            _faster(f"DPAdamWOSM needs less computation than DPAdam: {words}", [kept[p][k][i] for p, i in cases])
            for k, words in (("update", "the optimizer's own part of a step"), ("step", "a whole step"))
        ),
    ]
    rows = [_row(kept[pair], pair, i, j) for pair, i in cases for j in range(len(OPTIMIZERS))]
    header = ["dataset, model", "runs together", "optimizer", "a step, ms", "its update, ms", "kept between steps, MB",
              "most at once, MB"]  # fmt: skip
    numbers = {
        pair_title(pair): {name: np.asarray(values).tolist() for name, values in arrays.items()}
        for pair, arrays in kept.items()
    }
    notes = [
        "A whole step draws the lot, computes and clips gradients, adds noise and updates the weights; the update is the only "
        "part in which the two optimizers differ. Runs are trained together as a search trains its candidates.",
        f"Median over {3 if quick else BLOCKS} blocks of {STEPS} steps; what differs by less than {ERRORS:g} standard errors "
        "over the blocks cannot be told. A whole step is captured and replayed on a GPU, and an update by itself is not, so "
        "that it can take longer than the step it is a part of. The most at once counts the whole training of 40 runs, data "
        "and gradients too; it is not measured on a CPU.",
        "DPAdamWOSM as in the published code (`pyvacy/optim/optimizer.py`) still computes the second moment and leaves it "
        "unused; here it is not computed.",
    ]
    return Outcome(claims, numbers, [Table("Time and memory", header, rows, digits=3)], notes)


def _range(shares: list[float]) -> str:
    least, most = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return least if least == most else f"{least} to {most}"


def _faster(words: str, times: list[Array]) -> Claim:
    saved: list[float] = []
    cases: list[bool | None] = []
    for blocks in times:
        adam, wosm = blocks[ADAM], blocks[WOSM]
        gap = float(np.median(adam) - np.median(wosm))
        error = float(np.hypot(adam.std(ddof=1), wosm.std(ddof=1)) / np.sqrt(len(adam)))
        saved.append(gap / float(np.median(adam)))
        cases.append(None if abs(gap) < ERRORS * error else gap > 0)
    return judged(words, cases, f"it takes from {1 - max(saved):.2f} to {1 - min(saved):.2f} of DPAdam's time")


def _row(arrays: Arrays, pair: Pair, i: int, j: int) -> list[str | float]:
    peak = float(arrays["peak"][i, j]) / 1e6
    return [
        pair_title(pair),
        str(RUNS[i]),
        OPTIMIZERS[j],
        1e3 * float(np.median(arrays["step"][i, j])),
        1e3 * float(np.median(arrays["update"][i, j])),
        float(arrays["state"][i, j]) / 1e6,
        peak if peak and RUNS[i] > 1 else "",
    ]
