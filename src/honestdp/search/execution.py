"""The runs of a search: trained as populations, scored, and forgotten but for the best.

Runs of one (lot, steps, width) are trained in batches, each a population. After a batch its runs are scored, the best run so far
is kept, and the rest is dropped. All of that is in the secret folder, written atomically, so that a search that was killed at any
moment goes on from the last batch and, within it, from the last checkpoint.

A run whose training fails, or whose weights are no numbers, scores minus infinity and counts: that a run failed must not be seen.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.data import WorkerDied
from honestdp.data.split import as_pair, gathered, split
from honestdp.files import replace_file
from honestdp.intake import Model, own_copy
from honestdp.logs import silence
from honestdp.losses import Loss, check_labels, default_loss
from honestdp.optimizers.schedules import Schedule
from honestdp.parameters import layout_of, load_row
from honestdp.rehearsal import rehearse
from honestdp.scores import best_of
from honestdp.search.design import Design
from honestdp.search.errors import SearchFailed, without_records
from honestdp.search.secret import Secret
from honestdp.space import Candidate
from honestdp.training import assemble
from honestdp.validation import Validation

BATCH = 256  # runs that are trained and scored before the best of them is kept; a constant, so that it says nothing
CHECKPOINT_SECONDS = 15.0
NOT_THE_RUN = (torch.OutOfMemoryError, MemoryError, OSError, WorkerDied, HonestdpError)
"""What stops a search, to be resumed: the machine failed, or the arguments are wrong for every run."""
_BATCH_SEEDS, _ATTEMPT_SEEDS = 1000, 1 << 40


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is trained, and where: public, and the same for every run."""

    model: Model | Callable[..., nn.Module]
    loss: Loss | None
    schedule: str | Schedule
    device: torch.device
    secure: bool
    workers: int
    strict: bool = False

    def module(self, candidate: Candidate, start: int) -> nn.Module:
        """The module of a run before its first step. start: a seed that depends on no record."""
        return fresh(self.model, width=candidate.width, start=start)


def fresh(model: Any, *, width: int | None, start: int) -> nn.Module:
    """A module of its own: a copy of the given one, or what the factory makes from this seed and width."""
    if isinstance(model, nn.Module):
        if width is not None:
            raise InvalidArgument("model", type(model).__name__, "a function of `width`, since the space has widths")
        return own_copy(model)
    if not callable(model):
        raise InvalidArgument("model", type(model).__name__, "a torch.nn.Module, or a function that makes one")
    if width is not None and "width" not in inspect.signature(model).parameters:
        raise InvalidArgument("model", model, "a function with the argument `width`, since the space has widths")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(start)
        made = model() if width is None else model(width=width)
    return own_copy(made)


@dataclass
class Standing:
    """Where a search stands. Secret.

    done: batches that are over. best: the run that wins so far, its noisy score and its weights `[d]`. For a selection whose
    candidates all leave, of every run: kept, the weights; chosen_by, the score with the noise of the choice; scored, the score
    with the noise that leaves. No score without noise is in here.
    """

    done: int = 0
    best: int | None = None
    noisy: float = -math.inf
    weights: Tensor | None = None
    kept: dict[int, Tensor] = field(default_factory=dict)
    chosen_by: dict[int, int] = field(default_factory=dict)
    scored: dict[int, int] = field(default_factory=dict)


class Execution:
    """All runs of one search, over the given records."""

    def __init__(
        self,
        design: Design,
        secret: Secret,
        setting: Setting,
        data: Any,
        *,
        records: int,
        folder: Path,
        classes: int | None = None,
    ) -> None:
        """classes: how many outputs a label may name, where that is known. Nothing is read yet: that is for `finish`."""
        pair = as_pair(data)
        self._labels = None if pair is None or classes is None or not len(pair[1]) else (pair[1], classes)
        self._design, self._secret, self._setting, self._folder = design, secret, setting, folder
        self._data, self._records = data, records

    @cached_property
    def _sides(self) -> tuple[Any, Any]:
        """(training, validation): two sides of the records, or all of them and None."""
        if not self._design.fraction:
            return self._data, None
        return split(self._data, self._secret.held_out(self._records, self._design.fraction))

    @cached_property
    def _validation(self) -> Validation | None:
        held, metric, setting = self._sides[1], self._design.metric, self._setting
        if held is None or metric is None:
            return None
        module = self._module(0) if self._secret.candidates else fresh(setting.model, width=None, start=0)
        module = module.to(setting.device)
        x, y = gathered(held, dtype=next(module.parameters()).dtype, device=setting.device, workers=setting.workers)
        loss = setting.loss or default_loss(y.dtype)
        # Again for records in memory, and for the first time for those of a Dataset, whose shapes nobody knew before.
        forward = rehearse(metric, module, loss=loss, x=x[:0], y=y[:0], strict=setting.strict)
        return Validation(x, y, loss=loss, metric=metric, forward=forward)

    def finish(self) -> Standing:
        """Train and score what is left of the search, and find its winner. Silently: what is said in a run tells of the runs."""
        with silence():
            try:
                return self._finish()
            except Exception as trouble:
                error = without_records(trouble, self._folder)
        raise error  # here and not there, so that nothing of what was caught is carried along as its context

    def _finish(self) -> Standing:
        _ = self._validation  # opened before the first run, so that what does not fit is found before the training
        if self._labels is not None:
            labels, classes = self._labels
            check_labels(int(labels.min()), int(labels.max()), classes)
        standing = self._load()
        for number, batch in enumerate(self.batches()):
            if number >= standing.done:
                self._batch(number, batch, standing)
                standing.done += 1
                self._save(standing)
                self._forget()
        if self._design.choice is not None and standing.best is None:
            self._choose(standing)
            self._save(standing)
        if self._secret.candidates and standing.best is None:
            raise SearchFailed(
                "no run ended with weights that are numbers. Why is not said, since it might tell of the records: try the model "
                "and the space on made-up records"
            )
        return standing

    def batches(self) -> Iterator[list[int]]:
        """The runs that are trained together, in order: of one (lot, steps, width), at most BATCH."""
        groups: dict[tuple[float, int, int | None], list[int]] = {}
        for run, candidate in enumerate(self._secret.candidates):
            groups.setdefault((candidate.lot, candidate.steps, candidate.width), []).append(run)
        for group in groups.values():
            for first in range(0, len(group), BATCH):
                yield group[first : first + BATCH]

    def _forget(self) -> None:
        """Remove the checkpoints of trainings that are over."""
        for path in self._folder.glob("batch*"):
            path.unlink()

    def _batch(self, number: int, batch: list[int], standing: Standing) -> None:
        for run, weights in zip(batch, self._trained(number, batch), strict=True):
            if weights is None or not bool(torch.isfinite(weights).all()):
                continue
            if self._design.choice is not None:
                noise = self._secret.choice[run], self._secret.noise[run]
                standing.kept[run] = weights.cpu()
                standing.chosen_by[run], standing.scored[run] = self._score(run, weights, *noise)
                continue
            noisy = 0.0 if self._validation is None else float(self._score(run, weights, self._secret.noise[run])[0])
            if standing.best is None or self._rank(run, noisy) > self._rank(standing.best, standing.noisy):
                standing.best, standing.noisy, standing.weights = run, noisy, weights.cpu()

    def _rank(self, run: int, noisy: float) -> tuple[float, float]:
        return self._secret.rank(run, noisy)

    def _trained(self, number: int, batch: list[int]) -> list[Tensor | None]:
        """The weights of each run; None for one that failed.

        Checkpoints carry the batch's number: one of an earlier batch, left by a kill, must not be taken for this one's.

        A failure ends the whole batch, so its runs are trained anew, one by one. With Q the law of all of them, a failure
        being an outcome, the first attempt is kept where none fails; what is put in its place must then be Q given that
        one fails, or runs that fail by chance would have a second one. So the new attempts are kept where one fails,
        as it nearly always does again, and all are made anew where none does. What is returned has the law Q.
        """
        failed = self._folder / f"failed{number}"
        try:
            if not failed.exists():
                return self._population(batch, f"batch{number}.safetensors")
        except NOT_THE_RUN:
            raise
        except Exception:  # whatever it is: its kind and its words may come from the records, or tell which run it was
            pass
        replace_file(failed, b"")  # a search that is killed from here on does not try the batch as a whole again
        if len(batch) == 1:
            return [None]
        attempt = 0
        while True:
            attempt += 1
            self._forget()
            found = [self._alone(number, run, attempt) for run in batch]
            if any(weights is None for weights in found):
                return found

    def _alone(self, number: int, run: int, attempt: int) -> Tensor | None:
        try:
            return self._population([run], f"batch{number}-{run}.safetensors", attempt)[0]
        except NOT_THE_RUN:
            raise
        except Exception:
            return None

    def _population(self, batch: list[int], name: str, attempt: int = 0) -> list[Tensor | None]:
        seed = self._secret.seed
        candidates = [self._secret.candidates[run] for run in batch]
        job = assemble(
            [self._module(run) for run in batch],
            self._sides[0],
            run=[self._design.run_of(candidate) for candidate in candidates],
            optimizers=[candidate.rule() for candidate in candidates],
            loss=self._setting.loss,
            device=self._setting.device,
            noise_seed=None if seed is None else seed * 1_000_003 + _BATCH_SEEDS + batch[0] + attempt * _ATTEMPT_SEEDS,
            secure=self._setting.secure,
            schedule=self._setting.schedule,
            checkpoint=self._folder / name,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            workers=self._setting.workers,
            by_coin=self._design.fraction > 0,
            strict=self._setting.strict,
        )
        return [*job.work(False)]

    def _module(self, run: int) -> nn.Module:
        return self._setting.module(self._secret.candidates[run], self._secret.starts[run])

    def model(self, run: int, weights: Tensor) -> nn.Module:
        """The module of a run with its final weights `[d]`."""
        module = self._module(run)
        return load_row(module, layout_of(module, self._setting.device), weights)

    def _score(self, run: int, weights: Tensor, *noise: int) -> tuple[int, ...]:
        assert self._validation is not None
        return self._validation.score(self.model(run, weights).to(self._setting.device), *noise)

    def _choose(self, standing: Standing) -> None:
        """The winner of runs that all leave, and its score: two questions, whatever the number of runs.

        The noise of both was drawn before the runs: whoever asks again, from a copy of the folder, gets the same answers.
        """
        if standing.chosen_by:
            best = best_of(standing.chosen_by)
            standing.best, standing.noisy, standing.weights = best, float(standing.scored[best]), standing.kept[best]

    def _save(self, standing: Standing) -> None:
        from safetensors.torch import save as serialise

        tensors = {f"kept.{run}": weights for run, weights in standing.kept.items()}
        if standing.weights is not None and standing.best not in standing.kept:
            tensors["best"] = standing.weights
        about = {
            "done": standing.done,
            "best": standing.best,
            "noisy": None if math.isinf(standing.noisy) else standing.noisy,
            "chosen_by": standing.chosen_by,
            "scored": standing.scored,
        }
        replace_file(self._folder / "standing.safetensors", serialise(tensors, {"honestdp": json.dumps(about)}))

    def _load(self) -> Standing:
        from safetensors import SafetensorError, safe_open

        path = self._folder / "standing.safetensors"
        if not path.exists():
            return Standing()
        try:
            with safe_open(path, framework="pt") as file:
                about = json.loads((file.metadata() or {})["honestdp"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            kept = {int(name[5:]): value for name, value in tensors.items() if name.startswith("kept.")}
            return Standing(
                done=about["done"],
                best=about["best"],
                noisy=-math.inf if about["noisy"] is None else about["noisy"],
                weights=kept.get(about["best"], tensors.get("best")),
                kept=kept,
                chosen_by={int(run): noisy for run, noisy in about["chosen_by"].items()},
                scored={int(run): noisy for run, noisy in about["scored"].items()},
            )
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as trouble:
            raise HonestdpError(
                f"what this search had reached cannot be read from {path} ({type(trouble).__name__}): it cannot go on; what it "
                f"was charged stays charged"
            ) from trouble
