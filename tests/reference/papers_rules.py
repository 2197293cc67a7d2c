"""Every optimizer as its paper prints it: plain numbers, one run, a formula a line, over the releases of `honestdp.reference`.

A rule is a generator: it yields its question and the weights, and is sent the release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from honestdp.reference import HALF_RANGE, Ask, Release

Way = Iterator[tuple[Ask, Tensor]]


@dataclass(frozen=True)
class Known:
    """What is public of a run. bound: whether Echo's steps are expected to be held to what its first weights allow."""

    model: nn.Module
    lot: float
    sigma: float
    steps: int
    bound: bool = False

    @property
    def layers(self) -> list[nn.Linear]:
        return [module for module in self.model.modules() if isinstance(module, nn.Linear)]


def sgd(theta: Tensor, known: Known, *, lr: float, clip: float | str) -> Way:
    ask = Ask(1.0, automatic=True) if clip == "auto" else Ask(clip)
    while True:
        release = yield ask, theta
        theta = theta - lr * release.gradient


def momentum(theta: Tensor, known: Known, *, lr: float, momentum: float, clip: float) -> Way:
    v = torch.zeros_like(theta)
    while True:
        release = yield Ask(clip), theta
        v = momentum * v + release.gradient
        theta = theta - lr * v


def adam(theta: Tensor, known: Known, *, lr: float, beta1: float, beta2: float, clip: float) -> Way:
    m, v, t = torch.zeros_like(theta), torch.zeros_like(theta), 0
    while True:
        release = yield Ask(clip), theta
        g, t = release.gradient, t + 1
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        theta = theta - lr * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + 1e-8)


def adam_wosm(theta: Tensor, known: Known, *, lr: float, beta1: float, clip: float) -> Way:
    m, t = torch.zeros_like(theta), 0
    while True:
        release = yield Ask(clip), theta
        m, t = beta1 * m + (1 - beta1) * release.gradient, t + 1
        theta = theta - lr / (known.sigma * clip / known.lot + 1e-8) * m / (1 - beta1**t)


def adadp(theta: Tensor, known: Known, *, clip: float, lr: float, tau: float, accept: bool, keep: str) -> Way:
    eta = lr
    while True:
        start = theta
        one = yield Ask(clip), theta
        full, half = start - eta * one.gradient, start - eta / 2 * one.gradient
        other = yield Ask(clip), half
        two = half - eta / 2 * other.gradient
        err = float(((full - two).abs() / torch.maximum(torch.ones_like(full), full.abs())).norm())
        theta = start if accept and err > tau else two if keep == "half" else full
        eta *= min(max(tau / err, 0.9), 1.1)


def factor(pace: float, a: Tensor, b: Tensor, proportional: bool) -> float:
    """By which a clip or a step size moves: equation (20), or (19)."""
    if not proportional:
        return math.exp(pace * float(torch.sign(a @ b)))
    return max(0.1, 1 + pace * float(a @ b) / (float(a.norm()) * float(b.norm())))


def oso(
    theta: Tensor,
    known: Known,
    *,
    lr: float,
    clip: float,
    rho_c: float,
    rho_r: float,
    momentum: float = 0.0,
    nu_q: float = 7.124,
    proportional: bool = False,
    automatic: bool = False,
) -> Way:
    v, before = torch.zeros_like(theta), None
    while True:
        if automatic:
            release = yield Ask(1.0, automatic=True), theta
            g, q = clip * release.gradient, release.gradient
        else:
            release = yield Ask(clip, second="direction", second_noise=nu_q * known.sigma), theta
            g, q = release.gradient, release.second
        last, v = v, momentum * v + g
        theta = theta - lr * v
        if before is not None:
            clip *= factor(rho_c, g, before, proportional)
            lr *= factor(rho_r, g, last, proportional)
        before = q


def adam_oso(
    theta: Tensor,
    known: Known,
    *,
    lr: float,
    clip: float,
    beta1: float,
    rho_c: float,
    rho_r: float,
    nu_q: float,
    proportional: bool = False,
) -> Way:
    m, before, t = torch.zeros_like(theta), None, 0
    nu_g = (known.sigma**-2 - (nu_q * known.sigma) ** -2) ** -0.5
    while True:
        release = yield Ask(clip, second="direction", second_noise=nu_q * known.sigma), theta
        g, last, t = release.gradient, m, t + 1
        m = beta1 * m + (1 - beta1) * g / (nu_g * clip / known.lot + 1e-8)
        theta = theta - lr * m / (1 - beta1**t)
        if before is not None:
            clip *= factor(rho_c, g, before, proportional)
            lr *= factor(rho_r, g, last, proportional)
        before = release.second


def quantile(theta: Tensor, known: Known, *, lr: float, quantile: float, clip: float, clamped: bool = True) -> Way:
    while True:
        release = yield Ask(clip, second="quantile", second_noise=known.lot / 20), theta
        theta = theta - lr * release.gradient
        b = float(release.second)
        clip *= math.exp(-0.2 * ((min(max(b, 0.0), 1.0) if clamped else b) - quantile))


def horizon(theta: Tensor, known: Known, *, average: bool) -> Way:
    d, big_t, sigma, lot = theta.numel(), known.steps, known.sigma, known.lot
    d_l = [m.weight.numel() + m.bias.numel() for m in known.layers]
    f_l = [m.in_features for m in known.layers]
    spread = sum(a / b for a, b in zip(d_l, f_l, strict=True))
    scales = [torch.full((a,), (d / spread / b) ** 0.5, dtype=torch.float64) for a, b in zip(d_l, f_l, strict=True)]
    scale = torch.cat(scales)
    eta = (28 if average else 42) / math.sqrt(big_t * (0.2 + d * sigma**2 / lot**2))
    m, t, mean = torch.zeros_like(theta), 0, theta
    while True:
        release = yield Ask(1.0), theta
        h = 1.0 if average else math.sqrt(1 - t / big_t)
        m, t = 0.9 * m + 0.1 * release.gradient, t + 1
        theta = theta - eta * h * scale * m / (1 - 0.9**t)
        mean = mean + 9 / (t + 8) * (theta - mean)
        if average and t == big_t:
            theta = mean


def echo(theta: Tensor, known: Known) -> Way:
    """For dense layers of which no more than the shapes are known: noise of deviation exp(ln s) moves an output by two, or by
    less where twice the noise that moves it by one does not move it by 2.5."""
    fans, heard = [m.in_features for m in known.layers], []
    reach = 2 / len(fans) * max(1.0, math.sqrt(float(theta.square().sum())))
    grid, shakes, found = [0.35, 1.0, 2.0, 3.5, 5.0, 6.9], [power * math.log(2) for power in range(-9, 2)], []
    for log_norm in grid:
        moves = []
        for shake in shakes:
            moved, square = 0.0, (math.exp(2 * log_norm) - 1) / fans[0]
            for fan_in in fans:
                moved, square = math.exp(2 * shake) * (1 + fan_in * (square + moved)) + moved / 3, square / 3
            moves.append(math.log(moved) / 2)
        one = float(np.interp(0.0, moves, shakes))
        doubled = float(np.interp(one + math.log(2), shakes, moves) - np.interp(one, shakes, moves))
        bears = math.log(min(2.0, max(0.5, 1 + (math.exp(doubled) - 2.1) / 0.4)))
        found.append(float(np.interp(bears, moves, shakes)) + min(0.0, bears - moves[0]))
    while True:
        t = len(heard)
        release = yield _sized(known), theta
        heard.append(release)
        log_s = float(np.interp(_log_norm(known, heard), grid, found))
        eta = math.sqrt(2) * math.exp(log_s) / math.hypot(known.sigma * math.sqrt(known.steps) / known.lot, 1 / 50)
        assert known.bound == (eta > reach)
        theta = theta - math.sqrt(1 - t / known.steps) * min(eta, reach) * release.gradient


def _sized(known: Known) -> Ask:
    return Ask(1.0, second="norm", second_noise=7.124 * HALF_RANGE * known.sigma)


def _log_norm(known: Known, heard: list[Release]) -> float:
    """What is known of ln n: a public guess of variance 1, and what every release so far said of it."""
    inputs = known.layers[0].in_features
    precision = 1 / (HALF_RANGE**2 * ((7.124 * known.sigma / known.lot) ** 2 + 1 / known.lot))
    guess = math.log(math.sqrt(1 + 0.35**2 * inputs))
    log_n = (guess + precision * sum(float(one.second) for one in heard)) / (1 + precision * len(heard))
    return min(max(log_n, 0.0), 2 * HALF_RANGE)
