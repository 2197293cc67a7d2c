"""Renyi differential privacy: dp-accounting's curves, and two conversions to epsilon.

`rdp` takes dp-accounting's default orders, filled up to 1024, and the improved conversion (Canonne, Kamath & Steinke 2020,
Proposition 12). `moments` takes every real order in (1, 512] and the classic conversion eps = rdp + log(1/delta) / (order - 1)
of the moments accountant (Abadi et al. 2016): what the papers of this field print.

A curve computed in floating point can round to zero or below for very small rates, which would read as "no loss". Every
curve is therefore raised by what rounding may have taken.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dp_accounting
import numpy as np
from absl import logging as absl_logging
from dp_accounting import DpEvent
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import optimize

from honestdp.accounting.events import (
    DiscreteGaussianDpEvent,
    PureDpEvent,
    WorstOfDpEvent,
    total_steps,
)
from honestdp.accounting.steps import Array

HIGHEST_MOMENT = 512.0
# dp-accounting's default orders leap from 63 to 128 and on by doubling, too far apart for a delta of 1e-16 and below.
ORDERS = sorted({*rdp_privacy_accountant.DEFAULT_RDP_ORDERS, *(round(64 * 1.06**i) for i in range(48))})
# Pure differential privacy has a curve that is level: only orders without end show it.
PURE_ORDERS = tuple(float(f"{order:.3g}") for order in np.geomspace(1200.0, 1e12, 40))
ROUNDING = 1e-14  # of log E (dP/dR)^order of one step
_WORTHLESS = 1e100  # stands for an infinite divergence where a search needs finite numbers


class AccountingWarning(UserWarning):
    """A number that is a sound bound, and not the best that could be had."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what the accountants say of single numbers: for many that are compared, or that make one profile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccountingWarning)
        yield


class FallBack(AccountingWarning):
    """The number comes from another, published bound, since the one asked for is beyond what floats can hold."""


@dataclass(frozen=True)
class RenyiCurve:
    """Renyi divergences `values` at `orders` above one.

    >>> curve = RenyiCurve(np.array([2.0, 64.0, 512.0]), np.array([0.01, 0.32, 2.56]))
    >>> bool(curve.delta(curve.epsilon(1e-5)) <= 1e-5 * (1 + 1e-9))
    True
    """

    orders: Array
    values: Array

    def __post_init__(self) -> None:
        # NaN is no bound, and must not pass for one below every other.
        object.__setattr__(self, "values", np.where(np.isnan(self.values), np.inf, self.values))

    def epsilon(self, delta: float) -> float:
        """The least epsilon over the orders, by the improved conversion."""
        with np.errstate(over="ignore"):
            epsilon, order = rdp_privacy_accountant.compute_epsilon(self.orders, self.values, delta)
        at_edge = order in (self.orders[0], self.orders[-1]) and order < PURE_ORDERS[-1]
        if 0 < epsilon < math.inf and at_edge:
            _warn_of_edge(order, self.orders[0], self.orders[-1])
        return float(epsilon)

    def delta(self, epsilon: float) -> float:
        """The least delta over the orders: the improved conversion, or delta^2 <= 1 - e^-KL, KL being at most every divergence.

        As dp-accounting's, which fails on divergences below the rounding of 1.
        """
        a, values = self.orders, np.maximum(self.values, 0.0)
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            by_kl = np.log(-np.expm1(-values)) / 2
            improved = (a - 1) * (values - epsilon + np.log1p(-1 / a)) - np.log(a)
        return min(1.0, math.exp(min(0.0, float(by_kl.min()), float(improved[a > 1.01].min(initial=0.0)))))


def renyi_curve(event: DpEvent, orders: Sequence[float] | None = None) -> RenyiCurve:
    """The Renyi curve of an event at these orders above one; by default at ORDERS, and for pure privacy far beyond.

    Raises dp-accounting's UnsupportedEventError for an event that it does not know.

    >>> import dp_accounting
    >>> renyi_curve(dp_accounting.GaussianDpEvent(2.0), [3.0]).values.round(3)  # order / (2 * noise^2)
    array([0.375])
    """
    if orders is None:
        orders = (*ORDERS, *PURE_ORDERS) if pure(event) else ORDERS
    try:
        return _cached_curve(event, tuple(orders))
    except TypeError:  # an event made of a list has no hash
        return _curve(event, tuple(orders))


def _curve(event: DpEvent, orders: tuple[float, ...]) -> RenyiCurve:
    alpha = np.array([order for order in orders if order > 1])
    known = _own_values(event, alpha, orders)
    if known is not None:
        return RenyiCurve(alpha, known)
    if total_steps(event) == 0:
        return RenyiCurve(alpha, np.zeros(len(alpha)))
    event = _without_nothing(event)
    values, whole = np.empty(len(alpha)), alpha == np.floor(alpha)
    at_whole = _at_whole_orders(event, tuple(alpha[whole]))
    theirs = np.full(len(alpha), True) if at_whole is None else ~whole
    if theirs.any():
        accountant = rdp_privacy_accountant.RdpAccountant(alpha[theirs])
        with _unlogged():  # orders that do not converge come back infinite, which is all that matters here
            accountant.compose(event)
        values[theirs] = accountant.rdp
    if at_whole is not None:
        values[whole] = at_whole
    return RenyiCurve(alpha, np.maximum(values, 0) * (1 + 1e-15) + total_steps(event) * ROUNDING / (alpha - 1))


def _at_whole_orders(event: DpEvent, orders: tuple[float, ...]) -> Array | None:
    """Of a Poisson-sampled Gaussian, any number of times, all whole orders at once; None for another event.

    The sum that dp-accounting takes term by term in a loop (Mironov, Talwar & Zhang 2019, Section 3.3), every term positive:

        e^{(a-1) D} = sum_i binom(a, i) q^i (1-q)^{a-i} e^{(i^2 - i) / (2 sigma^2)}.
    """
    times = 1
    while isinstance(event, dp_accounting.SelfComposedDpEvent):
        times, event = times * event.count, event.event
    if not isinstance(event, dp_accounting.PoissonSampledDpEvent) or not orders:
        return None
    rate, inner = event.sampling_probability, event.event
    if not (isinstance(inner, dp_accounting.GaussianDpEvent) and inner.noise_multiplier > 0 and 0 < rate < 1):
        return None
    a, i, log_binomials = _binomials(orders)
    terms = log_binomials + i * math.log(rate) + (a - i) * math.log1p(-rate)
    terms += (i * i - i) / (2 * inner.noise_multiplier**2)
    terms[i > a] = -np.inf
    highest = terms.max(axis=1)
    log_moments = highest + np.log(np.exp(terms - highest[:, None]).sum(axis=1))
    values: Array = times * log_moments / (a[:, 0] - 1)
    return values


@functools.lru_cache(maxsize=4)
def _binomials(orders: tuple[float, ...]) -> tuple[Array, Array, Array]:
    """Orders a as a column, i from 0 to the highest as a row, log binom(a, i) as a table: from whole numbers, exactly."""
    a, i = np.array(orders)[:, None], np.arange(max(orders) + 1)[None, :]
    table = np.zeros((len(orders), i.shape[1]))
    for row, order in enumerate(map(int, orders)):
        binomial = 1
        for k in range(order + 1):
            table[row, k] = math.log(binomial)
            binomial = binomial * (order - k) // (k + 1)
    return a, i, table


def _own_values(event: DpEvent, alpha: Array, orders: tuple[float, ...]) -> Array | None:
    """The divergences of events that dp-accounting does not know; None for those that it does."""
    values: Array
    match event:
        case DiscreteGaussianDpEvent():
            # as of the continuous law (Canonne, Kamath & Steinke 2020, Theorem 4)
            values = alpha / (2 * event.noise_multiplier**2) if event.noise_multiplier else np.full(len(alpha), np.inf)
        case PureDpEvent():  # randomised response dominates: e^{(a-1) D} = (e^{a e} + e^{(1-a) e}) / (1 + e^e)
            e = min(event.epsilon, _WORTHLESS)
            log_moment = np.logaddexp(alpha * e, (1 - alpha) * e) - np.logaddexp(e, 0.0)
            values = (np.maximum(log_moment, 0.0) + ROUNDING) / (alpha - 1)
        case WorstOfDpEvent():
            values = np.max([renyi_curve(part, orders).values for part in event.events], axis=0)
        case dp_accounting.SelfComposedDpEvent() if _has_own(event):
            values = event.count * renyi_curve(event.event, orders).values if event.count else np.zeros(len(alpha))
        case dp_accounting.ComposedDpEvent() if _has_own(event):
            values = np.sum([renyi_curve(part, orders).values for part in event.events], axis=0)
        case _:
            return None
    return values


def _without_nothing(event: DpEvent) -> DpEvent:
    """The event without what is asked no times: 0 times an infinite divergence is 0, and in floats NaN."""
    match event:
        case dp_accounting.SelfComposedDpEvent():
            inner = _without_nothing(event.event)
            return dp_accounting.SelfComposedDpEvent(inner, event.count) if event.count else dp_accounting.NoOpDpEvent()
        case dp_accounting.ComposedDpEvent():
            return dp_accounting.ComposedDpEvent([_without_nothing(part) for part in event.events])
        case _:
            return event


def pure(event: DpEvent) -> bool:
    """Whether every query of it is (epsilon, 0) private."""
    match event:
        case dp_accounting.SelfComposedDpEvent():
            return pure(event.event)
        case dp_accounting.ComposedDpEvent() | WorstOfDpEvent():
            return bool(event.events) and all(pure(part) for part in event.events)
        case _:
            return isinstance(event, PureDpEvent)


def _has_own(event: DpEvent) -> bool:
    match event:
        case dp_accounting.SelfComposedDpEvent():
            return _has_own(event.event)
        case dp_accounting.ComposedDpEvent():
            return any(_has_own(part) for part in event.events)
        case _:
            return isinstance(event, DiscreteGaussianDpEvent | PureDpEvent | WorstOfDpEvent)


_cached_curve = functools.lru_cache(maxsize=64)(_curve)


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Without what dp-accounting says of orders that it leaves out. It logs by absl, which gives the root logger a handler where
    there is none, even for a line that nobody hears: the user's own warnings would look otherwise from there on.
    """
    level, held = absl_logging.get_verbosity(), logging.NullHandler()
    absl_logging.set_verbosity(absl_logging.ERROR)
    logging.root.addHandler(held)
    try:
        yield
    finally:
        logging.root.removeHandler(held)
        absl_logging.set_verbosity(level)


def moments_epsilon(event: DpEvent, delta: float) -> float:
    """The moments accountant: the best real order in (1, 512], the classic conversion.

    (order - 1) rdp(order) is convex, so that the bound has one minimum in the order; every order gives a valid bound.
    """
    if total_steps(event) == 0:
        return 0.0

    def bound(log_order_minus_one: float) -> float:
        order = 1 + math.exp(log_order_minus_one)
        value = float(renyi_curve(event, [order]).values[0])
        return min(value, _WORTHLESS) - math.log(delta) / (order - 1)

    highest = math.log(HIGHEST_MOMENT - 1)
    best = optimize.minimize_scalar(bound, bounds=(math.log(1e-4), highest), options={"xatol": 1e-6})
    epsilon = min(float(best.fun), bound(highest))
    if epsilon >= _WORTHLESS:
        return math.inf
    if best.x > highest - 1e-4:
        _warn_of_edge(HIGHEST_MOMENT, 1.0, HIGHEST_MOMENT)
    return epsilon


def _warn_of_edge(order: float, lowest: float, highest: float) -> None:
    edge = f"the best Renyi order, {order:g}, lies at the edge of the orders tried, {lowest:g} to {highest:g}"
    text = f"{edge}: this epsilon is a sound bound but a loose one; the pld accountant is tight here"
    warnings.warn(text, AccountingWarning, stacklevel=3)
