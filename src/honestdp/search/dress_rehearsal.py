"""A whole search in small, on made-up records, before the charge: train, score, choose, save, report, read back.

What can go wrong without a record goes wrong here, in its own words, and costs nothing. First rules, models, losses and metric
are tried one by one (`tried`). Then what runs after the charge is run as it is (`rehearse`): the same `Execution` over records of
zeros in the shapes of the true ones, with two steps in the place of all, one candidate for each kind of rule and model,
and no noise in the scores; then the files that would leave are made in memory and read back. Of a Dataset no shape is known
before a record of it is read, so that of it only the files are rehearsed.

Nothing here sees a record, for nothing here has one: what comes in are shapes. Nothing of it is kept: the made-up records are
nobody's, and the files stay in memory.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from honestdp.boundary.data import Shapes
from honestdp.boundary.intake import try_out
from honestdp.boundary.noise import noise_source
from honestdp.boundary.rehearsal import rehearse as try_metric
from honestdp.boundary.release import width_of
from honestdp.boundary.seed import Seed, lent
from honestdp.budget import Statement
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.layout import layout_of
from honestdp.ledger import Balance
from honestdp.logs import silence
from honestdp.losses import default_loss
from honestdp.optimizers.rule import kind
from honestdp.optimizers.schedules import factors
from honestdp.run import Run
from honestdp.search import tune_result as leaving
from honestdp.search.design import Design
from honestdp.search.runs import BATCH, MACHINE, Execution, Setting, Standing
from honestdp.search.secret import Secret
from honestdp.search.space import Candidate
from honestdp.training.population import check_alike, check_finite
from honestdp.training.spec import check_rules
from honestdp.training.trial import try_rule

WIDELY = 8192  # examples that a model is tried with before the charge, if a population may have so many
RECORDS = 16  # made-up ones, half of them for validation
STEPS = 2  # as many as a rule with two phases needs to make a whole turn
_KEY = "rehearsal"
_NONE = Shapes(torch.zeros(0, 1), torch.zeros(0), ("", ""))  # of a Dataset


def tried(made: Design, setting: Setting, shapes: Shapes | None) -> None:
    """Rules, models, losses and metric one by one."""
    some = _examples(made)
    rules, runs = [one.rule() for one in some], [made.run_of(one) for one in some]
    check_rules(rules, runs, setting.schedule)
    for run in made.runs:
        factors(setting.schedule, run)
    noise_source(setting.device, Seed.fresh(), secure=setting.secure)
    for one in {candidate.model: candidate for candidate in some}.values():
        module = setting.module(one, 0).to(setting.device)
        check_finite(alike := [module, setting.module(one, 1).to(setting.device)])
        check_alike(alike)
        layout = layout_of(module)
        if shapes is not None:
            x, y = shapes.blanks(module)
            layout = replace(layout, entering=inputs.entering(x))
        for rule, run in {kind(rule): (rule, run) for rule, run in zip(rules, runs, strict=True)}.values():
            try_rule(rule, run, layout, runs=2)
        if shapes is not None:
            loss = setting.loss or default_loss(y)
            how: dict[str, Any] = {"strict": setting.strict, "declared": shapes.classes}
            try_out(module, loss, x, y, examples=_together(made, x), **how)
            if made.metric is not None:
                try_metric(made.metric, module, loss=loss, x=x, y=y, strict=setting.strict)


def _examples(made: Design) -> tuple[Candidate, ...]:
    """Every candidate where they are listed; else one for each architecture."""
    drawn = made.space.draw(np.random.default_rng(0))
    return made.candidates or tuple(replace(drawn, model=one) for one in made.space.architectures())


def _together(made: Design, x: Inputs) -> int:
    """How many examples to try a model with before the charge: as many as a lot of one run, or more where populations are wider.

    A population that is wider still is tried before its first step.
    """
    runs, rows = min(BATCH, made.count) if made.selection.each_once else BATCH, made.unit.rows
    alone, all_runs = (
        max(some * rows * width_of(x, runs=some, records=run.records, lot=run.lot, rows=rows) for run in made.runs)
        for some in (1, runs)
    )
    return max(alone, min(all_runs, WIDELY))


@dataclass(frozen=True)
class Rehearsed:
    """What a search would leave. files: their sizes in bytes, by name."""

    files: dict[str, int]

    def needed(self, made: Design) -> int:
        """Bytes of the disk that the search takes at least: its winner, and every model where all leave, as they are kept until
        the end and as they leave.
        """
        models = 1 + made.count * made.selection.all_leave
        return sum(self.files.values()) + 2 * models * self.files[leaving.MODEL]


def rehearse(
    made: Design,
    setting: Setting,
    shapes: Shapes | None,
    *,
    statement: Statement,
    report: Callable[[leaving.TuneResult, str], str] | None,
    balance: Balance | None,
) -> Rehearsed:
    """A search in small from its first step to the files that leave, read back. report: None where no file is to be written."""
    small, stage = _small(made), _Stage(setting.model)
    secret = _without_noise(small)
    with silence(), lent(), stage:
        for one in small.candidates:
            module = setting.module(one, 0)
            leaving.load_weights(copy.deepcopy(module), leaving.serialised(module))
        stage.at = "model", _STEPPED
        runs = _Trial(
            small,
            secret,
            setting,
            _made_up(shapes or _NONE),
            records=RECORDS,
            store=_Memory(),
        )
        standing = Standing() if shapes is None else runs.finish()
        result = leaving.result_of(small, statement, runs, secret, standing, balance)
        if report is None:
            return Rehearsed({leaving.MODEL: len(leaving.serialised(result.model))})
        stage.at = "", _REPORTED
        result = replace(result, folder=Path(), page=partial(report, result, _KEY))
        files = dict(result.files())
        files[leaving.RESULT] = files.pop(leaving.PENDING)
        again = leaving.read_from(files.__getitem__, setting.model, small.space)
        if json.loads(json.dumps(again.as_dict())) != json.loads(files[leaving.RESULT]):
            raise HonestdpError("the result of a search on made-up records is another when it is read back")
    return Rehearsed({name: len(content) for name, content in files.items()})


def _made_up(shapes: Shapes) -> Any:
    made = shapes.made_up(RECORDS)
    made.fingerprint()  # as it is done first after the charge
    return made


def _small(made: Design) -> Design:
    """The same search with few steps and a rate of one half; lots and noise are the true ones, which rules depend on."""
    chosen = {(kind(one.rule()), one.model): replace(one, steps=STEPS) for one in _examples(made)}
    candidates = tuple(chosen.values())
    noise = {run.lot: run.noise for run in made.runs}
    runs = tuple(Run(records=int(2 * lot) + 1, lot=lot, steps=STEPS, noise=noise[lot]) for lot in sorted(noise))
    return replace(made, candidates=candidates, records=RECORDS, runs=runs)


def _without_noise(small: Design) -> Secret:
    count = len(small.candidates)
    zeros = (0,) * count
    return Secret(
        candidates=small.candidates,
        noise=zeros if small.metric is not None else (),
        ties=(0.0,) * count,
        starts=tuple(range(count)),
        split=0,
        seed=Seed.fresh(),
        choice=zeros if small.choice is not None else (),
    )


class _Trial(Execution):
    """An execution over made-up records: what fails is not counted as a run, and says why."""

    @cached_property
    def _sides(self) -> tuple[Any, Any]:
        if not self._design.fraction:
            return self._data, None
        return self._data.split(np.arange(RECORDS) % 2 == 1)

    @property
    def _by_coin(self) -> bool:
        return True  # a few made-up records stand for a declared number of true ones

    def finish(self) -> Standing:
        standing = Standing()
        _ = self._door
        for number, batch in enumerate(self.batches()):
            self._batch(number, batch, standing)
        if self._design.choice is not None:
            self._choose(standing)
        self._save(standing)
        return self._load()

    def _trained(self, number: int, batch: list[int]) -> list[Tensor | None]:
        """The first batch also goes on from its checkpoint, as after a kill."""
        name, seed = f"batch{number}", self._secret.seed.child("batch", number)
        weights = self._population(batch, name, seed)
        return self._population(batch, name, seed) if number == 0 else weights


class _Memory:
    """A store of a search that is forgotten with it."""

    def __init__(self) -> None:
        self._content: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self._content.get(name)

    def write(self, name: str, content: bytes) -> None:
        self._content[name] = content

    def remove(self, *names: str) -> None:
        for name in names:
            del self._content[name]

    def names(self) -> list[str]:
        return sorted(self._content)


_REPORTED = "the files of this search cannot be written"
_STEPPED = "one that makes a step of training and is scored on made-up records of the data's shapes"
_SAVED = "one whose weights can be saved and read back: its state_dict() holds tensors alone, and takes them again"


class _Stage:
    """Within, a failure blames the argument that it came from, by what was being done. What it says is of made-up records."""

    def __init__(self, model: object) -> None:
        self._model, self.at = model, ("model", _SAVED)

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, trouble: BaseException | None, trace: object) -> None:
        if isinstance(trouble, KeyboardInterrupt):
            raise KeyboardInterrupt from None  # without words of a training that can be resumed: nothing has begun
        if not isinstance(trouble, Exception) or isinstance(trouble, (HonestdpError, *MACHINE)):
            return
        named = type(self._model).__name__ if isinstance(self._model, nn.Module) else _name(self._model)
        argument, wanted = self.at
        words = " ".join(f"{type(trouble).__name__}: {trouble}".split())
        if not argument:
            raise HonestdpError(f"{wanted} ({words}): nothing was charged") from trouble
        raise InvalidArgument(argument, named, f"{wanted} ({words}). Nothing was charged") from trouble


def _name(model: object) -> str:
    return str(getattr(model, "__qualname__", type(model).__qualname__))
