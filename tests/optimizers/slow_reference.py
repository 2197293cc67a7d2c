"""A plain, slow DP training: one run, one record at a time, every formula as the papers print it, in float64.

It draws nothing itself: lots and standard normal noise are handed in, so that it can be compared step by step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


def record_gradient(model: nn.Module, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of one record's loss as one vector."""
    parts, at = {}, 0
    for name, value in model.named_parameters():
        parts[name] = theta[at : at + value.numel()].view(value.shape).clone().requires_grad_()
        at += value.numel()
    output = torch.func.functional_call(model, parts, (x[None],))
    loss = functional.cross_entropy(output, y[None])
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(parts.values()))])


@dataclass
class Slow:
    """What is known to the reference: the data, the constants, the weights; `memory` is a rule's state."""

    model: nn.Module
    x: Tensor
    y: Tensor
    theta: Tensor
    lot: float
    sigma: float
    steps: int
    memory: dict[str, object] = field(default_factory=dict)
    t: int = 0

    def gradients(self, members: list[int]) -> list[Tensor]:
        found = [record_gradient(self.model, self.theta, self.x[i], self.y[i]) for i in members]
        return [g for g in found if bool(torch.isfinite(g).all())]

    def flat(self, members: list[int], clip: float, z: Tensor, sigma: float | None = None) -> Tensor:
        sigma = self.sigma if sigma is None else sigma
        total = sum(
            (g * min(1.0, clip / float(g.norm())) for g in self.gradients(members)), torch.zeros_like(self.theta)
        )
        return (total + sigma * clip * z) / self.lot

    def automatic(self, members: list[int], z: Tensor) -> Tensor:
        total = sum((g / (float(g.norm()) + 0.01) for g in self.gradients(members)), torch.zeros_like(self.theta))
        return (total + self.sigma * z) / self.lot


def sgd(s: Slow, members: list[int], noise: list[Tensor], *, lr: float, clip: float) -> None:
    s.theta = s.theta - lr * s.flat(members, clip, noise[0])


def sgd_automatic(s: Slow, members: list[int], noise: list[Tensor], *, lr: float) -> None:
    s.theta = s.theta - lr * s.automatic(members, noise[0])


def momentum(s: Slow, members: list[int], noise: list[Tensor], *, lr: float, momentum: float, clip: float) -> None:
    s.memory["v"] = momentum * s.memory.get("v", 0) + s.flat(members, clip, noise[0])
    s.theta = s.theta - lr * s.memory["v"]


def adam(
    s: Slow, members: list[int], noise: list[Tensor], *, lr: float, beta1: float, beta2: float, clip: float
) -> None:
    g, t = s.flat(members, clip, noise[0]), s.t + 1
    s.memory["m"] = beta1 * s.memory.get("m", 0) + (1 - beta1) * g
    s.memory["v"] = beta2 * s.memory.get("v", 0) + (1 - beta2) * g * g
    s.theta = s.theta - lr * (s.memory["m"] / (1 - beta1**t)) / ((s.memory["v"] / (1 - beta2**t)).sqrt() + 1e-8)


def adam_wosm(s: Slow, members: list[int], noise: list[Tensor], *, lr: float, beta1: float, clip: float) -> None:
    s.memory["m"] = beta1 * s.memory.get("m", 0) + (1 - beta1) * s.flat(members, clip, noise[0])
    s.theta = s.theta - lr / (s.sigma * clip / s.lot + 1e-8) * s.memory["m"] / (1 - beta1 ** (s.t + 1))


def adadp(
    s: Slow, members: list[int], noise: list[Tensor], *, clip: float, lr: float, tau: float, accept: bool, keep: str
) -> None:
    eta = s.memory.setdefault("eta", lr)
    g = s.flat(members, clip, noise[0])
    if s.t % 2 == 0:
        s.memory["start"], s.memory["full"] = s.theta, s.theta - eta * g
        s.theta = s.theta - eta / 2 * g
        return
    full, two = s.memory["full"], s.theta - eta / 2 * g
    err = float(((full - two).abs() / torch.maximum(torch.ones_like(full), full.abs())).norm())
    s.theta = two if keep == "half" else full
    if accept and err > tau:
        s.theta = s.memory["start"]
    s.memory["eta"] = eta * min(max(tau / err, 0.9), 1.1)


def factor(pace: float, a: Tensor, b: Tensor, proportional: bool) -> float:
    """By which a clip or a step size moves: equation (20), or (19)."""
    if not proportional:
        return math.exp(pace * float(torch.sign(a @ b)))
    return max(0.1, 1 + pace * float(a @ b) / (float(a.norm()) * float(b.norm())))


def oso(
    s: Slow,
    members: list[int],
    noise: list[Tensor],
    *,
    lr: float,
    clip: float,
    rho_c: float,
    rho_r: float,
    momentum: float = 0.0,
    nu_q: float = 7.124,
    proportional: bool = False,
    automatic: bool = False,
) -> None:
    c, rho = s.memory.setdefault("clip", clip), s.memory.setdefault("rho", lr)
    if automatic:
        g = c * s.automatic(members, noise[0])
        q = g / c
    else:
        g, q = _clipped_and_direction(s, members, noise, c, nu_q)
    v = momentum * s.memory.get("v", 0) + g
    s.theta = s.theta - rho * v
    if s.t > 0:
        s.memory["clip"] = c * factor(rho_c, g, s.memory["q"], proportional)
        s.memory["rho"] = rho * factor(rho_r, g, s.memory["v"], proportional)
    s.memory["v"], s.memory["q"] = v, q


def _clipped_and_direction(
    s: Slow, members: list[int], noise: list[Tensor], c: float, nu_q: float
) -> tuple[Tensor, Tensor]:
    nu = nu_q * s.sigma
    g = s.flat(members, c, noise[0], (s.sigma**-2 - nu**-2) ** -0.5)
    big = [v / v.norm() for v in s.gradients(members) if float(v.norm()) > c]
    return g, (sum(big, torch.zeros_like(s.theta)) + nu * noise[1]) / s.lot


def adam_oso(
    s: Slow,
    members: list[int],
    noise: list[Tensor],
    *,
    lr: float,
    clip: float,
    beta1: float,
    rho_c: float,
    rho_r: float,
    nu_q: float,
    proportional: bool = False,
) -> None:
    c, rho = s.memory.setdefault("clip", clip), s.memory.setdefault("rho", lr)
    g, q = _clipped_and_direction(s, members, noise, c, nu_q)
    nu_g = (s.sigma**-2 - (nu_q * s.sigma) ** -2) ** -0.5
    m = beta1 * s.memory.get("m", 0) + (1 - beta1) * g / (nu_g * c / s.lot + 1e-8)
    s.theta = s.theta - rho * m / (1 - beta1 ** (s.t + 1))
    if s.t > 0:
        s.memory["clip"] = c * factor(rho_c, g, s.memory["q"], proportional)
        s.memory["rho"] = rho * factor(rho_r, g, s.memory["m"], proportional)
    s.memory["m"], s.memory["q"] = m, q


def quantile(
    s: Slow,
    members: list[int],
    noise: list[Tensor],
    *,
    lr: float,
    quantile: float,
    clip: float,
    clamped: bool = True,
) -> None:
    c = s.memory.setdefault("clip", clip)
    s_b = s.lot / 20
    nu_g = (s.sigma**-2 - (2 * s_b) ** -2) ** -0.5
    g = s.flat(members, c, noise[0], nu_g)
    count = sum((1.0 if float(v.norm()) <= c else 0.0) - 0.5 for v in s.gradients(members))
    b = (count + s_b * float(noise[1])) / s.lot + 0.5
    s.theta = s.theta - lr * g
    s.memory["clip"] = c * math.exp(-0.2 * ((min(max(b, 0.0), 1.0) if clamped else b) - quantile))


def horizon(s: Slow, members: list[int], noise: list[Tensor], *, average: bool) -> None:
    d, big_t = s.theta.numel(), s.steps
    s.memory["m"] = 0.9 * s.memory.get("m", 0) + 0.1 * s.flat(members, 1.0, noise[0])
    m_hat = s.memory["m"] / (1 - 0.9 ** (s.t + 1))
    eta = (28 if average else 42) / math.sqrt(big_t * (0.2 + d * s.sigma**2 / s.lot**2))
    h = 1.0 if average else math.sqrt(1 - s.t / big_t)
    layers = [m for m in s.model.modules() if isinstance(m, nn.Linear)]
    d_l = [m.weight.numel() + m.bias.numel() for m in layers]
    f_l = [m.in_features for m in layers]
    spread = sum(a / b for a, b in zip(d_l, f_l, strict=True))
    scale = torch.cat(
        [torch.full((a,), b**-0.5 * math.sqrt(d / spread), dtype=torch.float64) for a, b in zip(d_l, f_l, strict=True)]
    )
    s.theta = s.theta - eta * h * scale * m_hat
    before = s.memory.get("average", s.theta)
    s.memory["average"] = before + 9 / (s.t + 1 + 8) * (s.theta - before)


def outlook(s: Slow, members: list[int], noise: list[Tensor]) -> None:
    """For dense layers, one after the other: each step is set by the norm of what enters the layer."""
    layers = [m for m in s.model.modules() if isinstance(m, nn.Linear)]
    lot, inputs = s.lot, layers[0].in_features
    if s.t == 0:
        s.memory["squares"] = [(m.weight.square().mean().item(), m.bias.square().mean().item()) for m in layers]
    release, log_n = _sized(s, members, noise, inputs)
    s.memory["m"] = 0.9 * s.memory.get("m", 0) + 0.1 * release
    m_hat = s.memory["m"] / (1 - 0.9 ** (s.t + 1))
    eta = math.exp(0.4 * log_n) / len(layers) / math.hypot(s.sigma * math.sqrt(s.steps) / (1.5 * lot), 1 / 150)
    square, parts = (math.exp(2 * log_n) - 1) / inputs, []
    for number, (layer, (weights, biases)) in enumerate(zip(layers, s.memory["squares"], strict=True)):
        fan_in = layer.in_features
        n = math.sqrt(1 + fan_in * square)
        n = n if number == 0 else math.sqrt(n * math.sqrt(fan_in))
        parts.append(torch.full((layer.weight.numel() + layer.bias.numel(),), eta / n, dtype=torch.float64))
        square = min(max(fan_in * weights, 0.1), 4.0) * square + biases
    s.theta = s.theta - math.sqrt(1 - s.t / s.steps) * torch.cat(parts) * m_hat


def _sized(s: Slow, members: list[int], noise: list[Tensor], inputs: int) -> tuple[Tensor, float]:
    """A gradient that shares its noise with a release of the inputs' size, and what is known of ln n."""
    half, lot, nu = 3.453125, s.lot, 7.124 * s.sigma
    logs = [math.log1p(float(s.x[i].square().sum())) / 2 - half for i in members if bool(torch.isfinite(s.x[i]).all())]
    total = sum(round(min(half, max(-half, value)) * 2**16) / 2**16 for value in logs)
    s.memory["sum"] = s.memory.get("sum", 0.0) + (total + nu * half * float(noise[1])) / lot + half
    release = s.flat(members, 1.0, noise[0], (s.sigma**-2 - nu**-2) ** -0.5)
    precision = 1 / (half**2 * ((nu / lot) ** 2 + 1 / lot))
    guess = math.log(math.sqrt(1 + 0.35**2 * inputs))
    log_n = (guess + precision * s.memory["sum"]) / (1 + precision * (s.t + 1))
    return release, min(max(log_n, 0.0), 2 * half)


def echo(s: Slow, members: list[int], noise: list[Tensor]) -> None:
    """For dense layers of which no more than the shapes are known: noise of deviation exp(ln s) moves an output by two, or by
    less where twice the noise that moves it by one does not move it by 2.5."""
    fans = [m.in_features for m in s.model.modules() if isinstance(m, nn.Linear)]
    if s.t == 0:
        s.memory["reach"] = 2 / len(fans) * max(1.0, math.sqrt(float(s.theta.square().sum())))
    release, log_n = _sized(s, members, noise, fans[0])
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
    log_s = float(np.interp(log_n, grid, found))
    eta = math.sqrt(2) * math.exp(log_s) / math.hypot(s.sigma * math.sqrt(s.steps) / s.lot, 1 / 50)
    s.memory["bound"] = eta > s.memory["reach"]
    s.theta = s.theta - math.sqrt(1 - s.t / s.steps) * min(eta, s.memory["reach"]) * release
