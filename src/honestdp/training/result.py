"""The result of a training: a model, and what is guaranteed about it. Also what it has in common with that of a search."""

from __future__ import annotations

import math
import shutil
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from torch import nn

from honestdp import checks
from honestdp.budget import Accounted, in_short, number
from honestdp.checks import InvalidArgument
from honestdp.files import PAGE, WEIGHTS, written
from honestdp.notebook import Rows, Shown
from honestdp.optimizers import Rule
from honestdp.plain_words import rounded_up
from honestdp.run import ROW, Run, Unit

if TYPE_CHECKING:
    from honestdp.budget import Statement
    from honestdp.ledger import Balance


class Outcome(Shown):
    """What the results of a training and of a search share.

    model: the trained copy of the given model, in eval mode whatever mode that one was in; call `model.train()` to train on.
    hyperparameters, run: the optimizer with its numbers, and the constants of the training. score: a noisy validation score, or
    None. epsilon, delta, statement: what is guaranteed. balance: the dataset's in the ledger. And `as_dict`, `save`, `report`.
    """

    model: nn.Module
    run: Run
    hyperparameters: dict[str, Any]

    @abstractmethod
    def _stated(self) -> Statement | None:
        """The statement, where there is one."""

    def _title(self) -> str:
        return in_words(self.hyperparameters)

    def _rows(self) -> Rows:
        stated = self._stated()
        guarantee = [("epsilon", "needs a delta: result.at(delta)")] if stated is None else in_short(stated)
        return [*guarantee, ("trained by", in_words(self.hyperparameters))]

    def _whole(self) -> tuple[str, str] | None:
        stated = self._stated()
        return None if stated is None else ("the whole statement", str(stated))

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Everything but the model, for JSON."""

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model's weights as safetensors (never as a pickle, which could run code when read).

        Weights that are there are written over, outside of the folders of models and searches; another file with force alone, and
        a ledger, a checkpoint or a schema never: InvalidArgument.
        """
        from safetensors.torch import save_model

        with written(Path(path), argument="path", force=force, own=WEIGHTS) as file, TemporaryDirectory() as beside:
            save_model(self.model, f"{beside}/weights", {"format": "pt"})  # tied weights are once in it
            with open(f"{beside}/weights", "rb") as weights:
                shutil.copyfileobj(weights, file)

    def report(self, path: str | Path, *, force: bool = False) -> Path:
        """Write a page (HTML, one file) for people who answer for the data. Returns where it is.

        A report that is there is written over; for other files see `save`.
        """
        page = self._page().encode()
        with written(Path(path), argument="path", force=force, own=PAGE) as file:
            file.write(page)
        return Path(path)

    @abstractmethod
    def _page(self) -> str:
        """The text of the report."""


@dataclass(frozen=True, repr=False)
class Result(Outcome):
    """One trained run: what `train` returns.

    model: the trained copy of the given model, in eval mode.
    run: the constants that were executed and are accounted.
    optimizer: the rule that it was trained by.
    delta: of the guarantee.
    seeded: the noise came from a seed the user fixed.
    siblings: the further runs that left together with it.
    strict: each example was under a map of its own. weighted: the classes had declared weights.
    stopped: the step at which on_step ended the run, whose weights these are. watched: on_step saw iterates of it.
    balance: the dataset's in the ledger, around this training; key: of the charge there. notes: more for the statement.
    preprocessing: what was done to the data beforehand, as far as it was said.
    alone: this process knows of no other training or search on these data, nor of a warm start. unit: whose record it is.
    spent: epsilon of what was learnt of the data before, to encode them; it is in `epsilon`.

    An epsilon needs a delta: without one, `epsilon`, `statement`, `as_dict` and `report` raise InvalidArgument.

    >>> import torch, honestdp
    >>> x, y = honestdp.load_dataset("digits").train
    >>> run = honestdp.Run(records=len(x), lot=64, steps=5, noise=2.0)
    >>> result = honestdp.train(torch.nn.Linear(64, 10), (x, y), run=run, optimizer="horizon", delta=1e-5)
    >>> print(result.statement.how)
    one run; this number covers it alone: runs made before to choose its settings are not in it
    >>> sorted(result.as_dict())
    ['delta', 'epsilon', 'hyperparameters', 'ledger', 'run', 'statement']
    """

    model: nn.Module
    run: Run
    optimizer: Rule
    delta: float | None
    seeded: bool = False
    siblings: tuple[Run, ...] = ()
    strict: bool = False
    weighted: bool = False
    stopped: int | None = None
    watched: bool = False
    balance: Balance | None = None
    key: str = ""
    notes: tuple[str, ...] = ()
    preprocessing: str = ""
    alone: bool = True
    spent: float = 0.0
    unit: Unit = ROW

    @property
    def score(self) -> None:
        """None: a training asks nothing of validation records. A search has one."""
        return None

    @cached_property
    def epsilon(self) -> float:
        """The epsilon of all that left together, at `delta`: this run and its siblings, composed.

        A population is trained to be compared, and every run of it is handed over, so every one is charged. Infinite
        where no noise was added.
        """
        return self._accounted.epsilon + self.spent

    @cached_property
    def _accounted(self) -> Accounted:
        return _account([self.run, *self.siblings], self.delta)

    @cached_property
    def epsilon_alone(self) -> float:
        """The epsilon of this run if none of its siblings is looked at, published or chosen by."""
        return _account([self.run], self.delta).epsilon + self.spent

    @cached_property
    def statement(self) -> Statement:
        """What is guaranteed, in words and numbers."""
        from honestdp.budget import (
            DECLARED_CLASSES,
            SEEDED,
            Statement,
            assumptions,
            independence,
            prepared,
        )

        count = len(self.siblings) + 1
        notes = [*self._accounted.notes]
        if self.siblings:
            alone = rounded_up(self.epsilon_alone)
            notes.append(f"this run alone, had it not been compared with the others: epsilon {alone}")
        notes += filter(None, [self.optimizer.asks])
        if self.stopped is not None:
            notes.append(f"stopped at step {self.stopped}; all {self.run.steps} steps that were planned are in epsilon")
        return Statement.about(
            self.unit,
            epsilon=self._accounted.epsilon,
            delta=_needed(self.delta) if 0 < self.epsilon < math.inf else self.delta or 0.0,
            records=self.run.records,
            spent=self.spent,
            noiseless="noise 0, the gradients were released as they are, so epsilon is infinite",
            seed=SEEDED if self.seeded else "",
            accountant=self._accounted.accountant,
            selection="compose",
            how=self._how(),
            runs=count,
            leaves=self._leaves(),
            basis="composition of all steps" if count == 1 else "composition of all steps of all runs",
            assumptions=(
                *assumptions(self.unit),
                independence(strict=self.strict),
                *([DECLARED_CLASSES] * self.weighted),
            ),
            notes=notes,
            further=self.notes,
            preprocessing=prepared(self.preprocessing),
        )

    def _how(self) -> str:
        """That nothing was tuned is said where a ledger knows of nothing else, and of it alone; not where this process does."""
        count = len(self.siblings) + 1
        runs = "one run" if count == 1 else f"{count} runs trained together, every one of them charged"
        if self.balance is None:
            before = "this number covers it alone" if count == 1 else "this number covers them alone"
            return f"{runs}; {before}: runs made before to choose its settings are not in it"
        name, charges = self.balance.dataset, self.balance.charges
        if charges > 1:
            earlier = "1 earlier charge, which is" if charges == 2 else f"{charges - 1} earlier charges, which are"
            return f"{runs}; the ledger of {name} has {earlier} not in this number"
        if count == 1 and self.alone:
            runs = "one run, no tuning"
        return f"{runs}: the only charge to {name} in its ledger"

    def _leaves(self) -> str:
        if self.siblings:
            return f"the final weights of all {len(self.siblings) + 1} runs"
        return "the weights after every step" if self.watched else "the final weights"

    def at(self, delta: float) -> Result:
        """The same result with its guarantee stated at this delta."""
        checks.probability(delta=delta)
        return replace(self, delta=delta)

    def _stated(self) -> Statement | None:
        return None if self.delta is None and self.run.noise > 0 and self.run.steps > 0 else self.statement

    @cached_property
    def hyperparameters(self) -> dict[str, Any]:  # type: ignore[override]
        """The optimizer, its numbers, and the run's lot and steps."""
        rule = self.optimizer
        name = rule.name or type(rule).__name__
        return {"optimizer": name, **rule.numbers, "lot": self.run.lot, "steps": self.run.steps}

    def as_dict(self) -> dict[str, Any]:
        return {
            "hyperparameters": self.hyperparameters,
            "epsilon": number(self.epsilon),
            "delta": self.statement.delta,
            "run": vars(self.run),
            "ledger": None if self.balance is None else {**self.balance.as_dict(), "key": self.key},
            "statement": self.statement.as_dict(),
        }

    def _page(self) -> str:
        from honestdp import __version__
        from honestdp.report.html import render
        from honestdp.report.view import SearchView

        view = SearchView(
            title="honestdp train",
            dataset="the given records" if self.balance is None else self.balance.dataset,
            statement=self.statement,
            hyperparameters=self.hyperparameters,
            score=None,
            plan=None,
            costs=(),
            ledger=self.balance,
            key="" if self.balance is None else self.key,
            configuration={"run": vars(self.run), "strict": self.strict},
            reproduce="honestdp.train(...) with the configuration above",
            version=__version__,
            what="training",
        )
        return render(view)


def serialised(model: nn.Module) -> bytes:
    """Weights as safetensors: never a pickle, which could run code when read."""
    from safetensors.torch import save

    weights = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    return save(weights, {"format": "pt"})


def in_words(hyperparameters: dict[str, Any]) -> str:
    named = dict(hyperparameters)
    first = [str(named.pop("optimizer"))] if "optimizer" in named else []
    return ", ".join([*first, *(f"{name} {value}" for name, value in named.items())]) or "nothing: no run was drawn"


def _needed(delta: float | None) -> float:
    if delta is None:
        raise InvalidArgument("delta", None, "given to train(), or afterwards by result.at(delta), for an epsilon")
    return delta


def _account(runs: list[Run], delta: float | None) -> Accounted:
    if all(run.steps == 0 for run in runs):
        return Accounted(0.0)
    if any(run.noise == 0 and run.steps > 0 for run in runs):
        return Accounted(math.inf)
    import dp_accounting  # here, so that the engine needs torch and numpy alone

    from honestdp.accounting import accounted

    event = dp_accounting.ComposedDpEvent([run.event for run in runs])
    return accounted(event, delta=_needed(delta))
