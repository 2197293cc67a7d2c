"""What `PrivateClassifier` and `PrivateRegressor` share: arguments, one private training or search, and its statement."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from honestdp import checks
from honestdp.boundary.layouts import Unread
from honestdp.budget import NOT_STATED, Budget, Statement, default_delta
from honestdp.checks import InvalidArgument
from honestdp.data.tables.table import Table
from honestdp.estimators.pipelines import checked_public, refuse_many_fits, steps_before
from honestdp.estimators.rows import (
    Array,
    EncodedRows,
    bounds_of,
    numbers_in,
    refuse_fit_arguments,
    refuse_too_wide,
    rows_of,
    table_of,
)
from honestdp.gradients.predictions import predictions
from honestdp.logs import logger
from honestdp.optimizers.rule import Rule, rule_class
from honestdp.planner.shapes import chosen_shape
from honestdp.run import Run
from honestdp.search.request import SearchSpec, requested
from honestdp.search.tune import carried_out
from honestdp.search.tune_result import TuneResult
from honestdp.training.population import fresh
from honestdp.training.result import Result
from honestdp.training.spec import TrainSpec, not_declared
from honestdp.training.train import train

if TYPE_CHECKING:
    from honestdp.models.evaluation import Evaluation

_log = logger("honestdp")


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """The common part: the arguments, one private training or search, and its statement.

    The fields are the arguments of the constructor, which are checked in `fit`, as scikit-learn wants it. An argument that
    `SearchSpec` or `TrainSpec` has too is handed on to it by its name.
    """

    epsilon: Any = None
    delta: Any = None
    table: Any = None
    bounds: Any = None
    width: int = 0
    model: Any = None
    optimizer: Any = None
    space: Any = None
    selection: Any = SearchSpec.selection
    validation: float = SearchSpec.validation
    metric: Any = None
    max_runs: Any = None
    candidates: Any = None
    published: bool = SearchSpec.published
    lot: Any = None
    steps: Any = None
    epochs: Any = None
    ledger: Any = None
    dataset: Any = None
    note: str = TrainSpec.note
    out: Any = None
    preprocessing: Any = None
    public_steps: Any = None
    strict: bool = TrainSpec.strict
    secure: bool = TrainSpec.secure
    compute: Any = None
    random_state: Any = None

    _task: ClassVar[str]

    def __new__(cls, *_: Any, **given: Any) -> Self:
        if "class_weight" in given:
            wanted = 'spelled class_weights: numbers by label, or "balanced" with prevalence='
            raise InvalidArgument("class_weight", given["class_weight"], wanted)
        made: Self = super().__new__(cls)
        return made

    @property
    def coef_(self) -> Any:
        """Not there: what a model has learnt is in `model_`."""
        words = "what was learnt is in model_, of a linear model as model_.weight and model_.bias"
        raise AttributeError(f"{type(self).__name__} has no coef_ and no intercept_: {words}")

    intercept_ = coef_

    def __sklearn_clone__(self) -> Self:
        """A clone without what was fitted; refused to whatever would fit clones many times."""
        refuse_many_fits(self)
        clone: Self = super().__sklearn_clone__()
        return clone

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = self.table is None
        return tags

    # ---- Fitting

    def _declare_labels(self, y: Any) -> tuple[int, str]:
        """Of one estimator: what is known of labels from declarations; the outputs of the model, and what is said of it."""
        raise NotImplementedError

    def _declare(self, table: Table) -> None:
        """Of one estimator: what it knows from a table."""

    def _settings(self) -> dict[str, Any]:
        """Of one estimator: arguments of `train` and `tune` besides those that both estimators have."""
        return {}

    def _fit(self, X: Any, y: Any, arguments: Mapping[str, Any]) -> Self:
        refuse_many_fits(self)
        refuse_fit_arguments(arguments)
        before = steps_before(checked_public(self.public_steps))
        data = self._read(X, y) if self.table is None else self._read_table(X, y)
        if len(data) < 2:
            raise InvalidArgument("X", f"n_samples = {len(data)}", "at least 2 rows: one row alone cannot hide")
        stated = self.preprocessing or (None if isinstance(X, str | Path) and not before else NOT_STATED)
        words = None if stated is None else "; ".join([stated, *before])
        self.result_: Result | TuneResult = self._trained(
            data, self._network(data.none[0].shape[1], self._count), words
        )
        self.model_: nn.Module = self.result_.model.eval()
        self.statement_: Statement = self.result_.statement
        return self

    def _read(self, X: Any, y: Any) -> Unread:
        """Rows in arrays, as `train` and `tune` take data."""
        if y is None:
            wanted = (
                "given: a private estimator learns from labels, and requires y to be passed, but the target y is None"
            )
            raise InvalidArgument("y", None, wanted)
        x, y = numbers_in(self, X, y)
        refuse_too_wide(x)
        self._count, described = self._declare_labels(y)
        names = getattr(self, "feature_names_in_", None)
        self._inputs: Any = bounds_of(self.bounds, columns=x.shape[1], names=names)
        words = [*self._inputs.describe(), described]
        classes = self._count if self._task == "classification" else None
        return EncodedRows(x, self._numbers(y), self._inputs, words=words, where=X, classes=classes)

    def _read_table(self, X: Any, y: Any) -> Unread:
        """The same of rows that a table declares."""
        self._inputs = table = table_of(self.table, task=self._task, bounds=self.bounds)
        self._declare(table)
        self._count = table.outputs
        self.n_features_in_, self.feature_names_in_ = len(table.inputs), np.array(list(table.inputs), dtype=object)
        data = table.data(rows_of(table, X, y))
        data.where = Path(X) if isinstance(X, str) else X  # not the columns as they were put together here
        return data

    def _budget(self, records: int) -> Budget:
        if self.epsilon is None:
            wanted = "given: how much may be told of one row, such as 1 or 3; nobody can choose it for you"
            raise InvalidArgument("epsilon", None, wanted)
        return Budget(self.epsilon, default_delta(records) if self.delta is None else self.delta)

    def _network(self, inputs: int, outputs: int) -> Callable[..., nn.Module]:
        if self.model is None:
            checks.whole(least=0, width=self.width)
            return partial(network, inputs, outputs, width=self.width)
        if isinstance(self.model, nn.Module) or not callable(self.model):
            wanted = "a function of (inputs, outputs) that makes a torch.nn.Module, such as torch.nn.Linear"
            raise InvalidArgument("model", type(self.model).__name__, wanted)
        return partial(self.model, inputs, outputs)

    def _trained(self, data: Unread, model: Callable[..., nn.Module], words: str | None) -> Result | TuneResult:
        """One training, or a search where there is something to search. Both pay for themselves out of the budget alone."""
        seed, records = self.random_state, len(data)
        if seed is not None:
            checks.whole(least=0, random_state=seed)
            _log.warning(
                "random_state=%s repeats lots and noise: this fit is NOT PRIVATE; leave it out for private rows", seed
            )
        how = self._shared(TrainSpec) | self._settings()
        how |= {"budget": self._budget(records), "noise_seed": seed, "preprocessing": words}
        if self._searches():
            asked = self._shared(SearchSpec) | {"metric": self.metric or self._metric()}
            return carried_out(requested(model, data, SearchSpec(train=TrainSpec(**how), **asked)))
        start = secrets.randbits(63) if seed is None else seed
        module, rule = fresh(model, start=start), self.optimizer
        shape = {"lot": self.lot, "steps": self.steps, "epochs": self.epochs}
        if all(value is None for value in shape.values()):
            return train(module, data, optimizer=rule, **how)
        chosen = chosen_shape(how["budget"], records=records, **shape)
        run = Run(records=records, lot=chosen.lot, steps=chosen.steps, noise=0.0)
        notes = [
            *([chosen.how] if chosen.how else []),
            *([] if data.known.declared else [not_declared(records, data.known.unit)]),
        ]
        result = train(module, data, run=run, optimizer=rule, **how)
        return replace(result, notes=(*result.notes, *notes))

    def _shared(self, spec: type) -> dict[str, Any]:
        """The arguments of this estimator that are fields of a spec."""
        own = {each.name for each in fields(self)}
        return {each.name: getattr(self, each.name) for each in fields(spec) if each.name in own}

    def _searches(self) -> bool:
        if self.space is not None or isinstance(self.optimizer, list | tuple):
            return True
        named = self.optimizer
        return named is not None and not isinstance(named, Rule) and bool(rule_class(named).grid)

    # ---- Scoring

    def private_score(
        self,
        X: Any,
        y: Any = None,
        *,
        epsilon: float,
        metric: Any = None,
        ledger: Any = None,
        dataset: Any = None,
        note: str = "",
    ) -> Evaluation:
        """A noisy score of held-out rows, which may be published: epsilon is what this one question costs the people in them.

        X, y: as for `fit`. metric: as in `honestdp.tune`; accuracy, or the squared error of what is predicted in its declared
        bounds, if left out. ledger, dataset, note: of the held-out rows; they are charged before a row is scored. Each call is
        a question of its own.
        """
        from honestdp.models.evaluation import evaluate

        check_is_fitted(self)
        if self.table is None:
            x, y = numbers_in(self, X, y, reset=False)
            data: Unread = EncodedRows(x, self._numbers(y), self._inputs, words=self._inputs.describe(), where=X)
        else:
            data = replace(self.table, records=None, spent=0.0).data(rows_of(self.table, X, y))
        fitted: Any = SimpleNamespace(model=self._predictor())
        return evaluate(
            fitted,
            data,
            epsilon=epsilon,
            metric=metric or self._metric(),
            prevalence=self._settings().get("prevalence"),
            ledger=ledger,
            dataset=dataset,
            note=note,
        )

    def _numbers(self, y: Any) -> Array:
        """Of one estimator: labels as a model's loss reads them."""
        raise NotImplementedError

    def _predictor(self) -> nn.Module:
        """The model whose outputs are scored."""
        return self.model_

    def _metric(self) -> Any:
        """Of one estimator: what rows are scored by where nothing is said."""
        return None

    # ---- Predicting

    def _outputs(self, X: Any) -> Array:
        """float64 `[rows, outputs]`: the model's outputs for rows. Free: the model was released under the guarantee."""
        check_is_fitted(self)
        if self.table is None:
            X = numbers_in(self, X, reset=False)
        return predictions(self.model_, torch.from_numpy(self._inputs.encode(X)))


def network(inputs: int, outputs: int, width: int = 0) -> nn.Module:
    """A linear model, or one with a hidden layer of so many units."""
    if width == 0:
        return nn.Linear(inputs, outputs)
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))
