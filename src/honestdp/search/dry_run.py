"""`dry_run`: what a search would cost, take and write, with everything rehearsed and nothing charged, read or made."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from honestdp.accounting.calibration import once
from honestdp.budget import Budget, Statement, number
from honestdp.ledger import Balance, Ledger, OtherUnit
from honestdp.ledger.account import Account, dear_by_delta
from honestdp.ledger.spending import Spending, counted_epsilon
from honestdp.notebook import as_text
from honestdp.optimizers.default import NOT_NAMED
from honestdp.plain_words import rounded_down, rounded_up, shown_delta
from honestdp.run import Run
from honestdp.search import tune_result as leaving
from honestdp.search.configuration import joined_for
from honestdp.search.failures import guarded
from honestdp.search.guarantee import foreseen
from honestdp.search.lifecycle import look
from honestdp.search.planning import expected
from honestdp.search.request import Requested, SearchSpec, requested
from honestdp.search.tune import planned
from honestdp.training.population import Model
from honestdp.training.watching import refuse_watching

_STANDINGS = {
    "begins": "a new search",
    "goes on": "a search that was stopped goes on: it is charged already, and nothing more is",
    "over": "a search that is over: its result is read, and nothing more is charged",
}


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a search would do: what `dry_run` returns. Printed, it is a page of words; `as_dict()` is for JSON.

    standing: "begins", "goes on" or "over": what the same call of `tune` would find in its folder.
    budget: what was asked for. epsilon_of_bounds: how much of it goes to bounds or categories of columns, learnt before.
    statement: what the search would guarantee. Its epsilon is the cost, at the budget's delta.
    selection, reason: how the winner would be found, and why so. candidates: how many there are.
    runs: how many runs are expected, on average where their number is drawn. noise: of each kind of run.
    score_noise: of a validation score, in units of its sensitivity; None where nothing is scored.
    seconds: of training, by the time of some steps on made-up records; None for a Dataset, of which no shape is known.
    memory: bytes of the runs that are trained together, roughly; None likewise.
    balance: the dataset's now. after: what it would have spent. refusal: why the ledger would refuse the charge, or "".
    warnings: what is hopeless about it, if anything is, by public numbers alone.
    folder, files: where the search would be, and what would be written there, with sizes in bytes.

    >>> import torch, honestdp
    >>> data, budget = honestdp.load_dataset("digits").train, honestdp.Budget(epsilon=1.0, delta=1e-5)
    >>> what = honestdp.dry_run(lambda: torch.nn.Linear(64, 10), data, budget=budget, lot=64, steps=5)
    >>> what.standing, what.runs, what.epsilon <= 1.0, what.files
    ('begins', 1.0, True, {})
    """

    standing: str
    budget: Budget
    statement: Statement
    epsilon_of_bounds: float
    selection: str
    reason: str
    candidates: int
    runs: float
    noise: tuple[Run, ...]
    score_noise: float | None
    seconds: float | None
    memory: int | None
    balance: Balance | None = None
    after: float | None = None
    refusal: str = ""
    warnings: tuple[str, ...] = ()
    folder: Path | None = None
    files: dict[str, int] = field(default_factory=dict)

    @property
    def epsilon(self) -> float:
        """What the search would cost, at `budget.delta`."""
        return self.statement.epsilon

    def as_dict(self) -> dict[str, Any]:
        return {
            "standing": self.standing,
            "epsilon": number(self.epsilon),
            "delta": self.budget.delta,
            "budget": {"epsilon": self.budget.epsilon, "delta": self.budget.delta},
            "epsilon_of_bounds": self.epsilon_of_bounds,
            "selection": self.selection,
            "reason": self.reason,
            "candidates": self.candidates,
            "expected_runs": self.runs,
            "runs": [vars(run) for run in self.noise],
            "score_noise": self.score_noise,
            "seconds": self.seconds,
            "memory_bytes": self.memory,
            "ledger": None if self.balance is None else self.balance.as_dict(),
            "spent_after": None if self.after is None else number(self.after),
            "refusal": self.refusal,
            "warnings": list(self.warnings),
            "folder": None if self.folder is None else str(self.folder),
            "files": self.files,
            "statement": self.statement.as_dict(),
        }

    def __str__(self) -> str:
        rows = [
            (
                "dry run",
                f"{_STANDINGS[self.standing]}; nothing was charged, trained or written; of a file the rows were counted at most",
            )
        ]
        first = (
            f", of which {rounded_up(self.epsilon_of_bounds)} to learn bounds or categories of columns"
            if self.epsilon_of_bounds
            else ""
        )
        rows.append(("cost", f"epsilon {rounded_up(self.epsilon)} at delta {shown_delta(self.budget.delta)}{first}"))
        said = (note for note in self.statement.notes if note.startswith(NOT_NAMED))
        rows += [("optimizer", f"none was named: {note.removeprefix(NOT_NAMED)}") for note in said]
        rows += [("noise", _of_run(run)) for run in self.noise]
        if self.score_noise is not None:
            rows.append(("scores", f"noise of {self.score_noise:.4g} times what one record adds"))
        rows.append(("selection", f"{self.selection}, because {self.reason}"))
        drawn = (
            "on average; how many it will be stays secret" if self.runs != self.candidates else "each candidate once"
        )
        one = self.runs == self.candidates == 1
        rows.append(("runs", "1" if one else f"{self.runs:.5g} of {self.candidates} candidates, {drawn}"))
        rows.append(
            (
                "time",
                "not known before a record of the Dataset is read" if self.seconds is None else _time(self.seconds),
            )
        )
        if self.memory is not None:
            rows.append(("memory", f"about {_size(self.memory)} for the runs that are trained together"))
        rows += self._ledger()
        rows += [("warning", text) for text in self.warnings]
        if self.folder is None:
            rows.append(("files", "none: there is no out and no ledger, and the result is kept in memory alone"))
        else:
            rows.append(("folder", str(self.folder)))
            rows.append(("files", ", ".join(f"{name} ({_size(size)})" for name, size in self.files.items())))
        return as_text(rows, width=12)

    def _ledger(self) -> list[tuple[str, str]]:
        if self.balance is None or self.after is None:
            return []
        balance, budget = self.balance, self.balance.budget
        left = f"epsilon {rounded_down(balance.left)} of {budget.epsilon:g} left at delta {shown_delta(budget.delta)}"
        if self.refusal:
            return [("ledger", f"{balance.dataset}: {left}; {self.refusal}")]
        after = f"{rounded_down(max(0.0, budget.epsilon - self.after))} after this search"
        dear = dear_by_delta(self.budget.delta, budget)
        return [("ledger", f"{balance.dataset}: {left}, {after}{dear and f'; {dear}'}")]


def dry_run(model: Model | Callable[..., torch.nn.Module], data: Any, **arguments: Any) -> DryRun:
    """What `tune` with the same arguments would do: cost, noise, selection, time, and what would be written where.

    model, data, arguments: those of `tune`. The search is planned and rehearsed on made-up records. Nothing is charged, no record
    is read and no file is made.

    Returns a DryRun. Raises what `tune` would raise before its charge, InvalidArgument and NoBudget among them; that the budget
    is exceeded is said in `refusal`.

    >>> import torch, honestdp
    >>> data, budget = honestdp.load_dataset("digits").train, honestdp.Budget(epsilon=1.0, delta=1e-5)
    >>> print(honestdp.dry_run(lambda: torch.nn.Linear(64, 10), data, budget=budget, lot=64, steps=5).selection)
    one run
    """
    refuse_watching(arguments.pop("on_step", None))
    return looked_ahead(requested(model, data, SearchSpec.of(**arguments)))


def looked_ahead(what: Requested, first: Sequence[Spending] = ()) -> DryRun:
    """The dry run of a search that was asked for. first: what will be charged before it, such as bounds that are learnt: a
    ledger with room for either, and not for both, is found before the first of them.
    """
    standing = "begins"
    with guarded(), once(), joined_for(what.public):
        if what.folder is not None:
            over = look(what.folder, what.public, resume=what.resume)
            begun = (what.folder / leaving.SEARCH).exists()
            standing = "over" if isinstance(over, leaving.TuneResult) else "goes on" if begun else "begins"
        search, rehearsed = planned(what)
        made = search.design
        seconds, memory = expected(made, what.public.setting, what.private.shapes, search.tested)
        balance, after, refusal = None, None, ""
        if what.books is not None and standing == "begins":
            balance, after, refusal = _quoted(Ledger(what.books.ledger), what.books.dataset, made.spending, first)
            dear = dear_by_delta(made.budget.delta, balance.budget)
            refusal = f"{refusal}. {dear.capitalize()}" if refusal and dear else refusal
    sizes = {leaving.SEARCH: len(leaving.text_of(what.public.with_spending(made.spending)))} | rehearsed.files
    kept = [name for name in sizes if name.startswith(leaving.CANDIDATES)]
    whole = {name: size for name, size in sizes.items() if name not in kept}
    if kept:
        whole[f"{leaving.CANDIDATES}/"] = made.count * sizes[kept[0]]
    return DryRun(
        standing=standing,
        budget=made.whole,
        statement=search.statement,
        epsilon_of_bounds=made.spent,
        selection=search.statement.how if made.selection.one_run else made.selection.name,
        reason=made.reason,
        candidates=made.count,
        runs=float(made.selection.runs),
        noise=made.runs,
        score_noise=made.multiplier,
        seconds=seconds,
        memory=memory,
        balance=balance,
        after=after,
        refusal=refusal,
        warnings=tuple(foreseen(made, what.public.setting)),
        folder=what.folder,
        files={} if what.folder is None else whole,
    )


def _quoted(ledger: Ledger, dataset: str, spending: Spending, first: Sequence[Spending]) -> tuple[Balance, float, str]:
    """The balance, what would be spent after the charge and those before it, and why the ledger would refuse them."""
    balance = ledger.balance(dataset)
    charges = ledger.charges(dataset)
    try:
        Account(dataset, charges=list(charges)).check_unit(spending)
    except OtherUnit as refusal:
        return balance, balance.spent, str(refusal)
    spent = Counter(charge.spending for charge in charges)
    after = counted_epsilon(spent + Counter([*first, spending]), delta=balance.budget.delta)
    allowed = spending.private and after <= balance.budget.epsilon
    over = f"over budget: it would have spent {rounded_up(after)}, so that the ledger refuses this search"
    if first:
        over = (
            f"over budget: with what is charged before this search {dataset} would have spent {rounded_up(after)}, of "
        )
        over += (
            f"{balance.budget.epsilon:g} at delta {shown_delta(balance.budget.delta)}, so that the ledger refuses both"
        )
    return balance, after, "" if allowed else over


def _of_run(run: Run) -> str:
    return f"{rounded_up(run.noise)} of a run of {run.steps} steps, lot {run.lot:g} of {run.records} training records"


def _time(seconds: float) -> str:
    """Two digits: it was measured in a moment, on a machine that does other things too."""
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"about {float(f'{seconds / unit:.2g}'):g} {name} of training here"
    whole = math.ceil(seconds)
    return f"about {whole} second{'' if whole == 1 else 's'} of training here"


def _size(size: int) -> str:
    return f"{size} bytes" if size < 1000 else f"{size / 1e3:,.0f} kB" if size < 1e6 else f"{size / 1e6:,.1f} MB"
