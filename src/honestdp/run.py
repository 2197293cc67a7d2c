"""A run: the public constants of one training, the only source of what is executed and accounted; and whose record it is.

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


def steps_of(*, steps: int | None, epochs: float | None, records: float, lot: float) -> int:
    """T, from whichever of steps and epochs is given: an epoch is records/lot steps, in which a record is drawn once on average.

    A number of steps that is not whole is rounded to the nearest; the least is 1.
    """
    if (steps is None) == (epochs is None):
        given = None if steps is None else f"steps={steps!r} and epochs={epochs!r}"
        wanted = f"given, or epochs in its place, and not both; an epoch here is records/lot = {records / lot:g} steps"
        raise checks.InvalidArgument("steps", given, wanted)
    if steps is not None:
        return steps
    assert epochs is not None
    checks.positive(epochs=epochs)
    return max(1, round(epochs * records / lot))


@dataclass(frozen=True, kw_only=True, init=False)
class Run:
    """The public constants of one training.

    records: N, the declared number of records.
    lot: L, the expected size of a Poisson lot, and the divisor of every release.
    steps: T, how many noisy queries are made. Or epochs: how many times a record is drawn on average, which are
        records/lot steps each, rounded to the nearest whole step.
    noise: sigma, the noise multiplier; 0 trains without privacy.

    Raises InvalidArgument for numbers that no run can have.

    >>> import honestdp
    >>> run = honestdp.Run(records=60_000, lot=600, steps=1000, noise=4.0)
    >>> run.rate, run.epochs
    (0.01, 10.0)
    >>> honestdp.Run(records=60_000, lot=600, epochs=10, noise=4.0) == run
    True
    """

    records: int
    lot: float
    steps: int
    noise: float

    @checks.hinted
    def __init__(
        self, *, records: int, lot: float, noise: float, steps: int | None = None, epochs: float | None = None
    ) -> None:
        checks.whole(least=1, most=checks.MOST, records=records)
        checks.positive(lot=lot)
        if lot > records:
            wanted = f"at most the number of records, {records}, since the rate lot/records cannot exceed 1"
            raise checks.InvalidArgument("lot", lot, wanted)
        steps = steps_of(steps=steps, epochs=epochs, records=records, lot=lot)
        checks.whole(least=0, most=checks.MOST, steps=steps)
        checks.non_negative(noise=noise)
        if noise != 0 and not LEAST_NOISE <= noise <= MOST_NOISE:
            raise checks.InvalidArgument("noise", noise, f"0, or from {LEAST_NOISE:g} to {MOST_NOISE:g}")
        for name, value in (("records", records), ("lot", lot), ("steps", steps), ("noise", noise)):
            object.__setattr__(self, name, value)

    @property
    def epochs(self) -> float:
        """How many times a record is drawn on average: steps times the rate."""
        return self.steps * self.rate

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


@dataclass(frozen=True)
class Unit:
    """Whose record is protected: one row, or a person with up to so many rows. Public.

    person: what tells people apart, such as a column's name; empty where every row is a record of its own. rows: the cap.
    """

    person: str = ""
    rows: int = 1

    @property
    def noun(self) -> str:
        return "person" if self.person else "record"

    @property
    def plural(self) -> str:
        return "people" if self.person else "records"

    @property
    def relation(self) -> str:
        """What two neighbouring data differ in."""
        return PERSON if self.person else RECORD

    @property
    def protects(self) -> str:
        """For a statement."""
        if not self.person:
            return (
                "one row of the data: a person only if nobody has more than one row (with k rows of theirs, epsilon is up to k "
                "times as large, and delta grows by more)"
            )
        some = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return (
            f"one person, with all of their rows: those that share one value of {self.person}. At most {some} of a person were "
            "used, and of whoever has more, those were chosen by a coin. Somebody with several ids is as many people"
        )


RECORD, PERSON = "add or remove one record", "add or remove one person, with all of their rows"
ROW = Unit()
