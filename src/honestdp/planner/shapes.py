"""Lot and steps of a run, chosen from public numbers where they are not named: the budget and the number of records.

A run of T lots of L records releases T mean gradients with noise sigma C / L in every coordinate, together as good as one with
noise sigma C / (L sqrt(T)). By the central limit theorem for composed, sampled Gaussians (Bu et al. 2020) the run is mu-GDP with

    mu = (L/N) sqrt(T (exp(1/sigma^2) - 1)),    so that    sigma / (L sqrt(T)) = 1 / (mu N share),
    share = 1 / (sigma sqrt(exp(1/sigma^2) - 1))  <  1.

A budget fixes mu, and with it the least noise 1/(mu N) that any lot and any steps can have: `share` is the part of the signal
that they keep. It grows with L sqrt(T) alone and saturates: beyond sigma of about 2 larger lots and more steps buy next to
nothing. So the rule takes L sqrt(T) at which a SHARE of .95 is kept, STEPS steps, which are enough for every optimizer here, and
the lot that follows, the cheapest in records seen for that many steps. Where a run would see more records than is bearable, it
makes fewer and larger steps, which see fewer records for the same share, and only then gives up some of it.

A search with several candidates spends about half of mu on its choice, so that its runs are planned for half of it. All of this
chooses two numbers; what is guaranteed rests on the accountant's noise for them and never on this approximation. Nothing here
needs more than the standard library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from honestdp import checks
from honestdp.budget import Budget

SHARE = 0.95  # of the signal that a budget buys at most
STEPS = 2000  # where nothing speaks against it; an optimizer that adapts slowly wants so many
FEWEST_STEPS, MOST_STEPS = 500, 10_000  # that are chosen
LEAST_LOT = 64  # smaller ones are hardly quicker
MOST_RATE = 0.5  # of a lot
MOST_EPOCHS, ALWAYS_SEEN, MOST_SEEN = (
    50,
    10**6,
    10**8,
)  # records seen by a run: so many epochs, but these at least and at most


@dataclass(frozen=True)
class Chosen:
    """Lot and steps of a run. how: in words, what was chosen and from what; empty where both were named."""

    lot: float
    steps: int
    how: str = ""


def training_records(records: int, validation: float) -> int:
    """How many records train, by declaration: what a validation fraction leaves of them."""
    if isinstance(validation, bool) or not isinstance(validation, int | float) or not 0 <= validation < 1:
        raise checks.InvalidArgument("validation", validation, "a fraction of the records, at least 0 and below 1")
    return max(1, round((1 - validation) * records))


def chosen_shape(
    budget: Budget | None,
    *,
    records: int,
    candidates: int = 1,
    lot: Any = None,
    steps: Any = None,
    epochs: float | None = None,
) -> Chosen:
    """What is named, and for the rest what the rule above says. records: N, of those that train.

    Raises InvalidArgument where something must be chosen and there is no budget to choose it from.

    >>> chosen_shape(Budget(1.0, 1e-5), records=48_000).lot
    610.0
    """
    if epochs is not None:
        checks.positive(epochs=epochs)
        if steps is not None:
            raise checks.InvalidArgument(
                "epochs", epochs, "left out where steps are given: each says how long a run is"
            )
    if lot is not None:
        checks.positive(lot=lot)
        if epochs is not None:
            steps = max(1, round(epochs * records / lot))
    if lot is not None and steps is not None:
        return Chosen(lot, steps)
    if budget is None:
        missing = "lot" if lot is None else "steps"
        wanted = "given together with a noise; it is chosen only where an epsilon is given in the noise's place"
        raise checks.InvalidArgument(missing, None, wanted)
    if steps is not None:
        checks.whole(least=1, most=checks.MOST, steps=steps)
    mu = mu_of(budget) / (1 if candidates == 1 else 2)
    reach = _reach(SHARE) * mu * records  # L sqrt(T)
    if steps is not None:
        found, what = (_lot(reach / math.sqrt(steps), records), steps), "the lot was"
    elif lot is not None:
        found, what = (lot, _steps(reach, lot, records)), "the steps were"
    elif epochs is not None:
        found, what = _by_epochs(reach, epochs, records), "the lot was"
    else:
        found, what = _both(reach, records), "lot and steps were"
    kept = share(budget, records=records, lot=found[0], steps=found[1], candidates=candidates)
    how = f"{what} chosen from public numbers alone, the budget and the number of records: lot {found[0]:g}, {found[1]} steps"
    return Chosen(*found, how=f"{how}, to keep {kept:.0%} of the signal that the budget can buy")


def share(budget: Budget, *, records: int, lot: float, steps: int, candidates: int = 1) -> float:
    """The part of the signal that lot and steps keep, of what the budget buys at most: an approximation between 0 and 1."""
    mu = mu_of(budget) / (1 if candidates == 1 else 2)
    u = math.log1p((mu * records / lot) ** 2 / steps)  # 1/sigma^2
    return math.sqrt(u / math.expm1(u)) if u > 0 else 1.0


def mu_of(budget: Budget) -> float:
    """mu of the Gaussian differential privacy that has this epsilon at this delta."""
    low, high = math.log(1e-9), math.log(1e3)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(math.exp(middle), budget.epsilon) <= budget.delta else (low, middle)
    return math.exp(low)


def _delta(mu: float, epsilon: float) -> float:
    """Dong, Roth & Su 2022: Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2)."""

    def below(z: float) -> float:
        return math.erfc(-z / math.sqrt(2)) / 2

    tail = below(-epsilon / mu - mu / 2)
    return below(-epsilon / mu + mu / 2) - (math.exp(min(epsilon, 700.0)) * tail if tail > 0 else 0.0)


def _reach(part: float) -> float:
    """L sqrt(T) / (mu N) at which lot and steps keep this share."""
    low, high = 0.0, 20.0  # of u = 1/sigma^2, in which the share falls
    for _ in range(60):
        u = (low + high) / 2
        low, high = (u, high) if math.sqrt(u / math.expm1(u)) >= part else (low, u)
    return 1 / math.sqrt(math.expm1(low))


def _most_seen(records: int) -> float:
    return min(MOST_SEEN, max(MOST_EPOCHS * records, ALWAYS_SEEN))


def _lot(wanted: float, records: int) -> float:
    """Two digits, rounded up; at least LEAST_LOT and at most half of the records."""
    wanted = max(wanted, LEAST_LOT)
    digit = 10.0 ** (math.floor(math.log10(wanted)) - 1)
    return float(max(1, min(math.ceil(wanted / digit - 1e-9) * digit, math.floor(MOST_RATE * records))))


def _steps(reach: float, lot: float, records: int) -> int:
    wanted = min(max((reach / lot) ** 2, STEPS), MOST_STEPS, _most_seen(records) / lot)
    return _rounded(max(wanted, FEWEST_STEPS))


def _both(reach: float, records: int) -> tuple[float, int]:
    seen = _most_seen(records)
    steps = _rounded(max(FEWEST_STEPS, min(STEPS, (seen / reach) ** 2)))  # L T = reach sqrt(T)
    return _lot(min(reach / math.sqrt(steps), seen / steps), records), steps


def _by_epochs(reach: float, epochs: float, records: int) -> tuple[float, int]:
    """L sqrt(T) = reach with L T = epochs N, but no larger lots than leave FEWEST_STEPS."""
    seen = epochs * records
    lot = _lot(max(1.0, min(reach**2 / seen, seen / FEWEST_STEPS)), records)
    return lot, max(1, round(seen / lot))


def _rounded(steps: float) -> int:
    """Down to two digits: 1111 steps would look as if every one of them counted."""
    digit = 10 ** (math.floor(math.log10(steps)) - 1)
    return int(steps // digit * digit)
