"""`on_step`: a user's function that sees copies of the iterates of one run, and the writers of curves that are ready-made for it.

What is handed over is a step's number and the weights that would leave if the training ended there: functions of the initial
weights, of public constants and of releases, since an optimizer's rule sees nothing else. All steps of a run are composed in its
epsilon, so that every iterate may leave under it. Of a lot, its size, a loss or a gradient nothing is in reach here.

Which steps are seen follows from public numbers alone, and looking changes no draw of the training: the random states of Python,
numpy and torch are seeded by the step for `on_step` and restored after it, and what it is given is a copy of its own.

A training that `on_step` stops is a beginning of the training that was paid for: its weights are a function of all iterates of
that one, so its guarantee holds, and nothing is given back. (An epsilon for the steps that were made would have to hold for
every step at which the run might have stopped: when to stop follows from releases.)

*Writers.* `JsonLines` and `TensorBoard` write what metrics say of the iterates. A metric is a function of a model alone, and the
records that it asks are its own affair: public ones, if the curve is to be free (docs/curves.md). Neither writer notes the time.
How long steps take follows from the sizes of their lots, which are secret.

Who resumes a training from its checkpoint makes some steps again and shows them again. So the lines of a file at or after the
first step that a writer is shown are replaced: no step is there twice, and a training that begins anew begins its file anew.
"""

from __future__ import annotations

import copy
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from honestdp import checks
from honestdp.boundary.seed import lent, seed_all
from honestdp.checks import InvalidArgument
from honestdp.gradients.layout import Layout, load_row

OnStep = Callable[[int, nn.Module], Any]
LOOKS = 100  # of a run, where `every` is left out


class StopTraining(Exception):
    """Raised by `on_step`: the run ends with the weights of this step. It is charged for all of its steps.

    Decide by public records. A decision by private ones is a further release of them, which no statement here has in it.
    """


@dataclass(frozen=True)
class Watch:
    """Who looks at a run, and when: at every multiple of `every` steps, and at the last one."""

    on_step: OnStep
    every: int

    def until(self, step: int) -> int:
        """How many steps to make after this one until the next look."""
        return self.every - step % self.every

    def due(self, before: int, after: int, total: int) -> bool:
        """Whether one of the steps after `before` up to `after` is to be seen: a GPU makes several at once."""
        return after // self.every > before // self.every or after == total

    def look(self, step: int, module: nn.Module, layout: Layout, row: Tensor) -> None:
        """Hand over a copy of the module with these weights `[d]`, which nobody else has, in eval mode."""
        with lent():
            seed_all(step)
            self.on_step(step, load_row(copy.deepcopy(module), layout, row).eval())

    def begin(self, module: nn.Module, layout: Layout, row: Tensor) -> None:
        """The look before the first step, so that what is wrong with `on_step` shows before a record is read."""
        try:
            self.look(0, module, layout, row)
        except StopTraining:
            wanted = "a function that lets the training begin: it raised StopTraining at step 0"
            raise InvalidArgument("on_step", self.on_step, wanted) from None


def watch_of(on_step: Any, every: Any, runs: int, steps: int) -> Watch | None:
    """The watch that the arguments ask for, None where they ask for none."""
    if on_step is None:
        if every is not None:
            raise InvalidArgument("every", every, "left out without on_step: it says how often that is called")
        return None
    if not callable(on_step) or isinstance(on_step, type):
        raise InvalidArgument("on_step", on_step, "a function of (step, model)")
    if runs != 1:
        wanted = (
            "left out for several runs: parts of a population are trained one after another, so there is no step that all "
            "have reached. Call train for each, whose epsilons add up, or look at the results"
        )
        raise InvalidArgument("on_step", on_step, wanted)
    if every is not None:
        checks.whole(least=1, every=every)
    return Watch(on_step, max(1, steps // LOOKS) if every is None else every)


def refuse_watching(on_step: Any) -> None:
    """Of a search nobody may see an iterate."""
    if on_step is not None:
        wanted = (
            "left out for a search: only its winner leaves, and a look at the other runs, or at how many there are, would cost "
            "what the search saves. Watch one run: honestdp.train(..., on_step=...) with the winner's hyperparameters"
        )
        raise InvalidArgument("on_step", on_step, wanted)


Metrics = Mapping[str, Callable[[nn.Module], Any]]


class JsonLines:
    """Writes a line of JSON for each step that it is shown: {"step": 100, "accuracy": 0.83}.

    path: the file; lines that a resumed training writes again are replaced, other files are refused.
    metrics: names to functions of a model, each of which gives a number.

    Every line is written at once and whole, so that a kill at any moment leaves whole lines. NaN and infinities, which JSON does
    not have, are written as strings. Raises InvalidArgument for a path or metrics that nothing can be written by.

    >>> import tempfile, torch, honestdp
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "curve.jsonl"
    >>> x, y = honestdp.load_dataset("digits").train
    >>> run = honestdp.Run(records=len(x), lot=64, steps=20, noise=2.0)
    >>> curve = honestdp.JsonLines(path, metrics={"size": lambda model: model.bias.numel()})
    >>> result = honestdp.train(torch.nn.Linear(64, 10), (x, y), run=run, optimizer="horizon", on_step=curve, every=10)
    >>> print(path.read_text(), end="")
    {"step": 0, "size": 10.0}
    {"step": 10, "size": 10.0}
    {"step": 20, "size": 10.0}
    """

    def __init__(self, path: str | Path, *, metrics: Metrics) -> None:
        self.path, self._metrics, self._last = _checked_path(path), _checked(metrics), math.inf
        if "step" in self._metrics:
            raise InvalidArgument("metrics", "step", "other names: this one is the step's own")
        if self.path.is_dir() or not self.path.absolute().parent.is_dir():
            raise InvalidArgument("path", str(path), "a file in a folder that exists")
        self._kept(0)  # refuses a file of another kind before anything is trained

    def __call__(self, step: int, model: nn.Module) -> None:
        line = {"step": step, **{name: _in_json(value) for name, value in _measured(self._metrics, model)}}
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        handle = os.open(self.path, flags, 0o644)
        try:
            if step <= self._last:  # the first one, or a training that goes on from an earlier step
                os.ftruncate(handle, self._kept(step))
            os.write(handle, (json.dumps(line) + "\n").encode())  # in one call, which a kill does not cut
            self._last = step
        finally:
            os.close(handle)

    def _kept(self, step: int) -> int:
        """How many bytes of the file come before this step. A last line that is not whole is of no step."""
        if not self.path.exists():
            return 0
        kept = 0
        for line in self.path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n") and (b'{"step": ').startswith(line[:9]):
                break
            try:
                known = json.loads(line)["step"] + 0
            except (ValueError, TypeError, KeyError):
                wanted = "a new file, or one that JsonLines wrote: this one holds something else"
                raise InvalidArgument("path", str(self.path), wanted) from None
            if known >= step:
                break
            kept += len(line)
        return kept


class TensorBoard:
    """Writes scalars that TensorBoard shows, pointed at the folder.

    folder: for the files of events; a resumed training hides what it writes again.
    metrics: names to functions of a model, each of which gives a number.

    Needs the package tensorboard (`pip install honestdp[tensorboard]`); an ImportError says so before anything is trained. All
    events carry the time at which the writer was made, so take the axis of steps. Raises InvalidArgument for metrics that
    nothing can be written by.

    >>> import os, tempfile, torch, honestdp
    >>> folder = tempfile.mkdtemp()
    >>> x, y = honestdp.load_dataset("digits").train
    >>> run = honestdp.Run(records=len(x), lot=64, steps=5, noise=2.0)
    >>> board = honestdp.TensorBoard(folder, metrics={"norm": lambda model: model.weight.norm()})
    >>> result = honestdp.train(torch.nn.Linear(64, 10), (x, y), run=run, optimizer="horizon", on_step=board)
    >>> len(os.listdir(folder))
    1
    """

    def __init__(self, folder: str | Path, *, metrics: Metrics) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as missing:
            raise ImportError("TensorBoard needs the package tensorboard: pip install tensorboard") from missing
        self.folder, self._metrics = _checked_path(folder), _checked(metrics)
        self._make, self._began = SummaryWriter, time.time()
        self._writer: Any = None
        self._last = math.inf

    def __call__(self, step: int, model: nn.Module) -> None:
        measured = [*_measured(self._metrics, model)]
        if step <= self._last:
            if self._writer is not None:
                self._writer.close()
            self._writer = self._make(str(self.folder), purge_step=step)
        for name, value in measured:
            self._writer.add_scalar(name, value, step, walltime=self._began)
        self._writer.flush()
        self._last = step


def _checked_path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgument("path", path, "a path")
    return Path(path)


def _checked(metrics: Any) -> dict[str, Callable[[nn.Module], Any]]:
    wanted = 'names to functions of a model, such as {"accuracy": lambda model: ...}'
    if not isinstance(metrics, Mapping) or not metrics:
        raise InvalidArgument("metrics", metrics, wanted)
    for name, metric in metrics.items():
        if not isinstance(name, str) or not callable(metric):
            raise InvalidArgument("metrics", {name: metric}, wanted)
    return dict(metrics)


def _measured(metrics: Metrics, model: nn.Module) -> list[tuple[str, float]]:
    found = []
    with torch.no_grad():
        for name, metric in metrics.items():
            value = metric(model)
            try:
                found.append((name, float(value)))
            except (TypeError, ValueError, RuntimeError) as trouble:
                kind = type(value).__name__
                raise InvalidArgument("metrics", f"a {kind} of {name!r}", "functions that return a number") from trouble
    return found


def _in_json(value: float) -> float | str:
    return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
