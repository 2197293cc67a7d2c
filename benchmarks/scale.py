"""What 10^8 records, 10^4 candidates and 10^6 charges would cost: slopes measured on this machine, and what follows from them.

    python benchmarks/scale.py [--gpu-hour 3.0] [--core-hour 0.05] [--json FILE]

Nothing of that size is run: each quantity is measured at two sizes that fit, in seconds of one core, and the line through them
is drawn on. Prices are assumptions, in dollars an hour; give yours. The GPU's seconds a run and step are those of
results/engine_h200.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parent.parent

RECORDS, LOT, CANDIDATES, CHARGES = 10**8, 10**5, 10**4, 10**6
STEPS = 10_000
PIXELS = 784


def best(act: Callable[[], Any], times: int = 3) -> float:
    """Seconds of one core, of the quickest time: what else the machine does is not in them."""
    took = []
    for _ in range(times):
        began = time.process_time()
        act()
        took.append(time.process_time() - began)
    return min(took)


def line(sizes: tuple[float, float], took: tuple[float, float]) -> dict[str, float]:
    """slope and start of the line through two measurements."""
    slope = max(0.0, (took[1] - took[0]) / (sizes[1] - sizes[0]))
    return {"slope": slope, "start": max(0.0, took[0] - slope * sizes[0])}


def drawing() -> dict[str, float]:
    """Seconds to draw a lot, by its expected size, out of 10^8 records, of which none is there."""
    from honestdp.boundary.sampling import PendingLots

    def draw(lot: int) -> None:
        PendingLots(torch.Generator(), records=RECORDS, rate=lot / RECORDS, steps=1, runs=1).finish()

    return line((LOT // 10, LOT), (best(lambda: draw(LOT // 10)), best(lambda: draw(LOT))))


def fetching(folder: Path) -> dict[str, float]:
    """Seconds to fetch records of 784 bytes by number out of a memory-mapped file, by how many."""
    from honestdp.boundary.records import HostRecords

    count = 100_000
    file = np.memmap(folder / "x", dtype=np.uint8, mode="w+", shape=(count, PIXELS))
    file[:] = 7
    records = HostRecords(file, np.zeros(count, np.int64), device=torch.device("cpu"), dtype=torch.float32)

    def fetch(some: int) -> None:
        records.fetch(torch.randint(0, count, (1, some)))

    return line((1000, 10_000), (best(lambda: fetch(1000)), best(lambda: fetch(10_000))))


def stepping() -> dict[str, float]:
    """Seconds of a step of one hidden layer of 100 on one core, by the size of its lot."""
    from ranks import seconds

    def step(lot: int) -> float:
        few, many = (best(lambda steps=steps: seconds(steps, lot=lot, hidden=100)) for steps in (4, 24))  # type: ignore[misc]
        return (many - few) / 20

    return line((250, 2000), (step(250), step(2000)))


def pricing() -> dict[str, Any]:
    """Seconds to compare all selections of a search at the design's own example, and the epsilon of the cheapest."""
    from honestdp.planner.comparison import plan

    found: dict[str, Any] = {}
    for count in (100, CANDIDATES):
        began = time.process_time()
        made = plan(records=75_000, delta=1e-6, candidates=count, lot=250, steps=STEPS, noise=4.0, eligible=True)
        epsilon = min(method.epsilon for method in made.methods)
        found[str(count)] = {"seconds": time.process_time() - began, "epsilon": epsilon}
    return found


def charging(folder: Path) -> dict[str, Any]:
    """Of a ledger in a file: seconds to charge, to charge once more in one process, to verify, and bytes, by its charges."""
    from ledger import build, in_a_new_process

    sizes, found = (10_000, 100_000), dict[str, list[float]]()
    for count in sizes:
        path = folder / f"{count}.db"
        build(path, [200.0] * count)
        for name, act in (("first charge", "charge"), ("later charge", "next"), ("verify", "verify")):
            times = 3 if name == "later charge" else 1
            found.setdefault(name, []).append(min(in_a_new_process(str(path), act, 200.0)["cpu"] for _ in range(times)))
        found.setdefault("bytes", []).append(float(path.stat().st_size))
    return {name: line(sizes, (values[0], values[1])) for name, values in found.items()}


def gpu_step() -> float:
    """Seconds of a run and step at lot 250 on an H200, forty runs together, of one hidden layer of 100."""
    kept = json.loads((ROOT / "results" / "engine_h200.json").read_text())
    return float(kept["results"]["one hidden layer of 100"]["honestdp, 40 runs"]["microseconds per run and step"]) / 1e6


def in_words(seconds: float) -> str:
    for unit, name in ((365.25 * 86400, "years"), (86400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.3g} us"


def drawn_on(found: dict[str, Any], given: argparse.Namespace) -> list[tuple[str, str]]:
    """The lines drawn on to the sizes of the page."""
    at = {name: found[name]["start"] + found[name]["slope"] * LOT for name in ("drawing", "fetching", "stepping")}
    core, gpu = STEPS * sum(at.values()), STEPS * LOT * found["gpu step"] / 250
    runs = 9 * (CANDIDATES - 1)
    search = runs * STEPS * found["gpu step"]
    book = {name: one["start"] + one["slope"] * CHARGES for name, one in found["charging"].items()}
    alone = (
        CHARGES * found["charging"]["later charge"]["start"]
        + found["charging"]["later charge"]["slope"] * CHARGES**2 / 2
    )
    return [
        (f"10^8 records of {PIXELS} bytes", f"{RECORDS * PIXELS / 1e9:.0f} GB"),
        ("a lot of 10^5: drawn", in_words(at["drawing"])),
        ("a lot of 10^5: fetched from a file in the page cache, one core", in_words(at["fetching"])),
        ("a lot of 10^5: a step, one core", in_words(at["stepping"])),
        (f"{STEPS} steps, one core", f"{in_words(core)}, ${core / 3600 * given.core_hour:,.2f}"),
        (f"{STEPS} steps, one GPU, records on it", f"{in_words(gpu)}, ${gpu / 3600 * given.gpu_hour:,.2f}"),
        (
            f"10^4 candidates: {runs} runs of {STEPS} steps of lot 250, one GPU",
            f"{in_words(search)}, ${search / 3600 * given.gpu_hour:,.2f}",
        ),
        (
            "the same on one core",
            in_words(runs * STEPS * (found["stepping"]["start"] + 250 * found["stepping"]["slope"])),
        ),
        (
            "the plan of 100 and of 10^4 candidates",
            " and ".join(in_words(one["seconds"]) for one in found["pricing"].values()),
        ),
        (
            "epsilon of 100 and of 10^4 candidates",
            " and ".join(f"{one['epsilon']:.2f}" for one in found["pricing"].values()),
        ),
        ("10^6 charges in a file", f"{book['bytes'] / 1e9:.2f} GB"),
        ("a charge to 10^6 alike", in_words(book["first charge"])),
        ("a charge to 10^6 alike, later", in_words(book["later charge"])),
        ("verify 10^6 charges", in_words(book["verify"])),
        ("to make 10^6 charges one after the other", in_words(alone)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu-hour", type=float, default=3.0)
    parser.add_argument("--core-hour", type=float, default=0.05)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = {
            "drawing": drawing(),
            "fetching": fetching(Path(folder)),
            "stepping": stepping(),
            "pricing": pricing(),
            "charging": charging(Path(folder)),
            "gpu step": gpu_step(),
        }
    print(json.dumps(found, indent=1))
    for what, how_much in drawn_on(found, given):
        print(f"{what:<72}{how_much}")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
