"""Made-up patients: a table of every kind of column, and rows of it, some of them bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from honestdp import Categories, Date, Flag, Ignore, Number, Range, Table

TABLE = Table(
    columns={
        "age": Range(17, 90, fill=40, indicator=True),
        "income": Range(0, 100_000, log=True),
        "pressure": Number(120, 20),
        "sex": Categories("Male", "Female", other=True, fill="Female", indicator=True),
        "smokes": Flag(fill=False),
        "seen": Date("2020-01-01", "2024-12-31", indicator=True),
        "name": Ignore(),
        "ill": Categories("no", "yes"),
    },
    target="ill",
)
HOSTILE = (
    None,
    "",
    "?",
    "NaN",
    "x",
    "1e999",
    "-1e999",
    "  40 ",
    "Male",
    " Female",
    "yes",
    "2021-06-01",
    "9999-99-99",
    "\ud83d",
)
"""Values that may stand in any column."""


def rows(count: int = 40, seed: int = 0, hostile: bool = True) -> dict[str, list[Any]]:
    """Texts, as a CSV has them; every other one is hostile."""
    generator = np.random.default_rng(seed)

    def of(good: Any) -> list[Any]:
        bad = [HOSTILE[int(i)] for i in generator.integers(0, len(HOSTILE) - 1, count)]
        takes = generator.random(count) < (0.5 if hostile else 0.0)
        return [b if take else str(g) for g, b, take in zip(good, bad, takes, strict=True)]

    age = generator.integers(10, 99, count)
    return {
        "age": of(age),
        "income": of(generator.lognormal(9, 2, count)),
        "pressure": of(generator.normal(120, 30, count)),
        "sex": of(generator.choice(["Male", "Female", "divers"], count)),
        "smokes": of(generator.choice(["yes", "no", "TRUE", "0"], count)),
        "seen": of(generator.choice(["2019-01-01", "2022-02-02", "2030-01-01"], count)),
        "name": [f"patient {i}" for i in range(count)],
        "ill": list(np.where(age > 55, "yes", "no")),
    }


def write_csv(path: Path, columns: dict[str, list[Any]], *, encoding: str = "utf-8") -> Path:
    lines = [",".join(columns)]
    lines += [",".join("" if v is None else str(v) for v in row) for row in zip(*columns.values(), strict=True)]
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return path
