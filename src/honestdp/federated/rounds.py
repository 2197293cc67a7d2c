"""`Rounds`: the local steps of one client or of many, a round at a time, as one population.

What is handled here are releases, weights and public constants; the records are behind `Intake`. A client alone is a population
of one, and draws the same lots and the same noise as beside others (`boundary/rounds.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.boundary.query import Constants
from honestdp.boundary.rounds import ClientsData
from honestdp.boundary.seed import Seed, lent, seed_all
from honestdp.gradients.layout import Layout, layout_of
from honestdp.losses import Loss
from honestdp.optimizers import Rule, State
from honestdp.optimizers.rule import stack_rules
from honestdp.run import Run
from honestdp.training.population import Population


@dataclass(frozen=True, eq=False)
class Member:
    """One run of a population of clients. run: its constants in one round. rule: how its weights move."""

    data: PrivateData
    run: Run
    rule: Rule


class Rounds:
    """The rounds of clients that have as many records, lots of one size, as many local steps, and rules of one kind."""

    def __init__(
        self,
        model: nn.Module,
        members: Sequence[Member],
        *,
        rounds: int,
        device: torch.device,
        loss: Loss | None = None,
        workers: int = 0,
        secure: bool = False,
        strict: bool = False,
    ) -> None:
        first = members[0].run
        self.members, self.rounds, self.steps = members, rounds, first.steps
        self._intake = take_in(
            model,
            _beside(members),
            records=first.records,
            loss=loss,
            device=device,
            workers=workers,
            lot=first.lot,
            strict=strict,
        )
        self.layout, self._inside = layout_of(model), self._intake.layout
        dtype = self._intake.dtype
        noise = torch.tensor([member.run.noise for member in members], dtype=dtype, device=device)
        steps = first.steps * rounds
        factors = torch.ones(steps, dtype=dtype, device=device)
        constants = Constants(first.records, first.lot, steps, noise, self._inside, factors)
        blank = [Seed.fresh()] * len(members)  # every round brings its own
        self._mechanism = self._intake.rounds(constants, seeds=blank, secure=secure)
        rule = stack_rules([member.rule for member in members], dtype=dtype, device=device)
        start = torch.zeros(len(members), self._inside.width, dtype=dtype, device=device)
        self._population = Population(self._mechanism, rule, start)

    @property
    def model(self) -> nn.Module:
        """A copy of the given model on the device, whose weights are nobody's."""
        return self._intake.question.model

    @property
    def state(self) -> State:
        """What the rules remember between two rounds: functions of releases."""
        return self._population.state

    @state.setter
    def state(self, state: State) -> None:
        self._population.state = {name: state[name].to(value.device, value.dtype) for name, value in self.state.items()}

    def make(self, weights: Tensor, seeds: Sequence[Seed], *, number: int) -> Tensor:
        """Round `number`, counted from 0, from these weights `[runs, d]`: the weights after it, on the device.

        The mechanism makes no step beyond those of all rounds. What a model draws, such as dropout, follows from the first seed.
        """
        population, end = self._population, (number + 1) * self.steps
        self._mechanism.begin(seeds, made=number * self.steps)
        population.params = _laid_out(weights.to(population.params), self.layout, self._inside)
        population.step = number * self.steps
        with lent(), self._intake.decoding():
            seed_all(seeds[0].child("model").number(63))
            while population.step < end:
                population.block(end - population.step)
        return _laid_out(population.weights(), self._inside, self.layout)


def _laid_out(rows: Tensor, given: Layout, wanted: Layout) -> Tensor:
    """Rows of weights `[runs, ...]` in another layout of the same parameters: that of a GPU has gaps."""
    if given.width == wanted.width:
        return rows
    moved = rows.new_zeros(len(rows), wanted.width)
    values = given.views(rows)
    for name, view in wanted.views(moved).items():
        view.copy_(values[name])
    return moved


def _beside(members: Sequence[Member]) -> PrivateData:
    """The records of all members; those that several of them share are held once."""
    if len(members) == 1:
        return members[0].data
    each = list({id(member.data): member.data for member in members}.values())
    places = {id(data): place for place, data in enumerate(each)}
    return ClientsData(each, [places[id(member.data)] for member in members])
