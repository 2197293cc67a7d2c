"""The reference by itself: what it imports, how long it is, what it refuses, and its bound on epsilon."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from honestdp import Run, accounting, reference
from honestdp.boundary.seed import Seed
from honestdp.losses import cross_entropy
from honestdp.reference import SGD, Ask, Public, release
from tests.test_rooms import imports_of, sources
from tests.toy_training import toy_data, toy_model

SOURCE = Path(reference.__file__).read_text()
MOST_LINES = 250


def test_it_is_read_in_one_sitting() -> None:
    assert SOURCE.count("\n") <= MOST_LINES


def test_it_imports_torch_the_seed_the_lots_and_the_noise_alone() -> None:
    modules = sources()
    own = {name for name in imports_of("honestdp.reference", modules) if name.startswith("honestdp")}
    assert own == {"honestdp.boundary.noise", "honestdp.boundary.sampling", "honestdp.boundary.seed"}
    others = {name.split(".")[0] for name in imports_of("honestdp.reference", modules)} - {"honestdp"}
    assert others == {"__future__", "collections", "copy", "dataclasses", "math", "torch", "typing"}


def test_the_engine_does_not_lean_on_it() -> None:
    modules = sources()
    assert [module for module in modules if "honestdp.reference" in imports_of(module, modules)] == []


def test_it_draws_nothing_itself() -> None:
    """All randomness comes from generators of the seed's children."""
    named = {node.attr for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.Attribute)}
    assert {name for name in named if "rand" in name or "normal" in name} <= {"rand", "normal"}
    assert SOURCE.count("torch.rand(") == SOURCE.count("torch.rand(shape, generator=source)") == 1


SETTINGS = [(60_000, 600.0, 1000, 4.0), (1000, 50.0, 200, 1.0), (100, 100.0, 3, 2.0), (10**5, 20.0, 300, 0.9)]


@pytest.mark.slow
@pytest.mark.parametrize(("records", "lot", "steps", "noise"), SETTINGS)
def test_its_epsilon_is_above_that_of_the_accountants_and_not_far(
    records: int, lot: float, steps: int, noise: float
) -> None:
    bound = reference.epsilon(Public(records=records, lot=lot, steps=steps), [noise], 1e-5)
    event = Run(records=records, lot=lot, steps=steps, noise=noise).event
    renyi, tight = (accounting.epsilon(event, delta=1e-5, accountant=accountant) for accountant in ("rdp", "pld"))
    assert tight <= renyi <= bound <= 1.5 * renyi


def test_runs_are_charged_together() -> None:
    public = Public(records=1000, lot=50.0, steps=100)
    twice = Public(records=1000, lot=50.0, steps=200)
    assert reference.epsilon(public, [1.0, 1.0], 1e-5) == pytest.approx(reference.epsilon(twice, [1.0], 1e-5))
    assert reference.epsilon(public, [1.0, 9.0], 1e-5) > reference.epsilon(public, [1.0], 1e-5)


def trained(records: Any, public: Public, model: nn.Module | None = None, noise: float = 1.0) -> Tensor:
    model = model or toy_model()
    weights = torch.cat([value.detach().flatten() for value in model.parameters()])
    (found,), _ = reference.train(
        model, cross_entropy, records, public,
        weights=[weights], rules=[SGD(lr=0.5, clip=1.0)], noise=[noise], seed=Seed.fixed(1),
    )  # fmt: skip
    return found


def rows() -> list[Any]:
    return [[pair] for pair in zip(*toy_data(), strict=True)]


def test_what_a_model_keeps_of_a_record_reaches_no_other() -> None:
    class Keeping(nn.Sequential):
        kept = 0.0

        def forward(self, x: Tensor) -> Tensor:
            self.kept += float(x.abs().sum())
            return super().forward(x) * (1 if self.kept < 10 else 1000)

    keeping = Keeping(*toy_model())
    public = Public(records=60, lot=60.0, steps=2)
    assert trained(rows(), public, keeping).equal(trained(rows(), public))
    assert keeping.kept == 0.0


def test_what_a_model_writes_to_its_weights_is_gone_with_the_record() -> None:
    class Writing(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            found = super().forward(x)
            with torch.no_grad():
                self[0].bias.add_(float(x.abs().sum()))
            return found

    public = Public(records=60, lot=60.0, steps=2)
    assert trained(rows(), public, Writing(*toy_model())).equal(trained(rows(), public))


def test_what_has_no_guarantee_is_refused() -> None:
    with pytest.raises(ValueError, match="lot"):
        trained(rows(), Public(records=60, lot=61.0, steps=1))
    with pytest.raises(ValueError, match="rows"):
        trained([rows()[0] * 3], Public(records=60, lot=10.0, steps=1, rows=2))
    z = torch.zeros(3, dtype=torch.float64)
    for clip in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="clip"):
            release([], Ask(clip), 1.0, 10.0, z, None)
    for second_noise in (1.0, 0.9, -5.0, float("nan")):
        with pytest.raises(ValueError, match="second_noise"):
            release([], Ask(1.0, second="direction", second_noise=second_noise), 1.0, 10.0, z, z)
