"""A search carried out, from its folder and the ledger's charge to what leaves; begun, killed, resumed or refused at any moment.

The order is the privacy argument: the draws are on the disk, then the public side, then the charge is durable, and only then is a
record read. Without the public side nothing was charged; without a result nothing has left.
"""

from __future__ import annotations

import copy
import json
import os
import uuid
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from honestdp.boundary.data import PrivateData
from honestdp.budget import Statement
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.files import replace_file
from honestdp.ledger import Balance, KeyEnded, Ledger, LedgerError
from honestdp.logs import silence
from honestdp.search import result as leaving
from honestdp.search import secret, vault
from honestdp.search.configuration import code_of, values_of
from honestdp.search.design import Design
from honestdp.search.errors import MachineStopped, SearchFailed, in_own_words, without_records
from honestdp.search.folder import LOCK, Lock, make, unwritable
from honestdp.search.guard import guarded
from honestdp.search.paying import Account
from honestdp.search.planning import planned
from honestdp.search.result import TuneResult
from honestdp.search.runs import MACHINE, Execution, Setting
from honestdp.search.secret import Secret
from honestdp.search.vault import Store, Unkept, Vault
from honestdp.training.progress import Spinner

DATA, WEIGHTS = "data", "weights"


@dataclass(frozen=True)
class _Begun:
    """A search whose draws are made. new: not resumed. made: the folders that were made for it."""

    key: str
    store: Store
    plan: Secret
    new: bool = False
    made: list[Path] = field(default_factory=list)


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

    def carry_out(self, data: PrivateData, folder: Path | None, *, resume: bool, show: bool) -> TuneResult:
        """folder: None for a search that keeps nothing on a disk and cannot be resumed."""
        with guarded(), ExitStack() as lasting:
            if folder is None:
                begun = _Begun(uuid.uuid4().hex, Unkept(), self._planned(data), new=True)
                result = self._go(data, begun, None, show)
                self._tell_the_end_of_unkept(begun.key)
                return result
            known, made = folder / leaving.SEARCH, list[Path]()
            if known.exists():
                self._known(known, resume)
                if (folder / leaving.RESULT).exists() and not any(os.path.lexists(folder / name) for name in _OWN):
                    with suppress(OSError):  # a copy that cannot be written to can be read
                        leaving.settle(folder)
                    return self._over(folder)
                if not any(os.path.lexists(folder / name) for name in _GOES_ON):
                    return self._over(folder)  # which says what is missing
            else:
                self._check_new(folder, resume)
                made = make(folder)
            lasting.enter_context(Lock(folder))
            # Once more: another process may have begun or ended the search before the lock was ours.
            if not known.exists():
                begun = self._begin(folder, made, data)
            else:
                key = self._known(known, resume)
                if (folder / leaving.RESULT).exists() or (folder / leaving.PENDING).exists():
                    self._end(folder, key)
                    return self._over(folder)
                begun = self._resumed(folder, key, data)
            result = self._go(data, begun, folder, show)
            self._end(folder, begun.key)
            return result

    def _go(self, data: PrivateData, begun: _Begun, folder: Path | None, show: bool) -> TuneResult:
        """Charge and run. What goes wrong is said without a word of the runs or of the records."""
        stopped, broken = False, ""
        try:
            balance = self._paid(begun)
            with Spinner("searching") if show else nullcontext(), silence():
                return in_own_words(lambda: self._run(data, begun, balance, folder))
        except KeyboardInterrupt:
            stopped = True
        except MachineStopped as failure:
            broken = str(failure)
        except MACHINE as trouble:  # of the ledger's file or the folder, when the charge is made
            broken = str(without_records(trouble))
        except SearchFailed:
            self._failed(folder, begun.key)
            raise
        except KeyEnded:  # another copy has ended this search: what is left here could only take its noise away
            if folder is not None:
                _forget(folder)
            raise
        except LedgerError as refusal:
            if begun.new and folder is not None and self._account(begun.key).surely_unpaid(refusal):
                _undo(folder, begun.made)
            raise
        # Raised here and not there: what the interrupted training says of itself stays behind.
        way = ""
        if folder is not None:
            way = f"; to go on, call again with the same arguments and resume=True (out={str(folder)!r})"
        if stopped:
            raise SearchStopped(f"the search was stopped; what it was charged stays charged{way}")
        raise HonestdpError(f"the machine stopped the search ({broken}); what it was charged stays charged{way}")

    def _end(self, folder: Path, key: str) -> None:
        """What is left to do when all that leaves is on the disk. Each step may be made again, so that a kill is no harm."""
        self._tell_the_end(key)
        vault.erase(folder / vault.FOLDER)
        if (folder / leaving.PENDING).exists():
            leaving.finish(folder)
        (folder / LOCK).unlink(missing_ok=True)
        leaving.settle(folder)

    def _failed(self, folder: Path | None, key: str) -> None:
        if folder is None:
            self._tell_the_end_of_unkept(key)
            return
        self._tell_the_end(key)
        _forget(folder)
        leaving.settle(folder)

    def _tell_the_end(self, key: str) -> None:
        if self.ledger is not None:
            Ledger(self.ledger).end(str(self.dataset), key=key)

    def _tell_the_end_of_unkept(self, key: str) -> None:
        """Of a search without a folder, which nobody can resume: a ledger that is busy must not cost its result."""
        with suppress(LedgerError, OSError):
            self._tell_the_end(key)

    def _check_new(self, folder: Path, resume: bool) -> None:
        """Whether a search can begin here; nothing is made yet."""
        try:
            found = sorted(folder.iterdir()) if folder.exists() else []
        except OSError as trouble:
            raise unwritable(folder, trouble) from trouble
        others = [path.name for path in found if path.name not in _OWN and not leaving.half_written(path.name)]
        if resume and (others or not found):
            wanted = "the folder of a search that was begun: there is none in it, so leave out resume to begin one"
            raise InvalidArgument("out", str(folder), wanted)
        if others:
            raise InvalidArgument("out", str(folder), f"a new or an empty folder; this one has {others[0]}")
        if (folder / vault.FOLDER / DATA).exists():
            wanted = f"the folder of a search with its {leaving.SEARCH}, which is missing: this search cannot go on"
            raise InvalidArgument("out", str(folder), wanted)
        if self.ledger is not None:
            Ledger(self.ledger).balance(str(self.dataset))  # no folder for a dataset that has no budget

    def _planned(self, data: PrivateData) -> Secret:
        """All draws, and the plan. Silently: how long and how often something is tried tells of the number of runs."""
        with silence():
            drawn = replace(secret.drawn(self.design, seed=self.seed), code=code_of(self.design, self.setting, data))
            return planned(drawn, self.design, self.setting, data)

    def _begin(self, folder: Path, made: list[Path], data: PrivateData) -> _Begun:
        """After the search's secrets and its public side are on the disk, the latter last: without it nothing was charged, so
        that a search killed in here is begun anew.
        """
        try:
            vault.erase(folder / vault.FOLDER)
            key = uuid.uuid4().hex
            store = Vault.make(folder / vault.FOLDER, key)
            plan = self._planned(data)
            store.write(secret.PLAN, secret.written(plan))
            if isinstance(self.setting.model, torch.nn.Module):
                store.write(WEIGHTS, leaving.serialised(self.setting.model))
            content = json.dumps({"key": key, **self.public}, indent=2) + "\n"
            replace_file(folder / leaving.SEARCH, content.encode(), mode=0o644)
        except OSError as trouble:
            _undo(folder, made)
            raise unwritable(folder, trouble) from trouble
        except BaseException:
            _undo(folder, made)
            raise
        return _Begun(key, store, plan, new=True, made=made)

    def _resumed(self, folder: Path, key: str, data: PrivateData) -> _Begun:
        store = Vault.open(folder / vault.FOLDER, key)
        plan = secret.read(store.read(secret.PLAN))
        found = code_of(self.design, self.setting, data)
        differing = sorted(name for name in {*found, *plan.code} if found.get(name) != plan.code.get(name))
        if differing:
            raise _other_settings(folder, differing)
        return _Begun(key, store, plan)

    def _known(self, path: Path, resume: bool) -> str:
        if not resume:
            wanted = "a new folder: this one holds a search; to go on with it, pass resume=True"
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
            raise _other_settings(path.parent, differing)
        return key

    def _paid(self, begun: _Begun) -> Balance | None:
        """Durably, before a record is read."""
        if self.ledger is None:
            return None
        account = self._account(begun.key)
        what = f"honestdp tune, {self.design.selection.name}"
        balance = account.charge(self.design.spending, what=what, read=begun.store.read(DATA) is not None)
        if not begun.new:
            account.resume(begun.store)
        return balance

    def _account(self, key: str) -> Account:
        return Account(Ledger(str(self.ledger)), str(self.dataset), key)

    def _run(self, data: PrivateData, begun: _Begun, balance: Balance | None, folder: Path | None) -> TuneResult:
        self._check_data(data, begun.store)
        execution = Execution(
            self.design,
            begun.plan,
            self._as_begun(begun.store),
            data,
            records=self.design.records,
            store=begun.store,
            classes=self.classes,
        )
        standing = execution.finish()
        result = leaving.result_of(self.design, self.said, execution, begun.plan, standing, balance)
        result = replace(result, folder=folder, page=partial(self._report, result, begun.key))
        if folder is not None:
            result.write(folder)
        return result

    def _as_begun(self, store: Store) -> Setting:
        """The setting with the initial weights that the search began with: a module made anew may well have others."""
        model, weights = self.setting.model, store.read(WEIGHTS)
        if not isinstance(model, torch.nn.Module) or weights is None:
            return self.setting
        return replace(self.setting, model=leaving.load_weights(copy.deepcopy(model), weights))

    def _check_data(self, data: PrivateData, store: Store) -> None:
        """The same records as before, and the same numbers in the code."""
        found = {"records": data.fingerprint(), "values": values_of(self.design, self.setting)}
        content = store.read(DATA)
        known = found if content is None else json.loads(content)
        if known["records"] != found["records"]:
            raise InvalidArgument("data", "others", "the records that this search was begun with")
        if known["values"] != found["values"]:
            wanted = "a search with the same numbers in its code: weights of the loss, what the factory makes, or the like differ"
            raise InvalidArgument("resume", True, wanted)
        if content is None:
            store.write(DATA, json.dumps(found).encode())

    def _report(self, result: TuneResult, key: str) -> str:
        from honestdp.report.search import report_of

        return report_of(result, self.design, self.public, dataset=self.dataset, key=key)

    def _over(self, folder: Path) -> TuneResult:
        """The result of a search that is over, from its files. Nothing is charged, trained or read."""
        from safetensors import SafetensorError

        try:
            result = leaving.read(folder, self.setting.model, self.said, self.design)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as trouble:
            wanted = (
                "the folder of a search that can go on or is over: this one failed, or its files are missing or damaged "
                f"({type(trouble).__name__})"
            )
            raise InvalidArgument("out", str(folder), wanted) from trouble
        return result


_OWN = (vault.FOLDER, LOCK)
_GOES_ON = (vault.FOLDER, leaving.PENDING, leaving.RESULT)


def _other_settings(folder: Path, differing: list[str]) -> InvalidArgument:
    wanted = f"a search with the same settings; it differs in {', '.join(differing)}"
    return InvalidArgument("resume", str(folder), wanted)


def _forget(folder: Path) -> None:
    vault.erase(folder / vault.FOLDER)
    (folder / LOCK).unlink(missing_ok=True)


def _undo(folder: Path, made: list[Path]) -> None:
    """Take back a search to which nothing was charged. made: the folders that it made."""
    (folder / leaving.SEARCH).unlink(missing_ok=True)  # first: without it there is no search
    _forget(folder)
    for path in made:
        path.rmdir()
