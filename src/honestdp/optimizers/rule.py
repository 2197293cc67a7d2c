"""The base classes of optimizers, the table of their names, and the tools that their formulas are written with.

A rule is post-processing. It sees releases, never records, so whatever it computes costs no privacy. The one thing it
may influence is the next query, and only through past releases: the clip of step t is a function of releases 1..t-1 and
is frozen while step t is made.

A rule's numbers may be plain floats (one run) or tensors `[runs]` (a population); `stack_rules` turns a list of the
former into one of the latter. Every state tensor has the leading dimension `[runs]`.

A rule of one's own is a frozen dataclass that derives from `FixedClip` with a `name` and a `grid`; it is then known by that
name wherever a rule is asked for, in `tune` as in `train`.

Every rule has the hyperparameter `weight_decay` besides its own (`Decayed`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import Tensor

from honestdp import checks
from honestdp.boundary.query import LEAST_CLIP, Constants, Query, Release
from honestdp.boundary.query import State as State
from honestdp.checks import InvalidArgument

Number = float | Tensor
Clip = float | Tensor | Literal["auto"]
SomeRule = TypeVar("SomeRule", bound="Rule")

BY_NAME: dict[str, type[Rule]] = {}
"""Every rule that has a name, entered where its class is defined."""

# Mohapatra et al. 2022, Table 3
RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
CLIPS = (0.1, 0.2, 0.5, 1.0)
# Galli et al. 2024: seven step sizes from 10^-2.5 to 10^1.5
WIDE_RATES = tuple(10 ** (-2.5 + 4 * i / 6) for i in range(7))


@dataclass(frozen=True)
class Rule(ABC):
    """An optimizer as pure functions of explicit state: the base of one that moves its clip or asks two questions of a
    lot. Take `FixedClip` for a rule of one's own that does neither.

    weight_decay: by how much the weights shrink towards 0 before each update, as a part of its step size: theta is multiplied by
        1 - step * weight_decay, as in AdamW. It touches no record and costs no privacy.

    >>> import honestdp
    >>> honestdp.optimizers.SGD(lr=0.5, clip=1.0, weight_decay=0.01).numbers
    {'lr': 0.5, 'clip': 1.0, 'weight_decay': 0.01}
    """

    weight_decay: Number = field(default=0.0, kw_only=True)

    name: ClassVar[str] = ""
    """What the rule is called in `tune(optimizer=...)`, results and the command line."""
    grid: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """The values that a search tries where it is given no space."""
    positive: ClassVar[Sequence[str]] = ()
    """The hyperparameters that must be finite numbers above 0."""
    fractions: ClassVar[Sequence[str]] = ()
    """The hyperparameters that must be at least 0 and below 1."""
    options: ClassVar[Sequence[str]] = ()
    """The hyperparameters that `numbers` leaves out where they have their default."""
    own_pace: ClassVar[bool] = False
    """True for a rule that sets its own step size; a schedule on top of it would be ignored, so it is refused."""
    by_echo: ClassVar[bool] = False
    """True for a rule that goes by `Constants.echo`, which takes a moment to measure."""
    asks: ClassVar[str] = ""
    """What its steps release beside a gradient, for the statement."""
    form: ClassVar[int] = 0
    """Raised where a rule comes to take other steps: a checkpoint goes on by its own form, or copies differ under one noise."""

    def __init_subclass__(cls, *, name: str = "", grid: Mapping[str, Sequence[Any]] | None = None) -> None:
        """class Mine(FixedClip, name="mine", grid={"lr": (0.1, 1.0)}): enters the class into BY_NAME.

        No class takes the name of another; the same one may be defined again, as in a notebook.
        """
        cls.name = name or vars(cls).get("name", "")
        cls.grid = cls.grid if grid is None else dict(grid)
        known = BY_NAME.get(cls.name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InvalidArgument(f"name of {cls.__qualname__}", cls.name, "one that no other optimizer has")
        if "weight_decay" in vars(cls).get("__annotations__", {}):
            wanted = "without a field weight_decay: every rule has it, and it is applied for it (see `pace`)"
            raise InvalidArgument(f"class {cls.__qualname__}", "weight_decay", wanted)
        if "__repr__" not in vars(cls):
            cls.__repr__ = Rule.__repr__  # type: ignore[method-assign]  # a dataclass leaves what it finds
        if cls.name:
            BY_NAME[cls.name] = cls

    def __post_init__(self) -> None:
        """Check the plain numbers: tensors were stacked from checked numbers."""
        for each in fields(self):
            name, value = each.name, getattr(self, each.name)
            if isinstance(each.default, bool) and not isinstance(value, bool):
                raise InvalidArgument(name, value, "True or False")
            if isinstance(value, Tensor) or (value is None and each.default is None):
                continue
            if name in self.positive:
                checks.positive(**{name: value})
            if name in self.fractions:
                checks.non_negative(**{name: value})
                if value >= 1:
                    raise InvalidArgument(name, value, "at least 0 and below 1")

    def __new__(cls, *numbers: Any, **named: Any) -> Self:
        """Says which numbers are missing or unknown, and shows a call that works."""
        if is_dataclass(cls):
            _check_call(cls, numbers, named)
        return super().__new__(cls)

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in self.numbers.items())})"

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        return (), {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def numbers(self) -> dict[str, Any]:
        """The hyperparameters by name; options, and weight_decay, where they do not have their default."""
        own, optional = fields(self), ("weight_decay", *self.options)
        values = {each.name: getattr(self, each.name) for each in (*own[1:], own[0])}  # weight_decay last
        usual = {each.name: each.default for each in own if each.name in optional}
        return {n: v for n, v in values.items() if n not in usual or isinstance(v, Tensor) or v != usual[n]}

    def pace(self, state: State, constants: Constants) -> Tensor:
        """The step size of the coming update, `[runs, 1]` or `[runs, d]`, which weight decay is a part of: lr by the schedule.

        For a rule with another step size, or none called lr, to override.
        """
        lr = getattr(self, "lr", None)
        if lr is None:
            wanted = f"0 for {type(self).__name__}, which has no lr: define its method pace(state, constants)"
            raise InvalidArgument("weight_decay", self.weight_decay, wanted)
        return scheduled(lr, state, constants)

    @abstractmethod
    def init(self, params: Tensor, constants: Constants) -> State:
        """The state before the first step. params: `[runs, d]`."""

    @abstractmethod
    def query(self, state: State, constants: Constants) -> Query:
        """What to ask in the coming step."""

    @abstractmethod
    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        """The weights and the state after a release."""

    def weights(self, params: Tensor, state: State) -> Tensor:
        """The weights that leave at the end, `[runs, d]`."""
        return params

    def check(self, *, lot: float, noise: float) -> None:  # noqa: B027 (most rules are defined everywhere)
        """Refuse public constants under which the rule is undefined."""


@dataclass(frozen=True)
class Decayed:
    """A rule with its weight decay, as the mechanism knows a rule.

    Decay is decoupled from the gradient (Loshchilov & Hutter 2019) and applied around the rule: the released gradient is that of
    the loss at theta, the weights shrink by a part of the rule's own step size (`Rule.pace`), and the rule moves them from there.
    It is a function of weights and public numbers, so it is post-processing: no clip, no noise and no epsilon depends on it.
    """

    rule: Rule

    def query(self, state: State, constants: Constants) -> Query:
        return self.rule.query(state, constants)

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        shrunk = params * (1 - self.rule.pace(state, constants) * column(self.rule.weight_decay))
        return self.rule.update(shrunk, state, release, constants)


def with_decay(rule: Rule) -> Rule | Decayed:
    """The rule, or the rule with its weight decay where there is any."""
    return Decayed(rule) if isinstance(rule.weight_decay, Tensor) or rule.weight_decay else rule


def check_decay(rule: Rule) -> None:
    checks.non_negative(weight_decay=rule.weight_decay)


class FixedClip(Rule):
    """A rule whose clip does not move, the base of most rules and of a user's own. It declares the field `clip`, and
    `move`, which makes the new weights from a release; the count of steps is kept for it, and weight decay is applied
    before it.

    >>> from dataclasses import dataclass
    >>> import honestdp
    >>> @dataclass(frozen=True)
    ... class Halved(honestdp.optimizers.FixedClip):
    ...     clip: float = 1.0
    ...     def move(self, params, state, release, constants):
    ...         return params - release.gradient / 2, {}
    >>> Halved()
    Halved(clip=1.0)
    """

    clip: Clip

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clip(self.clip)

    def memory(self, params: Tensor, constants: Constants) -> State:
        """What the rule remembers, before the first step. `step`, the number of releases so far, is kept besides."""
        return {}

    @abstractmethod
    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        """The weights and the memory after a release; `state` is the memory, and `step` before this release."""

    def init(self, params: Tensor, constants: Constants) -> State:
        return {"step": counter(params), **self.memory(params, constants)}

    def query(self, state: State, constants: Constants) -> Query:
        if isinstance(self.clip, Tensor):
            return Query(clip=self.clip)
        if isinstance(self.clip, str):
            return Query(clip=torch.ones_like(constants.noise), automatic=True)
        return Query(clip=torch.full_like(constants.noise, self.clip))

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        params, memory = self.move(params, state, release, constants)
        return params, {"step": state["step"] + 1, **memory}


def rule_class(optimizer: object, *, argument: str = "optimizer") -> type[Rule]:
    """The class of a rule that is given by its name, as a class or as a rule. argument: what the caller calls it."""
    if isinstance(optimizer, str) and optimizer in BY_NAME:
        return BY_NAME[optimizer]
    if isinstance(optimizer, Rule):
        return type(optimizer)
    if isinstance(optimizer, type) and issubclass(optimizer, Rule):
        return optimizer
    if argument == "optimizer" and isinstance(optimizer, list | tuple):
        several = "train_population(optimizers=[...]) trains several side by side, tune(optimizer=[...]) finds the best of them"
        raise InvalidArgument(argument, optimizer, f"one optimizer here: {several}")
    raise InvalidArgument(
        argument, _shown(optimizer), f"{_meant(optimizer)}one of {', '.join(BY_NAME)}, or one of your own"
    )


_NEAREST = {"adamw": "Adam(weight_decay=..., clip=...)", "rmsprop": "Adam(clip=...)"}
"""The rules that come nearest to optimizers of torch that have no rule of their name."""


def _meant(optimizer: object) -> str:
    """The rule that comes nearest to an optimizer of torch or to its name, as the beginning of a way out."""
    kind = optimizer if isinstance(optimizer, str | type) else type(optimizer)
    name = kind if isinstance(kind, str) else kind.__name__
    rules = {
        each.__name__.lower(): f"{each.__name__}({', '.join(f'{n}=...' for n in required(each))})"
        for each in BY_NAME.values()
        if _ours(each)
    }
    near = {**rules, **_NEAREST}.get(name.lower())
    way = f"honestdp.optimizers.{near} for {name}, or " if near else ""
    if isinstance(kind, str) or not kind.__module__.startswith("torch.optim"):
        return way
    return f"a rule over noisy releases, where one of torch.optim goes by gradients that it has seen: {way}"


def _shown(optimizer: object) -> object:
    """A name as it is, and no more of another thing than its kind: torch's optimizers print ten lines."""
    return optimizer if isinstance(optimizer, str | int | float | None) else type(optimizer).__name__


def required(rule: type[Rule]) -> list[str]:
    """The hyperparameters that have no default."""
    return [field.name for field in fields(rule) if field.default is MISSING and field.default_factory is MISSING]


def rule_of(optimizer: object, *, argument: str = "optimizer") -> Rule:
    """The rule that is meant: a name or a class stands for the rule with its defaults."""
    if isinstance(optimizer, Rule):
        return optimizer
    rule = rule_class(optimizer, argument=argument)
    if missing := required(rule):
        way = f"it needs {_and(missing)}, for example {argument}={_call(rule, argument)}"
        wanted = f"given with its numbers: {way}; honestdp.tune finds them within the budget"
        raise InvalidArgument(argument, optimizer, wanted)
    return rule()


def _call(rule: type[Rule], argument: str = "optimizer") -> str:
    """A call that works: what has no default, from the middle of the grid."""
    numbers = (
        f"{name}={rule.grid[name][len(rule.grid[name]) // 2]!r}" if name in rule.grid else f"{name}=..."
        for name in required(rule)
    )
    made = f"{'honestdp.optimizers.' if BY_NAME.get(rule.name) is rule and _ours(rule) else ''}{rule.__name__}"
    return f"{'[' if argument == 'optimizers' else ''}{made}({', '.join(numbers)}){']' if argument == 'optimizers' else ''}"


def _ours(rule: type[Rule]) -> bool:
    return rule.__module__.startswith("honestdp.optimizers.")


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _check_call(rule: type[Rule], numbers: tuple[Any, ...], named: dict[str, Any]) -> None:
    """The arguments of a rule, before Python counts them: which are missing, and which it does not have."""
    every = [each for each in fields(rule) if each.init]
    in_order = [each.name for each in every if not each.kw_only]
    given = {**dict(zip(in_order, numbers, strict=False)), **named}
    said = ", ".join(f"{name}={value!r}" for name, value in given.items())
    known = [each.name for each in every]
    if unknown := [name for name in named if name not in known]:
        has = [
            other.__name__
            for other in BY_NAME.values()
            if _ours(other) and {*given} <= {one.name for one in fields(other)}
        ]
        instead = f"; {_and(unknown)}: honestdp.optimizers.{has[0]}" if has else ""
        wanted = f"given numbers that it has ({', '.join(known)}), and not {_and(unknown)}{instead}"
        raise InvalidArgument(rule.__name__, f"{rule.__name__}({said})", wanted)
    if missing := [name for name in required(rule) if name not in given]:
        wanted = (
            f"given its numbers: {_and(missing)} {'is' if len(missing) == 1 else 'are'} missing, as in {_call(rule)}"
        )
        raise InvalidArgument(rule.__name__, f"{rule.__name__}({said})", wanted)


def check_clip(clip: Clip, *, auto: bool = True) -> None:
    if isinstance(clip, Tensor) or (auto and clip == "auto"):
        return
    if isinstance(clip, str):
        raise InvalidArgument("clip", clip, "a number above 0 or 'auto'" if auto else "a number above 0")
    checks.positive(clip=clip)
    if clip < LEAST_CLIP:
        raise InvalidArgument("clip", clip, f"at least {LEAST_CLIP:g}, where norms can still be told from zero")


def column(value: Number) -> Number:
    """A per-run number, ready to scale a matrix `[runs, d]`."""
    return value[:, None] if isinstance(value, Tensor) else value


def per_run(value: Number, params: Tensor) -> Tensor:
    """A number or per-run tensor as a new tensor `[runs]`."""
    return torch.as_tensor(value, dtype=params.dtype, device=params.device).expand(params.shape[0]).clone()


def scheduled(lr: Number, state: State, constants: Constants) -> Tensor:
    """The step size of the coming update, a column: lr times the schedule's factor at t = 0, 1, ..."""
    return (lr * constants.factors.index_select(0, state["step"]))[:, None]


def counter(params: Tensor) -> Tensor:
    """t = 0, `[runs]`: how many releases have been used."""
    return torch.zeros(params.shape[0], dtype=torch.int64, device=params.device)


def bias_correction(beta: Number, steps: Tensor, like: Tensor) -> Tensor:
    """1 - beta^t after t = `steps` releases, a column of the precision of `like`. Taken in float64: beta^t is near 1."""
    # Filled in place and not copied: a captured step may not read the host.
    base = beta.double() if isinstance(beta, Tensor) else steps.new_full((), beta, dtype=torch.float64)
    return (1 - base**steps)[:, None].to(like.dtype)


def kind(rule: Rule) -> tuple[object, ...]:
    """Rules of equal kind can be stacked: they differ in numbers only."""
    values = ((f.name, getattr(rule, f.name)) for f in fields(rule))
    return (type(rule), *((name, "number" if _is_number(value) else value) for name, value in values))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def stack_rules(rules: Sequence[SomeRule], *, dtype: torch.dtype, device: torch.device) -> SomeRule:
    """One rule whose numbers are tensors `[runs]`."""
    stacked: dict[str, Any] = {}
    for one in fields(rules[0]):
        values = [getattr(rule, one.name) for rule in rules]
        if one.name == "weight_decay" and not any(values):
            continue  # a plain 0 takes no time
        if _is_number(values[0]):
            stacked[one.name] = torch.tensor(values, dtype=dtype, device=device)
    return replace(rules[0], **stacked)
