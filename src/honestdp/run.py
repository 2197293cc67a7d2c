"""A run: the public constants of one training, the only source of what is executed and of what is accounted.

A run of T steps draws in each step a Poisson lot of rate q = L/N from N records, sums the clipped per-example gradients,
adds Gaussian noise of sigma times the clip and divides by L. Its privacy depends on (q, sigma, T) alone. Those numbers
are declared, not measured: a count of records read off the data would itself be a private quantity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from honestdp import checks

if TYPE_CHECKING:
    from dp_accounting import DpEvent

LEAST_NOISE, MOST_NOISE = 1e-6, 1e9  # beyond these no float could hold a loss


@dataclass(frozen=True, kw_only=True)
class Run:
    """The public constants of one training.

    records: N, the declared number of records.
    lot: L, the expected size of a Poisson lot, and the divisor of every release.
    steps: T, how many noisy queries are made.
    noise: sigma, the noise multiplier; 0 trains without privacy.

    Raises InvalidArgument for numbers that no run can have.

    >>> import honestdp
    >>> run = honestdp.Run(records=60_000, lot=600, steps=1000, noise=4.0)
    >>> run.rate
    0.01
    """

    records: int
    lot: float
    steps: int
    noise: float

    def __post_init__(self) -> None:
        checks.whole(least=1, most=checks.MOST, records=self.records)
        checks.positive(lot=self.lot)
        if self.lot > self.records:
            wanted = f"at most the number of records, {self.records}, since the rate lot/records cannot exceed 1"
            raise checks.InvalidArgument("lot", self.lot, wanted)
        checks.whole(least=0, most=checks.MOST, steps=self.steps)
        checks.non_negative(noise=self.noise)
        if self.noise != 0 and not LEAST_NOISE <= self.noise <= MOST_NOISE:
            raise checks.InvalidArgument("noise", self.noise, f"0, or from {LEAST_NOISE:g} to {MOST_NOISE:g}")

    @property
    def rate(self) -> float:
        """q = L/N, the chance of each record to be in a lot."""
        return self.lot / self.records

    @property
    def event(self) -> DpEvent:
        """The run as dp-accounting's event: `steps` Poisson-sampled Gaussians."""
        import dp_accounting  # here, so that the engine needs torch and numpy alone

        step = dp_accounting.PoissonSampledDpEvent(self.rate, dp_accounting.GaussianDpEvent(self.noise))
        return dp_accounting.SelfComposedDpEvent(step, self.steps)

    def with_noise(self, noise: float) -> Run:
        return replace(self, noise=noise)

    def with_steps(self, steps: int) -> Run:
        return replace(self, steps=steps)
