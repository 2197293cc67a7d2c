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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from dp_accounting import DpEvent

from honestdp import accounting, checks
from honestdp.accounting import FallBack, Pair, RenyiCurve
from honestdp.selection import counts
from honestdp.selection.contract import Drawn, written
from honestdp.selection.counts import Binomial, Count, Poisson, TruncatedNegativeBinomial, count_of
from honestdp.selection.envelope import envelope_delta, envelope_epsilon, profile_delta, profile_epsilon
from honestdp.selection.profile import Profiles, base_pair, constant, of_curve, of_event, sampled

BOUNDS = ("papernot-steinke", "profile", "envelope")
SHAPES: tuple[float | str, ...] = (0.0, 0.5, 1.0, 2.0, "poisson")
LAWS = {0.0: "logarithmic", 1.0: "geometric", "poisson": "Poisson", "binomial": "binomial"}


@dataclass(frozen=True, kw_only=True)
class RandomStopping(Drawn):
    """The best of K independent runs, their number K drawn in secret from `count`, each of a candidate drawn with
    replacement; only the winner leaves. Take it for many candidates: it costs about twice one run, however wide the
    search is.

    count: the law of K, see `count_of`. bound: how it is charged: envelope (the tightest, ours), profile, or
    papernot-steinke (published).

    >>> import honestdp
    >>> count = honestdp.selection.count_of(runs=40, shape=1.0)
    >>> run = honestdp.Run(records=60_000, lot=250, steps=1000, noise=4.0)
    >>> round(honestdp.epsilon(run, delta=1e-6, selection=honestdp.selection.RandomStopping(count=count)), 2)
    0.23
    """

    kind: ClassVar[str] = "random-stopping"
    names: ClassVar[tuple[str, ...]] = BOUNDS
    takes: ClassVar[tuple[str, ...]] = ("shape",)
    variants: ClassVar[tuple[dict[str, float | str], ...]] = tuple({"shape": shape} for shape in SHAPES)

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

    @property
    def one_run(self) -> bool:
        return self.count.always_one

    @property
    def shape(self) -> float | str:
        if isinstance(self.count, TruncatedNegativeBinomial):
            return self.count.shape
        return "binomial" if isinstance(self.count, Binomial) else "poisson"

    @property
    def how(self) -> str:
        law = LAWS.get(self.shape, f"negative binomial of shape {self.shape}")
        return f"a secret number of runs, {law}, {written(self.runs)} on average"

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "bound": self.bound, "count": counts.as_dict(self.count)}

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> RandomStopping:
        if set(written) != {"kind", "bound", "count"}:
            raise checks.InvalidArgument("selection", sorted(written), "made of kind, bound and count")
        return cls(count=counts.from_dict(written["count"]), bound=written["bound"])

    @classmethod
    def of(cls, name: str, runs: float, **settings: Any) -> RandomStopping:
        return cls(count=count_of(runs=runs, shape=settings.get("shape", 1.0)), bound=name)

    @property
    def alternatives(self) -> tuple[RandomStopping, ...]:
        return tuple(replace(self, bound=bound) for bound in BOUNDS)

    def coverage(self, candidates: int) -> float:
        return counts.coverage(self.count, candidates)

    def draws(self, generator: np.random.Generator, candidates: int) -> list[int]:
        """K first, then K candidates, independently and with replacement."""
        return counts.with_replacement(self.count.draw(generator), generator, candidates)

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        checks.probability(delta=delta)
        known = accounting.at_once(event)
        if known is not None:
            return known
        if self.bound == "papernot-steinke":
            return repeated_curve(accounting.renyi_curve(event), self.count).epsilon(delta)
        if self.count.always_one:
            return accounting.epsilon(event, delta=delta)
        published = math.inf
        if self.published is not None:
            with accounting.quiet():
                published = self.published.epsilon(event, delta=delta)
        pair = self._pair(event, delta)
        theorem = profile_epsilon if self.bound == "profile" else envelope_epsilon
        own = math.inf
        if pair is not None:
            own = max(theorem(direction, self.count, delta) for direction in (pair, pair.reversed))
        if math.isinf(own):
            text = f"one run's losses are beyond the numbers of the {self.bound} bound: "
            warnings.warn(f"{text}this is the papernot-steinke bound, sound but looser", FallBack, stacklevel=2)
        return min(own, published)

    def profiles(self, event: DpEvent, *, delta: float) -> Profiles:
        checks.probability(delta=delta)
        known = accounting.at_once(event)
        if known is not None:
            return constant(0.0 if known == 0 else 1.0)
        if self.bound != "papernot-steinke" and self.count.always_one:
            return of_event(event, delta=delta)
        published = None
        with accounting.quiet():
            if not isinstance(self.count, Binomial):
                published = repeated_curve(accounting.renyi_curve(event), self.count)
            if published is not None and self.bound == "papernot-steinke":
                return of_curve(published, delta=delta)
            pair = self._pair(event, delta)
        if pair is None:
            return constant(1.0) if published is None else of_curve(published, delta=delta)
        theorem = profile_delta if self.bound == "profile" else envelope_delta
        above, below = (
            sampled(_least(theorem(direction, self.count), published), delta=delta)
            for direction in (pair, pair.reversed)
        )
        return above, below

    def _pair(self, event: DpEvent, delta: float) -> Pair | None:
        """Of one run, made for this delta over the mean number of runs."""
        return base_pair(event, delta=delta / max(1.0, self.count.mean), tolerance=4e-5)


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
        wanted = "a truncated negative binomial or Poisson law for papernot-steinke"
        raise checks.InvalidArgument("count", count, wanted)
    return RenyiCurve(orders, raised)
