"""The Gaussian mixture of Koskela & Honkela 2020: its densities, its trainings, and verdicts that follow the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributions

import honestdp
from honestdp.optimizers import SGD
from honestdp_papers.claims import FAILS, HOLDS, UNTOLD
from honestdp_papers.koskela2020 import PAPER, variational
from honestdp_papers.koskela2020.variational import (
    FIRSTS,
    KINDS,
    RATES,
    SIZE,
    Mixture,
    adadp,
    log_likelihood,
    log_prior,
    log_sticks,
    part_name,
    parted,
    records,
    trained,
)

Z = torch.randn(3, SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def constrained(z: Tensor) -> Tensor:
    """The first K - 1 parts, the means and tau: as many numbers as z has."""
    sticks, means, logs = parted(z)
    return torch.cat([log_sticks(sticks)[0].exp()[:-1], means.flatten(), logs.exp()])


def test_the_parts_of_a_broken_stick_are_all_of_it() -> None:
    torch.testing.assert_close(log_sticks(parted(Z)[0])[0].exp().sum(-1), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("place", range(3))
def test_the_prior_is_that_of_the_model_with_the_jacobian_of_the_way_to_z(place: int) -> None:
    z = Z[place]
    sticks, means, logs = parted(z)
    parts, tau = log_sticks(sticks)[0].exp(), logs.exp()
    jacobian = torch.autograd.functional.jacobian(constrained, z)
    wanted = (
        distributions.Dirichlet(torch.ones(KINDS, dtype=torch.float64)).log_prob(parts)
        + distributions.Normal(0, 1).log_prob(means).sum()
        + distributions.InverseGamma(torch.ones(KINDS).double(), torch.ones(KINDS).double()).log_prob(tau).sum()
        + torch.linalg.slogdet(jacobian)[1]
    )
    torch.testing.assert_close(log_prior(z), wanted)


def test_the_likelihood_is_that_of_the_mixture() -> None:
    x = records(7, seed=3).double()
    for place, z in enumerate(Z):
        sticks, means, logs = parted(z)
        each = distributions.Independent(distributions.Normal(means, logs.exp().sqrt()[:, None].expand(KINDS, 2)), 1)
        law = distributions.MixtureSameFamily(distributions.Categorical(logits=log_sticks(sticks)[0]), each)
        torch.testing.assert_close(log_likelihood(Z, x)[place], law.log_prob(x))


def test_the_bounds_of_all_records_are_the_evidence_bound() -> None:
    """By many draws: the sum of ln p(x_i | z) and ln p(z) - ln q(z)."""
    model, x = Mixture(records=50).double(), records(50, seed=3).double()
    torch.manual_seed(1)
    ours = torch.stack([model(x).sum().detach() for _ in range(300)])
    q = distributions.Normal(torch.zeros(SIZE).double(), torch.ones(SIZE).double())
    z = q.sample((3000,))
    wanted = log_likelihood(z, x).sum(1) + log_prior(z) - q.log_prob(z).sum(1)
    error = float((ours.var() / 300 + wanted.var() / 3000) ** 0.5)
    assert abs(float(ours.mean() - wanted.mean())) < 4 * error


def test_the_records_are_of_the_five_centres() -> None:
    x = records(20000, seed=4)
    torch.testing.assert_close(x.mean(0), torch.zeros(2), atol=0.05, rtol=0)
    torch.testing.assert_close(x.var(0), torch.full((2,), 1.8), atol=0.08, rtol=0)  # 1, and 4/5 of the centres'


def small(rules: Any, seed: int = 1) -> dict[str, Any]:
    run = honestdp.Run(records=1000, lot=20, steps=50, noise=1.2)
    return trained(rules, run, 2, seed, "cpu", lambda done: None)


@pytest.mark.slow
def test_a_training_is_repeated_by_its_seed_draws_and_all_and_looked_at_every_epoch() -> None:
    torch.manual_seed(3)
    found = small([SGD(lr=0.1, clip=1.0)])
    torch.manual_seed(4)
    again = small([SGD(lr=0.1, clip=1.0)])
    assert found["likelihood"].shape == (2, 1, 2)
    assert found["final"].shape == (2, 1, 2 * SIZE)
    assert np.array_equal(found["final"], again["final"])
    assert not np.array_equal(found["final"], small([SGD(lr=0.1, clip=1.0)], seed=2)["final"])
    assert not np.array_equal(found["final"][0], found["final"][1])
    assert (found["likelihood"][..., -1] > found["likelihood"][..., 0]).all()


def test_adadp_tells_its_step_size() -> None:
    found = small([adadp(0.01)])
    assert found["eta"].shape == (2, 1, 2)
    assert np.allclose(found["eta"][..., 0], 0.01)
    assert (found["eta"][..., -1] > 0.05).all()  # 25 iterations, each by 1.1 at most: 0.108 could be reached


# ---- Verdicts


def made_up(*, adadp_ends: float, spread: float = 0.001, apart: float = 1.0) -> Any:
    """Parts whose best DPVI ends at -3.6 and begins at -4.1. apart: a factor between step sizes that were found."""
    generator = np.random.default_rng(0)

    def lines(ends: list[float], looks: int) -> Any:
        way = np.linspace(0, 1, looks) ** 0.2
        found = -4.1 + (np.array(ends)[None, :, None] + 4.1) * way
        return found + spread * generator.normal(size=(6, len(ends), looks))

    parts = {}
    for noise in variational.STEPS:
        looks = variational.STEPS[noise] // variational.EPOCH + 1
        likelihood = lines([-3.8, -3.65, -3.6, -3.64, -3.7, -3.8, -3.9, -4.0], looks)
        eta = 0.3 * apart ** np.arange(len(FIRSTS))[None, :, None] * np.exp(0.01 * generator.normal(size=(6, 4, looks)))
        eta[..., 0] = FIRSTS
        parts[part_name(noise, "DPVI")] = {"likelihood": likelihood}
        parts[part_name(noise, "ADADP")] = {"likelihood": lines([adadp_ends] * 4, looks), "eta": eta}
    return parts


def verdicts(outcome: Any) -> list[str]:
    return [claim.verdict for claim in outcome.claims]


@pytest.mark.slow
@pytest.mark.parametrize("figure", ["figure5", "supplement-figure1"])
@pytest.mark.parametrize(
    ("ends", "spread", "expected"),
    [
        (-3.61, 0.001, [HOLDS, HOLDS, HOLDS]),
        (-3.75, 0.001, [FAILS, FAILS, HOLDS]),
        (-3.64, 0.3, [UNTOLD, UNTOLD, HOLDS]),
    ],
)
def test_competitive_is_within_a_tenth_of_what_dpvi_gains(
    figure: str, ends: float, spread: float, expected: list[str], tmp_path: Path
) -> None:
    outcome = PAPER.item(figure).finish(made_up(adadp_ends=ends, spread=spread), False)
    assert verdicts(outcome) == expected
    assert outcome.draw is not None
    outcome.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_one_step_size_is_found_or_it_is_not(tmp_path: Path) -> None:
    outcome = variational.figure6(made_up(adadp_ends=-3.61), False)
    assert verdicts(outcome) == [HOLDS] * 4
    assert verdicts(variational.figure6(made_up(adadp_ends=-3.61, apart=1.6), False))[0] == FAILS
    assert outcome.draw is not None
    outcome.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_a_step_size_that_dpvi_does_badly_with_is_not_suitable() -> None:
    parts = made_up(adadp_ends=-3.61)
    for noise in variational.STEPS:
        kept = parts[part_name(noise, "DPVI")]["likelihood"]
        kept[:, RATES.index(min(RATES, key=lambda rate: abs(np.log(rate / 0.3))))] -= 0.3
    assert verdicts(variational.figure6(parts, False))[1] == FAILS


def test_the_parts_of_both_noises_are_shared_by_the_figures() -> None:
    names = {
        part.name for part in (*PAPER.item("figure5").parts(False), *PAPER.item("supplement-figure1").parts(False))
    }
    assert {part.name for part in variational.parts6(False)} == names
    assert all(part.weight < 540 for part in variational.parts6(False))
