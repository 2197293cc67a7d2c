"""What a table does not declare, learnt from its rows out of the budget: charged first, then read, once.

Every column that asks for it (`bounds="private"`) gets an equal part of epsilon. What is learnt is a release like any other: it
may be published, it is kept with the table, and its epsilon goes with it into every statement of a model on that table.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from honestdp import checks
from honestdp.boundary.bounds import asked, private_frequent, private_range
from honestdp.checks import InvalidArgument
from honestdp.data.tables.cells import Array, Ids
from honestdp.data.tables.columns import BUCKETS, LEARNT, Categories, Column, Range, buckets
from honestdp.data.tables.source import TableRows, source_of

if TYPE_CHECKING:
    from honestdp.data.tables.table import Table
    from honestdp.ledger import Ledger
    from honestdp.ledger.paying import Books
    from honestdp.ledger.spending import Spending

SHARE = 0.1
"""The part of a budget's epsilon for what is learnt, where nobody declares another."""


def learn(
    table: Table,
    source: Any,
    *,
    epsilon: float,
    records: int | None = None,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    note: str = "",
) -> Table:
    """The table with everything declared. See `Table.learn`."""
    from honestdp.ledger.paying import books_of

    checks.positive(epsilon=epsilon)
    checks.refuse_many(
        "what is learnt of a table",
        "learn it once, in a program without torchrun, and hand it on: Table.from_dict(table.as_dict())",
    )
    names = table.to_learn
    if not names:
        raise InvalidArgument("columns", ", ".join(table.inputs), 'with bounds="private" in one of them, to be learnt')
    rows = TableRows(table, source, records=records)
    size = len(rows)
    _charge(table, rows, epsilon, names, books_of(ledger, dataset, note=note))
    values = _values(table, source, names, size)
    each = epsilon / len(names)
    learnt = {name: _learnt(table.columns[name], values[name], each, size) for name in names}
    return replace(table, columns={**table.columns, **learnt}, spent=table.spent + epsilon)


def share_of(epsilon: float, given: float | None) -> float:
    """The part of a budget's epsilon for what is learnt. given: the declared part."""
    if given is None:
        return SHARE * epsilon
    checks.positive(bounds_epsilon=given)
    if given >= epsilon:
        wanted = f"below epsilon, {epsilon:g}, which is for everything: what is learnt, and the runs"
        raise InvalidArgument("bounds_epsilon", given, wanted)
    return given


def kept(table: Table, path: Path, epsilon: float) -> Table | None:
    """The table as it was learnt before, from the schema file that was then written; None where there is no such file.

    table, epsilon: the declarations and the part of the budget of today. InvalidArgument where the file was learnt from others.
    """
    from honestdp.data.tables.schema import read_schema

    if not path.exists():
        return None
    found = read_schema(path)
    learnt = {name: found.columns.get(name) for name in table.to_learn}
    declared = replace(
        found, columns={**found.columns, **{name: table.columns[name] for name in learnt}}, spent=table.spent
    )
    if declared != table or not all(c and c.learnt for c in learnt.values()) or found.spent != table.spent + epsilon:
        wanted = f"that of {path}, which was learnt from another schema or epsilon: take another out; it is learnt anew there"
        raise InvalidArgument("schema", None, wanted)
    return found


def _charge(table: Table, rows: TableRows, epsilon: float, names: Sequence[str], books: Books | None) -> None:
    """Charge epsilon, as one private choice, durably and before a value is read."""
    from honestdp.ledger.paying import Payment

    if books is None:
        return
    account = Payment.of(books, uuid.uuid4().hex)
    spending = spending_of(table, len(rows), epsilon)
    account.check_first(spending, rows.scan)
    account.charge(spending, what=f"honestdp, private bounds of {', '.join(names)}"[:200], read=False)
    account.end()


def spending_of(table: Table, size: int, epsilon: float) -> Spending:
    """What `learn` charges: epsilon, as one private choice, of records or of people."""
    from honestdp.ledger.spending import Spending
    from honestdp.run import Run
    from honestdp.selection import Compose

    nothing = Run(records=size, lot=1.0, steps=0, noise=1.0)
    return Spending(Compose(candidates=1), ((nothing, 1),), choice=epsilon, unit=table.person or "")


def _values(table: Table, source: Any, names: Sequence[str], size: int) -> dict[str, Array]:
    """Of the rows that are asked: numbers in the user's units, or buckets."""
    parts: dict[str, list[Array]] = {name: [] for name in names}
    ids, whose = Ids(table.cells), list[Array]()
    wanted = [*names, *([] if table.person is None else [table.person])]
    for batch in source_of(table, source).batches(wanted):
        for name in names:
            column, values = table.columns[name], batch[name]
            parts[name].append(
                column.raw(values, table.cells) if isinstance(column, Range) else buckets(values, table.cells)
            )
        if table.person is not None:
            whose.append(ids.numbers(batch[table.person]))
    read = {name: np.concatenate(each) if each else np.empty(0) for name, each in parts.items()}
    rows = asked(len(read[names[0]]), np.concatenate(whose) if whose else None, size)
    return {name: each[rows] for name, each in read.items()}


def _learnt(column: Column, values: Array, epsilon: float, size: int) -> Column:
    if isinstance(column, Range):
        low, high = private_range(values, epsilon=epsilon, declared=size)
        return replace(column, low=low, high=high, bounds=LEARNT)
    assert isinstance(column, Categories)
    found = private_frequent(values.astype(np.int64), count=BUCKETS, most=column.most, epsilon=epsilon)
    return Categories(*found, other=column.other, indicator=column.indicator, bounds=LEARNT, most=column.most)
