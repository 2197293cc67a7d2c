"""What a table's declarations may not say: of its target, and of the column that tells people apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.data.tables.categories import Categories
from honestdp.data.tables.column import Ignore
from honestdp.data.tables.quantities import Flag, Number, Range

if TYPE_CHECKING:
    from honestdp.data.tables.table import Table


def check_target(table: Table) -> None:
    """That it is a column whose classes or bounds are declared, and nothing besides them."""
    if table.target not in table.columns:
        wanted = f"the name of a declared column: {', '.join(sorted(table.columns))}"
        raise InvalidArgument("target", table.target, wanted)
    column = table.columns[table.target]
    if not isinstance(column, Categories | Flag | Range | Number):
        wanted = "a column of Categories or Flag (classes), or of Range or Number (a quantity)"
        raise InvalidArgument("target", f"{table.target!r}, a column of kind {column.kind}", wanted)
    if column.private or column.learnt:
        wanted = "declared: the classes, or the bounds, of the target are public; they cannot be learnt"
        raise InvalidArgument(f"columns[{table.target!r}]", column.describe(), wanted)
    if isinstance(column, Categories) and column.other:
        wanted = "without other: a class that stands for anything cannot be predicted"
        raise InvalidArgument(f"columns[{table.target!r}]", column, wanted)
    for name, given in (("fill", column.fill is not None), ("indicator", column.indicator)):
        if given:
            wanted = "left out of the target: a row whose target is missing is left out, and not filled"
            raise InvalidArgument(f"columns[{table.target!r}].{name}", getattr(column, name), wanted)


def check_person(table: Table) -> None:
    """That a person's rows are capped, and that the column is no feature."""
    if table.person is None and table.rows_per_person is None:
        return
    if table.rows_per_person is None:
        wanted = f"given with the person {table.person!r}: the most rows of one person that count, declared"
        raise InvalidArgument("rows_per_person", None, wanted)
    if not isinstance(table.person, str) or table.person == table.target:  # also where rows_per_person stands alone
        raise InvalidArgument("person", table.person, "the name of a column that tells whose row it is, not the target")
    checks.whole(least=1, most=10_000, rows_per_person=table.rows_per_person)
    if not isinstance(table.columns.get(table.person, Ignore()), Ignore):
        wanted = "not a feature too: declare it as Ignore(), or leave it out of columns"
        raise InvalidArgument(f"columns[{table.person!r}]", table.columns[table.person], wanted)
