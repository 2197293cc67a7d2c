"""A whole search in small, on synthetic records, before the charge: train, score, choose, save, report, read back.

What can go wrong without a record goes wrong here, in its own words, and costs nothing. First rules, models, losses and the
metric are tested one by one (`tried`), each model once: what follows is made from the copies that were tested. Then what runs
after the charge runs as it is (`rehearse`): the `Execution` of a search over records of zeros in the shapes of the true ones,
with two steps in the place of all, one candidate for each kind of rule and model, and no noise in the scores; then the files
that would be published are made in memory and read back. The shapes of a Dataset are not known before a record of it is read,
so that for it only the files are rehearsed.

Nothing here sees a record, for nothing here has one: shapes come in. Nothing of it is kept.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from honestdp.boundary.data import Shapes
from honestdp.boundary.noise import noise_source
from honestdp.boundary.seed import Seed, lent
from honestdp.budget import Statement
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.gradients.layout import layout_of
from honestdp.ledger import Balance
from honestdp.logs import silence
from honestdp.optimizers.rule import kind
from honestdp.optimizers.schedules import factors
from honestdp.run import Run
from honestdp.search import tune_result as leaving
from honestdp.search.design import Design
from honestdp.search.runs import MACHINE, Execution, Setting, Standing, Tested
from honestdp.search.secret import Secret
from honestdp.search.space import Candidate
from honestdp.training.population import check_alike, check_finite
from honestdp.training.result import serialised
from honestdp.training.spec import check_rules, try_rule

RECORDS = 16  # synthetic ones, about half of them for validation
STEPS = 2  # as many as a rule with two phases needs to make a whole turn
_KEY = "rehearsal"


def tried(made: Design, setting: Setting, shapes: Shapes | None) -> Tested:
    """Test rules, models, losses and metric one by one. Returns each architecture's copies; none for a Dataset."""
    some = _examples(made)
    rules, runs = [one.rule() for one in some], [made.run_of(one) for one in some]
    check_rules(rules, runs, setting.schedule)
    for run in made.runs:
        factors(setting.schedule, run)
    noise_source(setting.device, Seed.fresh(), secure=setting.secure)
    tested: Tested = {}
    for one in {candidate.model: candidate for candidate in some}.values():
        alike = [setting.module(one, start) for start in (0, 1)]
        check_finite(alike)
        check_alike(alike)
        if shapes is not None:
            tested[one.model] = setting.vetted(one, shapes, made)
        layout = layout_of(alike[0]) if shapes is None else tested[one.model].layout
        for rule, run in {kind(rule): (rule, run) for rule, run in zip(rules, runs, strict=True)}.values():
            try_rule(rule, run, layout, runs=2)
    return tested


def _examples(made: Design) -> tuple[Candidate, ...]:
    """Every candidate where they are listed; else one for each architecture."""
    drawn = made.space.draw(np.random.default_rng(0))
    return made.candidates or tuple(replace(drawn, model=one) for one in made.space.architectures())


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
    tested: Tested,
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
            leaving.load_weights(copy.deepcopy(module), serialised(module))
        stage.at = "model", _STEPPED
        records = (shapes or Shapes(torch.zeros(0, 1), torch.zeros(0), ("", ""))).made_up(RECORDS)
        records.fingerprint()  # as it is taken first after the charge
        runs = Execution(small, secret, setting, records, records=RECORDS, store=_Memory(), tested=tested)
        standing = Standing() if shapes is None else runs.rehearsed()
        result = leaving.result_of(small, statement, runs, secret, standing, balance)
        if report is None:
            return Rehearsed({leaving.MODEL: len(serialised(result.model))})
        stage.at = "", _REPORTED
        result = replace(result, folder=Path(), page=partial(report, result, _KEY))
        files = dict(result.files())
        files[leaving.RESULT] = files.pop(leaving.PENDING)
        again = leaving.read_from(files.__getitem__, setting.model, small.space)
        if json.loads(json.dumps(again.as_dict())) != json.loads(files[leaving.RESULT]):
            raise HonestdpError("the result of a search on made-up records is another when it is read back")
    return Rehearsed({name: len(content) for name, content in files.items()})


def _small(made: Design) -> Design:
    """The same search with few steps, a rate of one half and half of the records for validation, if it has any. Lots and noise
    are the true ones, which rules depend on.
    """
    chosen = {(kind(one.rule()), one.model): replace(one, steps=STEPS) for one in _examples(made)}
    candidates, fraction = tuple(chosen.values()), 0.5 if made.fraction else 0.0
    noise = {run.lot: run.noise for run in made.runs}
    runs = tuple(Run(records=int(2 * lot) + 1, lot=lot, steps=STEPS, noise=noise[lot]) for lot in sorted(noise))
    return replace(made, candidates=candidates, records=RECORDS, runs=runs, fraction=fraction)


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
