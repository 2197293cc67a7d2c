"""dp-accounting's events as the steps that the tight accountant composes. What it does not know it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import dp_accounting
from dp_accounting import DpEvent

from honestdp.accounting.steps import GaussianStep


class UnknownEvent(TypeError):
    """An event that has no place in the privacy-loss distribution accountant."""


def gaussian_steps(event: DpEvent) -> list[GaussianStep]:
    """The Poisson-sampled Gaussian queries that the event is made of, equal ones counted together."""
    counts: dict[tuple[float, float], int] = {}
    for step in _walk(event, 1):
        counts[step.rate, step.noise] = counts.get((step.rate, step.noise), 0) + step.count
    return [GaussianStep(rate, noise, count) for (rate, noise), count in counts.items()]


def _walk(event: DpEvent, count: int, rate: float = 1.0) -> Iterator[GaussianStep]:
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
                yield GaussianStep(rate, event.noise_multiplier, count)
        case dp_accounting.NonPrivateDpEvent():
            if count:
                yield GaussianStep(1.0, 0.0, count)
        case _:
            sampled = " under Poisson sampling" if rate != 1 else ""
            raise UnknownEvent(
                f"the pld accountant knows Gaussian queries, Poisson-sampled or not, and their compositions; "
                f"got {type(event).__name__}{sampled}. The rdp accountant knows more events"
            )


def total_steps(event: DpEvent) -> int:
    """How many elementary queries an event composes."""
    match event:
        case dp_accounting.SelfComposedDpEvent():
            return int(event.count) * total_steps(event.event)
        case dp_accounting.ComposedDpEvent():
            return sum(total_steps(part) for part in event.events)
        case _:
            return 1
