"""A rule tried on made-up releases, so that what is wrong with it shows before a record is read or a ledger charged."""

from __future__ import annotations

import torch

from honestdp.boundary.clipping import gradient_multiplier, within_bounds
from honestdp.boundary.query import Constants, Release
from honestdp.checks import InvalidArgument
from honestdp.gradients.layout import Layout
from honestdp.optimizers.rule import Rule, stack_rules, with_decay
from honestdp.run import Run


def try_rule(rule: Rule, run: Run, layout: Layout, *, runs: int = 1) -> None:
    """Two steps from weights and releases of zero, checked for what a population relies on. runs: of how many together.

    A rule that fails in words of its own fails in these: nothing here is of a record.
    """
    cpu, name = torch.device("cpu"), type(rule).__name__
    params = torch.zeros(runs, layout.width)
    constants = Constants(
        records=run.records,
        lot=run.lot,
        steps=max(2, run.steps),
        noise=torch.full((runs,), run.noise, dtype=params.dtype),
        layout=layout,
        factors=torch.ones(max(2, run.steps)),
    )
    stacked = stack_rules([rule] * runs, dtype=params.dtype, device=cpu)
    shown = constants.copy()
    state, steps = stacked.init(params, constants), with_decay(stacked)
    for _ in range(2):
        query = within_bounds(steps.query(state, constants), constants.noise)
        gradient_multiplier(constants.noise, query)
        release = Release(torch.zeros_like(params), None if query.second is None else query.second.zeros(params))
        moved, after = steps.update(params, state, release, constants)
        if moved.shape != params.shape or moved.dtype != params.dtype:
            wanted = f"weights [runs, d] of {params.dtype} after an update by {name}"
            raise InvalidArgument("optimizer", f"{list(moved.shape)} of {moved.dtype}", wanted)
        if not _same(constants, shown):
            wanted = (
                f"a rule that writes to none of its constants, as {name} does: take a copy, or no operation in place"
            )
            raise InvalidArgument("optimizer", name, wanted)
        if _shapes(after) != _shapes(state):
            wanted = f"a state of the same tensors before and after an update by {name}, each [runs, ...]"
            raise InvalidArgument("optimizer", sorted(after), wanted)
        params, state = moved, after


def _same(first: Constants, second: Constants) -> bool:
    return torch.equal(first.noise, second.noise) and torch.equal(first.factors, second.factors)


def _shapes(state: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
