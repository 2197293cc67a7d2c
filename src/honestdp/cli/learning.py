"""Bounds and categories that a search on a file learns privately first, kept beside its folder, so that they are learnt once.

What is learnt is a release: it is charged before a row is read, and its epsilon is in the statement of the search. The same
command again reads it from the file `FOLDER.learnt.toml`; to learn it a second time would cost a second time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from honestdp import checks
from honestdp.files import replace_file

if TYPE_CHECKING:
    from honestdp.data.tables.table import Table
    from honestdp.ledger.spending import Spending


def share_of(options: Mapping[str, Any]) -> float:
    """The epsilon that is for what is learnt."""
    from honestdp.data.tables.learning import SHARE

    given, whole = options.get("bounds_epsilon"), options["epsilon"]
    if given is None:
        return float(SHARE * whole)
    checks.positive(bounds_epsilon=given)
    if given >= whole:
        wanted = f"below --epsilon, {whole:g}, which is for everything: what is learnt, and the runs"
        raise checks.InvalidArgument("bounds_epsilon", given, wanted)
    return float(given)


def charged_first(table: Table | None, size: int, options: Mapping[str, Any]) -> list[Spending]:
    """What is charged before the search: so that a ledger without room for both is found before either. table: to be learnt."""
    from honestdp.data.tables.learning import spending_of

    return [] if table is None else [spending_of(table, size, share_of(options))]


def kept(table: Table, options: Mapping[str, Any], folder: Path | None) -> Table | None:
    """What was learnt before for the search in this folder; None where nothing was. Of another schema it is refused."""
    from honestdp.data.tables.schema import read_schema

    path = _path(folder)
    if not path.exists():
        return None
    found = read_schema(path)
    columns = {**found.columns, **{name: table.columns[name] for name in table.to_learn}}
    same = found.columns.keys() == table.columns.keys() and all(found.columns[n].learnt for n in table.to_learn)
    spent = table.spent + share_of(options)
    if not same or replace(found, columns=columns, spent=table.spent) != table or found.spent != spent:
        wanted = f"that of {path}, which was learnt from another schema or epsilon: take another --out; it is learnt anew there"
        raise checks.InvalidArgument("schema", str(options["schema"]), wanted)
    return found


@contextmanager
def alone(folder: Path | None) -> Iterator[None]:
    """Within, no other process learns for the search in this folder, or works in it: each of two would be charged."""
    from honestdp.search.folder import LOCK, Lock, make

    if folder is None:
        yield  # there is no place for what is learnt, which is said where it is asked for
        return
    new = make(folder)
    try:
        with Lock(folder):
            try:
                yield
            finally:
                # The search locks it anew, in a folder as if nobody had been here.
                (folder / LOCK).unlink(missing_ok=True)
    finally:
        with suppress(OSError):
            for path in new:
                path.rmdir()


def learnt(table: Table, file: Path, options: Mapping[str, Any], folder: Path | None, dataset: str | None) -> Table:
    """The table with what it left to be learnt: charged, learnt, and on the disk before anything is made of it."""
    from honestdp.data.tables.schema import text_of
    from honestdp.search.lifecycle import SearchStopped

    path = _path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    books = {"ledger": options["ledger"], "dataset": dataset, "note": options["note"]}
    before = _charges(books)
    try:
        found = table.learn(file, epsilon=share_of(options), **books)
        replace_file(path, text_of(found).encode(), mode=0o644)
    except KeyboardInterrupt as stop:
        if (charged := _charges(books) > before) and not path.exists():
            words = f"the charge for {', '.join(table.to_learn)} stays charged, and to learn them is charged again"
            raise SearchStopped(words, paid=words) from None
        raise (SearchStopped(LEARNT_ONCE, paid=LEARNT_ONCE) if charged else stop) from None
    return found


LEARNT_ONCE = "what was learnt is charged and kept, and the search is not charged yet: the same command goes on"


def _charges(books: Mapping[str, Any]) -> int:
    from honestdp.ledger import Ledger

    return 0 if books["ledger"] is None else len(Ledger(books["ledger"]).charges(books["dataset"]))


def _path(folder: Path | None) -> Path:
    if folder is None:
        wanted = (
            "given where the schema has bounds to be learnt: they are kept beside it, so that they are paid for once"
        )
        raise checks.InvalidArgument("out", None, wanted)
    # "." is a folder with a name too.
    named = folder if folder.name not in ("", "..") else Path(os.path.abspath(folder))
    if not named.name:
        raise checks.InvalidArgument("out", str(folder), "a folder with a name: what is learnt is kept beside it")
    return named.with_name(f"{named.name}.learnt.toml")
