"""`compare`: the kernels of the federated network against torch and the rules themselves, before anything is trained.

Two questions, asked apart. Is the gradient right? Asked by layer, so that what a small layer lacks is not lost in a large one;
half precision wakes and silences units near 0 and lets pools pick another place here and there, which moves a layer's gradient
by some hundredths of it (0.05 in the first layer, 0.002 in the last, by the kernels as by rounding the factors in torch). And
are the weights what the rule makes of this gradient? SGD and ADADP carry a rounding of the gradient on to the weights as it is.
Adam does not: the size of its first steps does not depend on the gradient's, so where two roundings of a product that is nearly 0
have different signs, weights are two whole steps apart. So Adam's weights are held against the rule given the very gradient that
the kernel had, as its first moment tells, and that gradient against the product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from honestdp.checks import HonestdpError
from honestdp.gradients.layout import Layout, layout_of, stack
from honestdp.optimizers import ADADP, Rule
from honestdp_papers.curves import seeded
from honestdp_papers.koskela2020.federated_network import Network, tf32
from honestdp_papers.koskela2020.local_steps import LocalSteps

USUALLY, AT_MOST, ALIKE = 0.1, 0.3, 0.005
"""By how much of itself a layer's gradient may differ: the root of the runs' mean square, and of any run (units woken and
silenced, emulated for lots of 10: 0.05 and 0.08 at most; one tap of nine that is missing: 0.33). And what rules make of one
gradient: two roundings of a product, to nearest and cut off, are 0.001 apart, and 0.002 after a few steps."""


TEMPTING = (0.93, 1.07, 0.5)
"""Tolerances as parts of the error: slower by this and rejected, faster and kept, slower by the most and rejected."""


@dataclass(frozen=True)
class Gap:
    """What was compared, by how much of itself it differs, and by how much it may."""

    what: str
    apart: float
    most: float

    @property
    def wrong(self) -> bool:
        return not self.apart <= self.most  # NaN is wrong too


def compare(
    make: Callable[[], nn.Module], rules: Sequence[Rule], images: Tensor, classes: Tensor, lots: Tensor,
    tell: Callable[[str], None] = lambda _: None,
) -> None:  # fmt: skip
    """Refuse to train where the kernels differ from torch and the rules, in gradients or in what is made of them.

    lots: `[steps, runs, lot]`; the first three steps are made: an iteration of ADADP, and one with the step size it found. tell:
    is told what was found.
    """
    lot, place = lots.shape[2], images.device
    start = stack([seeded(make, 0)], layout_of(make()), place).repeat(len(rules), 1)
    ours = Network(make(), rules, images, classes, lot=lot)
    tried = _tempted(rules, _errors(ours, start, lots))
    plain = LocalSteps(make(), tried, images, classes, lot=lot, steps=len(lots))
    ours = Network(make(), tried, images, classes, lot=lot)
    plain.weights = ours.weights = start
    worst: dict[str, Gap] = {}
    for number, some in enumerate(lots[:3]):
        for gap in _step(plain, ours, some, second=number == 1):
            seen = worst.get(gap.what, gap)
            worst[gap.what] = gap if gap.wrong or gap.apart > seen.apart else seen
    tell(", ".join(f"{gap.what} {gap.apart:.1e}" for gap in worst.values()))
    if wrong := [gap for gap in worst.values() if gap.wrong]:
        found = "; ".join(f"{gap.what} by {gap.apart:.3g} of it, where {gap.most:g} is allowed" for gap in wrong)
        raise HonestdpError(f"the kernels of the federated network are wrong here: they differ from torch in {found}")


def _errors(ours: Network, start: Tensor, lots: Tensor) -> Tensor:
    """What the kernels find for the errors of ADADP's first iteration, `[runs]`; NaN for other rules."""
    ours.weights = start
    with tf32():
        for number, some in enumerate(lots[:2]):
            ours.step(some.flatten(), second=number == 1)
    return ours.errors


def _tempted(rules: Sequence[Rule], errors: Tensor) -> list[Rule]:
    """The rules, ADADP's with tolerances near the error that it will find.

    So its step sizes tell the error, which otherwise is far from the tolerance and changes nothing, and steps are rejected too.
    """
    found = []
    for number, (rule, error) in enumerate(zip(rules, errors.tolist(), strict=True)):
        near = error * TEMPTING[number % len(TEMPTING)]
        found.append(replace(rule, tau=near) if isinstance(rule, ADADP) and math.isfinite(near) and near > 0 else rule)
    return found


def _step(plain: LocalSteps, ours: Network, lot: Tensor, *, second: bool) -> Iterator[Gap]:
    exact, moments = plain.gradient(lot), ours.moments()
    with tf32():
        ours.step(lot.flatten(), second=second)
        gradient = ours.gradient
    for name, apart in _by_layer(gradient, exact, plain.layout):
        yield Gap(f"gradient of {name}", float(apart.square().mean().sqrt()), USUALLY)
        yield Gap(f"gradient of {name} of one run", float(apart.max()), AT_MOST)
    for (rows, beta1, before), (_, _, after) in zip(moments, ours.moments(), strict=True):
        had = (after - beta1 * before) / (1 - beta1)
        for name, apart in _by_layer(had, gradient[rows], plain.layout):
            yield Gap(f"gradient of {name} in Adam's moment", float(apart.max()), ALIKE)
        gradient[rows] = had
    earlier = plain.weights
    plain.update(gradient)
    went = (plain.weights - earlier).norm(dim=1)
    apart = (ours.weights - plain.weights).norm(dim=1)
    shares = torch.where(went > 0, apart / went, apart)
    for side in plain.sides:
        yield Gap(f"weights by {type(side.rule).__name__}", float(shares[side.rows].max()), ALIKE)
    yield Gap("step sizes", float((ours.step_sizes / plain.step_sizes - 1).abs().nan_to_num(0).max()), ALIKE)


def _by_layer(ours: Tensor, theirs: Tensor, layout: Layout) -> Iterator[tuple[str, Tensor]]:
    """By how much of itself every run's gradient of a layer differs, `[runs]`."""
    mine, other = layout.views(ours), layout.views(theirs)
    for name in layout.names:
        yield name, (mine[name] - other[name]).flatten(1).norm(dim=1) / other[name].flatten(1).norm(dim=1)
