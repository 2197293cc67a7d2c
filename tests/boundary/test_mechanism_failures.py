"""What fails in the middle of a block of steps is over: its lots are not asked again, and its steps stay accounted."""

from __future__ import annotations

import pytest
from torch import Tensor

from honestdp.boundary.query import State, Steps
from honestdp.boundary.sampling import Lots
from honestdp.optimizers import SGD
from tests.toy_training import population_of, toy_data, toy_model


@pytest.mark.parametrize(("steps", "made"), [(8, 3), (64 + 16, 3 + 16)], ids=["one block", "two blocks"])
def test_a_block_that_failed_in_the_middle_is_not_made_again(steps: int, made: int) -> None:
    """Made again it would give second answers of its lots, under other noise, that no ledger knows of."""
    population, mechanism = population_of(
        [toy_model()], toy_data(), [SGD(lr=0.1, clip=1.0)], lot=20, steps=steps, noise=[1.0]
    )
    asked: list[tuple[int, ...]] = []
    eager = mechanism._eager

    def failing(rule: Steps, params: Tensor, state: State, lots: Lots, step: int) -> tuple[Tensor, State]:
        asked.append(tuple(lots.indices[step, 0, : lots.counts[step, 0]].tolist()))
        if len(asked) == 3:
            raise MemoryError
        return eager(rule, params, state, lots, step)

    mechanism._eager = failing  # type: ignore[method-assign]

    def train() -> None:
        while population.step < steps:
            population.block()

    with pytest.raises(MemoryError):
        train()
    with pytest.raises(RuntimeError, match="than are accounted"):
        train()
    assert len(set(asked)) == len(asked) == made
