"""Your own table: a CSV in, a private model out, saved and used. Run with `python examples/table.py`.

The same from the command line is on the page docs/tables.md: `honestdp schema`, `tune`, `predict`, `evaluate`, `report`.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np
import torch

import honestdp
from honestdp import Categories, Range

RECORDS = 4000

# What is publicly known: from a code book, a law, a form. Nothing here was read off the rows.
TABLE = honestdp.Table(
    columns={
        "age": Range(18, 100),
        "visits": Range(0, 50, log=True, fill=0, indicator=True),  # may be missing, which is a feature then
        "ward": Categories("surgery", "medicine", other=True),
        "readmitted": Categories("no", "yes"),
    },
    target="readmitted",
    records=RECORDS,
)


def write_made_up(path: Path, rows: int, seed: int) -> None:
    """Made-up patients: the old and the frequent visitors come back."""
    draw = np.random.default_rng(seed)
    age, visits = draw.uniform(18, 100, rows), draw.poisson(5, rows)
    ward = draw.choice(["surgery", "medicine", "eyes"], rows)
    back = draw.random(rows) < 1 / (1 + np.exp(-((age - 59) / 10 + (visits - 5) / 2)))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "visits", "ward", "readmitted"])
        for a, v, w, b in zip(age.round(), visits, ward, back, strict=True):
            writer.writerow([a, "" if draw.random() < 0.05 else v, w, "yes" if b else "no"])


def main(steps: int | None = None) -> honestdp.SavedModel:
    """steps: chosen from the budget and the number of records, if left out."""
    folder = Path(tempfile.mkdtemp(prefix="honestdp-"))
    write_made_up(folder / "patients.csv", RECORDS, seed=0)
    write_made_up(folder / "heldout.csv", 1000, seed=1)
    ledger = honestdp.Ledger(folder / "ledger.db")  # what each dataset may spend, and has spent
    ledger.set_budget("patients", honestdp.Budget(epsilon=3.0, delta=1e-5))
    ledger.set_budget("heldout", honestdp.Budget(epsilon=1.0, delta=1e-5))

    # No optimizer is named: one run that has nothing to tune. The file is read after the ledger was charged.
    result = honestdp.tune(
        torch.nn.Linear(TABLE.width, TABLE.outputs),
        TABLE.data(folder / "patients.csv"),
        budget=honestdp.Budget(epsilon=2.0, delta=1e-5),
        steps=steps,
        ledger=ledger,
        dataset="patients",
    )
    print(result.statement)

    saved = honestdp.save(folder / "model", result, table=TABLE)
    print("\nnew rows:", saved.predict({"age": [25, 90], "visits": [1, 12], "ward": ["surgery", "medicine"]}))
    # A score of other private rows is a release about them: noisy, and charged to their budget.
    print("held-out accuracy:", saved.evaluate(folder / "heldout.csv", epsilon=0.5, ledger=ledger, dataset="heldout"))
    return saved


if __name__ == "__main__":
    main()
