"""The search space: candidates of a grid, or drawn at random from laws.

A space is a plain dictionary from hyperparameters to lists (a grid), to `LogUniform`, `Uniform` or `Choice` (random search), or
to single values. Besides an optimizer's own hyperparameters it may hold `lot`, `steps` or `epochs`, and any argument of the
model's factory, which is handed to it. Nothing here depends on a record: candidates are listed, or drawn, before any is read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from torch import nn

from honestdp import checks
from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.optimizers import BY_NAME, Rule
from honestdp.optimizers.rule import check_decay, required, rule_class
from honestdp.planner.shapes import chosen_shape
from honestdp.run import steps_of
from honestdp.training.population import factory_arguments

Optimizer = str | Rule | type[Rule]
OF_THE_RUN = ("lot", "steps", "epochs")
Arguments = tuple[tuple[str, Any], ...]
"""Of a model's factory, by name."""


@dataclass(frozen=True)
class Uniform:
    """A hyperparameter of a random search, drawn uniformly between two finite numbers. For `tune(space=...)`.

    `tune(candidates=...)` says how many draws the search amounts to, 64 if it is left out; its price depends on that number.

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
    """A hyperparameter of a random search, drawn uniformly in the logarithm: as often from 0.001 to 0.01 as from 0.1 to 1. For
    `tune(space=...)`.

    A law has no number of candidates, and the price of a search depends on that number: `tune(candidates=...)` says how many
    draws the search amounts to, 64 if it is left out.

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
    """One setting: a rule with its numbers, the run's own constants, and the arguments of the model's factory."""

    optimizer: str
    numbers: tuple[tuple[str, Any], ...]
    lot: float
    steps: int
    model: Arguments = ()

    def rule(self) -> Rule:
        return BY_NAME[self.optimizer](**dict(self.numbers))

    @property
    def hyperparameters(self) -> dict[str, Any]:
        lot = int(self.lot) if self.lot == int(self.lot) else self.lot
        return {"optimizer": self.optimizer, **dict(self.numbers), "lot": lot, "steps": self.steps, **dict(self.model)}


@dataclass(frozen=True)
class Space:
    """The dimensions of each optimizer, checked. records: those that a run trains on, of which an epoch is one pass.

    of_the_model: the hyperparameters that are arguments of the model's factory.
    """

    dimensions: tuple[tuple[str, Dimensions], ...]
    records: float = 0.0
    of_the_model: tuple[str, ...] = ()

    @property
    def finite(self) -> bool:
        """Whether the space is a grid, so that its candidates can be listed."""
        return all(isinstance(values, tuple) for _, each in self.dimensions for values in each.values())

    def candidates(self) -> list[Candidate]:
        return [
            self._candidate(optimizer, dict(zip(each, values, strict=True)))
            for optimizer, each in self.dimensions
            for values in itertools.product(*each.values())  # type: ignore[arg-type]
        ]

    def draw(self, generator: np.random.Generator) -> Candidate:
        """A candidate by chance: an optimizer, then each of its hyperparameters."""
        optimizer, each = self.dimensions[int(generator.integers(len(self.dimensions)))]
        laws = {name: Choice(*values) if isinstance(values, tuple) else values for name, values in each.items()}
        return self._candidate(optimizer, {name: law.draw(generator) for name, law in laws.items()})

    def shapes(self) -> list[tuple[float, int]]:
        """Every (lot, steps) that a candidate may have: what its privacy depends on besides the noise."""
        return sorted({shape for _, each in self.dimensions for shape in self._shapes(each)})

    def _shapes(self, each: Dimensions) -> list[tuple[float, int]]:
        return [self._shape(*values) for values in itertools.product(*(_listed(each, name) for name in OF_THE_RUN))]

    def _shape(self, lot: float, steps: int | None, epochs: float | None) -> tuple[float, int]:
        return float(lot), int(steps_of(steps=steps, epochs=epochs, records=self.records, lot=lot))

    def architectures(self) -> list[Arguments]:
        """Every set of arguments that the model's factory may get."""
        found: dict[Arguments, None] = {}
        for _, each in self.dimensions:
            names = [name for name in each if name in self.of_the_model]
            every = itertools.product(*(_listed(each, name) for name in names))
            found |= dict.fromkeys(tuple(zip(names, values, strict=True)) for values in every)
        return list(found)

    def arguments(self, hyperparameters: Mapping[str, Any]) -> Arguments:
        """Those of the model's factory among a candidate's hyperparameters."""
        return tuple((name, hyperparameters[name]) for name in hyperparameters if name in self.of_the_model)

    def _candidate(self, optimizer: str, values: dict[str, Any]) -> Candidate:
        others = (*OF_THE_RUN, *self.of_the_model)
        numbers = tuple((name, value) for name, value in values.items() if name not in others)
        lot, steps = self._shape(values["lot"], values.get("steps"), values.get("epochs"))
        return Candidate(optimizer, numbers, lot, steps, self.arguments(values))

    def as_dict(self) -> dict[str, Any]:
        return {
            optimizer: {name: list(v) if isinstance(v, tuple) else repr(v) for name, v in each.items()}
            for optimizer, each in self.dimensions
        }


def _listed(dimensions: Dimensions, name: str) -> tuple[Any, ...]:
    """The values of a constant of the run or the model, which are listed and never a law; None where it is left out."""
    values = dimensions.get(name, (None,))
    assert isinstance(values, tuple)
    return values


def space_of(
    optimizer: Optimizer | Sequence[Optimizer],
    space: Mapping[str, Any] | None,
    *,
    lot: float,
    steps: int | None = None,
    epochs: float | None = None,
    records: float = 0.0,
    model: Any = None,
) -> Space:
    """The space that a user means.

    Args:
        optimizer: one or several, each by its name, as a class, or as a rule, whose numbers then stand wherever the space has no
            others.
        space: the dimensions of the one optimizer, or a dictionary of these by name; None takes the grid of each class, and so
            does a space of nothing that is the optimizer's own.
        lot, steps, epochs: of every candidate, unless the space has its own.
        records: those that a run trains on, of which an epoch is one pass.
        model: the model's factory, whose arguments may be searched.
    """
    return _filled(_dimensions_of(optimizer, space, model), lot, steps, epochs, records)


def shaped_space(
    optimizer: Optimizer | Sequence[Optimizer],
    space: Mapping[str, Any] | None,
    *,
    budget: Budget,
    records: int,
    lot: float | None,
    steps: int | None,
    epochs: float | None = None,
    model: Any = None,
) -> tuple[Space, str]:
    """The space, and in words how lot and steps were chosen; empty where nothing was.

    records: those that train. The others: see `tune`. Where the space has several lots or steps of its own, what is left to
    choose goes by the smallest of them. model: whose arguments the space may hold.
    """
    dimensions = _dimensions_of(optimizer, space, model)
    lots, lengths, passes = (
        [value for each in dimensions.values() for value in _listed(each, name) if value is not None]
        for name in OF_THE_RUN
    )
    sizes = [
        len(values) if isinstance(values, tuple) else 2 for each in dimensions.values() for values in each.values()
    ]
    if steps is None and epochs is None and lengths:
        steps, passes = min(lengths), []
    chosen = chosen_shape(
        budget,
        records=records,
        candidates=1 if len(dimensions) == 1 and set(sizes) <= {1} else 2,
        lot=min(lots) if lot is None and lots else lot,
        steps=steps,
        epochs=min(passes) if steps is None and passes else epochs,
    )
    return _filled(dimensions, chosen.lot, chosen.steps if epochs is None else None, epochs, records), chosen.how


def _dimensions_of(
    optimizer: Optimizer | Sequence[Optimizer], space: Mapping[str, Any] | None, model: Any
) -> dict[str, Dimensions]:
    """The dimensions of each optimizer by its name, without the lot and the length that the space leaves open."""
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
    dimensions = {}
    for name, each in zip(names, several, strict=True):
        fixed = {key: (value,) for key, value in each.numbers.items()} if isinstance(each, Rule) else {}
        grid = {} if fixed else BY_NAME[name].grid
        asked = grid if space is None else space.get(name, grid) if by_name else space
        _refuse_ranges({} if asked is grid else asked)
        if not set(asked) & {field.name for field in fields(BY_NAME[name])} - {"weight_decay"}:
            asked = {**grid, **asked}
        dimensions[name] = _dimensions(name, {**fixed, **asked}, model)
    return dimensions


def _filled(
    dimensions: dict[str, Dimensions], lot: float, steps: int | None, epochs: float | None, records: float
) -> Space:
    """The space with this lot and this length wherever the dimensions have none, every value checked by its rule."""
    every = []
    for name, each in dimensions.items():
        length = {} if {"steps", "epochs"} & each.keys() else {"steps": steps, "epochs": epochs}
        left = {key: (value,) for key, value in {"lot": lot, **length}.items() if value is not None and key not in each}
        _try_out(name, whole := {**each, **left})
        every.append((name, whole))
    of_the_model = dict.fromkeys(key for name, each in every for key in each if key not in _own(name))
    return Space(tuple(every), records, tuple(of_the_model))


def _refuse_ranges(space: Mapping[str, Any]) -> None:
    """A tuple of two numbers is a range to other libraries and would be a grid of two values here."""
    for name, values in space.items():
        if isinstance(values, tuple) and len(values) == 2 and all(map(checks.is_number, values)):
            low, high = sorted(values)
            law = "LogUniform" if low > 0 else "Uniform"
            wanted = f"{list(values)} for a grid of these two values, or honestdp.{law}({low!r}, {high!r}) for a range"
            raise InvalidArgument("space", {name: values}, wanted)


def _own(optimizer: str) -> list[str]:
    """What a space may hold whatever the model is: the optimizer's hyperparameters, and the run's constants."""
    return [*(field.name for field in fields(BY_NAME[optimizer])), *OF_THE_RUN]


def _name_of(optimizer: object) -> str:
    """The name under which a search keeps its candidates: whoever resumes it finds the class by it."""
    rule = rule_class(optimizer)
    if BY_NAME.get(rule.name) is not rule:
        wanted = f'a rule with a name of its own to be tuned: class {rule.__name__}(..., name="...")'
        raise InvalidArgument("optimizer", rule.__name__, wanted)
    return rule.name


def _dimensions(optimizer: str, space: Mapping[str, Any], model: Any) -> Dimensions:
    length = [name for name in ("steps", "epochs") if name in space]
    if len(length) == 2:
        raise InvalidArgument("space", length, "with steps or epochs, not both: they are the length of a run")
    dimensions: Dimensions = {}
    for name, values in space.items():
        if name not in _own(optimizer):
            _check_argument(name, optimizer, model)
        dimensions[name] = _values(name, values)
        if not isinstance(dimensions[name], tuple) and (name in OF_THE_RUN or name not in _own(optimizer)):
            why = "its values decide the noise" if name in OF_THE_RUN else "each model is tried before the charge"
            raise InvalidArgument("space", {name: dimensions[name]}, f"a list for {name}: {why}")
    return dimensions


def _check_argument(name: str, optimizer: str, model: Any) -> None:
    """That the model's factory takes what is no hyperparameter of the optimizer."""
    takes, anything = factory_arguments(model)
    if name in takes or anything:
        return
    its = [field.name for field in fields(BY_NAME[optimizer])]
    wanted = f"a hyperparameter of {optimizer} ({', '.join(its)}), {', '.join(OF_THE_RUN)}, or an argument of the model's factory"
    if takes:
        wanted += f" ({', '.join(takes)})"
    elif isinstance(model, nn.Module):
        wanted += f", and model is a module; for {name} to be searched it must be a function of {name} that makes one"
    else:
        wanted += ", and it has none"
    raise InvalidArgument("space", name, wanted)


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
    of_the_rule = {field.name for field in fields(rule)}
    every = {n: values if isinstance(values, tuple) else (values.low, values.high) for n, values in dimensions.items()}
    for name, values in every.items():
        for value in values:
            if not isinstance(value, str | int | float | None):  # what a search cannot write down, it cannot resume
                raise InvalidArgument("space", {name: value}, "of numbers, words, True, False or None")
    ends = {name: values for name, values in every.items() if name in of_the_rule}
    missing = [name for name in required(rule) if name not in ends]
    if missing:
        raise InvalidArgument("space", sorted(ends), f"one with values for {', '.join(missing)} of {optimizer} too")
    first = {name: values[0] for name, values in ends.items()}
    for name, values in ends.items():
        for value in values:
            check_decay(rule(**{**first, name: value}))
    for steps in every.get("steps", ()):
        checks.whole(least=1, steps=steps)
    for name in ("lot", "epochs"):
        for value in every.get(name, ()):
            checks.positive(**{name: value})
    for width in every.get("width", ()):
        checks.whole(least=1, width=width)
