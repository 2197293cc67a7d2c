"""A search carried out, from its folder and the ledger's charge to what leaves; begun, killed, resumed or refused at any moment.

The order is the privacy argument: the draws are on the disk, then the public side, then the charge is durable, and only then is a
record read. Without the public side nothing was charged; without a result nothing has left.
"""

from __future__ import annotations

import copy
import json
import math
import os
import uuid
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from honestdp.budget import Statement
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.data.split import fingerprint
from honestdp.files import replace_file
from honestdp.ledger import Balance, Ledger, LedgerError, NotALedger
from honestdp.progress import Spinner
from honestdp.scores import score_of
from honestdp.search import leaving, secret
from honestdp.search.design import Design
from honestdp.search.errors import SearchFailed
from honestdp.search.execution import Execution, Setting, Standing, fresh
from honestdp.search.leaving import Trained, TuneResult
from honestdp.space import Candidate

DATA = "data.sha256"


class SearchStopped(KeyboardInterrupt):
    """Ctrl-C. With a folder given, the search can go on."""


@dataclass(frozen=True)
class Search:
    """A search whose public side is fixed."""

    design: Design
    setting: Setting
    public: dict[str, Any]
    said: Statement
    classes: int | None
    ledger: str | Path | None
    dataset: str | None
    seed: int | None

    def carry_out(self, data: Any, folder: Path, *, kept: bool, resume: bool, show: bool) -> TuneResult:
        hidden, known = folder / secret.FOLDER, folder / leaving.SEARCH
        made: list[Path] | None = None
        if known.exists():
            key = self._known(known, resume)
            if (folder / leaving.RESULT).exists() or not hidden.exists():
                return self._over(folder)
        else:
            key, made = self._begin(folder, resume=resume)
        stopped, broken = False, ""
        try:
            balance = self._charge(key, hidden)
            with Spinner("searching") if show else nullcontext():
                result = self._run(data, folder, key, balance, kept)
        except KeyboardInterrupt:
            stopped = True
        except SearchFailed:
            self._end(folder, hidden)
            raise
        except OSError as trouble:  # its file may be a record's, or tell which run it was
            broken = os.strerror(trouble.errno) if trouble.errno else type(trouble).__name__
        except LedgerError as refusal:
            # Not for an error of the file that leaves open whether it was written: then the search stays, and its key with it.
            if made is not None and not isinstance(refusal, NotALedger):
                _undo(folder, made)
            raise
        # Raised here and not there: what the interrupted training says of itself stays behind.
        way = f"; to go on, call again with the same arguments and resume=True (out={str(folder)!r})" if kept else ""
        if broken:
            raise HonestdpError(f"the machine stopped the search ({broken}); what it was charged stays charged{way}")
        if stopped:
            raise SearchStopped(f"the search was stopped; what it was charged stays charged{way}")
        self._end(folder, hidden)
        return result

    def _end(self, folder: Path, hidden: Path) -> None:
        secret.erase(hidden)
        leaving.settle(folder)

    def _begin(self, folder: Path, *, resume: bool) -> tuple[str, list[Path]]:
        """(key, new folders), after the search's public side and its secrets are on the disk, the former last.

        Without it nothing was charged, so that a search killed in here is begun anew.
        """
        try:
            found = sorted(folder.iterdir()) if folder.exists() else []
        except OSError as trouble:
            raise _unwritable(folder, trouble) from trouble
        others = [path.name for path in found if path.name not in _OWN and not path.name.endswith(".new")]
        if (folder / secret.FOLDER / DATA).exists():
            wanted = f"the folder of a search with its {leaving.SEARCH}, which is missing: this search cannot go on"
            raise InvalidArgument("out", str(folder), wanted)
        if resume and (others or not found):
            wanted = "the folder of a search that was begun: there is none in it, so leave out resume to begin one"
            raise InvalidArgument("out", str(folder), wanted)
        if others:
            raise InvalidArgument("out", str(folder), f"a new or an empty folder; this one has {others[0]}")
        if self.ledger is not None:
            Ledger(self.ledger).balance(str(self.dataset))  # no folder for a dataset that has no budget
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            secret.erase(folder / secret.FOLDER)
            secret.save(folder / secret.FOLDER, secret.drawn(self.design, seed=self.seed))
            if isinstance(self.setting.model, torch.nn.Module):
                replace_file(folder / secret.FOLDER / leaving.MODEL, leaving.serialised(self.setting.model))
            key = uuid.uuid4().hex
            content = json.dumps({"key": key, **self.public}, indent=2) + "\n"
            replace_file(folder / leaving.SEARCH, content.encode(), mode=0o644)
        except OSError as trouble:
            _undo(folder, made)
            raise _unwritable(folder, trouble) from trouble
        return key, made

    def _known(self, path: Path, resume: bool) -> str:
        if not resume:
            wanted = "a new folder: this one holds a search; to go on with it, pass resume=True (--resume)"
            raise InvalidArgument("out", str(path.parent), wanted)
        try:
            known = json.loads(path.read_text())
            key = str(known.pop("key"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as trouble:
            raise HonestdpError(
                f"{path} cannot be read ({type(trouble).__name__}): this search cannot go on"
            ) from trouble
        differing = sorted(name for name in {*known, *self.public} if known.get(name) != self.public.get(name))
        if differing:
            raise InvalidArgument(
                "resume", str(path.parent), f"a search with the same settings; it differs in {', '.join(differing)}"
            )
        return key

    def _charge(self, key: str, hidden: Path) -> Balance | None:
        """Durably, before a record is read. The same key is charged once, however often the search is resumed."""
        if self.ledger is None:
            return None
        ledger, dataset = Ledger(self.ledger), str(self.dataset)
        read = (hidden / DATA).exists()
        if read and not any(charge.entry.key == key for charge in ledger.charges(dataset)):
            wanted = "the one that this search was charged to: in this one its charge is missing"
            raise InvalidArgument("ledger", str(self.ledger), wanted)
        what = f"honestdp tune, {self.design.selection.name}"
        balance = ledger.charge(dataset, self.design.spending, key=key, what=what)
        return replace(balance, charged=True)  # by the search, if not by this call: a resumed one says no other thing

    def _run(self, data: Any, folder: Path, key: str, balance: Balance | None, kept: bool) -> TuneResult:
        hidden = folder / secret.FOLDER
        self._check_data(data, hidden)
        drawn, setting = secret.load(hidden), self._as_begun(hidden)
        execution = Execution(
            self.design, drawn, setting, data, records=self.design.records, folder=hidden, classes=self.classes
        )
        standing = execution.finish()
        result = self._result(execution, drawn, standing, balance)
        if kept:
            result = replace(result, report=folder / leaving.REPORT)
            result.write(folder, self._report(result, key))
        return result

    def _as_begun(self, hidden: Path) -> Setting:
        """The setting with the initial weights that the search began with: a module made anew may well have others."""
        from safetensors import SafetensorError

        model, path = self.setting.model, hidden / leaving.MODEL
        if not isinstance(model, torch.nn.Module):
            return self.setting
        try:
            return replace(self.setting, model=leaving.load_weights(copy.deepcopy(model), path))
        except (OSError, SafetensorError, RuntimeError) as trouble:
            raise HonestdpError(
                f"the initial weights in {path} cannot be read ({type(trouble).__name__}): this search cannot go on; what it "
                f"was charged stays charged"
            ) from trouble

    def _check_data(self, data: Any, hidden: Path) -> None:
        """The same records as before."""
        found, path = fingerprint(data), hidden / DATA
        if path.exists() and path.read_text() != found:
            raise InvalidArgument("data", "others", "the records that this search was begun with")
        replace_file(path, found.encode())

    def _result(
        self, execution: Execution, drawn: secret.Secret, standing: Standing, balance: Balance | None
    ) -> TuneResult:
        if standing.best is None or standing.weights is None:  # a count that may be zero was zero
            untrained = fresh(self.setting.model, width=None, start=0)
            return self._leaving(untrained, None, standing.noisy, balance, ())
        every = tuple(
            Trained(hyperparameters=drawn.candidates[run].hyperparameters, model=execution.model(run, weights))
            for run, weights in sorted(standing.kept.items())
        )
        winner = drawn.candidates[standing.best]
        return self._leaving(execution.model(standing.best, standing.weights), winner, standing.noisy, balance, every)

    def _leaving(
        self,
        model: torch.nn.Module,
        winner: Candidate | None,
        noisy: float,
        balance: Balance | None,
        every: tuple[Trained, ...],
    ) -> TuneResult:
        plan, score = self.design, None
        if plan.metric is not None and plan.multiplier is not None and math.isfinite(noisy):
            score = score_of(
                plan.metric,
                int(noisy),
                multiplier=plan.multiplier,
                records=plan.validation_records,
                fraction=plan.fraction,
            )
        return TuneResult(
            model=model.eval(),
            hyperparameters={} if winner is None else winner.hyperparameters,
            score=score,
            budget=plan.budget,
            run=plan.runs[0] if winner is None else plan.run_of(winner),
            statement=self.said,
            candidates=every,
            balance=balance,
        )

    def _report(self, result: TuneResult, key: str) -> str:
        from honestdp.report.search import report_of

        return report_of(result, self.design, self.public, dataset=self.dataset, key=key)

    def _over(self, folder: Path) -> TuneResult:
        """The result of a search that is over, from its files. Nothing is charged, trained or read.

        One that was killed between its result and its end is ended here.
        """
        from safetensors import SafetensorError

        try:
            result = leaving.read(folder, self.setting.model, self.said, self.design)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as trouble:
            wanted = (
                "the folder of a search that can go on or is over: this one failed, or its files are missing or damaged "
                f"({type(trouble).__name__})"
            )
            raise InvalidArgument("out", str(folder), wanted) from trouble
        self._end(folder, folder / secret.FOLDER)
        return result


_OWN = (secret.FOLDER, secret.ERASED)


def _unwritable(folder: Path, trouble: OSError) -> InvalidArgument:
    return InvalidArgument("out", str(folder), f"a folder that can be made and written ({trouble.strerror})")


def _undo(folder: Path, made: list[Path]) -> None:
    """Take back a search to which nothing was charged. made: the folders that it made."""
    if folder.is_dir():
        (folder / leaving.SEARCH).unlink(missing_ok=True)  # first: without it there is no search
        secret.erase(folder / secret.FOLDER)
    for path in made:
        if path.exists():
            path.rmdir()
