"""Random stopping: a secret number of runs K is drawn first, then K candidates with replacement; only the best leaves.

One procedure, three accountings of it, by name:

- papernot-steinke (published): Renyi bounds. For a truncated negative binomial K of shape eta and parameter gamma (Papernot &
  Steinke 2022, Theorem 2), at every order a > 1 and for every order b >= 1,

      rdp'(a) = rdp(a) + (1+eta) (1-1/b) rdp(b) + (1+eta) log(1/gamma) / b + log(E K) / (a-1);

  for a Poisson K of mean mu (Theorem 6), with delta^ the delta of one run at eps^ = log(1 + 1/(a-1)),

      rdp'(a) = log( e^-mu + mu e^{(a-1) (rdp(a) + mu delta^)} ) / (a-1),

  where e^-mu, the chance of no run at all, is ours to add: without it the bound would fall below zero for mu < 1.
- profile: delta(e1 + e2) <= E K delta_Q(e1), the form of Koskela, Redberg & Wang 2024 (docs/theory.md, Theorem 1).
- envelope: docs/theory.md, Theorem 2; never worse than profile.

All three bound one procedure, so that profile and envelope charge papernot-steinke's number where it is the lesser one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dp_accounting import DpEvent

from honestdp import accounting, checks
from honestdp.accounting import AccountingWarning, FallBack, RenyiCurve
from honestdp.selection.counts import Binomial, Count, Poisson, TruncatedNegativeBinomial, coverage, with_replacement
from honestdp.selection.envelope import envelope_delta, envelope_epsilon, profile_delta, profile_epsilon
from honestdp.selection.profile import Profiles, base_pair, constant, of_curve, of_event, quiet, sampled

BOUNDS = ("papernot-steinke", "profile", "envelope")


@dataclass(frozen=True, kw_only=True)
class RandomStopping:
    """The best of K independent runs, K from `count`, charged by `bound`."""

    leaves: ClassVar[str] = (
        "the winner alone: its model, its hyperparameters and its noisy score; not how many runs there were"
    )

    count: Count
    bound: str = "envelope"

    def __post_init__(self) -> None:
        checks.one_of(BOUNDS, bound=self.bound)

    @property
    def name(self) -> str:
        return self.bound

    @property
    def accountant(self) -> str:
        return "rdp" if self.bound == "papernot-steinke" else "pld"

    @property
    def basis(self) -> str:
        if self.bound == "papernot-steinke":
            theorem = "Theorem 6" if isinstance(self.count, Poisson) else "Theorem 2"
            return f"Papernot & Steinke 2022, {theorem}"
        theorem = "Theorem 1, the form of Koskela, Redberg & Wang 2024" if self.bound == "profile" else "Theorem 2"
        return f"docs/theory.md, {theorem} (our own proof, not externally reviewed), or the published bound where that is less"

    @property
    def published(self) -> RandomStopping | None:
        if self.bound == "papernot-steinke" or isinstance(self.count, Binomial):
            return None
        return RandomStopping(count=self.count, bound="papernot-steinke")

    @property
    def runs(self) -> float:
        return self.count.mean

    def coverage(self, candidates: int) -> float:
        return coverage(self.count, candidates)

    def draws(self, generator: np.random.Generator, candidates: int) -> list[int]:
        """K first, then K candidates, independently and with replacement."""
        return with_replacement(self.count.draw(generator), generator, candidates)

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        checks.probability(delta=delta)
        known = accounting.at_once(event)
        if known is not None:
            return known
        if self.bound == "papernot-steinke":
            return repeated_curve(accounting.renyi_curve(event), self.count).epsilon(delta)
        if self.count.always_one:
            return accounting.epsilon(event, delta=delta)
        published = self._published_epsilon(event, delta)
        pair = base_pair(event, delta=delta / max(1.0, self.count.mean), tolerance=4e-5)
        theorem = profile_epsilon if self.bound == "profile" else envelope_epsilon
        found = math.inf
        if pair is not None:
            found = max(theorem(direction, self.count, delta) for direction in (pair, pair.reversed))
        if math.isinf(found):
            warnings.warn(
                f"one run's losses are beyond the numbers of the {self.bound} bound: "
                f"this is the papernot-steinke bound, sound but looser",
                FallBack,
                stacklevel=2,
            )
        return min(found, published)

    def profiles(self, event: DpEvent, *, delta: float) -> Profiles:
        checks.probability(delta=delta)
        known = accounting.at_once(event)
        if known is not None:
            return constant(0.0 if known == 0 else 1.0)
        if self.bound != "papernot-steinke" and self.count.always_one:
            return of_event(event, delta=delta)
        published = None
        with quiet():
            if not isinstance(self.count, Binomial):
                published = repeated_curve(accounting.renyi_curve(event), self.count)
            if published is not None and self.bound == "papernot-steinke":
                return of_curve(published, delta=delta)
            pair = base_pair(event, delta=delta / max(1.0, self.count.mean), tolerance=4e-5)
        if pair is None:
            return constant(1.0) if published is None else of_curve(published, delta=delta)
        theorem = profile_delta if self.bound == "profile" else envelope_delta
        above, below = (
            sampled(_least(theorem(direction, self.count), published), delta=delta)
            for direction in (pair, pair.reversed)
        )
        return above, below

    def _published_epsilon(self, event: DpEvent, delta: float) -> float:
        if self.published is None:
            return math.inf
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AccountingWarning)
            return repeated_curve(accounting.renyi_curve(event), self.count).epsilon(delta)


def _least(own: Callable[[float], float], published: RenyiCurve | None) -> Callable[[float], float]:
    return own if published is None else lambda epsilon: min(own(epsilon), published.delta(epsilon))


def repeated_curve(curve: RenyiCurve, count: Count) -> RenyiCurve:
    """The Renyi curve of the best of K runs, each with the given curve (Papernot & Steinke 2022)."""
    orders, values = curve.orders, curve.values
    if isinstance(count, Poisson):
        hats = np.log1p(1 / (orders - 1))
        shifted = values + count.mean * np.array([curve.delta(hat) for hat in hats])
        raised = np.logaddexp(-count.mean, math.log(count.mean) + (orders - 1) * shifted) / (orders - 1)
    elif isinstance(count, TruncatedNegativeBinomial):
        # b = 1 is an order too: there the middle term vanishes, and with K = 1 for sure so does the whole addition.
        best = float(np.min((1 - 1 / orders) * values - math.log(count.gamma) / orders))
        constant = (1 + count.shape) * min(best, -math.log(count.gamma))
        raised = values + constant + math.log(count.mean) / (orders - 1)
    else:
        raise checks.InvalidArgument(
            "count", count, "a truncated negative binomial or Poisson law for papernot-steinke"
        )
    return RenyiCurve(orders, raised)
