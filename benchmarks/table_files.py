"""A large file of made-up rows: how long it takes to read, and the most memory above the encoded rows.

python benchmarks/table_files.py [ROWS]

Each reading is a process of its own, so that its peak is its own. Beside each file stand the same rows in memory, as a pyarrow
Table.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from honestdp import Categories, Flag, Number, Range, Table
from honestdp.boundary.data import PrivateData, coins

ROWS, PART = 10_000_000, 500_000
REGIONS = [f"region {i}" for i in range(8)]
TABLE = Table(
    {
        "age": Range(17, 90),
        "income": Range(0, 1e6, log=True),
        "sex": Categories("Male", "Female"),
        "region": Categories(*REGIONS),
        "bmi": Number(25, 5),
        "visits": Range(0, 50),
        "smokes": Flag(),
        "ill": Categories("no", "yes"),
    },
    target="ill",
)


def made_up(rows: int, generator: np.random.Generator) -> pa.Table:
    age = generator.integers(17, 90, rows)
    return pa.table(
        {
            "age": age,
            "income": generator.lognormal(10, 1, rows).round(2),
            "sex": generator.choice(["Male", "Female"], rows),
            "region": generator.choice(REGIONS, rows),
            "bmi": generator.normal(25, 5, rows).round(1),
            "visits": generator.poisson(4, rows),
            "smokes": generator.choice(["yes", "no"], rows),
            "ill": np.where(age + generator.normal(0, 10, rows) > 55, "yes", "no"),
        }
    )


def write(path: Path, rows: int) -> None:
    generator, writer = np.random.default_rng(0), None
    for first in range(0, rows, PART):
        part = made_up(min(PART, rows - first), generator)
        if writer is None:
            kind: Any = pa.csv.CSVWriter if path.suffix == ".csv" else pa.parquet.ParquetWriter
            writer = kind(path, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()


def resident() -> float:
    """MiB, now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def read(path: Path, *, in_memory: bool) -> None:
    source: Any = path
    if in_memory:
        source = pa.parquet.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path)
    before, start = resident(), time.perf_counter()
    rows = TABLE.data(source)
    count = len(rows)
    private = PrivateData(rows).read()
    private.split(coins(len(private), fraction=0.2, seed=1))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    encoded = count * (4 * TABLE.width + 8) / 2**20
    where = "in memory" if in_memory else path.suffix[1:]
    print(
        f"{where:<10} {count} rows, {encoded:.0f} MiB encoded: {seconds:.1f} s, {peak - before - encoded:.0f} MiB above"
    )


def main() -> None:
    if len(sys.argv) == 4:
        return read(Path(sys.argv[1]), in_memory=sys.argv[3] == "memory")
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as folder:
        for name in ("rows.csv", "rows.parquet"):
            path = Path(folder) / name
            write(path, rows)
            print(f"{name}: {path.stat().st_size / 2**20:.0f} MiB", flush=True)
            for where in ("file", "memory"):
                subprocess.run([sys.executable, __file__, str(path), "read", where], check=True)


if __name__ == "__main__":
    main()
