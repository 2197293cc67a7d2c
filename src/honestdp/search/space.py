"""What a search looks through: candidates, by grid or by chance.

A space is a plain dictionary from hyperparameters to lists (a grid), to `LogUniform`, `Uniform` or `Choice` (random search), or
to single values. Besides an optimizer's own hyperparameters it may hold `lot`, `steps` and `width`, the last handed to the
model's factory. Nothing here depends on a record: candidates are listed, or drawn, before any is read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.optimizers import BY_NAME, Rule

RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
CLIPS = (0.1, 0.2, 0.5, 1.0)
WIDE_RATES = tuple(10 ** (-2.5 + 4 * i / 6) for i in range(7))

DEFAULTS: dict[str, dict[str, Sequence[float]]] = {
    # Mohapatra et al. 2022, Table 3
    "sgd": {"lr": RATES, "clip": CLIPS},
    "momentum": {"lr": RATES, "momentum": (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99), "clip": CLIPS},
    "adam": {"clip": CLIPS},
    "adam-wosm": {"clip": CLIPS},
    "adadp": {"clip": CLIPS},
    # Galli et al. 2024: seven step sizes from 10^-2.5 to 10^1.5, the quantiles of Andrew et al. 2021
    "oso": {"lr": WIDE_RATES},
    "quantile": {"lr": WIDE_RATES, "quantile": (0.1, 0.3, 0.5, 0.7, 0.9)},
    "horizon": {},
}
"""The papers' grids. Horizon has nothing to tune."""

OF_THE_RUN = ("lot", "steps", "width")


class Random(Protocol):
    """A law of one hyperparameter."""

    def draw(self, generator: np.random.Generator) -> Any: ...

    def ends(self) -> Sequence[Any]:
        """Values to try an optimizer's checks on."""


@dataclass(frozen=True)
class Uniform:
    """Uniform between two numbers."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InvalidArgument("Uniform", (self.low, self.high), "two finite numbers, the lower one first")

    def draw(self, generator: np.random.Generator) -> float:
        return float(generator.uniform(self.low, self.high))

    def ends(self) -> tuple[float, float]:
        return self.low, self.high


@dataclass(frozen=True)
class LogUniform:
    """Uniform in the logarithm, between two positive numbers."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (0 < self.low < self.high < math.inf):
            raise InvalidArgument(
                "LogUniform", (self.low, self.high), "two finite numbers above 0, the lower one first"
            )

    def draw(self, generator: np.random.Generator) -> float:
        return float(math.exp(generator.uniform(math.log(self.low), math.log(self.high))))

    def ends(self) -> tuple[float, float]:
        return self.low, self.high


@dataclass(frozen=True, init=False)
class Choice:
    """One of some values, each as likely as the others."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        only = values[0] if len(values) == 1 else None
        object.__setattr__(self, "values", tuple(only) if isinstance(only, (list, tuple)) else values)
        if not self.values:
            raise InvalidArgument("Choice", (), "at least one value")

    def draw(self, generator: np.random.Generator) -> Any:
        return self.values[int(generator.integers(len(self.values)))]

    def ends(self) -> tuple[Any, ...]:
        return self.values


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
        own: dict[str, Any] = {"optimizer": self.optimizer, **dict(self.numbers), "lot": lot, "steps": self.steps}
        return own if self.width is None else {**own, "width": self.width}


@dataclass(frozen=True)
class Space:
    """The dimensions of each optimizer, checked: lists and single values as tuples, laws as they are."""

    dimensions: tuple[tuple[str, dict[str, tuple[Any, ...] | Random]], ...]

    @property
    def finite(self) -> bool:
        """Whether the space is a grid, so that its candidates can be listed."""
        return all(isinstance(own, tuple) for _, each in self.dimensions for own in each.values())

    def candidates(self) -> list[Candidate]:
        """Every point of the grid."""
        found = []
        for optimizer, each in self.dimensions:
            for values in itertools.product(*each.values()):  # type: ignore[arg-type]
                found.append(_candidate(optimizer, dict(zip(each, values, strict=True))))
        return found

    def draw(self, generator: np.random.Generator) -> Candidate:
        """A candidate by chance: an optimizer, then each of its hyperparameters."""
        optimizer, each = self.dimensions[int(generator.integers(len(self.dimensions)))]
        laws = {name: Choice(*own) if isinstance(own, tuple) else own for name, own in each.items()}
        return _candidate(optimizer, {name: law.draw(generator) for name, law in laws.items()})

    def shapes(self) -> list[tuple[float, int]]:
        """Every (lot, steps) that a candidate may have: what its privacy depends on besides the noise."""
        found = set()
        for _, each in self.dimensions:
            lots, steps = each["lot"], each["steps"]
            assert isinstance(lots, tuple)
            assert isinstance(steps, tuple)
            found |= {(float(lot), int(count)) for lot in lots for count in steps}
        return sorted(found)

    def widths(self) -> list[int | None]:
        """Every width that a candidate's model may have; None where it is left to the model."""
        return list(dict.fromkeys(width for _, each in self.dimensions for width in _listed(each.get("width"))))

    def as_dict(self) -> dict[str, Any]:
        """The space for a public configuration."""
        return {
            optimizer: {name: list(own) if isinstance(own, tuple) else repr(own) for name, own in each.items()}
            for optimizer, each in self.dimensions
        }


def _listed(widths: tuple[Any, ...] | Random | None) -> tuple[Any, ...]:
    return widths if isinstance(widths, tuple) else (None,)


def _candidate(optimizer: str, values: dict[str, Any]) -> Candidate:
    numbers = tuple((name, value) for name, value in values.items() if name not in OF_THE_RUN)
    return Candidate(optimizer, numbers, float(values["lot"]), int(values["steps"]), values.get("width"))


def space_of(optimizer: str | Sequence[str], space: Mapping[str, Any] | None, *, lot: float, steps: int) -> Space:
    """The space that a user means.

    optimizer: one name or several. space: the dimensions of the one optimizer, or a dictionary of these by optimizer; None takes
    the papers' grids. lot, steps: of every candidate, unless the space has its own.
    """
    names = (optimizer,) if isinstance(optimizer, str) else tuple(optimizer)
    if not names:
        raise InvalidArgument("optimizer", list(names), "at least one of " + ", ".join(BY_NAME))
    for name in names:
        checks.one_of(tuple(BY_NAME), optimizer=name)
    if space is not None and not isinstance(space, Mapping):
        raise InvalidArgument(
            "space", space, "a dictionary from hyperparameters to lists, LogUniform, Uniform or Choice"
        )
    by_name = space is not None and bool(space) and all(key in BY_NAME for key in space)
    if space is not None and len(names) > 1 and not by_name:
        raise InvalidArgument("space", list(space), f"a dictionary with an entry for each of {', '.join(names)}")
    found = []
    for name in names:
        own = DEFAULTS[name] if space is None else space.get(name, DEFAULTS[name]) if by_name else space
        found.append((name, _dimensions(name, own, lot=lot, steps=steps)))
    return Space(tuple(found))


def _dimensions(
    optimizer: str, space: Mapping[str, Any], *, lot: float, steps: int
) -> dict[str, tuple[Any, ...] | Random]:
    known = [field.name for field in fields(BY_NAME[optimizer])]
    each: dict[str, tuple[Any, ...] | Random] = {}
    for name, given in {**space, "lot": space.get("lot", lot), "steps": space.get("steps", steps)}.items():
        if name not in known and name not in OF_THE_RUN:
            wanted = (
                f"a hyperparameter of {optimizer} ({', '.join(known) or 'it has none'}), or {', '.join(OF_THE_RUN)}"
            )
            raise InvalidArgument("space", name, wanted)
        each[name] = _values(name, given)
    for name in OF_THE_RUN:
        if not isinstance(each.get(name, ()), tuple):
            raise InvalidArgument("space", {name: each[name]}, f"a list for {name}: its values decide the noise")
    _try_out(optimizer, each)
    return each


def _values(name: str, given: Any) -> tuple[Any, ...] | Random:
    if isinstance(given, (Uniform, LogUniform)):
        return given
    if isinstance(given, Choice):
        return given.values
    if isinstance(given, (list, tuple, np.ndarray, range)):
        if len(given) == 0:
            raise InvalidArgument("space", {name: list(given)}, "at least one value for each hyperparameter")
        values = tuple(value.item() if isinstance(value, np.generic) else value for value in given)
        if len(set(map(repr, values))) < len(values):
            raise InvalidArgument(
                "space", {name: list(values)}, "every value once: a candidate tried twice is paid for twice"
            )
        return values
    return (given,)


def _try_out(optimizer: str, each: dict[str, tuple[Any, ...] | Random]) -> None:
    """Let the rule and the run check every value, before anything is charged or read."""
    own = {name: value for name, value in each.items() if name not in OF_THE_RUN}
    ends = {name: value if isinstance(value, tuple) else tuple(value.ends()) for name, value in own.items()}
    missing = [
        field.name
        for field in fields(BY_NAME[optimizer])
        if field.name not in ends and _required(optimizer, field.name)
    ]
    if missing:
        raise InvalidArgument("space", sorted(own), f"with values for {', '.join(missing)} of {optimizer}")
    first = {name: values[0] for name, values in ends.items()}
    for name, values in ends.items():
        for value in values:
            BY_NAME[optimizer](**{**first, name: value})
    for steps in each["steps"]:  # type: ignore[union-attr]
        checks.whole(least=1, steps=steps)
    for lot in each["lot"]:  # type: ignore[union-attr]
        checks.positive(lot=lot)
    for width in each.get("width", ()):  # type: ignore[union-attr]
        checks.whole(least=1, width=width)


def _required(optimizer: str, name: str) -> bool:
    import dataclasses

    field = next(field for field in fields(BY_NAME[optimizer]) if field.name == name)
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
