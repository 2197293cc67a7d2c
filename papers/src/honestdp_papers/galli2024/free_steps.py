"""The text below Proposition 1: updates of the step size cost no privacy, for they go by what has been released.

A small training of the engine is watched: what each step asks, what it releases, and the step size after it. The step sizes are
then computed again, by equation (21), from the released gradients alone. Data and model are made up, for the question is what the
step size is a function of.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from honestdp.boundary.clipping import gradient_multiplier
from honestdp.boundary.query import Constants, Query, Release, State
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import stack
from honestdp.optimizers import OSO
from honestdp.optimizers.rule import stack_rules
from honestdp_papers.claims import Claim, judged
from honestdp_papers.curves import seeded, taken_in
from honestdp_papers.galli2024.setting import PACE
from honestdp_papers.measured import counted

RECORDS, LOT, STEPS, LR = 400, 40.0, 60, 0.5
NOISES = (0.8, 1.5, 3.88)
"""Of the runs, one each."""


@dataclass
class Watched:
    """A rule, and what passed between it and the mechanism at every step."""

    rule: OSO
    asked: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """The noises of both answers, `[runs]` each."""
    released: list[Tensor] = field(default_factory=list)
    sizes: list[Tensor] = field(default_factory=list)

    def query(self, state: State, constants: Constants) -> Query:
        found = self.rule.query(state, constants)
        assert found.second is not None
        self.asked.append((gradient_multiplier(constants.noise, found), found.second.noise))
        return found

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        self.released.append(release.gradient.clone())
        params, state = self.rule.update(params, state, release, constants)
        self.sizes.append(state["lr"].clone())
        return params, state


def watched(rho_r: float) -> Watched:
    """A training with the step size moving so fast, or held with 0."""
    draw, place = torch.Generator().manual_seed(5), torch.device("cpu")
    x = torch.rand(RECORDS, 8, generator=draw)
    y = (x[:, 0] > x[:, 1]).long()

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))

    intake = taken_in(make(), (x, y), place, records=RECORDS)
    noise, factors = torch.tensor(NOISES, dtype=intake.dtype), torch.ones(STEPS, dtype=intake.dtype)
    constants = Constants(RECORDS, LOT, STEPS, noise, intake.layout, factors)
    mechanism = intake.mechanism(constants, seed=Seed.fixed(3), secure=False, pause=STEPS)
    rules = [OSO(lr=LR, rho_r=rho_r)] * len(NOISES)
    seen = Watched(stack_rules(rules, dtype=intake.dtype, device=place))
    params = stack([seeded(make, run) for run in range(len(NOISES))], intake.layout, place)
    state = seen.rule.init(params, constants)
    while len(seen.sizes) < STEPS:
        _, params, state = mechanism.steps(seen, params, state, left=STEPS - len(seen.sizes))
    return seen


def from_releases(released: list[Tensor], rho_r: float) -> Tensor:
    """The step sizes that equation (21) makes of released gradients, `[steps, runs]`; the first moves nothing."""
    size, found = torch.full_like(released[0][:, 0], LR), []
    for place, gradient in enumerate(released):
        if place:
            size = size * torch.exp(rho_r * (gradient * released[place - 1]).sum(dim=1).sign())
        found.append(size)
    return torch.stack(found)


def free_step_sizes() -> Claim:
    """Whether step sizes follow from releases to the bit, and whether learning them asks for anything more."""
    learnt, held = watched(PACE), watched(0.0)
    sizes = torch.stack(learnt.sizes)
    same = [bool(one.all()) for one in (sizes == from_releases(learnt.released, PACE)).T]
    noises = [torch.stack([torch.stack(pair) for pair in seen.asked]) for seen in (learnt, held)]  # [steps, 2, runs]
    asks = [bool(one.all()) for one in (noises[0] == noises[1]).permute(2, 0, 1)]
    ends = ", ".join(f"{float(one):.3f}" for one in sizes[-1])
    return judged(
        "Updates of the step size come with no additional privacy expenditure",
        [*same, *asks],
        f"in trainings of {STEPS} steps at nu {', '.join(f'{noise:g}' for noise in NOISES)} the step sizes (from {LR:g} to "
        f"{ends}) are to the bit those that follow from the released gradients alone in {counted(same)}, and the noises of both "
        f"answers those of a step size that is held in {counted(asks)}",
    )
