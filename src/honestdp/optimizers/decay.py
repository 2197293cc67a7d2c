"""Weight decay, decoupled from the gradient (Loshchilov & Hutter 2019): theta *= 1 - step * weight_decay before every update.

Any rule has it. It is applied around the rule and not by it: the gradient that is released is that of the loss at theta, the
weights shrink by a part of the rule's own step size (`Rule.pace`), and the rule moves them from there. It is a function of
weights and public numbers, so it is post-processing: no clip, no noise and no epsilon depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from honestdp import checks
from honestdp.boundary.query import Constants, Query, Release, State
from honestdp.optimizers.rule import Rule, column


@dataclass(frozen=True)
class Decayed:
    """A rule with its weight decay, as the mechanism knows a rule."""

    rule: Rule

    def query(self, state: State, constants: Constants) -> Query:
        return self.rule.query(state, constants)

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        shrunk = params * (1 - self.rule.pace(state, constants) * column(self.rule.weight_decay))
        return self.rule.update(shrunk, state, release, constants)


def with_decay(rule: Rule) -> Rule | Decayed:
    """The rule, or the rule with its weight decay where there is any."""
    return Decayed(rule) if isinstance(rule.weight_decay, Tensor) or rule.weight_decay else rule


def check_decay(rule: Rule) -> None:
    checks.non_negative(weight_decay=rule.weight_decay)
