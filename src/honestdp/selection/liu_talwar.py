"""Liu & Talwar 2019 with hard stopping, as Mohapatra et al. 2022 use it (their Theorem 1 and Algorithm 1).

Candidates are drawn and run until a coin of bias gamma ends the search, at most Y = (1/gamma) log(1/delta2) times; only the
best leaves. If one run is (eps1, delta1) private, the search is (eps, delta) private with

    eps = 3 eps1 + 3 sqrt(2 delta1),    delta = sqrt(2 delta1) Y + delta2.

delta1 comes out at 1e-16 and below, under the floor of accountants that work by Fourier transforms, which are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from dp_accounting import DpEvent

from honestdp import accounting, checks
from honestdp.accounting.discrete import Profile
from honestdp.plain_words import rounded_up
from honestdp.selection.contract import Drawn, written
from honestdp.selection.counts import with_replacement
from honestdp.selection.profile import BEND, TAIL, Profiles, constant

DELTA2 = 1e-20


@dataclass(frozen=True, kw_only=True)
class LiuTalwar(Drawn):
    """After every run a coin of bias `gamma` says whether to stop, hence 1/gamma runs on average, and only the winner
    leaves. It is here to compare with the papers: the other bounds of random stopping cost less for the same runs.

    gamma: the chance to stop after a run. accountant: rdp or moments; it needs deltas far below what pld can tell.

    >>> import honestdp
    >>> run = honestdp.Run(records=60_000, lot=250, steps=1000, noise=4.0)
    >>> round(honestdp.epsilon(run, delta=1e-6, selection=honestdp.selection.LiuTalwar(gamma=1 / 40)), 2)
    0.96
    """

    kind: ClassVar[str] = "liu-talwar"
    basis: ClassVar[str] = "Liu & Talwar 2019, as Theorem 1 of Mohapatra et al. 2022"
    takes: ClassVar[tuple[str, ...]] = ("accountant",)
    variants: ClassVar[tuple[dict[str, str], ...]] = ({"accountant": "moments"}, {"accountant": "rdp"})

    gamma: float
    accountant: str = "rdp"

    def __post_init__(self) -> None:
        if not 1 / checks.MOST <= self.gamma <= 1:
            raise checks.InvalidArgument("gamma", self.gamma, f"from {1 / checks.MOST:.0e} to 1")
        if self.accountant not in ("rdp", "moments"):
            wanted = "rdp or moments for liu-talwar, whose delta1 near 1e-18 is below the floor of a Fourier transform"
            raise checks.InvalidArgument("accountant", self.accountant, wanted)

    @property
    def one_run(self) -> bool:
        return self.gamma == 1

    @property
    def runs(self) -> float:
        return 1 / self.gamma

    def coverage(self, candidates: int) -> float:
        """1 - E(1 - 1/G)^K for the coin's geometric K; the hard stop changes it by less than 1e-19."""
        each = 1 / candidates
        return each / (self.gamma * (1 - each) + each)

    @property
    def most_runs(self) -> float:
        """Y, where the hard stop is."""
        return math.log(1 / DELTA2) / self.gamma

    def draws(self, generator: np.random.Generator, candidates: int) -> list[int]:
        """A run and a coin, again and again, until the coin falls or Y is reached: K = min(geometric, Y)."""
        runs = min(int(generator.geometric(self.gamma)), math.floor(self.most_runs))
        return with_replacement(runs, generator, candidates)

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        checks.probability(delta=delta)
        if delta <= 2 * DELTA2:
            raise checks.InvalidArgument("delta", delta, f"above {2 * DELTA2:g} for liu-talwar")
        root = (delta - DELTA2) / self.most_runs  # sqrt(2 delta1)
        epsilon1 = accounting.epsilon(event, delta=root**2 / 2, accountant=self.accountant)
        return 3 * epsilon1 + 3 * root

    def profiles(self, event: DpEvent, *, delta: float) -> Profiles:
        """The theorem at deltas from one half downwards, by Renyi curves, whichever accountant the epsilon was asked of."""
        checks.probability(delta=delta)
        least = max(TAIL * delta, 4 * DELTA2)
        deltas = np.geomspace(0.5, least, 1 + math.ceil(math.log(0.5 / least) / BEND))
        with accounting.quiet():
            epsilons = np.array([self.by_profile.epsilon(event, delta=each) for each in deltas.tolist()])
        reached = np.isfinite(epsilons)
        if not reached.any():
            return constant(1.0)
        # Where 3 sqrt(2 delta1) is most of epsilon, a smaller delta has a smaller epsilon: a point holds at every larger epsilon.
        order = np.argsort(epsilons[reached])
        rising, falling = epsilons[reached][order], np.minimum.accumulate(deltas[reached][order])
        last = np.append(np.diff(rising) > 0, True)  # of equal epsilons, the one with the least delta
        profile = Profile(np.append(0.0, rising[last]), np.append(1.0, falling[last]))
        return profile, profile

    @property
    def by_profile(self) -> LiuTalwar:
        return replace(self, accountant="rdp")

    @property
    def how(self) -> str:
        return f"a secret number of runs, {written(self.runs)} on average, ended by a coin and a hard stop"

    def notes(self, event: DpEvent, *, delta: float) -> tuple[str, ...]:
        if not self.one_run:
            return ()
        alone = accounting.epsilon(event, delta=delta, accountant=self.accountant)
        text = f"at gamma 1 the search is one run, whose own cost is epsilon {rounded_up(alone)}: the theorem is not tight there"
        return (text,)

    @classmethod
    def of(cls, name: str, runs: float, **settings: Any) -> LiuTalwar:
        if runs < 1:
            raise checks.InvalidArgument("runs", runs, "at least 1 for liu-talwar")
        return cls(gamma=1 / runs, **settings)
