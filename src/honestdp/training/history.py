"""What this process remembers of its trainings and searches, for notes in later statements: on which data they were made, and
what weights they ended with.

An epsilon is of one training. That others were made on the same data before, or that this one begins with the result of another,
is not in it; who only sees the last statement must be told. Nothing here reads a record or keeps one alive, and weights are
remembered as digests of a few of their numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from honestdp.boundary.whereabouts import Whereabouts, whereabouts
from honestdp.gradients.layout import Layout
from honestdp.training.checkpoint import File
from honestdp.training.loop import Job

if TYPE_CHECKING:
    from honestdp.ledger.address import Place
    from honestdp.ledger.paying import Books

Marks = set[bytes]
_NONE: Marks = set()
_MOST = 1000  # that are remembered
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_SAMPLE = 16  # numbers of a tensor that it is known again by: after a private training each has noise of its own


@dataclass(frozen=True, eq=False)
class Past:
    """One training or search. books: the ledger and dataset that it was charged to. where: its checkpoint or folder. marks: of
    the weights that left. resumed: it is the one with this checkpoint or folder that was begun before.
    """

    data: Whereabouts
    books: tuple[Place, str] | None
    where: Path | None
    notes: tuple[str, ...] = ()
    resumed: bool = False
    marks: Marks = field(default_factory=set)


_past: list[Past] = []


def recall(data: Any, *, books: tuple[Place, str] | None, where: Path | None, resumed: bool, start: Marks) -> Past:
    """One that may come to be, with the notes that belong into its statement. start: marks of the weights that it begins with.

    resumed: it was begun before, and is not another one than that with this checkpoint or folder.
    """
    places, where = whereabouts(data), None if where is None else where.absolute()
    others = [past for past in _past if not _same(past, where, resumed)]
    alike = [past for past in others if past.data.overlap(places)]
    known = books is not None and all(past.books == books for past in alike)
    notes = [*_others(len(alike), known), *_warm([past for past in others if past.marks & start], places)]
    return Past(places, books, where, tuple(notes), resumed)


def remember(past: Past, marks: Marks = _NONE) -> None:
    """It has read records, and ended with weights of these marks."""
    past.marks.update(marks)
    if past not in _past:
        _past[:] = [*(other for other in _past[-_MOST:] if not _same(other, past.where, past.resumed)), past]


def _same(other: Past, where: Path | None, resumed: bool) -> bool:
    return resumed and where is not None and other.where == where


def remember_job(job: Job, data: Any, *, books: Books | None, place: File | None, resumed: bool) -> Past:
    """A training that is about to begin, or to go on."""
    start = marks_of(job.initial, job.intake.layout) | marks_of_models(job.modules[:1])
    where = None if place is None else place.path
    past = recall(data, books=key_of(books), where=where, resumed=resumed, start=start)
    if job.runs[0].steps:
        remember(past)
    return past


def key_of(books: Books | None) -> tuple[Place, str] | None:
    return None if books is None else (books.ledger.absolute(), books.dataset)


def _others(count: int, known: bool) -> list[str]:
    if not count:
        return []
    which = _ORDINALS[count] if count < len(_ORDINALS) else f"{count + 1}th"
    rest = "the first is" if count == 1 else "the others are"
    ledger = ", but the ledger counts them together" if known else ""
    return [f"the {which} training or search on these data in this process; {rest} not in this number{ledger}"]


def _warm(sources: list[Past], places: Whereabouts) -> list[str]:
    if not sources:
        return []
    begins = "a warm start: it begins with weights that a training or search of this process ended with"
    if any(past.data.overlap(places) for past in sources):
        return [f"{begins}, on these data; that is not in this number"]
    return [f"{begins}; where those saw records of these data, too, that is not in this number"]


def marks_of(weights: Tensor, layout: Layout) -> Marks:
    """Of runs' weights `[runs, d]`."""
    return {mark for view in layout.views(weights).values() for mark in _marks(view)}


def marks_of_models(models: Iterable[nn.Module]) -> Marks:
    return {mark for model in models for value in model.parameters() for mark in _marks(value.detach()[None])}


def _marks(values: Tensor) -> Marks:
    """Of one tensor of each run, `[runs, ...]`. One whose numbers are all alike, as it may have begun, has none."""
    rows, shape = values.detach().reshape(len(values), -1), list(values.shape[1:])
    size = rows.shape[1]
    chosen = torch.linspace(0, size - 1, min(size, _SAMPLE), device=rows.device).long()
    sample = rows[:, chosen].double().cpu().numpy() if size else rows.double().cpu().numpy()
    return {
        hashlib.sha256(f"{shape}".encode() + row.tobytes()).digest()
        for row in sample
        if len(row) and (row != row[0]).any()
    }
