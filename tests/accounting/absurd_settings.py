"""Random settings, most of them absurd, in a process whose memory is limited: what is answered, and what is wrong with it.

    python -m tests.accounting.absurd_settings FIRST LAST

asks one question for each seed and prints a line for each answer that is wrong: an exception that is not a refusal, a number
below what one run costs at the least, more for more noise, or a call that takes more than SECONDS of the processor.
"""

from __future__ import annotations

import contextlib
import math
import random
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dp_accounting
from scipy import special

from honestdp import Run
from honestdp.accounting import AccountingWarning
from honestdp.checks import HonestdpError
from honestdp.selection import Selection, named

GIBIBYTE, SECONDS = 1 << 30, 120


def spread(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def question(seed: int) -> tuple[Run, float, str, dict[str, Any]]:
    rng = random.Random(seed)
    records = int(spread(rng, 1, 1e9))
    lot = min(records, spread(rng, 1e-3, 1e9)) if rng.random() < 0.8 else records
    steps = int(spread(rng, 1, 1e18 if rng.random() < 0.5 else 1e5))
    noise = spread(rng, 1e-3, 1e6) if rng.random() < 0.6 else spread(rng, 0.3, 30)
    delta = spread(rng, 1e-300 if rng.random() < 0.3 else 1e-12, 0.99)
    name = rng.choice(["compose"] * 3 + ["winner", "liu-talwar", "papernot-steinke", "profile", "envelope"])
    options: dict[str, Any] = {"candidates": int(spread(rng, 1, 1e18 if rng.random() < 0.3 else 1e4))}
    if name == "compose":
        options["accountant"] = rng.choice(["pld", "pld", "rdp", "moments"])
    if name == "winner":
        options["identical"] = rng.random() < 0.3
    if name in ("papernot-steinke", "profile", "envelope"):
        options["shape"] = rng.choice([-0.99, -0.5, 0.0, 0.5, 1.0, 3.0, 1000.0, "poisson"])
        options["runs"] = spread(rng, 1, 1e18 if rng.random() < 0.3 else 1e4)
    return Run(records=records, lot=lot, steps=steps, noise=noise), delta, name, options


def one_step_delta(epsilon: float, run: Run) -> float:
    """What a single step of the run has, exactly, but for rounding: no run and no search can have less."""
    if epsilon > 600:
        return 0.0
    x = run.noise**2 * math.log1p(math.expm1(epsilon) / run.rate) + 0.5
    gained = run.rate * special.ndtr((1 - x) / run.noise)
    return float(gained - (math.exp(epsilon) - 1 + run.rate) * special.ndtr(-x / run.noise))


def whole_run_delta(epsilon: float, run: Run) -> float:
    """At rate one, of all steps together: they are one Gaussian query (Balle & Wang 2018)."""
    noise = run.noise / math.sqrt(run.steps)
    return float(
        special.ndtr(1 / (2 * noise) - epsilon * noise)
        - math.exp(min(epsilon, 600.0) + special.log_ndtr(-1 / (2 * noise) - epsilon * noise))
    )


def optimistic_epsilon(run: Run, delta: float) -> float:
    """A lower bound by dp-accounting, where its grid of 1e-3 is neither too fine nor too coarse."""
    if not (run.steps <= 3000 and 0.3 <= run.noise <= 30 and run.rate > 1e-4 and delta > 1e-9):
        return 0.0
    pld = dp_accounting.pld.privacy_loss_distribution.from_gaussian_mechanism(
        run.noise,
        sampling_prob=run.rate,
        value_discretization_interval=1e-3,
        use_connect_dots=False,
        pessimistic_estimate=False,
    )
    return float(pld.self_compose(run.steps).get_epsilon_for_delta(delta))


def faults(seed: int) -> Iterator[str]:
    run, delta, name, options = question(seed)
    try:
        selection = named(name, **options)
        found = selection.epsilon(run.event, delta=delta)
    except HonestdpError:
        return
    if not found >= 0:
        yield f"epsilon {found}"
    # An honest charge stays above these up to rounding, which is relative to 1 where the closed forms subtract.
    enough = delta * (1 + 1e-9) + 1e-15
    if math.isfinite(found) and selection.runs >= 1 and options.get("shape") != "poisson":
        if one_step_delta(found, run) > enough:
            yield f"epsilon {found} is below that of one step"
        if run.rate == 1 and whole_run_delta(found, run) > enough:
            yield f"epsilon {found} is below that of one Gaussian query"
        if found < optimistic_epsilon(run, delta) * (1 - 1e-6):
            yield f"epsilon {found} is below dp-accounting's lower bound, {optimistic_epsilon(run, delta)}"
    if seed % 3 == 0:
        yield from not_monotone(selection, run, delta, found)


def not_monotone(selection: Selection, run: Run, delta: float, found: float) -> Iterator[str]:
    """Grids differ between neighbouring settings, and each may add a part of its own; cells of s add a width of theirs."""
    most = found * 1.05 + (1e-6 if selection.name in ("compose", "liu-talwar", "papernot-steinke") else 5e-3)
    for other in (replace(run, noise=run.noise * 1.5), replace(run, steps=max(1, run.steps // 2))):
        if selection.epsilon(other.event, delta=delta) > most:
            yield f"epsilon {found} for {run}, and {selection.epsilon(other.event, delta=delta)} for {other}"


class Late(Exception):
    """A call that took too long."""


def late(*_: object) -> None:
    raise Late


def main(first: int, last: int) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (3 * GIBIBYTE, 3 * GIBIBYTE))
    signal.signal(signal.SIGPROF, late)
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", AccountingWarning)
    wrong = 0
    for seed in range(first, last):
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            said = [*faults(seed)]
        except Exception:
            said = [traceback.format_exc()[-1500:]]
        signal.setitimer(signal.ITIMER_PROF, 0)
        wrong += len(said)
        with contextlib.suppress(BrokenPipeError):
            for line in said:
                print(seed, *question(seed), line, flush=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if grown > GIBIBYTE:
        print(f"{grown / GIBIBYTE:.2f} GiB")
    return wrong + (grown > GIBIBYTE)


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]), int(sys.argv[2])), 100))
