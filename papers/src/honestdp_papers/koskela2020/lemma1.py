"""Lemma 1: 2 (theta_two - theta_full) estimates the local error of a gradient step to O(eta^3).

The gradient flow of a few smooth functions is followed by Runge-Kutta steps far finer than eta. The order is the slope of the
logarithm of what is left over that of eta: 3 for the estimate, 2 for the local error itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from honestdp_papers.claims import Outcome, Table, judged
from honestdp_papers.look import logarithmic, named, panels
from honestdp_papers.parts import Array, Finished

Gradient = Callable[[Array], Array]
SIZES = np.geomspace(1e-3, 1e-1, 9)
FINE = 200
"""Runge-Kutta steps within one eta."""
NEAR = 0.15
"""By which a slope may differ from the order."""


def _functions() -> dict[str, tuple[Gradient, Array]]:
    """Gradients and places to start from."""
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(5, 5))
    spread = matrix @ matrix.T / 5 + np.eye(5)
    x, y = rng.normal(size=(50, 4)), np.sign(rng.normal(size=50))

    def logistic(theta: Array) -> Array:
        found: Array = -(x * (y / (1 + np.exp(y * (x @ theta))))[:, None]).mean(axis=0) + 0.1 * theta
        return found

    def network(theta: Array) -> Array:
        """tanh(w x) v with squared error, by hand."""
        w, v = theta[:4], theta[4]
        hidden = np.tanh(x @ w)
        wrong = v * hidden - y
        return np.append((wrong * v * (1 - hidden**2)) @ x, wrong @ hidden) / len(y)

    return {
        "quadratic, 5 numbers": (lambda theta: spread @ theta, rng.normal(size=5)),
        "quartic, 3 numbers": (lambda theta: theta**3 + theta, rng.normal(size=3)),
        "logistic regression, 4": (logistic, rng.normal(size=4)),
        "tanh unit, 5": (network, rng.normal(size=5)),
    }


def lemma1(parts: Finished, quick: bool) -> Outcome:
    rows: list[list[str | float]] = []
    lines: dict[str, tuple[Array, Array]] = {}
    cases: list[bool | None] = []
    for name, (gradient, start) in _functions().items():
        local, left = np.array([_errors(gradient, start, eta) for eta in SIZES]).T
        orders = [float(np.polyfit(np.log(SIZES[:5]), np.log(line[:5]), 1)[0]) for line in (local, left)]
        lines[name] = local, left
        cases.append(abs(orders[1] - 3) < NEAR)
        rows.append([name, *orders, float(left[0] / local[0]), float(left[-1] / local[-1])])
    claims = [
        judged(
            "Lemma 1: twice the difference between two half steps and a full one is the local error up to O(eta^3)",
            cases,
            f"slopes from {min(float(row[2]) for row in rows):.2f} to {max(float(row[2]) for row in rows):.2f} (agreeing within "
            f"{NEAR:g} of 3); the local error itself from {min(float(row[1]) for row in rows):.2f} to "
            f"{max(float(row[1]) for row in rows):.2f}",
        )
    ]
    header = ["function", "slope of the local error", "slope of what the estimate leaves", f"left over at eta {SIZES[0]:g}, as a "
              "part of the error", f"at {SIZES[-1]:g}"]  # fmt: skip
    table = Table("Orders, over step sizes from 0.001 to 0.01", header, rows, 3)
    numbers = {name: {"local": local.tolist(), "left": left.tolist()} for name, (local, left) in lines.items()}
    return Outcome(claims, {"sizes": SIZES.tolist(), "lines": numbers}, [table], draw=lambda file: _draw(file, lines))


def _errors(gradient: Gradient, start: Array, eta: float) -> tuple[float, float]:
    """The local error of a step, and what is left of it when the estimate is taken away."""
    theta, fine = start.copy(), eta / FINE
    for _ in range(FINE):
        first = -gradient(theta)
        second = -gradient(theta + fine / 2 * first)
        third = -gradient(theta + fine / 2 * second)
        fourth = -gradient(theta + fine * third)
        theta = theta + fine / 6 * (first + 2 * second + 2 * third + fourth)
    full = start - eta * gradient(start)
    half = start - eta / 2 * gradient(start)
    two = half - eta / 2 * gradient(half)
    return float(np.linalg.norm(theta - full)), float(np.linalg.norm(theta - full - 2 * (two - full)))


def _draw(file: Path, lines: dict[str, tuple[Array, Array]]) -> None:
    with panels(file, 1, 1, size=(8, 4)) as axes:
        one = axes[0, 0]
        for name, (local, left) in lines.items():
            (drawn,) = one.plot(SIZES, local, "--", linewidth=1.2)
            one.plot(SIZES, left, color=drawn.get_color(), linewidth=1.6, label=name)
        logarithmic(one.xaxis)
        one.set_yscale("log")
        named(one, "dashed: the local error; lines: what the estimate leaves of it", "eta", "norm")
        one.legend(fontsize=9, frameon=False)
