"""Each way to break the engine makes the comparison with the reference red."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from honestdp.augment import CropAndFlip
from honestdp.boundary import mechanism, rounding
from honestdp.boundary import people as persons
from honestdp.boundary import release as releasing
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.query import Direction, Query
from honestdp.boundary.records import Examples
from honestdp.boundary.sampling import Lots
from honestdp.gradients import Prepared
from honestdp.optimizers import SGD
from tests.boundary.crying_records import planted
from tests.boundary.test_people import ClippedByRow
from tests.reference.both_ways import Training, check, sgd
from tests.reference.test_engine import IDS, image_models, images, people
from tests.reference.test_optimizers import training_of
from tests.toy_training import toy_data

Patch = pytest.MonkeyPatch


def usual() -> Training:
    """Two runs, lots larger than the shape, and a record that is NaN."""
    return replace(training_of("sgd", steps=2), width=7)


def of_people() -> Training:
    x, y = toy_data()
    rules, formulas = [SGD(lr=0.5, clip=1.0)] * 2, [sgd(0.5, 1.0)] * 2
    return Training(rules=rules, formulas=formulas, lot=5.0, steps=2, **people(IDS, 3, (30 * x, y)))


CASES: dict[str, Callable[[], Training]] = {
    "usual": usual,
    "empty lots": lambda: training_of("sgd", lot=0.4, steps=8, noise=(0.01, 0.02)),
    "direction": lambda: training_of("oso", steps=2),
    "quantile": lambda: training_of("quantile", steps=2),
    "norm": lambda: training_of("echo", steps=2),
    "people": of_people,
    "variants": lambda: Training(image_models(), images(), augment=CropAndFlip(pad=1), lot=8.0, steps=2),
}


def weights(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Patch], None]:
    """A fault in the clipping weights: change(weights, norms, present)."""
    right = releasing.clipping_weights

    def wrong(norms: Tensor, present: Tensor, query: Query) -> Tensor:
        return change(right(norms, present, query), norms, present)

    return lambda patch: patch.setattr(releasing, "clipping_weights", wrong)


def noise(change: Callable[[Tensor], Tensor]) -> Callable[[Patch], None]:
    """A fault in the standard normal numbers that the engine adds."""
    right = releasing.noisy

    def wrong(total: Tensor, deviation: Tensor, source: Any, **how: Any) -> Tensor:
        return right(total, deviation, SimpleNamespace(normal=lambda shape: change(source.normal(shape))), **how)

    return lambda patch: patch.setattr(releasing, "noisy", wrong)


def multiplier(change: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Patch], None]:
    """A fault in the gradient's share of the noise: change(nu_g, sigma)."""
    right = releasing.gradient_multiplier
    return lambda patch: patch.setattr(
        releasing, "gradient_multiplier", lambda sigma, query: change(right(sigma, query), sigma)
    )


def lots(change: Callable[[Lots], Lots]) -> Callable[[Patch], None]:
    right = Mechanism._lots
    return lambda patch: patch.setattr(Mechanism, "_lots", lambda self: change(right(self)))


def first_run_for_all(drawn: Lots) -> Lots:
    indices, counts = drawn.indices[:, :1].expand_as(drawn.indices), drawn.counts[:, :1].expand_as(drawn.counts)
    return Lots(indices.contiguous(), counts.contiguous(), counts[:, 0].tolist())


def a_rate_that_is_off(patch: Patch) -> None:
    right = Mechanism._start

    def wrong(self: Mechanism, steps: int) -> None:
        self._rate *= 1.05
        right(self, steps)

    patch.setattr(Mechanism, "_start", wrong)


def a_lot_that_is_cut(patch: Patch) -> None:
    right = Mechanism._pieces
    patch.setattr(Mechanism, "_pieces", lambda self, drawn, step: list(right(self, drawn, step))[:1])


def an_empty_lot_without_noise(patch: Patch) -> None:
    right = mechanism.release

    def wrong(lot: Iterable[Examples], params: Tensor, query: Query, **how: Any) -> Any:
        pieces = list(lot)
        found = right(pieces, params, query, **how)
        return found if pieces else replace(found, gradient=torch.zeros_like(found.gradient))

    patch.setattr(mechanism, "release", wrong)


def a_clip_that_moves_before_the_noise(patch: Patch) -> None:
    before = "    deviation = gradient_multiplier(constants.noise, query) * query.clip\n"
    moved = "    query = Query(query.clip * (-0.2 * other[:, 0] / constants.lot).exp().to(query.clip), second=second)\n"
    planted(patch, releasing, releasing, "release", before, moved + before)
    patch.setattr(mechanism, "release", releasing.release)


def a_clip_of_every_row(patch: Patch) -> None:
    usual = Prepared.__call__

    def by_row(self: Prepared, params: Any, x: Any, y: Any, *, shares: Tensor, **_: Any) -> ClippedByRow:
        return ClippedByRow(usual(self, params, x, y), params, shares)

    patch.setattr(Prepared, "__call__", by_row)


def one_variant_for_all(patch: Patch) -> None:
    right = mechanism.varied
    patch.setattr(mechanism, "varied", lambda augment, x, u: right(augment, x, u[:, :1].expand_as(u)))


def every_direction(patch: Patch) -> None:
    patch.setattr(Direction, "terms", lambda _, norms, examples, clip: (examples.present / norms).nan_to_num(nan=0))


def shared_first(numbers: Tensor) -> Tensor:
    return numbers[:1].expand_as(numbers).clone()


def the_same_every_step() -> Callable[[Tensor], Tensor]:
    kept: dict[tuple[int, ...], Tensor] = {}
    return lambda numbers: kept.setdefault(tuple(numbers.shape), numbers.clone()).clone()


FAULTS: dict[str, tuple[str, Callable[[Patch], None]]] = {
    "a clip that is a thousandth too large": ("usual", weights(lambda w, n, present: 1.001 * w)),
    "a divisor of the realised lot": ("usual", weights(lambda w, n, present: w * 20 / present.sum(1, keepdim=True))),
    "padding that weighs 1": ("usual", weights(lambda w, n, present: torch.where(present > 0, w, 1.0))),
    "NaN that is not zeroed": ("usual", weights(lambda w, n, present: torch.where(n.isfinite(), w, present))),
    "a noise that is a thousandth too small": ("usual", multiplier(lambda nu_g, sigma: 0.999 * nu_g)),
    "noise that runs share": ("usual", noise(shared_first)),
    "noise that steps share": ("usual", noise(the_same_every_step())),
    "lots that runs share": ("usual", lots(first_run_for_all)),
    "a lot that is cut": ("usual", a_lot_that_is_cut),
    "a rate that is off": ("usual", a_rate_that_is_off),
    "a grid that is too coarse": ("usual", lambda patch: patch.setattr(rounding, "FINENESS", 2.0**-12)),
    "a grid that is too fine": ("usual", lambda patch: patch.setattr(rounding, "FINENESS", 2.0**-14)),
    "an empty lot without noise": ("empty lots", an_empty_lot_without_noise),
    "a clip that moves before the noise": ("quantile", a_clip_that_moves_before_the_noise),
    "a direction that is not paid for": ("direction", multiplier(lambda nu_g, sigma: sigma)),
    "a quantile that is not paid for": ("quantile", multiplier(lambda nu_g, sigma: sigma)),
    "a norm that is not paid for": ("norm", multiplier(lambda nu_g, sigma: sigma)),
    "a direction of short gradients too": ("direction", every_direction),
    "a person whose rows are clipped one by one": ("people", a_clip_of_every_row),
    "a person whose rows are summed": (
        "people", lambda patch: planted(patch, persons, persons, "shares_of", "/ counts.clamp(min=1).to(dtype)", "/ 1"),
    ),
    "one variant for all records": ("variants", one_variant_for_all),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_seen_where_nothing_is_broken(case: str) -> None:
    check(CASES[case]())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_engine_is_seen(fault: str, monkeypatch: Patch) -> None:
    case, plant = FAULTS[fault]
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="not close"):
        check(CASES[case]())
