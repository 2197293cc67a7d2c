"""Carries out a search with notes on what this process did before: earlier work on the same data, a warm start, a ledger that
was not charged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from honestdp.boundary.data import PrivateData
from honestdp.ledger.paying import Books
from honestdp.search.configuration import modules
from honestdp.search.errors import SearchFailed
from honestdp.search.lifecycle import Search, SearchStopped
from honestdp.search.result import SEARCH, TuneResult
from honestdp.training.charging import uncharged
from honestdp.training.history import key_of, marks_of_models, recall, remember


def noted(
    search: Search,
    private: PrivateData,
    folder: Path | None,
    *,
    books: Books | None,
    resume: bool,
    show: bool,
    seconds: float | None,
) -> TuneResult:
    """Its result. A search that was refused is not remembered."""
    configuration, statement = search.configuration, search.statement
    start = marks_of_models(modules(configuration.request.space, configuration.setting))
    resumed = folder is not None and (folder / SEARCH).exists()
    past = recall(private, books=key_of(books), where=folder, resumed=resumed, start=start)
    notes = (*statement.notes, *uncharged(books), *past.notes)
    search = replace(search, statement=replace(statement, notes=notes))
    try:
        result = search.carry_out(private, folder, resume=resume, show=show, seconds=seconds)
    except (SearchStopped, SearchFailed):
        remember(past)
        raise
    remember(past, marks_of_models([result.model, *(one.model for one in result.candidates)]))
    return result
