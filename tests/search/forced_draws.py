"""Searches whose secret draws are forced: any number of runs, any losers, always the same winner.

The draws that a search makes are replaced, and the winner's weights with them; everything else is the real code. Whoever compares
what leaves two such searches sees what an attacker could learn of the number of runs and of the losers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import stat
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch

import honestdp
from honestdp.ledger import Ledger
from honestdp.report import costs
from honestdp.search import secret
from honestdp.search import tune as tuning
from honestdp.search.design import Design
from honestdp.search.runs import Execution
from honestdp.selection import Selection
from tests.tiny_search import once_charged

from . import closed_form_search as closed_form

WINNER_NOISE, LOSER_NOISE = 2, -1_000_000
BATCH = 2  # in place of 256, so that few runs make several batches


@dataclass(frozen=True)
class Forced:
    """The secret side of a search. runs: K. place: the winner's. losers: the candidate that all others try.

    trouble: what becomes of the losers' trainings: nothing, weights that are no numbers, or an error.
    """

    runs: int
    place: int = 0
    losers: int = 0
    trouble: str | Exception | None = None
    everybody: bool = False
    stop: int | None = None
    """Ctrl-C in this batch."""


def force(patch: pytest.MonkeyPatch, how: Forced) -> None:
    """From here on every search draws this. The weights of the winner are those that a run with the same start would have."""
    real_draws, real_population, batches = secret.drawn, Execution._population, iter(range(10**6))

    def drawn(made: Design, *, seed: int | None) -> secret.Secret:
        one = real_draws(made, seed=7)
        candidates = [made.candidates[how.losers]] * how.runs
        noise = [LOSER_NOISE - run for run in range(how.runs)]
        starts = [100 + run for run in range(how.runs)]
        candidates[how.place], noise[how.place], starts[how.place] = made.candidates[1], WINNER_NOISE, 1
        own = tuple((run + 0.5) / how.runs for run in range(how.runs))
        forced = {"candidates": tuple(candidates), "noise": tuple(noise), "ties": own, "starts": tuple(starts)}
        return replace(one, **forced, seed=real_draws(made, seed=seed).seed, fixed=seed)

    def population(self: Execution, batch: list[int], name: str, seed: Any) -> list[Any]:
        if next(batches) == how.stop:
            raise KeyboardInterrupt
        failing = [run for run in batch if how.everybody or run != how.place]
        if failing and isinstance(how.trouble, Exception):
            raise how.trouble
        weights = real_population(self, batch, name, seed)
        for place, run in enumerate(batch):
            if run in failing and how.trouble == "diverged":
                weights[place] = torch.full_like(weights[place], float("nan"))
            elif run == how.place:
                weights[place] = torch.full_like(weights[place], 0.25)
        return weights

    patch.setattr(secret, "drawn", drawn)
    once_charged(patch, Execution, "_population", population)
    patch.setattr("honestdp.search.runs.BATCH", BATCH)


_known: dict[str, Any] = {}


def remember_public_numbers(patch: pytest.MonkeyPatch) -> None:
    """Prices are functions of public numbers: each is worked out once for all of these tests."""

    def once(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapped(*args: Any, **named: Any) -> Any:
            key = f"{function.__qualname__}{args}{sorted(named.items())}"
            if key not in _known:
                _known[key] = function(*args, **named)
            return _known[key]

        return wrapped

    for module, name in ((tuning, "design"), (tuning, "guarantee"), (costs, "compare"), (Design, "plan")):
        patch.setattr(module, name, once(getattr(module, name)))


class Warner(closed_form.OneWeight):
    """A model that warns whenever it is used: how often tells of the runs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        warnings.warn("used", UserWarning, stacklevel=2)
        return super().forward(x)


def tune(folder: Path, selection: Selection | str, **named: Any) -> honestdp.TuneResult:
    """A tiny search into `folder`/out, charged to a ledger beside it unless told."""
    ledger = folder / "ledger.db"
    if "noise_seed" not in named and "ledger" not in named:
        Ledger(ledger).set_budget("tiny", honestdp.Budget(5.0, 1e-4))
        named |= {"ledger": ledger, "dataset": "tiny"}
    options: dict[str, Any] = {
        "budget": closed_form.BUDGET,
        "optimizer": "sgd",
        "space": {"lr": list(closed_form.RATES), "clip": 1.0},
        "selection": selection,
        "lot": closed_form.LOT,
        "steps": 1,
        "validation": closed_form.FRACTION,
        "loss": closed_form.second_logit,
        "out": folder / "out",
    }
    data = named.pop("data", None)
    return honestdp.tune(
        named.pop("model", None) or closed_form.OneWeight(-0.33), data or closed_form.records(), **{**options, **named}
    )


class Heard(logging.Handler):
    """Every record of every logger."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name} {record.levelname} {record.getMessage()}")


def leavings(folder: Path, search: Callable[[Path], Any]) -> dict[str, Any]:
    """All that a search in this folder gives away: result or error, logs, warnings, files with their modes and times, entries."""
    folder.mkdir(exist_ok=True)
    heard, levels = Heard(), {}
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in list(logging.root.manager.loggerDict))]
    for each in loggers:
        levels[each] = each.level
        each.setLevel(logging.DEBUG)
    logging.getLogger().addHandler(heard)
    found: dict[str, Any] = {}
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found["told"] = told(search(folder))
    except BaseException as error:
        found["error"] = "".join(traceback.format_exception(error))
    finally:
        logging.getLogger().removeHandler(heard)
        for each, level in levels.items():
            each.setLevel(level)
    found["logs"], found["warnings"] = heard.lines, [str(warning.message) for warning in warned]
    found |= files(folder / "out")
    if (folder / "ledger.db").exists():
        entries = Ledger(folder / "ledger.db").entries()
        found["ledger"] = [(e.dataset, e.kind, e.what, e.content, len(e.key)) for e in entries]
    return {name: without_key(value, folder) for name, value in found.items()}


def told(result: Any) -> Any:
    if not isinstance(result, honestdp.TuneResult):
        return result
    weights = [value.tolist() for value in result.model.state_dict().values()]
    public = result.as_dict()
    if public["ledger"] is not None:
        public["ledger"]["head"] = "HEAD"
    return json.dumps([public, weights, str(result.statement), str(result.score), sorted(vars(result))])


def files(out: Path) -> dict[str, Any]:
    """Names, modes, bytes, and how much later than the search's beginning each was written."""
    if not out.exists():
        return {"files": None}
    begun = (out / "search.json").stat().st_mtime_ns
    found = {}
    for path in [out, *sorted(out.rglob("*"))]:
        if ".secret" in path.parts:
            continue
        about = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        later = about.st_mtime_ns - begun
        if path.name == ".lock":  # made before the search's public side, in a folder that is not settled
            later = min(0, later) and -1
        found[str(path.relative_to(out))] = (stat.filemode(about.st_mode), later, content)
    return {"files": found, "secret": (out / ".secret").exists()}


def without_key(value: Any, folder: Path) -> Any:
    """The value without what is random in every search (its key, the ledger's hashes) and without where it is put."""
    if isinstance(value, dict):
        return {name: without_key(one, folder) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_key(one, folder) for one in value]
    if isinstance(value, bytes):
        try:
            return without_key(value.decode(), folder)
        except UnicodeDecodeError:
            return hashlib.sha256(value).hexdigest()
    if isinstance(value, str):
        return re.sub(r"\b[0-9a-f]{32}([0-9a-f]{32})?\b", "HASH", value).replace(str(folder), "FOLDER")
    return value
