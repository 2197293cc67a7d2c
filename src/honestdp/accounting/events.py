"""Turns dp-accounting's events, and some of our own, into steps of the accountant; unknown events are refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import dp_accounting
from dp_accounting import DpEvent

from honestdp import checks
from honestdp.accounting.discrete import OutOfReach, WorstStep, discrete_gaussian, randomised_response
from honestdp.accounting.steps import GaussianStep, Step


class UnknownEvent(TypeError):
    """An event that has no place in the privacy-loss distribution accountant: it is refused, never guessed."""


@dataclass(frozen=True)
class DiscreteGaussianDpEvent(DpEvent):  # type: ignore[misc]
    """An integer of sensitivity `sensitivity` plus discrete Gaussian noise of scale noise_multiplier * sensitivity.

    Raises InvalidArgument for a negative multiplier or a sensitivity below 1.

    >>> from honestdp import accounting
    >>> round(accounting.epsilon(DiscreteGaussianDpEvent(4.0), delta=1e-5), 2)
    0.93
    """

    noise_multiplier: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        checks.non_negative(noise_multiplier=self.noise_multiplier)
        checks.whole(least=1, sensitivity=self.sensitivity)


def score_event(multiplier: float, sensitivity: int | None) -> DpEvent:
    """The event of a score with Gaussian noise of so many times its sensitivity.

    sensitivity: of whole numbers with discrete noise; 0 for continuous noise. None stands in ledgers of earlier versions, where
        nobody said which law it is: the Renyi curve that all of these laws share (Canonne, Kamath & Steinke 2020, Theorem 4) is
        charged, a sound bound and a looser one.
    """
    if sensitivity is None:
        return dp_accounting.ZCDpEvent(rho=1 / (2 * multiplier**2))
    if sensitivity == 0:
        return dp_accounting.GaussianDpEvent(multiplier)
    return DiscreteGaussianDpEvent(multiplier, sensitivity)


@dataclass(frozen=True)
class PureDpEvent(DpEvent):  # type: ignore[misc]
    """Any query that is (epsilon, 0) private. An infinite epsilon is an answer without noise.

    Raises InvalidArgument for a negative epsilon.

    >>> from honestdp import accounting
    >>> round(accounting.epsilon(PureDpEvent(0.5), delta=1e-9), 2)
    0.5
    """

    epsilon: float

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            checks.non_negative(epsilon=self.epsilon)


@dataclass(frozen=True)
class WorstOfDpEvent(DpEvent):  # type: ignore[misc]
    """One of several events, which one depending on no record; its privacy profile is at most the worst of theirs.

    >>> from honestdp import accounting
    >>> worst = WorstOfDpEvent((PureDpEvent(0.5), PureDpEvent(0.25)))
    >>> round(accounting.epsilon(worst, delta=1e-9), 2)
    0.5
    """

    events: tuple[DpEvent, ...]


def steps_of(event: DpEvent) -> tuple[Step, ...]:
    """The queries that the event is made of, equal ones counted together."""
    counts: dict[DpEvent | tuple[float, float], int] = {}
    for query, count in _walk(event, 1):
        counts[query] = counts.get(query, 0) + count
    return tuple(_step(query, count) for query, count in counts.items())


def _step(query: DpEvent | tuple[float, float], count: int) -> Step:
    match query:
        case DiscreteGaussianDpEvent():
            return discrete_gaussian(query.noise_multiplier, sensitivity=query.sensitivity, count=count)
        case dp_accounting.ZCDpEvent():  # known by its Renyi curve alone
            return OutOfReach(count)
        case PureDpEvent():
            return randomised_response(query.epsilon, count=count)
        case WorstOfDpEvent():
            return WorstStep(tuple(steps_of(event) for event in query.events), count)
        case (float() | int() as rate, float() | int() as noise):
            return GaussianStep(rate, noise, count)
    raise AssertionError(query)


def _walk(event: DpEvent, count: int, rate: float = 1.0) -> Iterator[tuple[DpEvent | tuple[float, float], int]]:
    """The elementary queries: Gaussians as (rate, noise), others as their event."""
    match event:
        case dp_accounting.NoOpDpEvent():
            return
        case dp_accounting.SelfComposedDpEvent() if rate == 1:
            yield from _walk(event.event, count * event.count)
        case dp_accounting.ComposedDpEvent() if rate == 1:
            for part in event.events:
                yield from _walk(part, count)
        case dp_accounting.PoissonSampledDpEvent() if rate == 1:
            yield from _walk(event.event, count, event.sampling_probability)
        case dp_accounting.GaussianDpEvent():
            if count and rate:
                yield (rate, event.noise_multiplier), count
        case dp_accounting.NonPrivateDpEvent():
            if count:
                yield (1.0, 0.0), count
        case dp_accounting.ZCDpEvent() if rate == 1:
            if count:
                yield event, count
        case DiscreteGaussianDpEvent() | PureDpEvent() if rate == 1:
            if count and event != PureDpEvent(0.0):
                yield (event if _noisy(event) else (1.0, 0.0)), count
        case WorstOfDpEvent() if rate == 1:
            if count and any(steps_of(part) for part in event.events):
                yield event, count
        case _:
            sampled = " under Poisson sampling" if rate != 1 else ""
            raise UnknownEvent(
                f"the pld accountant knows Gaussian queries, Poisson-sampled or not, and their compositions; "
                f"got {type(event).__name__}{sampled}. The rdp accountant knows more events"
            )


def _noisy(event: DiscreteGaussianDpEvent | PureDpEvent) -> bool:
    return math.isfinite(event.epsilon) if isinstance(event, PureDpEvent) else event.noise_multiplier > 0


def total_steps(event: DpEvent) -> int:
    """How many elementary queries an event composes."""
    match event:
        case dp_accounting.SelfComposedDpEvent():
            return int(event.count) * total_steps(event.event)
        case dp_accounting.ComposedDpEvent():
            return sum(total_steps(part) for part in event.events)
        case WorstOfDpEvent():
            return max(total_steps(part) for part in event.events)
        case _:
            return 1
