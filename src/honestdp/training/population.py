"""The runs that are trained together: a module of its own for each, and their weights, state and step as one `Population`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.seed import lent, seed_all
from honestdp.checks import InvalidArgument
from honestdp.gradients.vetting import refuse_by_name
from honestdp.optimizers import Rule, State
from honestdp.optimizers.rule import with_decay

Model = nn.Module | Callable[[], nn.Module]


def modules_of(model: Model | Sequence[Model], runs: int) -> list[nn.Module]:
    """One module of its own for every run: copies of a module, or of what a factory makes; a list gives one each."""
    if isinstance(model, (list, tuple)):
        if len(model) != runs:
            raise InvalidArgument("model", f"{len(model)} models", f"one model, or one for each of the {runs} runs")
        return [modules_of(one, 1)[0] for one in model]
    if not callable(model):
        raise InvalidArgument("model", type(model).__name__, "a torch.nn.Module, or a function that makes one")
    return [own_copy(model if isinstance(model, nn.Module) else model()) for _ in range(runs)]


def own_copy(made: Any) -> nn.Module:
    """A copy of what a function made: it may return one module every time, and a run must not start from another's weights."""
    if not isinstance(made, nn.Module):
        raise InvalidArgument("model", type(made).__name__, "a function that returns a torch.nn.Module")
    refuse_by_name(made)  # before it is copied: a copy has lost the hooks of its parameters, and shared memory
    return copy.deepcopy(made)


def factory_arguments(model: Any) -> tuple[list[str], bool]:
    """The arguments by name of a function that makes models, and whether it takes any other; none of a module."""
    if isinstance(model, nn.Module) or not callable(model):
        return [], False
    try:
        found = inspect.signature(model).parameters.values()
    except (TypeError, ValueError):  # of a callable that tells nothing
        return [], True
    by_name = [each.name for each in found if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return by_name, any(each.kind is each.VAR_KEYWORD for each in found)


def fresh(model: Any, *, arguments: Iterable[tuple[str, Any]] = (), start: int) -> nn.Module:
    """A module of its own: a copy of the given one, or what the factory makes from this seed and these arguments."""
    if not callable(model):
        raise InvalidArgument("model", type(model).__name__, "a torch.nn.Module, or a function that makes one")
    if isinstance(model, nn.Module):
        return own_copy(model)
    with lent():
        seed_all(start)
        made = model(**dict(arguments))
    return own_copy(made)


def check_alike(modules: Sequence[nn.Module]) -> None:
    """The runs of a population share one model but for its trainable weights; refuse modules that differ in anything else."""
    first = modules[0]
    for other in modules[1:]:
        difference = _difference(first, other)
        if difference:
            way_out = "make them once, outside the function, or train such models one by one"
            shared = f"Frozen parts and buffers are shared by all runs: {way_out}"
            wanted = f"models that differ in trainable weights alone; two of them differ in {difference}. {shared}"
            raise InvalidArgument("model", type(other).__name__, wanted)


def _difference(one: nn.Module, other: nn.Module) -> str | None:
    layers, others = dict(one.named_modules()), dict(other.named_modules())
    if layers.keys() != others.keys():
        return "their layers"
    for path, layer in layers.items():
        if _settings(layer) != _settings(others[path]):
            return f"the layer {path!r}" if path else "their settings"
    fixed, others_fixed = _fixed(one), _fixed(other)
    if fixed.keys() != others_fixed.keys():
        return "which parameters are trainable"
    pairs = ((name, value, others_fixed[name]) for name, value in fixed.items())
    return next((name for name, a, b in pairs if a.dtype != b.dtype or not torch.equal(a, b.to(a.device))), None)


def check_finite(modules: Iterable[nn.Module]) -> None:
    """Refuse weights that are NaN or infinite, and buffers that are NaN, before the first step: no training would change that.

    A buffer may be infinite, as a mask of attention is.
    """
    for module in modules:
        weights = [name for name, value in module.named_parameters() if not bool(torch.isfinite(value).all())]
        if broken := weights or [name for name, value in module.named_buffers() if bool(torch.isnan(value).any())]:
            wanted = f"a module whose weights are finite, but {broken[0]!r} holds NaN or infinite numbers"
            raise InvalidArgument("model", type(module).__name__, f"{wanted}: initialise it anew")


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
    frozen = {name: value for name, value in module.named_parameters() if not value.requires_grad}
    return {**frozen, **dict(module.named_buffers())}


SMALL = 2**18
"""Products of a step's forward pass, in all runs: some 50 microseconds of one core."""


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Snapshot:
    """A population between two blocks of steps: everything needed to go on as if nothing had happened. Secret."""

    step: int
    params: Tensor
    state: State
    generators: list[Tensor]


class Population:
    """Runs of one rule that are trained together."""

    def __init__(self, mechanism: Mechanism, rule: Rule, params: Tensor) -> None:
        self._mechanism, self._rule, self._steps = mechanism, rule, with_decay(rule)
        self.params = params
        self.state = rule.init(params, mechanism.constants)
        self.step = 0

    @property
    def total(self) -> int:
        return self._mechanism.constants.steps

    def snapshot(self) -> Snapshot:
        self._mechanism.check_alike(self.params)
        return Snapshot(self.step, self.params, self.state, self._mechanism.random_state())

    def restore(self, snapshot: Snapshot) -> None:
        if self.state.keys() - snapshot.state.keys():  # the same noise under another rule would betray the difference
            wanted = f"resumed by the honestdp that began it: here {self._rule.name or 'its optimizer'} goes by another state"
            raise InvalidArgument("checkpoint", f"of step {snapshot.step}", wanted)
        self.step, self.params, self.state = snapshot.step, snapshot.params, dict(snapshot.state)
        self._mechanism.restore(snapshot.generators, step=snapshot.step)

    @property
    def between_blocks(self) -> bool:
        """A snapshot can be taken."""
        return self._mechanism.between_blocks

    def block(self, most: int | None = None, *, look: int | None = None) -> None:
        """The next block of steps, at most `most`. look: stop within it after so many, and go on with it in the next call."""
        left = self.total - self.step if most is None else most
        with _one_thread() if self._is_small else nullcontext():
            steps, self.params, self.state = self._mechanism.steps(
                self._steps, self.params, self.state, left=left, most=look
            )
        self.step += steps

    def rehearse(self) -> None:
        """One step that is forgotten."""
        self._mechanism.steps(self._steps, self.params, self.state, left=1)

    @property
    def _is_small(self) -> bool:
        """Whether a step on a CPU is so little work that threads cost more than they spare: they wait for each other in every
        operation, for milliseconds where another program has a core."""
        return not self.params.is_cuda and self.params.numel() * self._mechanism.constants.lot <= SMALL

    def weights(self) -> Tensor:
        """What leaves at the end, `[runs, d]`."""
        self._mechanism.settle()
        self._mechanism.check_alike(self.params)
        params, state = self.params.clone(), {name: value.clone() for name, value in self.state.items()}
        return self._rule.weights(params, state)
