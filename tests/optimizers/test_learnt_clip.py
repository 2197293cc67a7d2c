"""Rules that learn their clip: small cases in closed form, one price whatever the options, and releases alone move them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from honestdp import Run
from honestdp import optimizers as rules
from honestdp.boundary import release as door
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.query import LEAST_CLIP, Constants, Direction, Query, Release, State
from honestdp.checks import InvalidArgument
from honestdp.cli.options import spaces_of
from honestdp.optimizers.rule import stack_rules
from honestdp.search.space import space_of
from honestdp.training.population import Population
from honestdp.training.train import train, train_population
from tests.tiny_search import clouds, linear
from tests.toy_training import CPU, constants_of, intake_of, population_of, toy_data, toy_model

pytestmark = pytest.mark.usefixtures("fine_grid")

SIGMA, LOT = 1.7, 20.0
LEARNT = [
    rules.OSO(lr=0.5, rho_c=0.2, rho_r=0.1),
    rules.OSO(lr=0.5, rho_c=0.2, rho_r=0.0, momentum=0.9, nu_q=1.5),
    rules.OSO(lr=0.5, rho_c=0.2, nu_q=40.0, proportional=True),
    rules.OSO(lr=0.5, rho_c=0.2, automatic=True),
    rules.AdamOSO(rho_c=0.2),
    rules.Quantile(lr=0.5, clamped=False),
]
names = pytest.mark.parametrize("rule", LEARNT, ids=repr)


def ready(rule: rules.Rule, width: int = 39) -> tuple[rules.Rule, Constants, Tensor, State]:
    """A rule as a population of one has it, and the weights and the state before its first step."""
    constants = constants_of(intake_of(toy_model(), toy_data()), records=60, lot=LOT, steps=9, noise=[SIGMA])
    stacked = stack_rules([rule], dtype=torch.float64, device=CPU)
    params = torch.zeros(1, width, dtype=torch.float64)
    return stacked, constants, params, stacked.init(params, constants)


def along(angle: float, size: float = 1.0) -> Tensor:
    """A vector of the plane."""
    return size * torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)


def after(rule: rules.Rule, sent: list[tuple[float, float]]) -> tuple[Tensor, State]:
    """Weights and state after releases given as the angles of g~ (of length 2) and q~ (of length 3)."""
    stacked, constants, params, state = ready(rule, 2)
    for gradient, direction in sent:
        extra = None if getattr(rule, "automatic", False) else along(direction, 3.0)
        params, state = stacked.update(params, state, Release(along(gradient, 2.0), extra), constants)
    return params, state


# Closed forms


def test_a_step_size_with_no_pace_stays_while_the_clip_moves() -> None:
    _, state = after(rules.OSO(lr=0.5, rho_r=0.0, rho_c=0.3), [(0.0, 0.0)] * 4)
    assert state["lr"].item() == 0.5
    assert state["clip"].item() == pytest.approx(0.1 * math.exp(0.3 * 3))


@pytest.mark.parametrize("angle", [0.0, 0.4, 2.0, math.pi])
def test_the_proportional_update_is_one_plus_the_cosine(angle: float) -> None:
    """Equation (19): neither length matters; the step size has the same form."""
    rule = rules.OSO(lr=0.5, rho_c=0.3, rho_r=0.2, proportional=True)
    _, state = after(rule, [(0.0, 0.0), (angle, 0.0)])
    assert state["clip"].item() == pytest.approx(0.1 * (1 + 0.3 * math.cos(angle)))
    assert state["lr"].item() == pytest.approx(0.5 * (1 + 0.2 * math.cos(angle)))
    _, first = after(rule, [(angle, 0.0)])
    assert (first["clip"].item(), first["lr"].item()) == (0.1, 0.5)


def test_a_proportional_pace_above_one_never_turns_a_clip_or_a_step_size_negative() -> None:
    _, state = after(rules.OSO(lr=0.5, rho_c=5.0, rho_r=1.0, proportional=True), [(0.0, 0.0), (math.pi, 0.0)])
    assert state["clip"].item() == pytest.approx(0.01)
    assert state["lr"].item() == pytest.approx(0.05)


@pytest.mark.parametrize("rule", [rules.OSO(lr=0.5, rho_c=30.0), rules.AdamOSO(rho_c=30.0)], ids=repr)
def test_a_clip_falls_to_the_least_one_at_most_and_rises_from_there(rule: rules.Rule) -> None:
    """What is clipped and noised is the least clip in any case: a state below it would not say what was in force."""
    down = [(0.0, 0.0), (math.pi, 0.0)]
    assert after(rule, down)[1]["clip"].item() == LEAST_CLIP
    assert after(rule, [*down, (0.0, 0.0)])[1]["clip"].item() == pytest.approx(LEAST_CLIP * math.exp(30))


def test_momentum_adds_up_releases_and_the_step_size_follows_their_sum() -> None:
    """v = m v + g~. The clip moves by g~_t . q~_{t-1} as without momentum, the step size by g~_t . v_{t-1}."""
    params, _ = after(rules.OSO(lr=0.5, rho_c=1e-9, rho_r=1e-9, momentum=0.5), [(0.0, 0.0)] * 3)
    assert params[0].tolist() == pytest.approx([-0.5 * 2 * (1 + 1.5 + 1.75), 0.0])
    # g_1 at 0, g_2 at 0, g_3 at 100 degrees: against g_2, yet v_2 = 0.5 g_1 + g_2; then g_4 with v_3, whose way is between.
    sent = [(0.0, 0.0), (0.0, 0.0), (math.radians(100), 0.0), (math.radians(20), math.pi)]
    _, plain = after(rules.OSO(lr=0.5, rho_c=0.1, rho_r=0.1), sent)
    _, heavy = after(rules.OSO(lr=0.5, rho_c=0.1, rho_r=0.1, momentum=0.9), sent)
    assert plain["clip"].item() == heavy["clip"].item()
    assert math.log(plain["lr"].item() / 0.5) == pytest.approx(0.1 * (1 - 1 + 1))
    turned = [*sent[:3], (math.radians(5), 0.0)]
    _, plain = after(rules.OSO(lr=0.5, rho_c=0.1, rho_r=0.1), turned)
    _, heavy = after(rules.OSO(lr=0.5, rho_c=0.1, rho_r=0.1, momentum=0.9), turned)
    assert math.log(plain["lr"].item() / 0.5) == pytest.approx(0.1 * (1 - 1 - 1))  # 95 degrees from g_3
    assert math.log(heavy["lr"].item() / 0.5) == pytest.approx(0.1 * (1 - 1 + 1))  # and less than 90 from v_3


def test_automatic_clipping_is_scaled_by_the_clip_and_asks_nothing_more() -> None:
    rule = rules.OSO(lr=0.5, clip=0.2, rho_c=0.1, rho_r=0.2, automatic=True)
    stacked, constants, _, state = ready(rule)
    query = stacked.query(state, constants)
    assert query.automatic
    assert query.second is None
    params, state = after(rule, [(0.0, 0.0), (0.0, 0.0)])
    assert params[0, 0].item() == pytest.approx(-0.5 * 0.2 * 2 * 2)
    params, state = after(rule, [(0.0, 0.0), (0.0, 0.0), (0.0, 0.0)])
    assert params[0, 0].item() == pytest.approx(-0.5 * 0.2 * 2 * (2 + math.exp(0.1 + 0.2)))


def test_the_step_of_adam_wosm_is_in_units_of_the_noise_and_does_not_grow_with_the_clip() -> None:
    sent = [(0.0, 0.0)] * 3
    slow: dict[str, Any] = {"rho_c": 1e-12, "rho_r": 0.0, "nu_q": 1e6}
    found = [after(rules.AdamOSO(clip=clip, **slow), sent)[0][0, 0].item() * clip for clip in (0.1, 10.0)]
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    wosm, _ = after(rules.AdamWOSM(clip=0.1), sent)
    assert wosm[0, 0].item() == pytest.approx(found[0] / 0.1, rel=1e-5)
    _, state = after(rules.AdamOSO(rho_c=0.3, rho_r=0.2), sent)
    assert state["clip"].item() == pytest.approx(0.1 * math.exp(0.6))
    assert state["lr"].item() == pytest.approx(0.001 * math.exp(0.4))


@pytest.mark.parametrize(("clamped", "swing"), [(True, 0.5), (False, 7.5)])
def test_a_fraction_that_is_not_clamped_moves_the_clip_by_all_of_its_noise(clamped: bool, swing: float) -> None:
    stacked, constants, params, state = ready(rules.Quantile(lr=0.1, clamped=clamped))
    sent = Release(torch.zeros_like(params), second=torch.tensor([8.0], dtype=torch.float64))
    _, state = stacked.update(params, state, sent, constants)
    assert state["clip"].item() == pytest.approx(0.1 * math.exp(-0.2 * swing))


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"nu_q": 1.0}, "nu_q"),
        ({"nu_q": 0.5}, "nu_q"),
        ({"nu_q": math.nan}, "nu_q"),
        ({"nu_q": math.inf}, "nu_q"),
        ({"nu_q": 1 + 1e-9}, "nu_q"),  # 1 in float32
        ({"nu_q": "8"}, "nu_q"),
        ({"nu_q": None}, "nu_q"),
        ({"rho_r": -0.1}, "rho_r"),
        ({"rho_c": 0.0}, "rho_c"),
        ({"momentum": 1.0}, "momentum"),
        ({"proportional": 1}, "proportional"),
        ({"automatic": "yes"}, "automatic"),
    ],
)
def test_options_that_are_none_are_refused_by_name(wrong: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgument, match=argument):
        rules.OSO(lr=0.1, **wrong)
    with pytest.raises(InvalidArgument, match="clamped"):
        rules.Quantile(lr=0.1, clamped=1)  # type: ignore[arg-type]


# What is released costs what is charged


class Ones:
    """A noise source of ones, which keeps how many were asked for."""

    generators = ()

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        self.asked.append(shape)
        return torch.ones(shape, dtype=torch.float64)


def spent(rule: rules.Rule) -> list[float]:
    """1 / multiplier^2 of everything that a step releases, read off the noise that the mechanism adds to empty lots."""
    population, mechanism = population_of([toy_model()], toy_data(60), [rule], lot=LOT, steps=4, noise=[SIGMA])
    found = []
    for _ in range(4):
        query = population._rule.query(population.state, mechanism.constants)
        mechanism._noise = source = Ones()
        sent = mechanism._release([], population.params, query)
        clip = 1.0 if query.automatic else query.clip.item()
        parts = [(clip, sent.gradient[0, 0].item())]
        if sent.second is not None:
            parts.append((query.second.sensitivity, sent.second.flatten()[0].item() - query.second.centre))
        assert len(source.asked) == len(parts)
        found.append(sum((sensitivity / (LOT * deviation)) ** 2 for sensitivity, deviation in parts))
        population.params, population.state = population._rule.update(
            population.params, population.state, sent, mechanism.constants
        )
    return found


@pytest.mark.parametrize(
    "rule", [*LEARNT, *(rules.OSO(lr=0.5, nu_q=share) for share in (1.0001, 1.1, 3, 1e6))], ids=repr
)
def test_whatever_the_options_a_step_is_one_gaussian_of_the_noise_that_is_charged(rule: rules.Rule) -> None:
    assert spent(rule) == pytest.approx([SIGMA**-2] * 4, rel=1e-6)


def test_every_run_of_a_population_has_the_split_of_its_own_noise_and_share() -> None:
    """Of mixed nu_q and noises each run spends its own 1/sigma^2, and each second answer has its own noise."""
    mixed = [rules.OSO(lr=0.5, nu_q=share) for share in (1.2, 7.124, 3.0)]
    sigmas = [0.8, 1.7, 5.0]
    population, mechanism = population_of(
        [toy_model() for _ in mixed], toy_data(60), mixed, lot=LOT, steps=2, noise=sigmas
    )
    population.state["clip"] *= torch.tensor([1.0, 2.0, 30.0], dtype=torch.float64)
    query = population._rule.query(population.state, mechanism.constants)
    mechanism._noise = Ones()
    sent = mechanism._release([], population.params, query)
    assert sent.second is not None
    for run, (rule, sigma) in enumerate(zip(mixed, sigmas, strict=True)):
        nu_g = LOT * sent.gradient[run, 0].item() / query.clip[run].item()
        nu_q = LOT * sent.second[run, 0].item()
        assert nu_q == pytest.approx(rule.nu_q * sigma)
        assert nu_g**-2 + nu_q**-2 == pytest.approx(sigma**-2)


def test_a_mechanism_that_forgets_the_second_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the gradient keeps the noise of a step that answers one question."""
    monkeypatch.setattr(door, "gradient_multiplier", lambda sigma, query: sigma)
    for rule in LEARNT:
        alone = isinstance(rule, rules.OSO) and rule.automatic
        assert (max(spent(rule)) > 1.0005 * SIGMA**-2) is not alone


def test_the_noise_on_the_second_answer_is_not_the_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault is line 13 of the printed algorithm: nu_g on both answers spends nearly twice."""

    def printed(self: rules.OSO, state: State, constants: Constants) -> Query:
        asked = Query(clip=state["clip"], second=Direction(7.124 * constants.noise))
        nu_g = door.gradient_multiplier(constants.noise, asked)
        monkeypatch.setattr(door, "gradient_multiplier", lambda sigma, query: nu_g)
        return Query(clip=state["clip"], second=Direction(nu_g))

    monkeypatch.setattr(rules.OSO, "query", printed)
    assert min(spent(rules.OSO(lr=0.5))) > 1.9 * SIGMA**-2


def test_no_option_changes_what_a_run_is_charged() -> None:
    run = Run(records=400, lot=40, steps=2, noise=1.3)
    charged = [train(linear(), clouds(), run=run, optimizer=rule, delta=1e-5).epsilon for rule in LEARNT]
    plain = train(linear(), clouds(), run=run, optimizer=rules.SGD(lr=0.5, clip=1.0), delta=1e-5).epsilon
    assert charged == [plain] * len(LEARNT)


# Clip and step size move by releases alone


def replayed(rule: rules.Rule, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether weights and state of a training are what the rule makes of its releases, with no record in sight."""
    sent: list[Release] = []
    send = Mechanism._release

    def keep(mechanism: Mechanism, lot: Any, params: Tensor, query: Query) -> Release:
        found = send(mechanism, lot, params, query)
        sent.append(found)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Mechanism, "_release", keep)
        population, mechanism = population_of([toy_model()], toy_data(60), [rule], lot=LOT, steps=6, noise=[SIGMA])
        start = population.params.clone()
        while population.step < population.total:
            population.block()
    again = stack_rules([rule], dtype=torch.float64, device=CPU)
    params, state = start, again.init(start, mechanism.constants)
    for one in sent:
        params, state = again.update(params, state, one, mechanism.constants)
    assert len(sent) == 6
    return params.equal(population.params) and all(state[name].equal(population.state[name]) for name in state)


@names
def test_weights_clip_and_step_size_follow_from_the_releases(rule: rules.Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(rule, monkeypatch)


def test_a_clip_that_saw_the_raw_gradient_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the sum before its noise reaches the rule, which moves its clip by it."""
    raw: list[Tensor] = []
    noisy, update = door._noisy, rules.OSO.update

    def leaking(total: Any, *given: Any) -> Tensor:
        raw.append(torch.zeros(1, 39) if total is None else total.clone())
        return noisy(total, *given)

    def peeking(self: rules.OSO, params: Tensor, state: State, sent: Release, constants: Constants) -> Any:
        moved, after = update(self, params, state, sent, constants)
        if raw:
            pushed = after["clip"] * (1 + 1e-6 * raw[0].norm())
            raw.clear()
            return moved, after | {"clip": pushed}
        return moved, after

    monkeypatch.setattr(door, "_noisy", leaking)
    monkeypatch.setattr(rules.OSO, "update", peeking)
    assert not replayed(LEARNT[0], monkeypatch)


def spread_of_the_answers(rule: rules.Rule) -> list[tuple[Tensor, Tensor]]:
    """Of records without a gradient: the noise of each answer over what it should be, which is standard normal."""
    model = nn.Linear(3000, 1, bias=False).double()
    x = torch.zeros(60, 3000, dtype=torch.float64)
    population, mechanism = population_of([model], (x, x[:, :1]), [rule], lot=LOT, steps=2, noise=[SIGMA])
    query = population._rule.query(population.state, mechanism.constants)
    sent = mechanism._release([], population.params, query)
    assert sent.second is not None
    assert query.second is not None
    nu_g = door.gradient_multiplier(mechanism.constants.noise, query)
    return [
        (sent.gradient[0], (nu_g * query.clip / LOT)[0]),
        (sent.second[0], (query.second.noise / LOT)[0]),
    ]


def noised(rule: rules.Rule) -> bool:
    for values, spread in spread_of_the_answers(rule):
        squares = (values / spread).square().sum().item()
        if not 1e-9 < stats.chi2(values.numel()).cdf(squares) < 1 - 1e-9:
            return False
    return True


def test_what_moves_the_clip_has_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [
        rule for rule in LEARNT if isinstance(rule, rules.OSO | rules.AdamOSO) and not getattr(rule, "automatic", 0)
    ]
    assert all(noised(rule) for rule in every)
    noisy, calls = door._noisy, [0]

    def raw(total: Any, deviation: Any, *given: Any) -> Tensor:
        """The planted fault: the second answer leaves without noise."""
        calls[0] += 1
        return noisy(total, deviation * (1e-9 if calls[0] % 2 == 0 else 1), *given)

    monkeypatch.setattr(door, "_noisy", raw)
    assert not any(noised(rule) for rule in every)


# Populations


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "mixed",
    [
        [rules.OSO(0.1), rules.OSO(0.2, 0.3, rho_r=0.0), rules.OSO(0.3, momentum=0.9), rules.OSO(0.4, nu_q=1.5)],
        [rules.OSO(0.1, proportional=True), rules.OSO(0.2, rho_c=2.0, momentum=0.5, proportional=True)],
        [rules.OSO(0.1, automatic=True), rules.OSO(0.2, momentum=0.5, rho_r=0.0, automatic=True)],
        [rules.AdamOSO(), rules.AdamOSO(clip=3.0, rho_r=0.0, nu_q=2.0, weight_decay=0.1)],
        [rules.Quantile(0.1, clamped=False), rules.Quantile(0.2, 0.9, clamped=False)],
    ],
    ids=lambda mixed: mixed[0].name if isinstance(mixed, list) else None,
)
def test_mixed_options_stack_and_every_run_is_bit_equal_to_itself_alone(mixed: list[rules.Rule], dtype: Any) -> None:
    width, draw = 4099, torch.Generator().manual_seed(5)
    model = nn.Linear(width, 1, bias=False).to(dtype)
    data = torch.zeros(60, width, dtype=dtype), torch.zeros(60, 1, dtype=dtype)
    sigma = [0.5 + i for i in range(len(mixed))]
    intake = intake_of(model, data)
    together = constants_of(intake, records=60, lot=LOT, steps=6, noise=sigma)
    alone = [constants_of(intake, records=60, lot=LOT, steps=6, noise=[one]) for one in sigma]
    layout = intake.layout.width
    groups = [(mixed, together), *(([rule], each) for rule, each in zip(mixed, alone, strict=True))]
    stacked = [stack_rules(group, dtype=dtype, device=CPU) for group, _ in groups]
    params = [torch.zeros(len(group), layout, dtype=dtype) for group, _ in groups]
    states = [rule.init(p, c) for rule, p, (_, c) in zip(stacked, params, groups, strict=True)]
    for _ in range(6):
        g, q = (torch.randn(len(mixed), layout, generator=draw, dtype=dtype) for _ in range(2))
        b = torch.randn(len(mixed), generator=draw, dtype=dtype)
        for at, (rule, (_, each)) in enumerate(zip(stacked, groups, strict=True)):
            rows = slice(None) if at == 0 else slice(at - 1, at)
            second = b if isinstance(mixed[0], rules.Quantile) else q
            params[at], states[at] = rule.update(params[at], states[at], Release(g[rows], second[rows]), each)
    for run in range(len(mixed)):
        assert params[0][run].equal(params[run + 1][0])
        assert all(states[0][name][run].equal(states[run + 1][name][0]) for name in states[0])
        assert not params[0][run].equal(params[0][run - 1])


def test_options_of_every_kind_are_trained_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers share a population; a choice that is no number makes one of its own."""
    made: list[int] = []
    init = Population.__init__

    def keep(population: Population, mechanism: Mechanism, rule: rules.Rule, params: Tensor) -> None:
        made.append(len(params))
        init(population, mechanism, rule, params)

    monkeypatch.setattr(Population, "__init__", keep)
    asked = [*LEARNT, rules.OSO(lr=0.1, momentum=0.3, nu_q=9.0)]
    run = Run(records=60, lot=10, steps=2, noise=0.9)
    results = train_population(toy_model(), toy_data(), run=run, optimizers=asked)
    assert [result.optimizer for result in results] == asked
    assert sorted(made) == [1, 1, 1, 1, 3]


def test_options_are_searched_by_name_here_and_on_the_command_line() -> None:
    asked = spaces_of(["lr=0.1,1", "proportional=true,false", "momentum=0,0.9", "nu_q=2,7.124"], ["oso"])
    found = space_of("oso", asked["oso"], lot=40, steps=2)
    made = {repr(candidate.rule()) for candidate in found.candidates()}
    assert len(made) == 16
    assert repr(rules.OSO(0.1, momentum=0.9, nu_q=2, proportional=True)) in made
    assert repr(rules.OSO(1)) in made
    with pytest.raises(InvalidArgument, match="nu_q"):
        space_of("oso", {"lr": [0.1], "nu_q": [0.5]}, lot=40, steps=2)
    assert len(space_of("adam-oso", None, lot=40, steps=2).candidates()) == 1
