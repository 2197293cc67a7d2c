"""`Search`: begins, charges, runs, resumes and ends a search in its folder, in the order that privacy needs.

The order is the privacy argument: the draws are on the disk, then the public side, then the charge is durable, and only then is a
record read. Without the public side nothing was charged; without a result nothing has left.
"""

from __future__ import annotations

import copy
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from honestdp.boundary.data import PrivateData
from honestdp.budget import Statement
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.files import replace_file
from honestdp.identity import differing
from honestdp.ledger import Balance, KeyEnded
from honestdp.ledger.paying import NO_LEDGER, STAYS, UNPAID, Books, Payment
from honestdp.logs import silence
from honestdp.search import secret, vault
from honestdp.search import tune_result as leaving
from honestdp.search.configuration import VERSIONS, Configuration, differences, modules
from honestdp.search.design import Design
from honestdp.search.failures import MachineStopped, SearchFailed, guarded, in_own_words, without_records
from honestdp.search.folder import LOCK, Lock, begun_in, changed_code, is_over, make, remember_code, unwritable
from honestdp.search.guarantee import seen_by_cluster
from honestdp.search.planning import planned
from honestdp.search.runs import MACHINE, SEEN, Setting, Tested
from honestdp.search.secret import Secret
from honestdp.search.tune_result import TuneResult
from honestdp.search.vault import Store, Unkept, Vault
from honestdp.training.charging import uncharged
from honestdp.training.history import key_of, marks_of_models, recall, remember
from honestdp.training.progress import spinner
from honestdp.training.result import serialised

_OWN = (vault.FOLDER, LOCK)
RESUMES, DATA, WEIGHTS = "resumes", "data", "weights"
"""Secret files: the last token of a resume; digests of records and values; the first weights."""
_ANEW = (
    "a search of its own is charged anew and needs a folder of its own: name another, or pass again=True where out= is left "
    "out"
)


@dataclass(frozen=True)
class _Begun:
    """A search whose draws are made. new: not resumed. undo: takes back its files where it was not charged."""

    key: str
    store: Store
    plan: Secret
    new: bool = False
    undo: Callable[[], None] | None = None


class SearchStopped(KeyboardInterrupt):
    """Ctrl-C. With a folder, the same call goes on. charged: whether it may have come after the charge; paid: that in words."""

    def __init__(self, words: str = "", *, charged: bool = True, paid: str = STAYS) -> None:
        super().__init__(words)
        self.charged, self.paid = charged, paid


@contextmanager
def before_the_charge() -> Iterator[None]:
    """Ctrl-C in here cost nothing, and says so in the place of a traceback through what was being computed."""
    try:
        yield
    except KeyboardInterrupt:
        words = "the search was stopped before its charge: nothing was charged now, and no record was read"
        raise SearchStopped(f"{words}; the same call begins it again, or goes on with it", charged=False) from None


def look(
    folder: Path, configuration: Configuration, *, resume: bool, account: Callable[[str], Payment | None] | None = None
) -> TuneResult | _Begun | None:
    """What is in a folder: the result of a search that is over, one that goes on, or None; refused where it is another search.

    Args:
        resume: there must be a search in it. Otherwise one that is there goes on all the same.
        account: the payment of a key, where this process has the folder's lock: a search whose result is there is then ended.
    """
    path, over = folder / leaving.SEARCH, (folder / leaving.RESULT).exists()
    if not path.exists():
        _check_new(folder, resume)
        return None
    written = _read(path)
    others = differences(written, configuration.as_dict(), besides=VERSIONS if over else ())
    if over:
        others |= configuration.changed_text(written)
    _check_same(folder, others, resume)
    if account is not None and (over or (folder / leaving.PENDING).exists()):
        end(folder, account(written["key"]))
        return _over(folder, configuration)
    if over and not any(os.path.lexists(folder / name) for name in _OWN):
        _check_same(folder, changed_code(folder, configuration.code), resume)
        with suppress(OSError):  # a copy that cannot be written to can be read
            leaving.settle(folder)
        return _over(folder, configuration)
    if not over and is_over(folder):
        return _over(folder, configuration)  # which says what is missing
    try:
        store = Vault.open(folder / vault.FOLDER, written["key"])
        plan = secret.read(store.read(secret.PLAN))
    except HonestdpError:  # without the lock: another process may be ending it
        if account is None:
            return None
        raise
    _check_same(folder, differing(plan.code, configuration.code), resume)
    return _Begun(written["key"], store, plan)


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search whose public side is fixed.

    report: makes the report of a result and its charge's key. books: what it is charged to, if anything.
    """

    design: Design
    configuration: Configuration
    statement: Statement
    report: Callable[[TuneResult, str], str]
    tested: Tested
    books: Books | None = None

    def carry_out(
        self, data: PrivateData, folder: Path | None, *, resume: bool, show: bool, seconds: float | None = None
    ) -> TuneResult:
        """folder: None for a search that keeps nothing on a disk and cannot be resumed. show: say that it goes on, and that such
        a search takes so many seconds on average.
        """
        shown = partial(spinner, "searching", expected=seconds) if show else nullcontext
        with guarded(), ExitStack() as lasting:
            if folder is None:
                with before_the_charge():
                    begun = _Begun(uuid.uuid4().hex, Unkept(), self._planned(data), new=True)
            else:
                new = make(folder)
                lasting.enter_context(Lock(folder))
                found = look(folder, self.configuration, resume=resume, account=self._account)
                if isinstance(found, TuneResult):
                    return found
                with before_the_charge():
                    begun = found or self._begin(folder, new, data)
            result = self._go(data, begun, folder, shown)
            end(folder, self._account(begun.key))
            if folder is not None:
                remember_code(folder, begun.plan.code)
            return result

    def _go(
        self, data: PrivateData, begun: _Begun, folder: Path | None, shown: Callable[[], AbstractContextManager[None]]
    ) -> TuneResult:
        """Charge and run. What goes wrong is said without a word of the runs or of the records."""
        stopped, broken, account = False, "", self._account(begun.key)
        try:
            balance = self._paid(begun)
            with shown(), silence():
                return in_own_words(lambda: self._run(data, begun, balance, folder))
        except KeyboardInterrupt:
            stopped = True
        except MachineStopped as failure:
            broken = str(failure)
        except MACHINE as trouble:  # of the ledger's file or the folder, when the charge is made
            broken = str(without_records(trouble))
        except SearchFailed:
            end(folder, account)
            raise
        except KeyEnded:  # another copy has ended this search: what is left here could only take its noise away
            end(folder, None)
            raise
        # Raised here and not there: what the interrupted training says of itself stays behind.
        paid = NO_LEDGER if account is None else account.standing()
        more = "" if paid == UNPAID else " and nothing more is charged"
        way = "" if folder is None else f"; to go on, make the same call again: it is in {str(folder)!r}{more}"
        if stopped:
            raise SearchStopped(f"the search was stopped; {paid}{way}", paid=paid)
        raise HonestdpError(f"the machine stopped the search ({broken}); {paid}{way}")

    def _paid(self, begun: _Begun) -> Balance | None:
        """Durably, before a record is read."""
        account = self._account(begun.key)
        if account is None:
            return None
        count = self.design.count
        balance = account.charge(
            self.design.spending,
            what=f"honestdp tune, {'1 candidate' if count == 1 else f'{count} candidates'}",
            read=begun.store.read(DATA) is not None,
            delta=self.design.budget.delta,
            undo=begun.undo,
        )
        if not begun.new:
            last = json.loads(begun.store.read(RESUMES) or b'{"token": "", "after": ""}')
            account.resume(last, lambda mine: begun.store.write(RESUMES, json.dumps(mine).encode()))
        return balance

    def _account(self, key: str) -> Payment | None:
        return None if self.books is None else Payment.of(self.books, key)

    def _run(self, data: PrivateData, begun: _Begun, balance: Balance | None, folder: Path | None) -> TuneResult:
        design, plan, store, data = self.design, begun.plan, begun.store, data.read()
        check_data(self.configuration, data, store)
        setting = with_first_weights(self.configuration.setting, store)
        # A module that was made anew may have other frozen parts than those that the search began with.
        tested = self.tested if begun.new or setting is self.configuration.setting else {}
        how: dict[str, Any] = {"records": design.records, "store": store, "tested": tested}
        runs = setting.execution(design, plan, setting, data, **how)
        found = runs.finish()
        # A cluster that the search was begun on has seen it, wherever it ends.
        stated = self.statement if store.read(SEEN) is None else seen_by_cluster(self.statement)
        result = leaving.result_of(design, stated, runs, plan, found, balance)
        result = replace(result, folder=folder, page=partial(self.report, result, begun.key))
        if folder is not None:
            result.write(folder)
        return result

    def _planned(self, data: PrivateData) -> Secret:
        """All draws, and the plan. Silently: how long and how often something is tried tells of the number of runs."""
        with silence():
            drawn = secret.drawn(self.design, seed=self.configuration.seed)
            drawn = replace(drawn, code=dict(self.configuration.code))
            return planned(drawn, self.design, self.configuration.setting, data.shapes, self.tested)

    def _begin(self, folder: Path, new: list[Path], data: PrivateData) -> _Begun:
        """Secrets, then the public side: without it nothing was charged, and a search killed in here is begun anew."""
        try:
            vault.erase(folder / vault.FOLDER)
            key = uuid.uuid4().hex
            store = Vault.make(folder / vault.FOLDER, key)
            plan = self._planned(data)
            store.write(secret.PLAN, secret.written(plan))
            if isinstance(model := self.configuration.setting.model, torch.nn.Module):
                store.write(WEIGHTS, serialised(model))
            public = {"key": key, **self.configuration.with_spending(self.design.spending)}
            replace_file(folder / leaving.SEARCH, leaving.text_of(public), mode=0o644)
        except BaseException as trouble:
            undo(folder, new)
            if isinstance(trouble, OSError):
                raise unwritable(folder, trouble) from trouble
            raise
        return _Begun(key, store, plan, new=True, undo=partial(undo, folder, new))


def _check_new(folder: Path, resume: bool) -> None:
    """Whether a search can begin here; nothing is made yet."""
    try:
        present = sorted(folder.iterdir()) if folder.exists() else []
    except OSError as trouble:
        raise unwritable(folder, trouble) from trouble
    others = [path.name for path in present if path.name not in _OWN and not leaving.half_written(path.name)]
    if resume and (others or not present):
        wanted = "the folder of a search that was begun: there is none in it, so leave out resume to begin one"
        raise InvalidArgument("out", str(folder), wanted)
    if others:
        raise InvalidArgument("out", str(folder), f"a new or an empty folder; this one has {others[0]}")
    if (folder / vault.FOLDER / DATA).exists():
        wanted = f"the folder of a search with its {leaving.SEARCH}, which is missing: this search cannot go on"
        raise InvalidArgument("out", str(folder), wanted)


def _read(path: Path) -> dict[str, Any]:
    """The settings of the search in a folder, and its key."""
    try:
        written = json.loads(path.read_text())
        return {**written, "key": str(written["key"])}
    except (OSError, ValueError, KeyError, TypeError) as trouble:
        raise HonestdpError(f"{path} cannot be read ({type(trouble).__name__}): this search cannot go on") from trouble


def _check_same(folder: Path, others: set[str], resume: bool) -> None:
    if not others:
        return
    same, names = "a search with the same settings; it differs in", ", ".join(sorted(others))
    if resume:
        raise InvalidArgument("resume", str(folder), f"{same} {names}")
    wanted = f"a new folder, or that of {same} {names}; nothing was charged now. To go on, ask for the same; {_ANEW}"
    raise InvalidArgument("out", str(folder), wanted)


def _over(folder: Path, configuration: Configuration) -> TuneResult:
    """The result of a search that is over, from its files. Nothing is charged, trained or read."""
    from safetensors import SafetensorError

    try:
        return leaving.read(folder, configuration.setting.model, configuration.request.space)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as trouble:
        other = f"its files are damaged, or of another model ({type(trouble).__name__})"
        why = "this one failed, or a file of it is missing" if isinstance(trouble, FileNotFoundError) else other
        wanted = f"the folder of a search that can go on or is over: {why}; what it was charged stays charged; {_ANEW}"
        raise InvalidArgument("out", str(folder), wanted) from trouble


def check_data(configuration: Configuration, data: PrivateData, store: Store) -> None:
    """The same records as before, and the same numbers in the code."""
    digests = {"records": data.fingerprint(), "values": configuration.values()}
    content = store.read(DATA)
    known = digests if content is None else json.loads(content)
    if known["records"] != digests["records"]:
        raise InvalidArgument("data", "others", "the records that this search was begun with")
    if known["values"] != digests["values"]:
        wanted = "a search with the same numbers in its code: weights of the loss, what the factory makes, or the like differ"
        raise InvalidArgument("resume", True, wanted)
    if content is None:
        store.write(DATA, json.dumps(digests).encode())


def with_first_weights(setting: Setting, store: Store) -> Setting:
    """With the initial weights that the search began with: a module made anew may well have others."""
    weights = store.read(WEIGHTS)
    if not isinstance(setting.model, torch.nn.Module) or weights is None:
        return setting
    return replace(setting, model=leaving.load_weights(copy.deepcopy(setting.model), weights))


def end(folder: Path | None, account: Payment | None) -> None:
    """What is left to do when all that leaves is on the disk, or nothing leaves.

    Without a folder nobody can resume the search: a ledger that is busy must not cost its result.
    """
    if account is not None:
        account.end(if_possible=folder is None)
    if folder is None:
        return
    vault.erase(folder / vault.FOLDER)
    if (folder / leaving.PENDING).exists():
        leaving.finish(folder)
    (folder / LOCK).unlink(missing_ok=True)
    leaving.settle(folder)


def undo(folder: Path, new: list[Path]) -> None:
    """Take back a search to which nothing was charged. new: the folders that were made for it."""
    (folder / leaving.SEARCH).unlink(missing_ok=True)  # first: without it there is no search
    vault.erase(folder / vault.FOLDER)
    (folder / LOCK).unlink(missing_ok=True)
    with suppress(OSError):  # another search may have been put there meanwhile
        for path in new:
            path.rmdir()


def noted(
    search: Search, private: PrivateData, folder: Path | None, *, resume: bool, show: bool, seconds: float | None
) -> TuneResult:
    """The result of a search, with notes on what else this process did with the records; a refused one is not remembered."""
    configuration, statement, books = search.configuration, search.statement, search.books
    start = marks_of_models(modules(configuration.request.space, configuration.setting))
    past = recall(private, books=key_of(books), where=folder, resumed=begun_in(folder), start=start)
    notes = (*statement.notes, *uncharged(books), *past.notes)
    search = replace(search, statement=replace(statement, notes=notes))
    try:
        result = search.carry_out(private, folder, resume=resume, show=show, seconds=seconds)
    except (SearchStopped, SearchFailed):
        remember(past)
        raise
    remember(past, marks_of_models([result.model, *(one.model for one in result.candidates)]))
    return result
