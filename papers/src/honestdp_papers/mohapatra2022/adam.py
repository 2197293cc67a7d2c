"""Section 6: the step size that DPAdam converges to, and the time and memory that DPAdamWOSM saves.

Theorem 3. Where noise dominates, the second moment of the released gradient is (sigma C / L)^2, so Adam's effective
step size a / (sqrt(v) + xi) converges to a / (sigma C / L + xi). Both are compared on every dataset and model of figure
4, over its whole training.

Computation. A step is timed whole (lot, gradients, noise, update) and the update alone, for one run and for a
population, which is how a search trains. Memory is what the optimizer keeps between steps, and on a GPU the most that a
step held at once.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from honestdp.boundary.capture import free_captured
from honestdp.boundary.query import Constants, Release
from honestdp.boundary.seed import Seed
from honestdp.optimizers import Adam, Rule
from honestdp.optimizers.adam import XI
from honestdp.optimizers.rule import stack_rules
from honestdp_papers.claims import ERRORS, OURS, Claim, Outcome, Table, judged
from honestdp_papers.curves import Bench, placed, seeded
from honestdp_papers.look import named, pages, shared_legend
from honestdp_papers.mohapatra2022.setting import CLIPS, EVERY, LOT, Pair, grid, model_of, pair_name, pair_title, pairs
from honestdp_papers.mohapatra2022.training import step_cost
from honestdp_papers.parts import Array, Arrays, Finished, Part, Tell

NOISE, QUANTILES = 4.0, (0.05, 0.5, 0.95)
QUICK_STEPS = 500


def parts(quick: bool) -> list[Part]:
    """Every dataset and model, DPAdam with the four clips, as long as it is trained in figure 4."""
    return [_part(pair, quick) for pair in pairs(quick)]


def name_of(pair: Pair) -> str:
    return f"theorem3/{pair_name(pair)}"


def _part(pair: Pair, quick: bool) -> Part:
    steps = QUICK_STEPS if quick else pair[0].steps
    identity = {"dataset": pair[0].name, "model": pair[1], "steps": steps, "every": EVERY, "noise": NOISE}

    def work(device: str, tell: Tell) -> Arrays:
        return {"ratio": _ratios(pair, steps, device, tell), "every": np.array(EVERY)}

    return Part(name_of(pair), identity, 1 + steps * (1e-4 + len(CLIPS) * step_cost(pair)), work)


def _ratios(pair: Pair, steps: int, device: str, tell: Tell) -> Array:
    """Adam's effective step size over the predicted one: quantiles over the weights, `[clips, looks, quantiles]`."""
    task, kind = pair
    dataset, place = task.dataset, placed(device)
    rules, run = [Adam(clip=clip) for clip in CLIPS], task.run(noise=NOISE, steps=steps)
    make = model_of(kind, features=dataset.features, classes=dataset.classes)
    bench = Bench(seeded(make, 0), dataset.train, place, records=task.records)
    starts = bench.starts(make, [0], each=len(CLIPS))
    population = bench.population(run, rules, starts, Seed.fixed(3).child(0), every=EVERY)
    predicted = 1 / (NOISE * torch.tensor(CLIPS, device=place)[:, None] / LOT + XI)
    levels = torch.tensor(QUANTILES, device=place)
    found = []
    while population.step < steps:
        population.block()
        if population.step % EVERY == 0:
            moment = population.state["second"] / (1 - Adam(clip=1.0).beta2 ** population.step)
            ratio = 1 / (moment.sqrt() + XI) / predicted
            found.append(torch.quantile(ratio, levels, dim=1).T.cpu().numpy())
            tell(population.step / steps)
    return np.stack(found, axis=1).astype(np.float32)


CONVERGED = 0.05
"""Of the predicted step size, within which the measured one has converged to it."""


def theorem3(parts: Finished, quick: bool) -> Outcome:
    chosen = pairs(quick)
    ratio = {pair: parts[name_of(pair)]["ratio"] for pair in chosen}
    every = int(parts[name_of(chosen[0])]["every"])
    last = {(pair, clip): found[i, -1] for pair, found in ratio.items() for i, clip in enumerate(CLIPS)}
    middle = {key: abs(float(value[1]) - 1) for key, value in last.items()}
    whole = {key: max(abs(float(value[0]) - 1), abs(float(value[2]) - 1)) for key, value in last.items()}
    close, all_close = ([off <= CONVERGED for off in each.values()] for each in (middle, whole))
    worst = max(middle, key=lambda key: middle[key])
    claims = [
        judged(
            "DPAdam's effective step size converges to a / (sigma C / L + xi)",
            close,
            f"at the last step the median over the weights is within {CONVERGED:.0%} of it in {sum(close)} of {len(close)} cases "
            f"(every dataset, model and clip); at most {middle[worst]:.1%} off ({pair_title(worst[0])}, clip {worst[1]:g})",
        ),
        judged(
            "Ours, sharper: so does that of nearly every weight",
            all_close,
            f"the 5 % and the 95 % quantile over the weights are both within {CONVERGED:.0%} in {sum(all_close)} of "
            f"{len(all_close)} cases; the theorem asks for gradients near 0, which not every weight has",
            kind=OURS,
        ),
    ]
    rows: list[list[str | float]] = [
        [pair_title(pair), clip, *(float(v) for v in value)] for (pair, clip), value in last.items()
    ]
    table = Table(
        "Effective step size over the predicted one at the last step, quantiles over the weights",
        ["dataset, model", "clip", *(f"{q:.0%}" for q in QUANTILES)],
        rows,
        digits=3,
    )
    numbers = {
        "every": every,
        "clips": list(CLIPS),
        "ratio": {pair_title(pair): np.asarray(r, float).round(4).tolist() for pair, r in ratio.items()},
    }
    notes = [
        f"One training for each dataset, model and clip at sigma {NOISE:g}, as long as in figure 4. The paper derives the "
        "claim and shows no numbers for it. A band in the figure holds 90 % of the weights; where one line alone is seen, those "
        "of the four clips lie on one another."
    ]
    if quick:
        notes.append("Quick version: a few hundred steps.")
    return Outcome(claims, numbers, [table], notes, draw=lambda file: _draw_ratios(file, ratio, every))


def _draw_ratios(file: Path, ratio: dict[Pair, Array], every: int) -> None:
    with pages(file, len(ratio), height=2.5) as axes:
        for one, (pair, found) in zip(axes, ratio.items(), strict=True):
            steps = (np.arange(found.shape[1]) + 1) * every
            for i, clip in enumerate(CLIPS):
                one.plot(steps, found[i, :, 1], label=f"clip {clip:g}", linewidth=1.4)
                one.fill_between(steps, found[i, :, 0], found[i, :, 2], alpha=0.15)
            one.axhline(1, color="black", linestyle=":", label="predicted")
            named(one, pair_title(pair), "steps", "step size / predicted")
        shared_legend(axes[0], "DPAdam's step size over the predicted one: median, and 90 % of the weights", columns=5)


OPTIMIZERS = ("DPAdam", "DPAdamWOSM", "DPSGD")
RUNS = (1, 40)
BLOCK, BLOCKS = 100, 8
"""Timed in blocks of so many steps, so often; the first block, which prepares and captures, is left out."""


def parts_times(quick: bool) -> list[Part]:
    chosen = [pair for pair in pairs(quick) if pair[0].name in ("mnist-signed", "enron-counts")]
    return [_times_part(pair, quick) for pair in chosen]


def times_name(pair: Pair) -> str:
    return f"steptime/{pair_name(pair)}"


def _times_part(pair: Pair, quick: bool) -> Part:
    blocks = 3 if quick else BLOCKS
    identity = {"dataset": pair[0].name, "model": pair[1], "runs": RUNS, "blocks": blocks, "steps": BLOCK}

    def work(device: str, tell: Tell) -> Arrays:
        return _measured(pair, blocks, device, tell)

    return Part(times_name(pair), identity, 3.0, work)


def _measured(pair: Pair, blocks: int, device: str, tell: Tell) -> Arrays:
    """step, update: seconds, `[runs, optimizers, blocks]`. state, peak: bytes, `[runs, optimizers]`; peak 0 on a CPU."""
    task, kind = pair
    dataset, place = task.dataset, placed(device)
    shape = (len(RUNS), len(OPTIMIZERS))
    found = {"step": np.zeros((*shape, blocks)), "update": np.zeros((*shape, blocks))}
    found |= {"state": np.zeros(shape, np.int64), "peak": np.zeros(shape, np.int64)}
    make = model_of(kind, features=dataset.features, classes=dataset.classes)
    bench = Bench(seeded(make, 0), dataset.train, place, records=task.records)
    run = task.run(noise=NOISE, steps=BLOCK * (blocks + 1))
    for i, runs in enumerate(RUNS):
        starts = bench.starts(make, [0], each=runs)
        for j, name in enumerate(OPTIMIZERS):
            rules = [grid(name)[0]] * runs
            if place.type == "cuda":
                torch.cuda.reset_peak_memory_stats(place)
            population = bench.population(run, rules, starts.clone(), Seed.fixed(7).child(0), every=BLOCK)
            times = []
            while population.step < run.steps:
                before, began = population.step, _now(place)
                population.block()
                times.append((_now(place) - began) / (population.step - before))
            found["step"][i, j] = times[-blocks:]
            found["peak"][i, j] = torch.cuda.max_memory_allocated(place) if place.type == "cuda" else 0
            kept = (value for value in population.state.values() if isinstance(value, Tensor))
            found["state"][i, j] = sum(value.numel() * value.element_size() for value in kept)
            del population
            free_captured()
            noise, factors = starts.new_full((runs,), NOISE), starts.new_ones(run.steps)
            constants = Constants(task.records, run.lot, run.steps, noise, bench.layout, factors)
            found["update"][i, j] = _updates(rules, starts, constants, blocks, place)
            tell((i * len(OPTIMIZERS) + j + 1) / (len(RUNS) * len(OPTIMIZERS)))
    return found


def _updates(rules: list[Rule], params: Tensor, constants: Constants, blocks: int, place: torch.device) -> Array:
    """Seconds of an update alone, from releases that are made up, `[blocks]`."""
    rule = stack_rules(rules, dtype=params.dtype, device=place)
    state = rule.init(params, constants)
    release = Release(gradient=torch.randn_like(params))
    times = []
    for _ in range(blocks + 1):
        began = _now(place)
        for _ in range(BLOCK):
            params, state = rule.update(params, state, release, constants)
        times.append((_now(place) - began) / BLOCK)
    return np.array(times[1:])


def _now(place: torch.device) -> float:
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    return time.perf_counter()


ADAM, WOSM = OPTIMIZERS.index("DPAdam"), OPTIMIZERS.index("DPAdamWOSM")


def computation(parts: Finished, quick: bool) -> Outcome:
    chosen = [pair for pair in pairs(quick) if times_name(pair) in parts]
    cases = [(pair, i) for pair in chosen for i in range(len(RUNS))]
    kept = {pair: parts[times_name(pair)] for pair in chosen}
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
        f"Median over {3 if quick else BLOCKS} blocks of {BLOCK} steps; what differs by less than {ERRORS:g} standard errors "
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
