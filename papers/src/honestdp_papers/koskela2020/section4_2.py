"""Section 4.2: with tau = sqrt(d / 2T) the noise that T iterations gather has a covariance near the identity.

The rule is given pure noise, as where gradients are small against it (sqrt(d) sigma >> L, the section's assumption). Kept full
steps gather a variance of T eta^2 (C sigma / L)^2 = 1 a weight; two half steps, which use both releases and are what the authors'
code keeps, gather half of that. The error divides by max(1, |theta|), which is above 1 for weights that have wandered: it is
smaller then, and the steps larger.
"""

from __future__ import annotations

import math

import torch

from honestdp.boundary.query import Constants, Release
from honestdp.gradients.layout import layout_of
from honestdp.optimizers import ADADP
from honestdp_papers.claims import Outcome, Table, judged
from honestdp_papers.koskela2020.training import TASKS
from honestdp_papers.parts import Finished

WEIGHTS, QUICK_WEIGHTS = 20000, 4000
ITERATIONS = (100, 1000)
QUICK_ITERATIONS = (100,)
DEVIATION = 0.05
"""Of the noise in a released gradient: C sigma / L."""
NEAR = 0.25
"""By which a variance may differ from what the section says, as a part of it."""


def section4_2(parts: Finished, quick: bool) -> Outcome:
    weights = QUICK_WEIGHTS if quick else WEIGHTS
    rows: list[list[str | float]] = []
    order: list[bool | None] = []
    halves: list[bool | None] = []
    for iterations in QUICK_ITERATIONS if quick else ITERATIONS:
        for keep, expected in (("full", 1.0), ("half", 0.5)):
            variance, eta = _gathered(weights, iterations, keep)
            predicted = math.sqrt(1 / iterations) / DEVIATION
            (order if keep == "full" else halves).append(abs(variance / expected - 1) <= NEAR)
            rows.append(
                [str(iterations), f"theta_{'two' if keep == 'half' else 'full'}", expected, variance, eta / predicted]
            )
    own: list[list[str | float]] = [
        [task.title, str(task.weights), math.sqrt(task.weights / task.steps)] for task in TASKS
    ]
    claims = [
        judged(
            "tau = sqrt(d / 2T) keeps the covariance of the gathered noise at I (theta_full is kept, as in Algorithm 2)",
            order,
            ", ".join(f"{row[3]:.2f} after {row[0]} iterations" for row in rows if row[1] == "theta_full")
            + f" (agreeing within {NEAR:.0%})",
        ),
        judged(
            "It is I/2 where theta_two is kept, as in the published code",
            halves,
            ", ".join(f"{row[3]:.2f} after {row[0]} iterations" for row in rows if row[1] == "theta_two")
            + f" (agreeing within {NEAR:.0%} of 0.5)",
            kind="ours",
        ),
        judged(
            "For the networks d / 2T is O(1), so that tau = 1 is near the rule's",
            [0.1 < float(row[2]) ** 2 < 10 for row in own],
            ", ".join(f"{row[0]}: sqrt(d / 2T) = {row[2]:.2f}" for row in own)
            + "; agreeing where d / 2T is from 0.1 to 10; T counts iterations, of two releases",
        ),
    ]
    header = ["T", "kept", "expected", "found", "step size over that of the section"]
    tables = [
        Table("Variance of a weight after T iterations of pure noise", header, rows, 3),
        Table("The networks", ["dataset", "d", "sqrt(d / 2T)"], own, 2),
    ]
    notes = [f"{weights} weights from 0, noise of deviation {DEVIATION:g} a release, eta0 that of the section."]
    return Outcome(claims, {"rows": rows, "networks": own}, tables, notes)


def _gathered(weights: int, iterations: int, keep: str) -> tuple[float, float]:
    """The variance of the weights after so many iterations of pure noise, and the step size at the end."""
    generator = torch.Generator().manual_seed(42)
    steps = 2 * iterations
    constants = Constants(
        1000, 100.0, steps, torch.ones(1), layout_of(torch.nn.Linear(weights, 1, bias=False)), torch.ones(steps)
    )
    # From the step size of the section: the way to it is not in question here.
    first = math.sqrt(1 / iterations) / DEVIATION
    rule = ADADP(clip=1.0, lr=first, keep=keep)  # type: ignore[arg-type]
    params = torch.zeros(1, weights)
    state = rule.init(params, constants)
    for _ in range(steps):
        noise = DEVIATION * torch.randn(1, weights, generator=generator)
        params, state = rule.update(params, state, Release(noise), constants)
    return float(params.var()), float(state["eta"][0])
