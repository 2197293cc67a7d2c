"""What every rule shares.

A rule is post-processing. It sees releases, never records, so whatever it computes costs no privacy. The one thing it
may influence is the next query, and only through past releases: the clip of step t is a function of releases 1..t-1 and
is frozen while step t is made.

A rule's numbers may be plain floats (one run) or tensors `[runs]` (a population); `stack_rules` turns a list of the
former into one of the latter. Every state tensor has the leading dimension `[runs]`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from honestdp import checks
from honestdp.boundary.query import LEAST_CLIP, Constants, Query, Release
from honestdp.boundary.query import State as State
from honestdp.checks import InvalidArgument

Number = float | Tensor
Clip = float | Tensor | Literal["auto"]
SomeRule = TypeVar("SomeRule", bound="Rule")


@dataclass(frozen=True)
class Rule(ABC):
    """An optimizer as pure functions of explicit state."""

    own_pace: ClassVar[bool] = False
    """True for a rule that sets its own step size; a schedule on top of it would be ignored, so it is refused."""

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


def check_clip(clip: Clip, *, auto: bool = True) -> None:
    if isinstance(clip, Tensor) or (auto and clip == "auto"):
        return
    if isinstance(clip, str):
        raise InvalidArgument("clip", clip, "a number above 0 or 'auto'" if auto else "a number above 0")
    checks.positive(clip=clip)
    if clip < LEAST_CLIP:
        raise InvalidArgument("clip", clip, f"at least {LEAST_CLIP:g}, where norms can still be told from zero")


def check_numbers(*, positive: dict[str, Number] | None = None, fractions: dict[str, Number] | None = None) -> None:
    """Plain numbers are checked; tensors were stacked from checked numbers."""
    for name, value in (positive or {}).items():
        if not isinstance(value, Tensor):
            checks.positive(**{name: value})
    for name, value in (fractions or {}).items():
        if isinstance(value, Tensor):
            continue
        checks.non_negative(**{name: value})
        if value >= 1:
            raise InvalidArgument(name, value, "at least 0 and below 1")


def fixed_query(clip: Clip, constants: Constants) -> Query:
    """The query of a rule whose clip does not move."""
    if isinstance(clip, str):
        return Query(clip=torch.ones_like(constants.noise), automatic=True)
    if isinstance(clip, Tensor):
        return Query(clip=clip)
    return Query(clip=torch.full_like(constants.noise, clip))


def sensitivity(clip: Clip) -> Number:
    """How far one record can move the gradient sum."""
    return 1.0 if isinstance(clip, str) else clip


def column(value: Number) -> Number:
    """A per-run number, ready to scale a matrix `[runs, d]`."""
    return value[:, None] if isinstance(value, Tensor) else value


def per_run(value: Number, params: Tensor) -> Tensor:
    """A number or per-run tensor as a tensor `[runs]` of its own."""
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
    own = ((f.name, getattr(rule, f.name)) for f in fields(rule))
    return (type(rule), *((name, "number" if _is_number(value) else value) for name, value in own))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def stack_rules(rules: Sequence[SomeRule], *, dtype: torch.dtype, device: torch.device) -> SomeRule:
    """One rule whose numbers are tensors `[runs]`."""
    stacked: dict[str, Any] = {}
    for field in fields(rules[0]):
        values = [getattr(rule, field.name) for rule in rules]
        if _is_number(values[0]):
            stacked[field.name] = torch.tensor(values, dtype=dtype, device=device)
    return replace(rules[0], **stacked)
