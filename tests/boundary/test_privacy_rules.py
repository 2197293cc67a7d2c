"""Rules 1 to 8 of the engine. Each test goes red when its rule is broken."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import honestdp
from honestdp import Compute
from honestdp import optimizers as rules
from honestdp.boundary import release as releasing
from honestdp.boundary.clipping import (
    clipping_weights,
    gradient_multiplier,
)
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.noise import CpuNoise
from honestdp.boundary.query import HALF_RANGE, Constants, Direction, InputNorm, Query, Release, WithinClip, input_norms
from honestdp.boundary.records import Examples
from honestdp.boundary.release import release
from honestdp.boundary.sampling import Lots
from honestdp.boundary.seed import Seed
from honestdp.boundary.vetted import Vetted
from honestdp.checks import InvalidArgument
from honestdp.run import Run
from honestdp.training.train import train, train_population
from tests.toy_training import CPU, constants_of, intake_of, population_of, second_question, toy_data, toy_model

pytestmark = pytest.mark.usefixtures("fine_grid")


class Silence:
    """A noise source of zeros, to see the signal alone; `asked` remembers the shapes."""

    generators = ()

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        self.asked.append(shape)
        return torch.zeros(shape, dtype=torch.float64)

    def state(self) -> list[Tensor]:
        return []

    def restore(self, state: list[Tensor]) -> None: ...


class Ones(Silence):
    """A noise source of ones, to read off the standard deviation."""

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        return super().normal(shape).fill_(1.0)


def one_step(
    x: Tensor, y: Tensor, query: Query, *, noise: Silence, lot: float = 10.0, sigma: float = 2.0, records: int = 60
) -> tuple[Release, Constants]:
    """The release for the given lot (every row of x is a member) of a population of one."""
    model = toy_model()
    intake = intake_of(model, toy_data())
    constants = constants_of(intake, records=records, lot=lot, steps=1, noise=[sigma])
    params = torch.cat([p.detach().flatten() for p in model.parameters()])[None]
    examples = [Examples(x[None], y[None], torch.ones(1, len(x), dtype=torch.bool))] if len(x) else []
    found = release(examples, params, query, vetted=intake.vetted, constants=constants, noise=noise)
    return found, constants


def double(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def flat(clip: float) -> Query:
    return Query(clip=double(clip))


# Rule 1: declared constants


def test_rule_1_the_number_of_records_is_never_taken_from_the_data() -> None:
    x, y = toy_data(60)
    for declared in (59, 61):
        with pytest.raises(InvalidArgument, match="not taken from the data"):
            train(
                toy_model(),
                (x, y),
                run=Run(records=declared, lot=10, steps=2, noise=1),
                optimizer=rules.SGD(lr=0.1, clip=1.0),
            )


def test_rule_1_executed_and_accounted_constants_are_one_object() -> None:
    run = Run(records=60, lot=10, steps=2, noise=1.5)
    result = train(toy_model(), toy_data(60), run=run, optimizer=rules.SGD(lr=0.1, clip=1.0))
    assert result.run is run


# Rule 2: the divisor


@pytest.mark.parametrize("members", [1, 7, 30])
def test_rule_2_the_divisor_is_the_declared_lot_whatever_was_drawn(members: int) -> None:
    x, y = toy_data(60)
    found, _ = one_step(x[:members], y[:members], flat(1e-3), noise=Silence(), lot=10.0)
    singles = [one_step(x[i : i + 1], y[i : i + 1], flat(1e-3), noise=Silence(), lot=1.0)[0] for i in range(members)]
    total = sum(single.gradient for single in singles)
    torch.testing.assert_close(found.gradient, total / 10.0)


def test_rule_2_a_loss_that_averages_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="one number per example"):
        train(
            toy_model(),
            toy_data(60),
            run=Run(records=60, lot=10, steps=2, noise=1),
            optimizer=rules.SGD(lr=0.1, clip=1.0),
            loss=nn.CrossEntropyLoss(),
        )


# Rule 3: independent lots and noise


def spy(monkeypatch: pytest.MonkeyPatch) -> list[Lots]:
    seen: list[Lots] = []
    true = Mechanism._lots

    def lots(self: Mechanism) -> Lots:
        seen.append(true(self))
        return seen[-1]

    monkeypatch.setattr(Mechanism, "_lots", lots)
    return seen


def test_rule_3_runs_with_equal_settings_draw_their_own_lots_and_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    results = train_population(
        toy_model(),
        toy_data(60),
        run=Run(records=60, lot=10, steps=30, noise=1),
        optimizers=[rules.SGD(lr=0.1, clip=1.0)] * 3,
    )
    weights = [torch.cat([p.flatten() for p in r.model.parameters()]) for r in results]
    assert not weights[0].equal(weights[1])
    assert not weights[1].equal(weights[2])
    drawn = [[lots.indices[:, run].tolist() for lots in seen] for run in range(3)]
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]


def test_rule_3_the_noise_of_two_runs_is_uncorrelated() -> None:
    """A correlation of 4000 pairs exceeds 0.08 with probability below 1e-6 when they are independent."""
    population, mechanism = population_of(
        [toy_model(), toy_model()], toy_data(60), [rules.SGD(lr=1.0, clip=1.0)] * 2, lot=0.001, steps=100, noise=[1, 1]
    )
    before, moves = population.params, []
    mechanism._start(100)
    lots = mechanism._lots()
    for step in range(100):
        with torch.no_grad():
            population.params, population.state = mechanism._eager(
                population._rule, population.params, population.state, lots, step
            )
        moves.append(population.params - before)
        before = population.params
    pairs = torch.stack(moves).transpose(0, 1).flatten(1)
    assert pairs.shape[1] == 3900
    assert abs(torch.corrcoef(pairs)[0, 1].item()) < 0.08


# Rule 4: empty and overlong lots


def test_rule_4_an_empty_lot_is_a_step_of_pure_noise() -> None:
    x, y = toy_data(60)
    found, _ = one_step(x[:0], y[:0], flat(0.5), noise=Ones(), lot=10.0, sigma=2.0)
    torch.testing.assert_close(found.gradient, torch.full_like(found.gradient, 2.0 * 0.5 / 10.0))


def test_rule_4_a_training_of_empty_lots_counts_every_step() -> None:
    population, _ = population_of(
        [toy_model()], toy_data(60), [rules.SGD(lr=1.0, clip=1.0)], lot=1e-9, steps=70, noise=[1.0]
    )
    start = population.params
    while population.step < population.total:
        population.block()
    assert population.step == 70
    assert population.state["step"].item() == 70
    assert not population.params.equal(start)


def test_rule_4_a_lot_wider_than_the_shape_is_processed_in_pieces_and_not_cut() -> None:
    released = []
    for width in (1000, 7, 1):
        population, mechanism = population_of(
            [toy_model(seed=1), toy_model(seed=2)],
            toy_data(60),
            [rules.SGD(lr=1.0, clip=0.2)] * 2,
            lot=25.0,
            steps=5,
            noise=[0.5, 0.5],
        )
        mechanism._width = width
        while population.step < population.total:
            population.block()
        released.append(population.params)
    torch.testing.assert_close(released[0], released[1])
    torch.testing.assert_close(released[0], released[2])


# Rule 5: the clip is frozen for the step


@pytest.mark.parametrize("rule", [rules.OSO(lr=0.5, clip=0.3, rho_c=0.5), rules.Quantile(lr=0.5, clip=0.3)])
def test_rule_5_the_noise_of_a_step_has_the_clip_that_was_in_force(rule: rules.Rule) -> None:
    """With no records the release is the noise alone, so its scale is the clip the mechanism used."""
    population, mechanism = population_of([toy_model()], toy_data(60), [rule], lot=10.0, steps=6, noise=[0.4])
    mechanism._noise = Ones()
    for _ in range(6):
        before = population.state["clip"].clone()
        query = population._rule.query(population.state, mechanism.constants)
        assert query.clip.equal(before)
        found = mechanism._release([], population.params, query)
        expected = gradient_multiplier(mechanism.constants.noise, query) * before / 10.0
        torch.testing.assert_close(found.gradient, expected[:, None].expand_as(found.gradient))
        population.params, population.state = population._rule.update(
            population.params, population.state, found, mechanism.constants
        )
    assert not population.state["clip"].equal(torch.tensor([0.3], dtype=torch.float64))


@pytest.mark.slow
def test_clipped_contributions_never_exceed_the_clip() -> None:
    x, y = toy_data(60)
    for clip in (1e-3, 0.2, 5.0):
        for i in range(20):
            found, _ = one_step(100 * x[i : i + 1], y[i : i + 1], flat(clip), noise=Silence(), lot=1.0)
            assert found.gradient.norm().item() <= clip * (1 + 1e-9)


def test_automatic_clipping_has_sensitivity_one_and_noise_to_match() -> None:
    x, y = toy_data(60)
    query = Query(clip=torch.ones(1, dtype=torch.float64), automatic=True)
    found, _ = one_step(1e6 * x[:1], y[:1], query, noise=Silence(), lot=1.0)
    assert 0.9 < found.gradient.norm().item() < 1
    noise, _ = one_step(x[:0], y[:0], query, noise=Ones(), lot=1.0, sigma=3.0)
    assert noise.gradient.unique().item() == 3.0


# Rule 6: two questions for the price of one


@pytest.mark.parametrize(("extra", "sensitivity"), [("direction", 1.0), ("quantile", 0.5), ("norm", HALF_RANGE)])
def test_rule_6_two_answers_cost_one_gaussian_of_multiplier_sigma(extra: str, sensitivity: float) -> None:
    """The noise that is added, read off with a source of ones: 1/sigma^2 = sum of (sensitivity/deviation)^2."""
    x, y = toy_data(60)
    sigma, clip, lot = 2.0, 0.7, 10.0
    query = Query(
        clip=torch.tensor([clip], dtype=torch.float64), second=second_question(extra, torch.tensor([9.0]).double())
    )
    noise = Ones()
    found, _ = one_step(x[:0], y[:0], query, noise=noise, lot=lot, sigma=sigma)
    gradient_deviation = found.gradient[0, 0].item() * lot
    centre = {"direction": 0.0, "quantile": 0.5, "norm": HALF_RANGE}[extra]
    second = (found.second.flatten()[0].item() - centre) * lot
    assert (clip / gradient_deviation) ** 2 + (sensitivity / second) ** 2 == pytest.approx(sigma**-2)
    assert len(noise.asked) == 2


@pytest.mark.parametrize("rule", [rules.OSO(lr=0.5), rules.Quantile(lr=0.5), rules.Echo()])
def test_rule_6_holds_for_the_rules_own_queries(rule: rules.Rule) -> None:
    population, mechanism = population_of([toy_model()], toy_data(60), [rule], lot=50.0, steps=2, noise=[1.7])
    query = population._rule.query(population.state, mechanism.constants)
    own = query.second.noise / {"direction": 1, "quantile": 0.5, "norm": HALF_RANGE}[query.second.name]
    nu_g = gradient_multiplier(mechanism.constants.noise, query)
    assert (nu_g**-2 + own**-2).item() == pytest.approx(1.7**-2)


def test_rule_6_one_record_moves_the_second_answer_by_its_sensitivity_at_most() -> None:
    x, y = toy_data(60)
    for extra, bound in (("direction", 1.0), ("quantile", 0.5)):
        query = Query(clip=double(0.3), second=second_question(extra, double(5.0)))
        for i in range(20):
            found, _ = one_step(x[i : i + 1], y[i : i + 1], query, noise=Silence(), lot=1.0)
            moved = found.second - (0.5 if extra == "quantile" else 0)
            assert moved.norm().item() <= bound * (1 + 1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_rule_6_a_count_is_exact_whatever_precision_a_rule_asks_in(dtype: torch.dtype) -> None:
    """Counts above 2048 are even in float16, and coarser once divided: one record moved an answer by 20, 1/2 was accounted."""
    x, y = toy_data(4096)
    query = Query(clip=double(1000).to(dtype), second=WithinClip(double(9).to(dtype)))
    for members in (4000, 4001, 4095, 4096):
        found, _ = one_step(x[:members], y[:members], query, noise=Silence(), lot=1.0)
        assert found.second.item() == members / 2 + 0.5


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 30.0, 1e4, 1e30, 1e200, math.inf, math.nan])
def test_rule_6_one_record_moves_the_mean_of_the_norms_by_half_its_range_at_most(size: float) -> None:
    x, y = toy_data(60)
    query = Query(clip=double(0.3), second=InputNorm(double(90.0)))
    x[5] = size / math.sqrt(5)
    without, _ = one_step(x[:5], y[:5], query, noise=Silence(), lot=1.0)
    found, _ = one_step(x[:6], y[:6], query, noise=Silence(), lot=1.0)
    moved = (found.second - without.second).item()
    assert abs(moved) <= HALF_RANGE
    finite = math.isfinite(size * size)
    known = min(math.log1p(size * size) / 2, 2 * HALF_RANGE) - HALF_RANGE if finite else HALF_RANGE
    assert moved == pytest.approx(known if math.isfinite(size) and size < 1e150 else 0.0, abs=1e-4)


def test_rule_6_a_person_moves_the_mean_of_the_norms_no_more_than_a_record() -> None:
    norms = torch.tensor([[1e9, 1e9, 1.0, math.nan, 0.0, 0.0]]).double()
    present, shares = torch.tensor([[True, True, False]]), torch.full((1, 3, 2), 0.5).double()
    one = math.log(2) / 2 - HALF_RANGE
    question = InputNorm(double(9.0))

    def total(shares: Tensor) -> float:
        examples = Examples(torch.zeros(1, 6), torch.zeros(1, 6), present, norms=norms, shares=shares)
        return question.terms(norms, examples, double(1.0)).sum().item()

    found = total(shares)
    assert found == pytest.approx(HALF_RANGE + one / 2, abs=1e-4)
    assert abs(total(100 * shares)) <= 2 * HALF_RANGE


def test_the_norm_of_a_lot_is_that_of_its_inputs_whatever_order_they_come_in() -> None:
    x, y = toy_data(60)
    query = Query(clip=double(0.3), second=InputNorm(double(90.0)))
    found, _ = one_step(x, y, query, noise=Silence(), lot=60.0)
    wanted = torch.log1p(x.square().sum(1)).mean().item() / 2
    assert found.second.item() == pytest.approx(wanted, abs=1e-4)
    assert found.second.equal(one_step(x.flip(0), y.flip(0), query, noise=Silence(), lot=60.0)[0].second)


@pytest.mark.parametrize("extra", ["direction", "quantile", "norm"])
def test_rule_6_where_the_split_cannot_be_refused_neither_answer_leaves(
    extra: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A captured step cannot look at the noise that is asked for."""
    monkeypatch.setattr(releasing, "gradient_multiplier", lambda sigma, query: sigma * math.nan)
    x, y = toy_data(60)
    found, _ = one_step(x[:5], y[:5], Query(double(0.3), second=second_question(extra, double(1e-9))), noise=Ones())
    answers = [value for value in vars(found).values() if value is not None]
    assert len(answers) == 2
    assert all(value.isnan().all() for value in answers)


def test_the_norm_of_several_inputs_is_that_of_all_numbers_and_tokens_have_none() -> None:
    """A square that half precision does not hold too."""
    one, other, tokens = torch.full((1, 2, 3), 2.0), torch.tensor([[[300.0], [2.0]]]).half(), torch.ones(1, 2, 9).long()
    examples = Examples({"a": one, "b": other, "c": tokens}, torch.zeros(1, 2), torch.ones(1, 2))
    assert input_norms(examples).tolist() == [[math.sqrt(90012), 4.0]]


def test_rule_6_what_has_no_size_has_none_in_the_answer() -> None:
    """Tokens: a rule that asks for their norm is answered that it is 0, and a record moves that by half the range."""
    model = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(8, 3)).double()
    x, y = torch.randint(0, 7, (1, 6, 2)), torch.randint(0, 3, (1, 6))
    intake = intake_of(model, (x[0], y[0]))
    constants = constants_of(intake, records=6, lot=6.0, steps=1, noise=[2.0])
    assert constants.layout.entering == 0
    params, query = (
        torch.zeros(1, intake.layout.width).double(),
        Query(double(0.3), second=InputNorm(double(9))),
    )
    lot, how = [Examples(x, y, torch.ones(1, 6))], {"vetted": intake.vetted, "constants": constants}
    assert release(lot, params, query, noise=Silence(), **how).second.item() == 0.0


def test_quantile_refuses_noise_that_leaves_nothing_for_the_gradient() -> None:
    with pytest.raises(InvalidArgument, match="lot/10"):
        rules.Quantile(lr=0.1).check(lot=20, noise=2.0)


# Rule 7: non-finite gradients


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e30, 1e200])
@pytest.mark.parametrize("extra", [None, "direction", "quantile", "norm"])
def test_rule_7_a_poisoned_record_moves_a_release_no_more_than_another(poison: float, extra: str | None) -> None:
    x, y = toy_data(60)
    query = Query(clip=double(0.3), second=second_question(extra, double(9.0)))
    clean, _ = one_step(x[:5], y[:5], query, noise=Silence(), lot=1.0)
    poisoned_x, poisoned_y = torch.cat([x[:5], torch.full((1, 5), poison, dtype=torch.float64)]), y[:6]
    found, _ = one_step(poisoned_x, poisoned_y, query, noise=Silence(), lot=1.0)
    assert torch.isfinite(found.gradient).all()
    moved = (found.gradient - clean.gradient).norm().item()
    assert moved <= 0.3 * (1 + 1e-9)
    if not math.isfinite(poison):
        assert moved == 0
    if extra is not None:
        sensitivity = {"direction": 1 + 1e-9, "quantile": 0.5, "norm": HALF_RANGE}[extra]
        assert (found.second - clean.second).norm().item() <= sensitivity


def test_rule_7_weights_and_counts_leave_out_what_is_not_finite_and_what_is_padding() -> None:
    norms = torch.tensor([[0.5, math.inf, math.nan, 4.0, 4.0]]).double()
    present = torch.tensor([[True, True, True, True, False]])
    query = flat(1.0)
    assert clipping_weights(norms, present, query).tolist() == [[1.0, 0.0, 0.0, 0.25, 0.0]]
    examples = Examples(torch.zeros(1, 5), torch.zeros(1, 5), present)
    assert Direction(query.clip).terms(norms, examples, query.clip).tolist() == [[0.0, 0.0, 0.0, 0.25, 0.0]]
    assert WithinClip(query.clip).terms(norms, examples, query.clip).tolist() == [[0.5, 0.0, 0.0, -0.5, 0.0]]
    assert WithinClip(query.clip).terms(norms, examples, double(9.0)).tolist() == [[0.5, 0.0, 0.0, 0.5, 0.0]]


def test_rule_7_holds_in_float32_where_1e30_overflows() -> None:
    x, y = toy_data(60)
    model = toy_model().float()
    intake = intake_of(model, (x.float(), y))
    constants = constants_of(intake, records=60, lot=1.0, steps=1, noise=[1.0])
    params = torch.cat([p.detach().flatten() for p in model.parameters()])[None]
    poisoned = x[:4].float()
    poisoned[2] = 1e30
    examples = Examples(poisoned[None], y[None, :4], torch.ones(1, 4, dtype=torch.bool))
    query = Query(clip=torch.tensor([0.3]))
    found = release([examples], params, query, vetted=intake.vetted, constants=constants, noise=Silence())
    assert torch.isfinite(found.gradient).all()
    assert found.gradient.norm().item() <= 4 * 0.3 * (1 + 1e-5)


def test_rule_7_a_gradient_of_any_size_moves_a_float32_release_by_the_clip_at_most() -> None:
    """Weights of huge gradients would be numbers of few digits, and rounding one up would carry a record past its clip."""

    def steep(output: Tensor, y: Tensor) -> Tensor:
        return output.sum(1) * y

    clip, lot = 1e-3, 250.0
    model = nn.Linear(3, 2)
    slopes = 10 ** torch.arange(0.0, 19.0, 0.37)
    x = slopes[:, None].expand(-1, 3).contiguous()
    intake = intake_of(model, (x, slopes), loss=steep)
    constants = constants_of(intake, records=len(x), lot=lot, steps=1, noise=[1.0])
    params = torch.cat([p.detach().flatten() for p in model.parameters()])[None]
    for i in range(len(x)):
        examples = Examples(x[None, i : i + 1], slopes[None, i : i + 1], torch.ones(1, 1, dtype=torch.bool))
        query = Query(clip=torch.tensor([clip]))
        found = release([examples], params, query, vetted=intake.vetted, constants=constants, noise=Silence())
        assert found.gradient.double().norm().item() * lot <= clip * (1 + 1e-5), slopes[i]


# Rule 8: where the noise comes from


def weights_of(seed: int | None) -> Tensor:
    torch.manual_seed(0)
    result = train(
        toy_model(),
        toy_data(60),
        run=Run(records=60, lot=10, steps=3, noise=1),
        optimizer=rules.SGD(lr=0.1, clip=1.0),
        noise_seed=seed,
    )
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


def test_rule_8_seeding_torch_does_not_fix_the_noise() -> None:
    assert not weights_of(None).equal(weights_of(None))


def test_rule_8_a_fixed_noise_seed_repeats() -> None:
    assert weights_of(5).equal(weights_of(5))
    assert not weights_of(5).equal(weights_of(6))


def test_the_noise_added_has_the_declared_spread() -> None:
    """3900 draws: their standard deviation strays by 6 % with probability below 1e-6; a factor of 1.1 is caught."""
    population, mechanism = population_of(
        [toy_model()], toy_data(60), [rules.SGD(lr=1.0, clip=0.5)], lot=1e-9, steps=100, noise=[2.0]
    )
    start = population.params
    while population.step < population.total:
        population.block()
    walked = ((population.params - start) / (2.0 * 0.5 / 1e-9) / 10).flatten()
    assert abs(walked.square().mean().sqrt().item() - 1) < 0.6
    draws = torch.stack(
        [
            mechanism._release(
                [], population.params, population._rule.query(population.state, mechanism.constants)
            ).gradient
            for _ in range(100)
        ]
    )
    spread = draws.std().item() * 1e-9 / (2.0 * 0.5)
    assert abs(spread - 1) < 0.06


# The boundary: a release is all that leaves a step (test_doors.py has the rest)


def test_a_release_is_all_that_leaves_the_mechanism() -> None:
    x, y = toy_data(60)
    found, _ = one_step(x, y, flat(1.0), noise=Silence())
    assert set(vars(found)) == {"gradient", "second"}
    assert not found.gradient.requires_grad
    assert isinstance(CpuNoise(CPU, Seed.fresh()).normal((1,)), Tensor)
    assert Vetted.__dataclass_params__.frozen


@pytest.mark.parametrize("set_to", ["medium", "highest"])
def test_a_sum_is_taken_with_all_digits_whatever_precision_the_user_set(
    set_to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clipped sum with fewer digits than its norms could exceed the clip: neither autocast nor a low precision reach it."""
    from honestdp.boundary import release as module

    seen: list[tuple[str, bool]] = []
    original = module.clipping_weights

    def spy(*arguments: object) -> torch.Tensor:
        seen.append((torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu")))
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "clipping_weights", spy)
    x, y = torch.randn(50, 4), torch.zeros(50, dtype=torch.long)
    torch.set_float32_matmul_precision(set_to)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            honestdp.train(
                torch.nn.Linear(4, 2),
                (x, y),
                run=honestdp.Run(records=50, lot=10, steps=3, noise=1.0),
                optimizer=honestdp.optimizers.SGD(lr=0.1, clip=1.0),
                compute=Compute(device="cpu"),
            )
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_float32_matmul_precision() == set_to
    finally:
        torch.set_float32_matmul_precision("highest")
    assert set(seen) == {("highest", False)}


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
def test_the_mechanism_splits_noise_as_the_accounting_says(sigma: float) -> None:
    """Rule 6, from both sides: what the mechanism leaves to the gradient is what the joint cost of one Gaussian leaves."""
    noise, clip = torch.tensor([sigma], dtype=torch.float64), torch.ones(1)
    direction = Query(clip=clip, second=Direction(7.124 * noise))
    assert gradient_multiplier(noise, direction).item() == pytest.approx(
        (sigma**-2 - (7.124 * sigma) ** -2) ** -0.5, rel=1e-12
    )
    count = Query(clip=clip, second=WithinClip(torch.tensor([12.5], dtype=torch.float64)))
    assert gradient_multiplier(noise, count).item() == pytest.approx((sigma**-2 - 25.0**-2) ** -0.5, rel=1e-12)
