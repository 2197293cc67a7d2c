"""On a GPU the tensors of a run begin at aligned places, so that a row has gaps. They change no number and hold none."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from honestdp import optimizers as rules
from honestdp.boundary.intake import Intake
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import GPU_ALIGN, layout_of, stack
from honestdp.optimizers.rule import stack_rules
from honestdp.training.population import Population
from tests.toy_training import CPU, constants_of, intake_of, toy_data, toy_model

RULES = [
    rules.SGD(lr=0.1, clip=1.0),
    rules.SGD(lr=0.1, clip="auto"),
    rules.Momentum(lr=0.1, momentum=0.9, clip=1.0),
    rules.Adam(clip=1.0),
    rules.AdamWOSM(clip=1.0),
    rules.ADADP(clip=1.0, accept=True),
    rules.OSO(lr=0.1),
    rules.OSO(lr=0.1, proportional=True),
    rules.OSO(lr=0.1, automatic=True),
    rules.AdamOSO(),
    rules.Quantile(lr=0.1),
    rules.Horizon(),
    rules.Horizon(average=True),
    rules.Echo(),
]


class Ones:
    """A noise source of ones: the same numbers whatever the shape."""

    generators = ()

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.ones(shape, dtype=torch.float64)


def trained(intake: Intake, rule: rules.Rule) -> Population:
    constants = constants_of(intake, records=60, lot=30.0, steps=6, noise=[0.4, 0.4])
    mechanism = intake.mechanism(constants, seed=Seed.fixed(3), secure=False)
    mechanism._noise = Ones()
    models = [toy_model(seed=1), toy_model(seed=2)]
    stacked = stack_rules([rule, rule], dtype=intake.dtype, device=CPU)
    population = Population(mechanism, stacked, stack(models, intake.layout, CPU))
    while population.step < population.total:
        population.block()
    return population


def gapped(intake: Intake) -> Intake:
    layout = replace(intake.layout, align=GPU_ALIGN)
    return replace(intake, vetted=replace(intake.vetted, layout=layout))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_every_rule_trains_alike_with_gaps_and_leaves_them_zero(rule: rules.Rule) -> None:
    plain = intake_of(toy_model(), toy_data(60))
    found, expected = trained(gapped(plain), rule), trained(plain, rule)
    layout = gapped(plain).layout
    assert layout.gaps
    assert layout.width > layout.total == plain.layout.width
    for name, value in layout.views(found.weights()).items():
        torch.testing.assert_close(value, plain.layout.views(expected.weights())[name])
    for gap in layout.gaps:
        assert found.weights()[:, gap].eq(0).all()


@pytest.mark.parametrize("rule", [rules.SGD(lr=0.1, clip=1.0), rules.OSO(lr=0.1)], ids=["gradient", "direction"])
def test_a_release_has_no_noise_in_its_gaps(rule: rules.Rule) -> None:
    intake = gapped(intake_of(toy_model(), toy_data(60)))
    population = trained(intake, rule)
    query = population._rule.query(population.state, population._mechanism.constants)
    released = population._mechanism._release([], population.params, query)
    for sent in (released.gradient, released.second):
        for gap in intake.layout.gaps:
            assert sent is None or sent[:, gap].eq(0).all()
        assert sent is None or (sent != 0).sum() == 2 * intake.layout.total


def test_tensors_begin_at_aligned_places_on_a_gpu_alone() -> None:
    model = toy_model()
    for device, align in ((torch.device("cuda"), GPU_ALIGN), (CPU, 1)):
        layout = layout_of(model, device)
        flat = torch.zeros(3, layout.width)
        assert layout.width % align == 0
        for name, view in layout.views(flat).items():
            assert view.storage_offset() % align == 0
            view.fill_(len(name))
        assert (flat == 0).sum() == 3 * (layout.width - layout.total)
        assert layout.columns([1.0] * len(layout.names)).sum() == layout.total
    assert layout_of(model).gaps == ()
