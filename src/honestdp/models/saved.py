"""`SavedModel`: a model that was read from its folder, with the table that it predicts from and what is guaranteed about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from honestdp.boundary.metrics import ClippedLoss, Metric
from honestdp.boundary.score_noise import Score
from honestdp.budget import Statement, in_short
from honestdp.checks import InvalidArgument
from honestdp.gradients.predictions import Array, predictions, probabilities
from honestdp.notebook import Rows, Shown

if TYPE_CHECKING:
    from honestdp.data.tables.table import Table
    from honestdp.ledger import Ledger
    from honestdp.models.evaluation import Evaluation


def table_metric(table: Table) -> Metric | None:
    """What a model of this table is scored by where nobody says it: None for classes, which have their accuracy.

    Of a quantity the squared error as the model sees it: cut at half of a declared range, or at two declared scales.
    """
    from honestdp.data.tables.columns import Range

    if table.classes is not None:
        return None
    if isinstance(table.columns[table.target], Range):
        return ClippedLoss(0.25, name="squared error of the target as 0 to 1")
    return ClippedLoss(4.0, name="squared error of the target in its scales")


@dataclass(frozen=True, kw_only=True, repr=False)
class SavedModel(Shown):
    """A model from its folder: what `load` and `save` return.

    model: in eval mode. table: how rows become its inputs; None where none was saved with it.
    statement: what is guaranteed. hyperparameters, run, score: how it was trained, and its noisy validation score.
    card: the model card, in Markdown. page: the report, in HTML.
    folder: where it is. digest: of the whole folder; note it elsewhere, and hand it to `load`.

    `predict(rows)` gives labels or numbers in the table's own units, `predict_proba(rows)` the probability of each class.

    >>> import tempfile, torch, honestdp
    >>> x, y = honestdp.load_dataset("digits").train
    >>> run = honestdp.Run(records=len(x), lot=64, steps=5, noise=2.0)
    >>> result = honestdp.train(torch.nn.Linear(64, 10), (x, y), run=run, delta=1e-5)
    >>> saved = honestdp.save(f"{tempfile.mkdtemp()}/model", result)
    >>> saved.hyperparameters["optimizer"], saved.table
    ('echo', None)
    """

    model: nn.Module
    table: Table | None
    statement: Statement
    hyperparameters: Mapping[str, Any]
    run: Mapping[str, Any]
    score: Score | None
    card: str
    page: str
    digest: str
    folder: Path

    def predict(self, rows: Any) -> Any:
        """The label, or the number, that the model gives each row. rows: as the table takes them; the target is not needed.

        It is no release: whoever sees predictions on private rows sees those rows' answers, and the guarantee is about the
        rows that the model was trained on.
        """
        return self.columns.decode(self.outputs(rows))

    def predict_proba(self, rows: Any) -> Array:
        """`[rows, classes]`: the probability of each class, in the order of `table.classes`. InvalidArgument for a regression."""
        if self.columns.classes is None:
            wanted = "of classes: this one gives numbers, which have no probabilities"
            raise InvalidArgument("model", "a regression", wanted)
        return probabilities(self.outputs(rows))

    def evaluate(
        self,
        rows: Any,
        *,
        epsilon: float,
        metric: str | Metric | None = None,
        prevalence: Sequence[float] | None = None,
        records: int | None = None,
        ledger: str | Path | Ledger | None = None,
        dataset: str | None = None,
        note: str = "",
    ) -> Evaluation:
        """A noisy score on held-out rows, charged before a row of them is read. An exact one is not for publishing.

        rows: as the table takes them, with the target, or the path of a CSV or Parquet file. Other columns are passed over.
        epsilon: what this one question costs the people in these rows, with no delta. Each call costs it again.
        metric, prevalence: as in `tune`; for a quantity the squared error, cut at half of its range or two scales.
        records: N, declared; left out it is that of the rows, and public.
        ledger, dataset, note: as in `tune`; the dataset is that of the held-out rows.

        Returns an Evaluation. Raises InvalidArgument before the charge for what cannot be scored.
        """
        from honestdp.data.tables.source import TableRows
        from honestdp.models.evaluation import evaluate

        of_these = replace(
            self.columns, records=records, spent=0.0
        )  # what was declared or learnt of others' number and bounds
        how: dict[str, Any] = {"metric": metric or table_metric(of_these), "prevalence": prevalence}
        kept: dict[str, Any] = {"ledger": ledger, "dataset": dataset, "note": note}
        return evaluate(self, TableRows(of_these, rows, extra=True), epsilon=epsilon, **how, **kept)

    def outputs(self, rows: Any) -> Array:
        """float64 `[rows, outputs]`: the model's own numbers, before the table makes labels or numbers of them."""
        features = torch.from_numpy(np.ascontiguousarray(self.columns.encode(rows)))
        return predictions(self.model, features).reshape(-1, self.columns.outputs)

    @property
    def columns(self) -> Table:
        """The table; InvalidArgument where none was saved."""
        if self.table is None:
            wanted = "one that was saved with its table, as save(folder, result, table=table): call saved.model on its inputs"
            raise InvalidArgument("model", "without a table", wanted)
        return self.table

    def as_dict(self) -> dict[str, Any]:
        """Everything but the model, for JSON."""
        return {
            "folder": str(self.folder),
            "digest": self.digest,
            "model": str(self.model),
            "hyperparameters": dict(self.hyperparameters),
            "run": dict(self.run),
            "score": None if self.score is None else self.score.as_dict(),
            "schema": None if self.table is None else self.table.as_dict(),
            "statement": self.statement.as_dict(),
        }

    def _title(self) -> str:
        return "a saved model"

    def _rows(self) -> Rows:
        rows = [*in_short(self.statement), ("digest", self.digest)]
        return rows if self.score is None else [*rows, ("score", self.score.in_words())]

    def _whole(self) -> tuple[str, str] | None:
        return "the whole statement", str(self.statement)
