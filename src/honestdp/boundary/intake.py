"""What comes in: a model and records, checked before anything is released, and handed to the mechanism alone."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.boundary.decoding import deaths_named
from honestdp.boundary.mechanism import Mechanism, Question, width_of
from honestdp.boundary.opening import open_records
from honestdp.boundary.query import Constants
from honestdp.boundary.records import BlankRecords, Records, blank
from honestdp.boundary.seed import Seed
from honestdp.boundary.split import fingerprint
from honestdp.checks import InvalidArgument
from honestdp.gradients.layout import Layout, layout_of
from honestdp.gradients.vetting import refuse_by_name
from honestdp.losses import Loss, check_labels, check_output, default_loss
from honestdp.run import Run

Model = nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class Intake:
    """Everything private behind one name, with one way out: a mechanism."""

    question: Question
    layout: Layout
    dtype: torch.dtype
    _records: Records
    _classes: int | None
    fingerprint: str | None = None
    """A hash of records in memory, for a checkpoint alone; as secret as they are."""

    def mechanism(self, constants: Constants, *, seed: Seed, secure: bool) -> Mechanism:
        return Mechanism(self.question, self._records, constants, seed=seed, secure=secure, classes=self._classes)

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Within, the death of a worker process is told as such; after it none is left."""
        try:
            with deaths_named():
                yield
        finally:
            self._records.close()

    def bytes_per_run(self, run: Run) -> int:
        """A rough count of what one run of a population holds: weights, state and noise, and the lot as it passes."""
        x, _ = self._records.blank()
        passing = 2 * run.lot * (x[0].numel() + self.layout.total**0.5) * x.element_size()
        return int(10 * self.layout.total * x.element_size() + 3 * passing) + 1

    def rehearsal(self, constants: Constants) -> Mechanism:
        """A mechanism over made-up records, for timing."""
        return Mechanism(self.question, BlankRecords(self._records, constants.records), constants, seed=Seed.fresh())


def modules_of(model: Model | Sequence[Model], runs: int) -> list[nn.Module]:
    """One module of its own for every run: copies of a module, or of what a factory makes; a list gives one each."""
    if isinstance(model, (list, tuple)):
        if len(model) != runs:
            raise InvalidArgument("model", f"{len(model)} models", f"one model, or one for each of the {runs} runs")
        return [modules_of(one, 1)[0] for one in model]
    if isinstance(model, nn.Module):
        return [own_copy(model) for _ in range(runs)]
    if not callable(model):
        raise InvalidArgument("model", type(model).__name__, "a torch.nn.Module, or a function that makes one")
    return [own_copy(model()) for _ in range(runs)]


def own_copy(made: Any) -> nn.Module:
    """A copy of what a function made: it may return one module every time, and a run must not start from another's weights."""
    if not isinstance(made, nn.Module):
        raise InvalidArgument("model", type(made).__name__, "a function that returns a torch.nn.Module")
    refuse_by_name(made)  # before it is copied: a copy has lost the hooks of its parameters, and shared memory
    return copy.deepcopy(made)


def check_alike(modules: Sequence[nn.Module]) -> None:
    """The runs of a population share one model but for its trainable weights; refuse modules that differ in anything else."""
    first = modules[0]
    for other in modules[1:]:
        difference = _difference(first, other)
        if difference:
            wanted = (
                f"models that differ in trainable weights alone; two of them differ in {difference}. Frozen parts and buffers "
                "are shared by all runs: make them once, outside the function, or train such models one by one"
            )
            raise InvalidArgument("model", type(other).__name__, wanted)


def _difference(one: nn.Module, other: nn.Module) -> str | None:
    layers, others = dict(one.named_modules()), dict(other.named_modules())
    if layers.keys() != others.keys():
        return "their layers"
    for path, layer in layers.items():
        if _settings(layer) != _settings(others[path]):
            return f"the layer {path!r}" if path else "their settings"
    fixed, found = _fixed(one), _fixed(other)
    if fixed.keys() != found.keys():
        return "which parameters are trainable"
    return next((name for name, value in fixed.items() if not _equal(value, found[name])), None)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


_PLAIN = (bool, int, float, str, torch.dtype, type(None))


def _settings(layer: nn.Module) -> dict[str, Any]:
    """What makes a layer what it is beside its tensors: its class, its plain attributes and its functions."""
    found: dict[str, Any] = {"class": type(layer)}
    for name, value in vars(layer).items():
        parts = value if isinstance(value, tuple | list) else (value,)
        if all(isinstance(part, _PLAIN) for part in parts):
            found[name] = tuple(parts)
        elif inspect.isroutine(value):
            # A function written in a constructor is a new object each time, and its code the same.
            found[name] = getattr(value, "__code__", value)
    return found


def _fixed(module: nn.Module) -> dict[str, Tensor]:
    """The frozen parameters and the buffers."""
    frozen = {name: value for name, value in module.named_parameters() if not value.requires_grad}
    return {**frozen, **dict(module.named_buffers())}


def take_in(
    module: nn.Module,
    data: Any,
    *,
    records: int,
    loss: Loss | None,
    device: torch.device,
    workers: int,
    by_coin: bool = False,
    marked: bool = False,
    lot: float | None = None,
    strict: bool = False,
) -> Intake:
    """Check model, loss and data against each other and against the declared number of records.

    lot: the expected size of a lot, at whose width model and loss are tried. strict: see `honestdp.train_population`.
    marked: with a fingerprint of the data.
    by_coin: the data are those records that a coin put on one side, so that their number is not the declared one.
    """
    refuse_by_name(module)
    layout = layout_of(module, device)
    dtype = next(p.dtype for p in module.parameters() if p.requires_grad)
    source = open_records(data, device=device, dtype=dtype, workers=workers)
    if len(source) != records and not by_coin:
        wanted = (
            f"{len(source)}, as many as the data has. The number is not taken from the data, because it sets the rate "
            "and the epsilon and so must be public: declare it in the Run, and pass exactly that many records"
        )
        raise InvalidArgument("records", records, wanted)
    working = copy.deepcopy(module).to(device)
    x, y = source.blank()
    loss = loss or default_loss(y.dtype)
    width = 1 if lot is None else width_of(x, runs=1, records=records, lot=lot)
    classes = try_out(working, loss, x, y, examples=width, strict=strict)
    with deaths_named():
        labels = source.label_range() if classes is not None and not by_coin else None
    if classes is not None and labels is not None:
        check_labels(*labels, classes)
    mark = fingerprint(data) if marked else None
    return Intake(Question(working, loss, strict), layout, dtype, source, classes, mark)


def blank_of(x: Any, y: Any, *, module: nn.Module) -> tuple[Tensor, Tensor]:
    """Two made-up examples in the shape of arrays or tensors x and y, as the module reads them. No record is read."""
    parameter = next(module.parameters())
    return blank(x[:0], y[:0], dtype=parameter.dtype, device=parameter.device)


def try_out(
    module: nn.Module, loss: Loss, x: Tensor, y: Tensor, *, examples: int = 1, strict: bool = False
) -> int | None:
    """Model and loss on made-up examples, so many at once; the number of classes where there are such.

    x, y: two of them. No record is needed for it.
    """
    layout = layout_of(module)
    try:
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            classes = check_output(copy.deepcopy(module), loss, x, y)
            Question(module, loss, strict).vet(layout, x, y, runs=1, width=examples)
    except InvalidArgument:
        raise
    except (RuntimeError, TypeError, IndexError, ValueError) as trouble:
        why = " ".join(str(trouble).split())
        given = f"{x.dtype} records of shape {list(x.shape[1:])} and {y.dtype} labels of shape {list(y.shape[1:])}"
        raise InvalidArgument(
            "model", type(module).__name__, f"one that with its loss takes {given} ({why})"
        ) from trouble
    return classes
