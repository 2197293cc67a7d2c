"""Speed and tightness of the accountants against plain uses of dp-accounting and Opacus, in one process.

    python benchmarks/accounting.py [--json FILE] [--repeats 3]

Each row is one question asked of each library. Times are medians over repeats, without imports and with our cache emptied.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable

import dp_accounting
from dp_accounting.pld import PLDAccountant
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.accountants.utils import get_noise_multiplier

from honestdp import Budget, Run
from honestdp.accounting import epsilon
from honestdp.accounting.calibration import least_noise
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.rdp import _cached_curve
from honestdp.selection import Compose, Winner, named

CASES = {
    "one run: 10000 steps": (Run(records=60000, lot=250, steps=10000, noise=4.0), 1e-6),
    "280 candidates x 10000 steps": (Run(records=56000, lot=250, steps=2_800_000, noise=4.0), 1e-6),
    "10^6 steps, rate 10^-4": (Run(records=10**6, lot=100, steps=10**6, noise=1.0), 1e-6),
}


def ours(run: Run, delta: float) -> float:
    return epsilon(run.event, delta=delta)


def plain_dp_accounting(run: Run, delta: float) -> float:
    accountant = PLDAccountant()
    accountant.compose(run.event)
    return float(accountant.get_epsilon(delta))


def opacus_prv(run: Run, delta: float) -> float:
    accountant = PRVAccountant()
    accountant.history = [(run.noise, run.rate, run.steps)]
    return float(accountant.get_epsilon(delta))


def opacus_rdp(run: Run, delta: float) -> float:
    accountant = RDPAccountant()
    accountant.history = [(run.noise, run.rate, run.steps)]
    return float(accountant.get_epsilon(delta))


PEERS = {
    "honestdp pld": ours,
    "dp-accounting PLD": plain_dp_accounting,
    "Opacus PRV": opacus_prv,
    "Opacus RDP": opacus_rdp,
}


def dp_accounting_noise(budget: Budget, run: Run) -> float:
    def event(noise: float) -> dp_accounting.DpEvent:
        return Run(records=run.records, lot=run.lot, steps=run.steps, noise=noise).event

    found = dp_accounting.calibrate_dp_mechanism(PLDAccountant, event, budget.epsilon, budget.delta, tol=1e-3)
    return float(found)


def opacus_noise(budget: Budget, run: Run) -> float:
    return get_noise_multiplier(
        target_epsilon=budget.epsilon,
        target_delta=budget.delta,
        sample_rate=run.rate,
        steps=run.steps,
        accountant="prv",
        epsilon_tolerance=1e-3 * budget.epsilon,
    )


def timed(ask: Callable[[], float], repeats: int) -> tuple[float | None, float | None]:
    """The answer and the median seconds; neither where the library gives up."""
    seconds, answer = [], None
    for _ in range(repeats):
        dominating_pair.cache_clear()
        _cached_curve.cache_clear()
        start = time.perf_counter()
        try:
            answer = ask()
        except (ValueError, RuntimeError, MemoryError, IndexError) as error:
            print(f"  gave up: {type(error).__name__}: {str(error)[:90]}")
            return None, None
        seconds.append(time.perf_counter() - start)
        if seconds[-1] > 20:
            break
    return answer, statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the results into this file")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    results: list[dict[str, object]] = []

    def row(question: str, library: str, ask: Callable[[], float]) -> None:
        answer, seconds = timed(ask, arguments.repeats)
        results.append({"question": question, "library": library, "answer": answer, "seconds": seconds})
        shown = "no answer" if answer is None else f"{answer:10.4f}  {seconds:8.3f} s"
        print(f"{question:<40}{library:<20}{shown}", flush=True)

    for question, (run, delta) in CASES.items():
        for library, peer in PEERS.items():
            row(f"epsilon, {question}", library, lambda peer=peer, run=run, delta=delta: peer(run, delta))
    budget, run = Budget(1.0, 1e-6), CASES["one run: 10000 steps"][0]
    constants = {"records": run.records, "lot": run.lot, "steps": run.steps}

    def calibrated(name: str, **options: object) -> Callable[[], float]:
        selection = named(name, **options)  # type: ignore[arg-type]
        return lambda: least_noise(budget, selection=selection, **constants).noise  # type: ignore[arg-type]

    row(
        "noise, one run",
        "honestdp pld",
        lambda: least_noise(budget, selection=Compose(candidates=1), **constants).noise,
    )
    row("noise, one run", "dp-accounting PLD", lambda: dp_accounting_noise(budget, run))
    row("noise, one run", "Opacus PRV", lambda: opacus_noise(budget, run))
    row("noise, compose 280", "honestdp", calibrated("compose", candidates=280))
    row("noise, winner of 40", "honestdp", calibrated("winner", candidates=40))
    row("noise, envelope, 2511 runs", "honestdp", calibrated("envelope", runs=2511))
    row("epsilon, envelope, 2511 runs", "honestdp", lambda: named("envelope", runs=2511).epsilon(run.event, delta=1e-6))
    row("epsilon, winner of 40", "honestdp", lambda: Winner(candidates=40).epsilon(run.event, delta=1e-6))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
