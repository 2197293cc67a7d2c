"""The front door to a search: tune a model under one budget, and stand behind the epsilon.

The order of things is the privacy argument. First everything public is fixed and priced (`search.design`). Then everything
random is drawn (`search.secret`). Then the ledger is charged, durably. Only then is a record read, split by its coin, and
trained on or scored (`search.execution`). At the end the winner and the statement leave (`search.leaving`) and what was
secret is erased.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import honestdp
from honestdp import checks
from honestdp.budget import Budget, Statement
from honestdp.checkpoint import replace_file
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.data.split import as_pair, count, fingerprint
from honestdp.intake import Model, blank_of, try_out
from honestdp.ledger import Balance, Ledger, LedgerError, NotALedger
from honestdp.losses import Loss, default_loss
from honestdp.noise import noise_source
from honestdp.optimizers.schedules import Schedule, factors
from honestdp.parameters import layout_of
from honestdp.progress import Spinner
from honestdp.scores import Metric, default_metric, score_of
from honestdp.search import leaving, secret
from honestdp.search.design import Design, design
from honestdp.search.execution import Execution, SearchFailed, Setting, Standing, fresh
from honestdp.search.guarantee import guarantee
from honestdp.search.leaving import Trained, TuneResult
from honestdp.selection import Selection
from honestdp.space import Candidate, space_of
from honestdp.training import check_rules, place_of

__all__ = ["SearchFailed", "SearchStopped", "TuneResult", "tune"]

DATA = "data.sha256"


class SearchStopped(KeyboardInterrupt):
    """Ctrl-C. With a folder given, the search can go on."""


def tune(
    model: Model | Callable[..., torch.nn.Module],
    data: Any,
    *,
    budget: Budget,
    optimizer: str | Sequence[str] = "horizon",
    space: Mapping[str, Any] | None = None,
    selection: str | Selection = "auto",
    coverage: float = 0.9,
    lot: float | None = None,
    steps: int = 1000,
    records: int | None = None,
    validation: float = 0.2,
    metric: Metric | None = None,
    max_runs: float | None = None,
    published: bool = False,
    candidates: int | None = None,
    space_seed: int = 0,
    ledger: str | Path | None = None,
    dataset: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    loss: Loss | None = None,
    schedule: str | Schedule = "constant",
    device: str | torch.device | None = None,
    noise_seed: int | None = None,
    secure: bool = False,
    progress: bool = False,
    workers: int = 2,
    reproduce: str = "",
) -> TuneResult:
    """Search for hyperparameters and train, all within one budget.

    model: a module, or a function that makes one (with the argument `width` where the space has widths).
    data: (x, y) of tensors, arrays or memory-mapped arrays, or a map-style Dataset of pairs.
    budget: for everything: all runs, all scores, the choice among them.
    optimizer: one name or several: sgd, momentum, adam, adam-wosm, adadp, oso, quantile, or horizon, which needs no search and
        is the default: one run that gets the whole budget.
    space: hyperparameters to lists (a grid), LogUniform, Uniform or Choice; may hold lot, steps and width; for several optimizers
        a dictionary of these by optimizer. Left out, the papers' grid of each optimizer.
    selection: compose, winner, liu-talwar, papernot-steinke, profile, envelope; auto takes the one with the least noise per run.
    coverage: the chance that a given candidate is run, for selections that draw them.
    lot, steps: of every run, where the space does not have them. The lot is 250 unless told, or a quarter of few records.
    records: N, declared. Left out, it is that of the data, and the statement says so.
    validation: the fraction of the records that score the runs; each is chosen by a coin. 0 trains on all and scores nothing.
    metric: Accuracy for classes; honestdp.ClippedLoss(bound) or honestdp.DeclaredMetric(function, bound).
    max_runs: the most runs, on average. published: rest on published bounds alone.
    candidates: of a random search, how many draws it amounts to. space_seed: of those that are run once each.
    ledger, dataset: charge this dataset's budget in that file before any record is read.
    out: a new folder for model, statement, result and report, in which a search that was killed can be resumed.
    resume: go on with the search in `out`, with the same arguments; nothing is charged again.
    noise_seed: fixes every random number, to repeat a result that is then NOT PRIVATE.
    reproduce: for the report, the command or code that made the search.
    """
    size = count(data)
    checks.whole(least=1, records=size if records is None else records)
    if records is not None and records != size:
        wanted = f"{size}, as many as the data has. It sets the rates and must be public: pass exactly so many records"
        raise InvalidArgument("records", records, wanted)
    if (ledger is None) != (dataset is None):
        raise InvalidArgument("dataset", dataset, "given together with ledger: the name of the dataset in that file")
    if ledger is not None and noise_seed is not None:
        wanted = "left out with a ledger: a fixed seed is not private at any price"
        raise InvalidArgument("noise_seed", noise_seed, wanted)
    if resume and out is None:
        raise InvalidArgument("out", out, "the folder of the search to resume")
    if noise_seed is not None:
        checks.whole(least=0, noise_seed=noise_seed)
    if not isinstance(budget, Budget):
        raise InvalidArgument("budget", budget, "a honestdp.Budget(epsilon, delta)")
    checks.whole(least=0, space_seed=space_seed)
    made = design(
        budget=budget,
        records=size,
        fraction=float(validation),
        space=space_of(optimizer, space, lot=_lot(lot, size, validation), steps=steps),
        selection=selection,
        coverage=coverage,
        max_runs=max_runs,
        published=published,
        drawn=candidates,
        space_seed=space_seed,
        metric=_metric(metric, data, validation),
    )
    setting = Setting(
        model=model, loss=loss, schedule=schedule, device=place_of(device), secure=secure, workers=workers
    )
    classes = _rehearsed(made, setting, data)
    declared = records is not None
    public = _configuration(made, setting, data, declared=declared, seed=noise_seed, dataset=dataset)
    public |= {"coverage": coverage, "max_runs": max_runs, "published": published, "space_seed": space_seed}
    public["reproduce"] = reproduce
    said = guarantee(made, seeded=noise_seed is not None, declared=declared)
    search = Search(made, setting, public, said, classes, ledger, dataset, noise_seed)
    with tempfile.TemporaryDirectory(prefix="honestdp-") if out is None else nullcontext(str(out)) as folder:
        return search.carry_out(data, Path(folder), kept=out is not None, resume=resume, show=progress)


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
                result = self._run(data, folder, hidden, balance, kept)
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

    def _run(self, data: Any, folder: Path, hidden: Path, balance: Balance | None, kept: bool) -> TuneResult:
        self._check_data(data, hidden)
        drawn, setting = secret.load(hidden), self._as_begun(hidden)
        execution = Execution(self.design, drawn, setting, data, records=self.design.records, folder=hidden)
        standing = execution.finish()
        result = self._result(execution, drawn, standing, balance)
        if kept:
            result = replace(result, report=folder / leaving.REPORT)
            result.write(folder, self._report(result, str(json.loads((folder / leaving.SEARCH).read_text())["key"])))
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
        """The same records as before, with labels that are classes."""
        found, path = fingerprint(data), hidden / DATA
        if path.exists() and path.read_text() != found:
            raise InvalidArgument("data", "others", "the records that this search was begun with")
        replace_file(path, found.encode())
        pair, classes = as_pair(data), self.classes
        if pair is None or classes is None or not len(pair[1]):
            return
        if int(pair[1].min()) < 0 or int(pair[1].max()) >= classes:
            wrong = f"labels of some records are none of the model's {classes} classes, 0 to {classes - 1}"
            raise SearchFailed(f"{wrong}; which is not said, for it would tell of them")

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


def _lot(lot: float | None, records: int, validation: float) -> float:
    return min(250.0, max(1.0, records * (1 - validation) / 4)) if lot is None else lot


def _metric(metric: Metric | None, data: Any, validation: float) -> Metric | None:
    if metric is not None or not validation:
        return metric
    pair = as_pair(data)
    if pair is None:
        raise InvalidArgument("metric", None, "given for a Dataset, whose labels are not read before they are paid for")
    return default_metric(pair[1].dtype)


def _rehearsed(made: Design, setting: Setting, data: Any) -> int | None:
    """What can go wrong without a record goes wrong here: rules, models and losses. The number of classes, where known."""
    some = made.candidates or (made.space.draw(np.random.default_rng(0)),)
    check_rules([one.rule() for one in some], [made.run_of(one) for one in some], setting.schedule)
    for run in made.runs:
        factors(setting.schedule, run)
    noise_source(setting.device, seed=0, secure=setting.secure)
    pair, classes = as_pair(data), None
    for one in {candidate.width: candidate for candidate in some}.values():
        module = setting.module(one, 0).to(setting.device)
        layout_of(module)
        if pair is not None:
            x, y = blank_of(*pair, module=module)
            try:
                classes = try_out(module, setting.loss or default_loss(y.dtype), x, y)
            except RuntimeError as trouble:
                why = " ".join(str(trouble).split())
                wanted = f"a module that takes records of shape {list(x.shape[1:])} and labels of {list(y.shape[1:])} ({why})"
                raise InvalidArgument("model", type(module).__name__, wanted) from trouble
    return classes


def _configuration(
    made: Design, setting: Setting, data: Any, *, declared: bool, seed: int | None, dataset: str | None
) -> dict[str, Any]:
    """Everything public that decides what a search does: what is compared when it is resumed, and shown in the report."""
    some = made.candidates[0] if made.candidates else made.space.draw(np.random.default_rng(0))
    pair = as_pair(data)
    return {
        "honestdp": honestdp.__version__,
        "code": _code(),
        "torch": torch.__version__,
        "dataset": dataset,
        "records": made.records,
        "declared": declared,
        "data": None if pair is None else [f"{list(part.shape[1:])} {part.dtype}" for part in pair],
        "budget": {"epsilon": made.budget.epsilon, "delta": made.budget.delta},
        "validation": made.fraction,
        "metric": None if made.metric is None else _words(made.metric),
        "space": made.space.as_dict(),
        "spending": made.spending.as_dict(),
        "model": str(setting.module(some, 0)),
        "loss": None if setting.loss is None else _words(setting.loss),
        "schedule": _words(setting.schedule),
        "device": setting.device.type,
        "secure": setting.secure,
        "noise_seed": seed,
    }


def _words(value: Any) -> str:
    """Names a public setting alike in every process: functions by their names, for their addresses change."""
    if is_dataclass(value):
        own = [f"{field.name}={_words(getattr(value, field.name))}" for field in fields(value)]
        return f"{type(value).__name__}({', '.join(own)})"
    if isinstance(value, partial):
        own = [_words(one) for one in (value.func, *value.args)]
        return f"partial({', '.join([*own, *(f'{name}={_words(one)}' for name, one in value.keywords.items())])})"
    if isinstance(value, str):
        return value
    if callable(value) and not isinstance(value, torch.nn.Module):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    return repr(value)


@lru_cache(maxsize=1)
def _code() -> str:
    """A hash of this package's source, so that a search does not go on with other code."""
    root = Path(honestdp.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
