"""What leaves a search, and nothing else: the winner, its noisy score, the statement, the public design.

Everything written here is a function of the public design and of what the selection lets out. For a selection whose candidates
all leave, that is every model. Files are replaced whole, the last of them says that the search is over, and only then is
what was secret erased: a search that is killed in between writes the same files again.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from honestdp.budget import Budget, Statement, number
from honestdp.files import replace_file
from honestdp.ledger import Balance
from honestdp.run import Run
from honestdp.scores import Score
from honestdp.search import secret
from honestdp.search.design import Design
from honestdp.search.execution import fresh

SEARCH = "search.json"
MODEL, STATEMENT, RESULT, REPORT, CANDIDATES = (
    "model.safetensors",
    "statement.json",
    "result.json",
    "report.html",
    "candidates",
)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A candidate that leaves with its model: one of a composition."""

    hyperparameters: dict[str, Any]
    model: nn.Module


@dataclass(frozen=True, kw_only=True)
class TuneResult:
    """The winner of a search, and what is guaranteed about it.

    score: the winner's noisy validation score; None where nothing was scored. The winner of many is flattered by its score.
    run: the constants of the winner's training. candidates: every trained candidate, for a selection under which all leave.
    balance: the dataset's, around this search. report: the HTML file, where a folder was given.
    """

    model: nn.Module
    hyperparameters: dict[str, Any]
    score: Score | None
    budget: Budget
    run: Run
    statement: Statement
    candidates: tuple[Trained, ...] = ()
    balance: Balance | None = None
    report: Path | None = None

    @property
    def epsilon(self) -> float:
        """What the whole search spent, at `budget.delta`."""
        return self.statement.epsilon

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
            "report": None if self.report is None else self.report.name,
            "statement": self.statement.as_dict(),
        }

    @cached_property
    def _text(self) -> bytes:
        return (json.dumps(self.as_dict(), indent=2) + "\n").encode()

    def write(self, folder: Path, report: str) -> None:
        """Everything that leaves, into a folder; `result.json` last."""
        replace_file(folder / MODEL, serialised(self.model), mode=0o644)
        for i, one in enumerate(self.candidates):
            (folder / CANDIDATES).mkdir(exist_ok=True)
            replace_file(folder / CANDIDATES / f"{i:04d}.safetensors", serialised(one.model), mode=0o644)
        replace_file(folder / STATEMENT, (json.dumps(self.statement.as_dict(), indent=2) + "\n").encode(), mode=0o644)
        replace_file(folder / REPORT, report.encode(), mode=0o644)
        replace_file(folder / RESULT, self._text, mode=0o644)
        settle(folder)


def settle(folder: Path) -> None:
    """What a kill left half written goes, and folder and files get the time at which the search began: files that travel do not
    say how long it took.
    """
    for path in folder.rglob(".*.new"):
        if secret.FOLDER not in path.parts:
            path.unlink()
    begun = (folder / SEARCH).stat().st_mtime_ns
    for path in (*sorted(folder.rglob("*")), folder):
        if secret.FOLDER not in path.parts and path.stat().st_mtime_ns != begun:
            os.utime(path, ns=(begun, begun))


def serialised(model: nn.Module) -> bytes:
    """Weights as safetensors: never a pickle, which could run code when read."""
    from safetensors.torch import save

    return save(
        {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()},
        {"format": "pt"},
    )


def load_weights(model: nn.Module, path: Path) -> nn.Module:
    from safetensors.torch import load_file

    model.load_state_dict(load_file(path))
    return model


def read(folder: Path, model: Any, statement: Statement, design: Design) -> TuneResult:
    """The result that `write` wrote. model: what the search was made with."""
    found = json.loads((folder / RESULT).read_text())
    score, ledger = found["score"], found["ledger"]
    if score is not None:
        score = Score(**{name: score[name] for name in ("name", "value", "low", "high", "noise")})
    if ledger is not None:
        ledger = {name: ledger[name] for name in ("dataset", "before", "spent", "charges", "charged", "head")} | {
            "budget": Budget(**ledger["budget"])
        }

    def made(hyperparameters: dict[str, Any], path: Path) -> nn.Module:
        return load_weights(fresh(model, width=hyperparameters.get("width"), start=0), path).eval()

    every = tuple(
        Trained(hyperparameters=one, model=made(one, folder / CANDIDATES / f"{i:04d}.safetensors"))
        for i, one in enumerate(found["candidates"])
    )
    return TuneResult(
        model=made(found["hyperparameters"], folder / MODEL),
        hyperparameters=found["hyperparameters"],
        score=score,
        budget=design.budget,
        run=Run(**found["run"]),
        statement=statement,
        candidates=every,
        balance=None if ledger is None else Balance(**ledger),
        report=folder / REPORT,
    )
