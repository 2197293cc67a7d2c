"""From dp-accounting's events to epsilon, by an accountant named `pld`, `rdp` or `moments`.

Everything here holds for the adding or removing of one record; both directions are computed and the larger counts. Every
number is an upper bound: approximations err to the safe side.

>>> import honestdp
>>> run = honestdp.Run(records=60_000, lot=250, steps=1000, noise=4.0)
>>> epsilons = [honestdp.accounting.epsilon(run.event, delta=1e-6, accountant=name) for name in ("pld", "rdp", "moments")]
>>> epsilons == sorted(epsilons)
True
"""

from __future__ import annotations

import math
import warnings

from dp_accounting import DpEvent

from honestdp import checks
from honestdp.accounting.events import (
    DiscreteGaussianDpEvent,
    PureDpEvent,
    UnknownEvent,
    WorstOfDpEvent,
    steps_of,
)
from honestdp.accounting.pair import Pair
from honestdp.accounting.pld import LARGEST_LOSS, SMALLEST_DELTA, TOLERANCE, dominating_pair
from honestdp.accounting.rdp import AccountingWarning, FallBack, RenyiCurve, moments_epsilon, pure, quiet, renyi_curve
from honestdp.budget import Accounted

ACCOUNTANTS = ("pld", "rdp", "moments")

__all__ = [
    "ACCOUNTANTS", "AccountingWarning", "DiscreteGaussianDpEvent", "FallBack", "Pair", "PureDpEvent",
    "RenyiCurve", "UnknownEvent", "WorstOfDpEvent", "accounted", "at_once", "epsilon", "privacy_loss", "quiet", "renyi_curve",
]  # fmt: skip


def epsilon(event: DpEvent, *, delta: float, accountant: str = "pld") -> float:
    """The epsilon that an event spends at this delta, for the adding or removing of one record.

    event: what is asked of the records, as dp-accounting's events and the three of this package: `Run.event` of a training.
    delta: strictly between 0 and 1.
    accountant: "pld" (tight; the privacy-loss distribution), "rdp" (Renyi, the improved conversion) or "moments" (Renyi, the
        classic conversion, as most papers print it).
    Returns an upper bound: 0 where nothing is asked, infinite where an answer has no noise.
    Raises InvalidArgument for a delta or an accountant that is none, UnknownEvent for an event that "pld" does not know. Warns
    (`FallBack`) where "pld" has to take a Renyi bound.

    >>> from honestdp import Run
    >>> event = Run(records=60_000, lot=600, steps=1000, noise=2.0).event
    >>> for accountant in ACCOUNTANTS:
    ...     print(accountant, round(epsilon(event, delta=1e-5, accountant=accountant), 2))
    pld 0.62
    rdp 0.69
    moments 0.86
    """
    checks.probability(delta=delta)
    checks.one_of(ACCOUNTANTS, accountant=accountant)
    known = at_once(event)
    if known is not None:
        return known
    if accountant == "rdp":
        return renyi_curve(event).epsilon(delta)
    if accountant == "moments":
        return moments_epsilon(event, delta)
    pair = privacy_loss(event, delta=delta)
    tight = math.inf if pair is None else pair.worst_epsilon(delta)
    if math.isfinite(tight):
        # At losses that end, a bound on rounding does not; the level curve of pure privacy has none of it.
        return min(tight, renyi_curve(event).epsilon(delta)) if pure(event) else tight
    beyond = f"losses above {LARGEST_LOSS:g} or next to nothing, or a delta below {SMALLEST_DELTA:g}, are beyond"
    text = f"{beyond} the pld accountant's numbers: this is a Renyi bound, sound but looser"
    warnings.warn(text, FallBack, stacklevel=2)
    with quiet():
        return min(renyi_curve(event).epsilon(delta), moments_epsilon(event, delta))


def accounted(event: DpEvent, *, delta: float) -> Accounted:
    """The epsilon of "pld", with the accountant that it comes from: "rdp" where it is beyond numbers. Warns as `epsilon` does.

    >>> from honestdp import Run
    >>> accounted(Run(records=60_000, lot=600, steps=1000, noise=2.0).event, delta=1e-5).accountant
    'pld'
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AccountingWarning)
        found = epsilon(event, delta=delta)
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    fell_back = any(issubclass(warning.category, FallBack) for warning in caught)
    own = (str(warning.message) for warning in caught if issubclass(warning.category, AccountingWarning))
    return Accounted(found, "rdp" if fell_back else "pld", tuple(dict.fromkeys(own)))


def at_once(event: DpEvent) -> float | None:
    """The epsilon of an event that needs no accountant: 0 where nothing is asked, infinite where no noise is added.

    None where an accountant is needed.

    >>> from honestdp import Run
    >>> at_once(Run(records=100, lot=10, steps=5, noise=0.0).event)
    inf
    """
    try:
        steps = steps_of(event)
    except UnknownEvent:
        return None
    if not steps:
        return 0.0
    return math.inf if any(step.noiseless for step in steps) else None


def privacy_loss(event: DpEvent, *, delta: float, tolerance: float = TOLERANCE) -> Pair | None:
    """The pair of distributions that dominates the event, on a grid that is fine enough for epsilon at this delta.

    tolerance: the part of epsilon that the grid may add.
    Returns None where no float could hold its masses: losses too large or too small, or a delta below 1e-100.
    Raises UnknownEvent for an event that has no place in this accountant.

    >>> from honestdp import Run
    >>> pair = privacy_loss(Run(records=1000, lot=10, steps=100, noise=1.0).event, delta=1e-5)
    >>> bool(pair.delta(pair.epsilon(1e-5)) <= 1e-5)
    True
    """
    return dominating_pair(steps_of(event), delta=delta, tolerance=tolerance)
