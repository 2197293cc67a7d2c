"""What is stated of a run is what was executed for it, through every hand between the two."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import dp_accounting
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from honestdp import Run, accounting
from honestdp import optimizers as rules
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.query import Query, Release
from honestdp.training.population import Population
from honestdp.training.train import Result, assemble, train, train_population
from tests.toy_training import toy_data, toy_model

RUN = Run(records=60, lot=10, steps=5, noise=1.0)
RULE = rules.SGD(lr=0.1, clip=1.0)
ALARM = 1e-9
"""The chance of a false alarm of each statistical comparison here."""

MIXED: list[rules.Rule] = [
    rules.SGD(lr=0.1, clip=1.0),
    rules.Adam(clip=0.5),
    rules.SGD(lr=0.2, clip=0.25),
    rules.OSO(lr=0.2, clip=0.4),
    rules.SGD(lr=0.3, clip="auto"),
    rules.SGD(lr=0.4, clip=2.0),
    rules.OSO(lr=0.1, clip=0.6),
    rules.Momentum(lr=0.1, momentum=0.5, clip=1.5),
    rules.Adam(lr=0.02, clip=0.75),
    rules.Quantile(lr=0.3, quantile=0.3, clip=0.7),
    rules.OSO(lr=0.2, clip=0.5, nu_q=2.5),
    rules.AdamOSO(clip=0.2, nu_q=1.5),
    rules.OSO(lr=0.2, automatic=True),
    rules.AdamWOSM(clip=0.35),
    rules.ADADP(clip=0.45),
    rules.Horizon(),
    rules.Echo(),
]
NOISES = [0.5 * 1.2**i for i in range(len(MIXED))]
MIXED_RUN = Run(records=80, lot=37.5, steps=6, noise=1.0)


class Flat(nn.Module):
    """Records of zeros have no gradient under it, so every release is noise alone."""

    def __init__(self, start: float, width: int = 2000) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 1, bias=False)
        nn.init.constant_(self.layer.weight, start)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Watch:
    """A mixed population in chunks of two, and what was made and released for each of its runs.

    Runs are told apart by their initial weights, run i's being i.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **given: object) -> None:
        self.of: dict[int, tuple[Mechanism, rules.Rule, int]] = {}
        self.chunks = 0
        self.sent: dict[int, list[tuple[Query, Release]]] = {}
        make, send = Population.__init__, Mechanism._release

        def init(population: Population, mechanism: Mechanism, rule: rules.Rule, params: Tensor) -> None:
            self.chunks += 1
            for row, start in enumerate(params[:, 0].tolist()):
                self.of[int(start)] = (mechanism, rule, row)
            make(population, mechanism, rule, params)

        def release_of(mechanism: Mechanism, lot: object, params: Tensor, query: Query) -> Release:
            released = send(mechanism, lot, params, query)
            self.sent.setdefault(id(mechanism), []).append((query, released))
            return released

        monkeypatch.setattr("honestdp.training.loop.largest_chunk", lambda *_: 2)
        monkeypatch.setattr(Population, "__init__", init)
        monkeypatch.setattr(Mechanism, "_release", release_of)
        runs = [MIXED_RUN.with_noise(noise) for noise in NOISES]
        models = [Flat(float(i)).double() for i in range(len(MIXED))]
        data = torch.zeros(80, 2000, dtype=torch.float64), torch.zeros(80, 1, dtype=torch.float64)
        self.results = train_population(models, data, run=runs, optimizers=MIXED, **given)


@pytest.mark.parametrize("given", [{}, {"noise_seed": 1}], ids=["open", "seeded"])
def test_every_run_of_a_mixed_population_is_made_of_the_constants_and_the_rule_its_result_states(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, object]
) -> None:
    watch = Watch(monkeypatch, **given)
    assert sorted(watch.of) == list(range(len(MIXED)))
    assert len({id(mechanism) for mechanism, _, _ in watch.of.values()}) == watch.chunks > 6
    for i, result in enumerate(watch.results):
        mechanism, stacked, row = watch.of[i]
        constants = mechanism.constants
        assert result.run == MIXED_RUN.with_noise(NOISES[i])
        assert constants.noise[row].item() == result.run.noise
        assert (constants.lot, constants.records, constants.steps) == (37.5, 80, 6)
        assert mechanism._rate == result.run.rate
        assert type(stacked) is type(result.optimizer) is type(MIXED[i])
        assert result.optimizer == MIXED[i]
        for field in fields(stacked):
            stated, executed = getattr(MIXED[i], field.name), getattr(stacked, field.name)
            assert (executed[row].item() if isinstance(executed, Tensor) else executed) == stated, field.name


def agrees(values: Tensor, spread: float) -> bool:
    """Whether normal numbers have this standard deviation: the sum of their squares, two-sided."""
    squares = (values.double() / spread).square().sum().item()
    return ALARM / 2 < stats.chi2(values.numel()).cdf(squares) < 1 - ALARM / 2


def left_by(second: float, *, of: float) -> float:
    """What a second answer with this noise leaves of the step's noise to the gradient."""
    return (of**-2 - second**-2) ** -0.5


def test_every_rule_gets_releases_of_the_noise_its_result_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero gradients: a release is noise of nu_g C / L, nu_g what the stated sigma leaves. 12,000 numbers for a run; a
    noise wrong by a tenth is caught, and that of a neighbour of the population is."""
    watch = Watch(monkeypatch)
    for i, result in enumerate(watch.results):
        mechanism, _, row = watch.of[i]
        sigma, extra = result.run.noise, 0.0
        if isinstance(result.optimizer, rules.OSO | rules.AdamOSO) and not result.optimizer.numbers.get("automatic"):
            extra = result.optimizer.numbers.get("nu_q", 7.124) * sigma
            sigma = left_by(extra, of=sigma)
        elif isinstance(result.optimizer, rules.Quantile):
            sigma = left_by(2 * 37.5 / 20, of=sigma)
        sent = watch.sent[id(mechanism)]
        assert len(sent) == result.run.steps
        drawn = torch.stack([released.gradient[row] / query.clip[row] for query, released in sent])
        assert agrees(drawn, sigma / 37.5)
        assert not agrees(drawn, 0.9 * sigma / 37.5)
        assert not agrees(drawn, 1.1 * sigma / 37.5)
        if extra:
            assert agrees(torch.stack([released.second[row] for _, released in sent]), extra / 37.5)


def moved(result: Result, start: float) -> Tensor:
    return result.model.layer.weight.detach().flatten() - start


def test_the_weights_of_a_mixed_population_move_by_the_noise_that_is_stated() -> None:
    """Zero gradients: SGD's weights move by sigma C lr sqrt(T) / L. A noise halved, or another run's, is caught."""
    run = Run(records=80, lot=37.5, steps=9, noise=1.0)
    noises = [1.0, 3.0, 0.5, 2.0, 1.5, 0.75]
    heavy = math.sqrt(sum(((1 - 0.5**k) / 0.5) ** 2 for k in range(1, 10)))  # how often momentum adds each release
    left = left_by(7.124, of=1.0)  # what OSO's gradient gets; so slow a pace moves neither clip nor step
    given: list[tuple[rules.Rule, float]] = [
        (rules.SGD(lr=0.5, clip=1.0), 0.5 * 1.0 * 3),
        (rules.SGD(lr=0.25, clip=0.1), 0.25 * 0.1 * 3),
        (rules.SGD(lr=2.0, clip="auto"), 2.0 * 1.0 * 3),
        (rules.SGD(lr=0.5, clip=3.0), 0.5 * 3.0 * 3),
        (rules.Momentum(lr=0.5, momentum=0.5, clip=0.2), 0.5 * 0.2 * heavy),
        (rules.OSO(lr=0.5, clip=0.3, rho_c=1e-9, rho_r=1e-9), 0.5 * 0.3 * 3 * left),
    ]
    results = train_population(
        [Flat(0.0, 4000).double() for _ in given],
        (torch.zeros(80, 4000, dtype=torch.float64), torch.zeros(80, 1, dtype=torch.float64)),
        run=[run.with_noise(noise) for noise in noises],
        optimizers=[rule for rule, _ in given],
    )
    moves = torch.stack([moved(result, 0.0) for result in results])
    for move, result, (_, scale) in zip(moves, results, given, strict=True):
        spread = scale * result.run.noise / result.run.lot
        assert agrees(move, spread)
        assert not agrees(move, 0.5 * spread)
        assert not agrees(move, 0.75 * spread)
    apart = torch.corrcoef(moves) - torch.eye(len(moves))
    assert apart.abs().max() < stats.norm.isf(ALARM / 30) / math.sqrt(4000)


def composed(runs: list[Run], delta: float = 1e-5) -> float:
    return accounting.epsilon(dp_accounting.ComposedDpEvent([run.event for run in runs]), delta=delta)


def test_every_result_of_a_mixed_population_is_charged_for_all_of_its_runs() -> None:
    runs = [RUN.with_noise(noise) for noise in (0.8, 1.5, 4.0)]
    results = train_population(toy_model(), toy_data(), run=runs, optimizers=[RULE] * 3, delta=1e-5)
    whole = composed(runs)
    for result in results:
        assert result.epsilon == pytest.approx(whole, rel=1e-9)
        assert result.statement.epsilon == result.epsilon
        assert result.epsilon_alone == pytest.approx(composed([result.run]), rel=1e-9)
    for wrong in (runs[:1], runs[:2], runs[1:], runs[::2], runs[:1] * 3, runs[1:2] * 3):
        assert abs(composed(wrong) - whole) > 1e-3 * whole


@pytest.mark.parametrize("noiseless", [0, 1, 2])
def test_one_run_without_noise_makes_the_whole_population_not_private(noiseless: int) -> None:
    runs = [RUN.with_noise(0.0 if i == noiseless else 1.0 + i) for i in range(3)]
    for delta in (1e-5, None):
        results = train_population(toy_model(), toy_data(), run=runs, optimizers=[RULE] * 3, delta=delta)
        assert all(result.epsilon == math.inf for result in results)
    stated = [replace(result, delta=1e-5).statement for result in results]
    assert all("NOT PRIVATE" in str(statement) for statement in stated)


@pytest.mark.parametrize("seed", [0, 1, -1])
def test_any_fixed_noise_seed_is_not_private(seed: int) -> None:
    result = train(toy_model(), toy_data(), run=RUN, optimizer=RULE, delta=1e-5, noise_seed=seed)
    assert "NOT PRIVATE" in str(result.statement)
    assert math.isfinite(result.epsilon)


def test_a_fractional_lot_is_sampled_divided_by_and_accounted_as_it_is() -> None:
    """2,000 steps of 4 runs: a lot of 7 on average in place of 7.5 would lie 17 deviations off; 6.2 are allowed."""
    run = Run(records=60, lot=7.5, steps=5, noise=1.0)
    assert run.rate == 0.125
    mechanism = assemble(toy_model(), toy_data(), run=run, optimizers=[RULE] * 4).population([0, 1, 2, 3])._mechanism
    assert mechanism.constants.lot == 7.5
    mechanism._start(2000)
    mean = mechanism._lots().counts.double().mean().item()
    assert abs(mean - 7.5) < stats.norm.isf(ALARM / 2) * math.sqrt(60 * 0.125 * 0.875 / 8000)
    step = dp_accounting.PoissonSampledDpEvent(0.125, dp_accounting.GaussianDpEvent(1.0))
    result = train(toy_model(), toy_data(), run=run, optimizer=RULE, delta=1e-5)
    event = dp_accounting.SelfComposedDpEvent(step, 5)
    assert result.epsilon == pytest.approx(accounting.epsilon(event, delta=1e-5), rel=1e-12)
