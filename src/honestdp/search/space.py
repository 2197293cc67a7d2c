"""The search space: candidates of a grid, or drawn at random.

A space is a plain dictionary from hyperparameters to lists (a grid), to `LogUniform`, `Uniform` or `Choice` (random search), or
to single values. Besides an optimizer's own hyperparameters it may hold `lot`, `steps` and `width`, the last handed to the
model's factory. Nothing here depends on a record: candidates are listed, or drawn, before any is read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.optimizers import BY_NAME, Rule
from honestdp.optimizers.rule import required, rule_class

Optimizer = str | Rule | type[Rule]
OF_THE_RUN = ("lot", "steps", "width")


@dataclass(frozen=True)
class Uniform:
    """A hyperparameter of a random search, drawn uniformly between two finite numbers. For `tune(space=...)`.

    low, high: the ends, the lower one first; InvalidArgument otherwise.

    >>> import honestdp
    >>> space = {"lr": honestdp.Uniform(0.1, 1.0), "clip": 1.0}
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InvalidArgument("Uniform", (self.low, self.high), "two finite numbers, the lower one first")

    def draw(self, generator: np.random.Generator) -> float:
        return float(generator.uniform(self.low, self.high))


@dataclass(frozen=True)
class LogUniform:
    """A hyperparameter of a random search, drawn uniformly in the logarithm. For `tune(space=...)`.

    low, high: the ends, finite and above 0, the lower one first; InvalidArgument otherwise.

    >>> import honestdp
    >>> space = {"lr": honestdp.LogUniform(0.001, 1.0), "clip": 1.0}
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (0 < self.low < self.high < math.inf):
            wanted = "two finite numbers above 0, the lower one first"
            raise InvalidArgument("LogUniform", (self.low, self.high), wanted)

    def draw(self, generator: np.random.Generator) -> float:
        return float(math.exp(generator.uniform(math.log(self.low), math.log(self.high))))


@dataclass(frozen=True, init=False)
class Choice:
    """A hyperparameter of a random search that is one of several values, each as likely. For `tune(space=...)`.

    values: at least one; InvalidArgument otherwise.

    >>> import honestdp
    >>> honestdp.Choice(0.5, 1.0).values
    (0.5, 1.0)
    """

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        only = values[0] if len(values) == 1 else None
        object.__setattr__(self, "values", tuple(only) if isinstance(only, (list, tuple)) else values)
        if not self.values:
            raise InvalidArgument("Choice", (), "at least one value")

    def draw(self, generator: np.random.Generator) -> Any:
        return self.values[int(generator.integers(len(self.values)))]


Dimensions = dict[str, tuple[Any, ...] | Uniform | LogUniform]
"""Values of each hyperparameter: lists and single values as tuples, laws as they are."""


@dataclass(frozen=True)
class Candidate:
    """One setting: a rule with its numbers, and the run's own constants where they are searched."""

    optimizer: str
    numbers: tuple[tuple[str, Any], ...]
    lot: float
    steps: int
    width: int | None = None

    def rule(self) -> Rule:
        return BY_NAME[self.optimizer](**dict(self.numbers))

    @property
    def hyperparameters(self) -> dict[str, Any]:
        lot = int(self.lot) if self.lot == int(self.lot) else self.lot
        width = {} if self.width is None else {"width": self.width}
        return {"optimizer": self.optimizer, **dict(self.numbers), "lot": lot, "steps": self.steps, **width}


@dataclass(frozen=True)
class Space:
    """The dimensions of each optimizer, checked."""

    dimensions: tuple[tuple[str, Dimensions], ...]

    @property
    def finite(self) -> bool:
        """Whether the space is a grid, so that its candidates can be listed."""
        return all(isinstance(values, tuple) for _, each in self.dimensions for values in each.values())

    def candidates(self) -> list[Candidate]:
        return [
            _candidate(optimizer, dict(zip(each, values, strict=True)))
            for optimizer, each in self.dimensions
            for values in itertools.product(*each.values())  # type: ignore[arg-type]
        ]

    def draw(self, generator: np.random.Generator) -> Candidate:
        """A candidate by chance: an optimizer, then each of its hyperparameters."""
        optimizer, each = self.dimensions[int(generator.integers(len(self.dimensions)))]
        laws = {name: Choice(*values) if isinstance(values, tuple) else values for name, values in each.items()}
        return _candidate(optimizer, {name: law.draw(generator) for name, law in laws.items()})

    def shapes(self) -> list[tuple[float, int]]:
        """Every (lot, steps) that a candidate may have: what its privacy depends on besides the noise."""
        pairs = (itertools.product(_of_run(each, "lot"), _of_run(each, "steps")) for _, each in self.dimensions)
        return sorted({(float(lot), int(steps)) for several in pairs for lot, steps in several})

    def widths(self) -> list[int | None]:
        """Every width that a candidate's model may have; None where it is left to the model."""
        return list(dict.fromkeys(width for _, each in self.dimensions for width in _of_run(each, "width", (None,))))

    def as_dict(self) -> dict[str, Any]:
        return {
            optimizer: {name: list(v) if isinstance(v, tuple) else repr(v) for name, v in each.items()}
            for optimizer, each in self.dimensions
        }


def _of_run(dimensions: Dimensions, name: str, default: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """The values of a constant of the run, which are listed and never a law: they decide the noise."""
    values = dimensions.get(name, default)
    assert isinstance(values, tuple)
    return values


def _candidate(optimizer: str, values: dict[str, Any]) -> Candidate:
    numbers = tuple((name, value) for name, value in values.items() if name not in OF_THE_RUN)
    return Candidate(optimizer, numbers, float(values["lot"]), int(values["steps"]), values.get("width"))


def space_of(
    optimizer: Optimizer | Sequence[Optimizer], space: Mapping[str, Any] | None, *, lot: float, steps: int
) -> Space:
    """The space that a user means.

    optimizer: one or several, each by its name, as a class, or as a rule, whose numbers then stand wherever the space has no
    others. space: the dimensions of the one optimizer, or a dictionary of these by name; None takes the grid of each class.
    lot, steps: of every candidate, unless the space has its own.
    """
    several = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
    if not several:
        raise InvalidArgument("optimizer", several, "at least one of " + ", ".join(BY_NAME))
    names = [_name_of(each) for each in several]
    if len(set(names)) < len(names):
        raise InvalidArgument("optimizer", names, "every optimizer once, with all values to try in the space")
    if space is not None and not isinstance(space, Mapping):
        wanted = "a dictionary from hyperparameters to lists, LogUniform, Uniform or Choice"
        raise InvalidArgument("space", space, wanted)
    by_name = bool(space) and all(key in BY_NAME and isinstance(of, Mapping) for key, of in (space or {}).items())
    if space is not None and len(names) > 1 and not by_name:
        raise InvalidArgument("space", list(space), f"a dictionary with an entry for each of {', '.join(names)}")
    dimensions = []
    for name, each in zip(names, several, strict=True):
        fixed = {f.name: (getattr(each, f.name),) for f in fields(each)} if isinstance(each, Rule) else {}
        default = {} if fixed else BY_NAME[name].grid
        asked = default if space is None else space.get(name, default) if by_name else space
        dimensions.append((name, _dimensions(name, {**fixed, **asked}, lot=lot, steps=steps)))
    return Space(tuple(dimensions))


def _name_of(optimizer: object) -> str:
    """The name under which a search keeps its candidates: whoever resumes it finds the class by it."""
    rule = rule_class(optimizer)
    if BY_NAME.get(rule.name) is not rule:
        wanted = f'a rule with a name of its own to be tuned: class {rule.__name__}(..., name="...")'
        raise InvalidArgument("optimizer", rule.__name__, wanted)
    return rule.name


def _dimensions(optimizer: str, space: Mapping[str, Any], *, lot: float, steps: int) -> Dimensions:
    known = [field.name for field in fields(BY_NAME[optimizer])]
    dimensions: Dimensions = {}
    for name, values in {**space, "lot": space.get("lot", lot), "steps": space.get("steps", steps)}.items():
        if name not in known and name not in OF_THE_RUN:
            its = f"a hyperparameter of {optimizer} ({', '.join(known) or 'it has none'})"
            raise InvalidArgument("space", name, f"{its}, or {', '.join(OF_THE_RUN)}")
        dimensions[name] = _values(name, values)
    for name in OF_THE_RUN:
        if not isinstance(dimensions.get(name, ()), tuple):
            raise InvalidArgument("space", {name: dimensions[name]}, f"a list for {name}: its values decide the noise")
    _try_out(optimizer, dimensions)
    return dimensions


def _values(name: str, values: Any) -> tuple[Any, ...] | Uniform | LogUniform:
    if isinstance(values, (Uniform, LogUniform)):
        return values
    if isinstance(values, Choice):
        return values.values
    if isinstance(values, (list, tuple, np.ndarray, range)):
        if len(values) == 0:
            raise InvalidArgument("space", {name: list(values)}, "at least one value for each hyperparameter")
        listed = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
        if len(set(map(repr, listed))) < len(listed):
            wanted = "every value once: a candidate tried twice is paid for twice"
            raise InvalidArgument("space", {name: list(listed)}, wanted)
        return listed
    return (values,)


def _try_out(optimizer: str, dimensions: Dimensions) -> None:
    """Let the rule and the run check every value, before anything is charged or read."""
    rule = BY_NAME[optimizer]
    ends = {
        name: values if isinstance(values, tuple) else (values.low, values.high)
        for name, values in dimensions.items()
        if name not in OF_THE_RUN
    }
    missing = [name for name in required(rule) if name not in ends]
    if missing:
        raise InvalidArgument("space", sorted(ends), f"with values for {', '.join(missing)} of {optimizer}")
    first = {name: values[0] for name, values in ends.items()}
    for name, values in ends.items():
        for value in values:
            if not isinstance(value, str | int | float | None):  # what a search cannot write down, it cannot resume
                raise InvalidArgument("space", {name: value}, "of numbers, words, True, False or None")
            rule(**{**first, name: value})
    for steps in _of_run(dimensions, "steps"):
        checks.whole(least=1, steps=steps)
    for lot in _of_run(dimensions, "lot"):
        checks.positive(lot=lot)
    for width in _of_run(dimensions, "width"):
        checks.whole(least=1, width=width)
