"""What leaves a search, and nothing else: the winner, its noisy score, the statement, the public design.

Everything written here is a function of the public design and of what the selection lets out. For a selection whose candidates
all leave, that is every model. Files are replaced whole. The result is first written under a name that is not its own; then
the ledger is told and what was secret is erased; only then has the result its name, which says that the search is over. A
search that is killed in between writes the same files again, or ends what is left to do.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from honestdp.boundary.score_noise import Score, score_of
from honestdp.budget import Budget, Statement, number
from honestdp.files import opened, replace_file
from honestdp.ledger import Balance
from honestdp.notebook import Rows
from honestdp.run import Run
from honestdp.search.design import Design
from honestdp.search.runs import Execution, Standing, first_arguments
from honestdp.search.secret import Secret
from honestdp.search.space import Space
from honestdp.training.population import fresh
from honestdp.training.result import Outcome, serialised

SEARCH, PENDING, RESULT = "search.json", ".result.json.pending", "result.json"
MODEL, STATEMENT, REPORT, CANDIDATES = "model.safetensors", "statement.json", "report.html", "candidates"
_NAMES = "|".join(re.escape(name) for name in (SEARCH, PENDING, MODEL, STATEMENT, RESULT, REPORT))
_CANDIDATE = r"\d{4,}\.safetensors"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A candidate that leaves with its model: one of a composition."""

    hyperparameters: dict[str, Any]
    model: nn.Module


@dataclass(frozen=True, kw_only=True, repr=False)
class TuneResult(Outcome):
    """The winner of a search, and what is guaranteed about it: what `tune` returns.

    model, hyperparameters: the winner's; the model is in eval mode, and so are those of `candidates`.
    score: the winner's noisy validation score; None where nothing was scored. The winner of many is flattered by its score.
    budget: what the search was given. statement: what it guarantees.
    run: the constants of the winner's training.
    candidates: every trained candidate, for a selection under which all leave.
    balance: the dataset's, around this search.
    folder: where the search keeps its files, `report.html` among them, where one was given.
    page: the report, or what makes it.

    >>> import torch, honestdp
    >>> data, budget = honestdp.load_dataset("digits").train, honestdp.Budget(epsilon=1.0, delta=1e-5)
    >>> result = honestdp.tune(lambda: torch.nn.Linear(64, 10), data, budget=budget, lot=64, steps=5)
    >>> result.hyperparameters
    {'optimizer': 'echo', 'lot': 64, 'steps': 5}
    >>> print(result.statement.how)
    one run
    """

    model: nn.Module
    hyperparameters: dict[str, Any]
    score: Score | None
    budget: Budget
    run: Run
    statement: Statement
    candidates: tuple[Trained, ...] = ()
    balance: Balance | None = None
    folder: Path | None = None
    page: str | Callable[[], str] = field(default="", compare=False, repr=False)

    def _stated(self) -> Statement:
        return self.statement

    def _rows(self) -> Rows:
        rows = super()._rows()
        if self.score is not None:
            rows.append(("score", self.score.in_words(of_a_winner=self.statement.runs != 1)))
        if self.folder is not None:
            rows.append(("report", str(self.folder / REPORT)))
        return rows

    @property
    def epsilon(self) -> float:
        """What the whole search spent, at `delta`."""
        return self.statement.epsilon

    @property
    def delta(self) -> float:
        """The budget's, at which epsilon is stated."""
        return self.budget.delta

    def as_dict(self) -> dict[str, Any]:
        return {
            "hyperparameters": self.hyperparameters,
            "score": None if self.score is None else self.score.as_dict(),
            "epsilon": number(self.epsilon),
            "delta": self.budget.delta,
            "budget": {"epsilon": self.budget.epsilon, "delta": self.budget.delta},
            "run": vars(self.run),
            "candidates": [one.hyperparameters for one in self.candidates],
            "ledger": None if self.balance is None else self.balance.as_dict(),
            "report": None if self.folder is None else REPORT,
            "statement": self.statement.as_dict(),
        }

    def _page(self) -> str:
        return self.page if isinstance(self.page, str) else self.page()

    def __getstate__(self) -> dict[str, Any]:
        """With the report itself: what makes it knows the search, whose functions cannot travel."""
        return {**vars(self), "page": self._page()}

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Everything that leaves, by its name in the folder; the result last, and under another name than its own."""
        yield MODEL, serialised(self.model)
        for i, one in enumerate(self.candidates):
            yield f"{CANDIDATES}/{i:04d}.safetensors", serialised(one.model)
        yield STATEMENT, text_of(self.statement.as_dict())
        yield REPORT, self._page().encode()
        yield PENDING, text_of(self.as_dict())

    def write(self, folder: Path) -> None:
        """Everything that leaves, into a folder; see `finish`."""
        if self.candidates:
            (folder / CANDIDATES).mkdir(mode=0o755, exist_ok=True)
        for name, content in self.files():
            replace_file(folder / name, content, mode=0o644)


def result_of(
    design: Design, statement: Statement, runs: Execution, plan: Secret, standing: Standing, balance: Balance | None
) -> TuneResult:
    """What leaves a search that stands there: the winner, and every run where all leave."""
    if standing.best is None or standing.weights is None:  # a count that may be zero was zero
        model, winner = runs.untrained(), None
    else:
        model, winner = runs.model(standing.best, standing.weights), plan.candidates[standing.best]
    score = None
    if design.metric is not None and design.multiplier is not None and math.isfinite(standing.noisy):
        law = {"multiplier": design.multiplier, "records": design.validation_records, "fraction": design.fraction}
        score = score_of(design.metric, int(standing.noisy), **law)
    return TuneResult(
        model=model.eval(),
        hyperparameters={} if winner is None else winner.hyperparameters,
        score=score,
        budget=design.whole,
        run=design.runs[0] if winner is None else design.run_of(winner),
        statement=statement,
        candidates=tuple(
            Trained(hyperparameters=plan.candidates[run].hyperparameters, model=runs.model(run, weights).eval())
            for run, weights in sorted(standing.kept.items())
        ),
        balance=balance,
    )


def text_of(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=2) + "\n").encode()


def finish(folder: Path) -> None:
    """Give the result its name: from here on the search is over."""
    with opened(folder) as handle:
        os.replace(PENDING, RESULT, src_dir_fd=handle, dst_dir_fd=handle)
        os.fsync(handle)


def settle(folder: Path) -> None:
    """What a kill left half written goes, and folder and files get the time at which the search began: files that travel do not
    say how long it took. (On the disk that they were written to, the time of their last change of status does.)
    """
    begun = (folder / SEARCH).stat().st_mtime_ns
    inner = folder / CANDIDATES
    for place, names in ((inner, _CANDIDATE), (folder, _NAMES)):
        if not place.is_dir() or (place == inner and place.is_symlink()):
            continue
        for path in sorted(place.iterdir()):
            if not stat.S_ISREG(path.lstat().st_mode):
                continue
            if half_written(path.name, names):
                path.unlink()
            elif re.fullmatch(names, path.name):
                _set_time(path, begun)
        _set_time(place, begun)


def half_written(name: str, names: str = _NAMES) -> bool:
    """Whether a file that a search writes into its folder has this name until it is whole. Other files are not ours to touch."""
    return re.fullmatch(rf"\.({names})\.\d+\.new", name) is not None


def _set_time(path: Path, time: int) -> None:
    if path.stat().st_mtime_ns != time:
        os.utime(path, ns=(time, time))


def load_weights(model: nn.Module, content: bytes) -> nn.Module:
    from safetensors.torch import load

    model.load_state_dict(load(content))
    return model


def read(folder: Path, model: Any, space: Space) -> TuneResult:
    """The result that `write` wrote. model, space: what the search was made with."""
    found = read_from(lambda name: (folder / name).read_bytes(), model, space)
    return replace(found, folder=folder, page=(folder / REPORT).read_text)


def read_from(content: Callable[[str], bytes], model: Any, space: Space) -> TuneResult:
    """The result in these files, by their names."""
    written = json.loads(content(RESULT))
    score, ledger = written["score"], written["ledger"]
    if score is not None:
        score = Score.from_dict(score)
    if ledger is not None:
        names = ("dataset", "before", "spent", "charges", "charged", "head")
        numbers = {name: ledger[name] for name in names}
        ledger = Balance(
            budget=Budget(**ledger["budget"]), **numbers, entry=ledger.get("entry"), unit=ledger.get("unit", "")
        )

    def trained(hyperparameters: dict[str, Any], name: str) -> nn.Module:
        arguments = space.arguments(hyperparameters) if hyperparameters else first_arguments(space)
        return load_weights(fresh(model, arguments=arguments, start=0), content(name)).eval()

    every = tuple(
        Trained(hyperparameters=values, model=trained(values, f"{CANDIDATES}/{i:04d}.safetensors"))
        for i, values in enumerate(written["candidates"])
    )
    return TuneResult(
        model=trained(written["hyperparameters"], MODEL),
        hyperparameters=written["hyperparameters"],
        score=score,
        budget=Budget(**written["budget"]),
        run=Run(**written["run"]),
        statement=Statement.from_dict(written["statement"]),
        candidates=every,
        balance=ledger,
        folder=Path(),
    )
