"""Lots are Poisson samples: each record with the declared rate, independently of the others, of the runs and of the
steps.

Every chi-square test below alarms falsely with probability 1e-6 (its threshold is the 1 - 1e-6 quantile), and is also
shown to catch a planted fault.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from honestdp.boundary.noise import torch_generator
from honestdp.boundary.sampling import Lots, PendingLots, _gaps, block_steps
from honestdp.boundary.seed import Seed

CPU = torch.device("cpu")
FALSE_ALARM = 1e-6


def membership(lots: Lots, records: int) -> Tensor:
    """[steps, runs, records], 1 where the record is in the lot."""
    steps, runs, width = lots.indices.shape
    present = torch.arange(width) < lots.counts[..., None]
    table = torch.zeros(steps, runs, records + 1)
    table.scatter_(2, torch.where(present, lots.indices, records), 1.0)
    return table[..., :records]


def draw(seed: int, *, records: int, rate: float, steps: int, runs: int, gaps: int | None = None) -> Tensor:
    generator = torch_generator(CPU, Seed.fixed(seed))
    lots = PendingLots(generator, records=records, rate=rate, steps=steps, runs=runs, gaps=gaps)
    return membership(lots.finish(), records)


def binomial_alarm(counts: Tensor, trials: int, chance: float) -> bool:
    """Chi-square of independent counts against Binomial(trials, chance)."""
    expected = trials * chance
    statistic = ((counts - expected) ** 2 / (expected * (1 - chance))).sum().item()
    return statistic > stats.chi2.isf(FALSE_ALARM, counts.numel())


@pytest.mark.parametrize("rate", [0.004, 0.05, 0.5, 0.97])
def test_every_record_is_included_with_the_declared_rate(rate: float) -> None:
    table = draw(1, records=200, rate=rate, steps=4000, runs=3)
    assert not binomial_alarm(table.sum(dim=(0, 1)), 12000, rate)
    planted = {0.004: 0.005, 0.05: 0.053, 0.5: 0.49, 0.97: 0.96}[rate]
    assert binomial_alarm(table.sum(dim=(0, 1)), 12000, planted)


def test_pairs_of_records_are_included_independently() -> None:
    table = draw(2, records=40, rate=0.2, steps=10000, runs=1)[:, 0]
    together = table.T @ table
    pairs = together[torch.triu(torch.ones(40, 40), 1) == 1]
    assert not binomial_alarm(pairs, 10000, 0.04)
    fixed_size = torch.zeros_like(table)
    fixed_size.scatter_(1, torch.rand(10000, 40, generator=torch_generator(CPU, Seed.fixed(3))).argsort(1)[:, :8], 1.0)
    together = fixed_size.T @ fixed_size
    assert binomial_alarm(together[torch.triu(torch.ones(40, 40), 1) == 1], 10000, 0.04)


def test_runs_of_a_population_draw_independent_lots() -> None:
    table = draw(4, records=60, rate=0.1, steps=6000, runs=4)
    shared = [(table[:, a] * table[:, b]).sum(dim=0) for a in range(4) for b in range(a)]
    assert not binomial_alarm(torch.stack(shared), 6000, 0.01)
    same_lots = table[:, :1].expand(-1, 4, -1)
    assert binomial_alarm((same_lots[:, 0] * same_lots[:, 1]).sum(dim=0), 6000, 0.01)


def test_successive_steps_draw_independent_lots() -> None:
    table = draw(5, records=60, rate=0.1, steps=12001, runs=1)[:, 0]
    assert not binomial_alarm((table[:-1] * table[1:]).sum(dim=0), 12000, 0.01)


def test_lot_sizes_have_the_binomial_law() -> None:
    sizes = draw(6, records=500, rate=0.02, steps=20000, runs=1).sum(dim=2).flatten()
    edges = list(range(3, 19))
    law = stats.binom(500, 0.02)
    chances = [law.cdf(3)] + [law.pmf(k) for k in range(4, 18)] + [law.sf(17)]
    observed = (
        [(sizes <= 3).sum().item()] + [(sizes == k).sum().item() for k in range(4, 18)] + [(sizes > 17).sum().item()]
    )
    statistic = sum((o - 20000 * c) ** 2 / (20000 * c) for o, c in zip(observed, chances, strict=True))
    assert statistic < stats.chi2.isf(FALSE_ALARM, len(edges) - 1)


def test_small_rates_are_exact_where_float32_would_not_be() -> None:
    """Gaps of a hundred million end on every record alike; in float32 they would all be multiples of eight."""
    records, rate = 2_000_000_000, 1e-8
    lots = PendingLots(torch_generator(CPU, Seed.fixed(7)), records=records, rate=rate, steps=64, runs=100).finish()
    present = torch.arange(lots.indices.shape[-1]) < lots.counts[..., None]
    chosen = lots.indices[present]
    tenths = torch.histc(chosen.double(), bins=10, min=0, max=records)
    expected = 6400 * rate * records / 10
    assert ((tenths - expected) ** 2 / expected).sum().item() < stats.chi2.isf(FALSE_ALARM, 10)
    first = lots.indices[..., 0][lots.counts > 0]
    counts = torch.bincount(first % 8, minlength=8).double()
    expected = first.numel() / 8
    assert ((counts - expected) ** 2 / expected).sum().item() < stats.chi2.isf(FALSE_ALARM, 7)
    rounded = torch.bincount(first.float().long() % 8, minlength=8).double()
    assert ((rounded - expected) ** 2 / expected).sum().item() > stats.chi2.isf(FALSE_ALARM, 7)


def test_the_longest_gaps_are_of_more_digits_than_one_random_number_has() -> None:
    """At a rate of 1e-15 U can be read off its gap, and below 2^-12 to a hundredth of 2^-53, of which torch's are multiples."""
    rate, count = 1e-15, 1 << 22

    def alarm(gaps: Tensor) -> bool:
        uniform = np.exp((gaps.numpy() + 0.5) * math.log1p(-rate))
        beyond = uniform[uniform < 2.0**-12] * 2.0**53 % 1
        assert len(beyond) > 800
        return bool(stats.kstest(beyond, "uniform").pvalue < FALSE_ALARM)

    assert not alarm(_gaps(torch_generator(CPU, Seed.fixed(11)), 10**18, rate, (count,)))
    coarse = torch.rand(count, dtype=torch.float64, generator=torch_generator(CPU, Seed.fixed(11)))
    assert alarm(coarse.log_().div_(math.log1p(-rate)).long())


def test_lots_longer_than_the_first_draw_are_finished_not_truncated() -> None:
    narrow = draw(8, records=200, rate=0.3, steps=2000, runs=2, gaps=5)
    assert not binomial_alarm(narrow.sum(dim=(0, 1)), 4000, 0.3)
    truncated = draw(8, records=200, rate=0.3, steps=2000, runs=2).cumsum(dim=2) <= 50
    assert binomial_alarm((draw(8, records=200, rate=0.3, steps=2000, runs=2) * truncated).sum(dim=(0, 1)), 4000, 0.3)


def test_rate_one_takes_every_record_every_step() -> None:
    assert draw(9, records=17, rate=1.0, steps=3, runs=2).eq(1).all()


def test_indices_rise_and_counts_agree() -> None:
    lots = PendingLots(torch_generator(CPU, Seed.fixed(10)), records=100, rate=0.1, steps=50, runs=3).finish()
    for step in range(50):
        assert lots.longest[step] == lots.counts[step].max().item()
        for run in range(3):
            own = lots.indices[step, run, : int(lots.counts[step, run])]
            assert (own.diff() > 0).all()
            assert own.numel() == 0 or (own.min() >= 0 and own.max() < 100)


def test_blocks_are_bounded_in_memory() -> None:
    assert block_steps(records=60000, rate=250 / 60000, runs=40) == 64
    assert block_steps(records=10**7, rate=0.1, runs=100) == 1
    assert block_steps(records=60000, rate=1 / 6, runs=30) == 8


def test_two_generators_of_the_operating_system_differ() -> None:
    first = PendingLots(torch_generator(CPU, Seed.fresh()), records=1000, rate=0.1, steps=1, runs=1).finish()
    second = PendingLots(torch_generator(CPU, Seed.fresh()), records=1000, rate=0.1, steps=1, runs=1).finish()
    assert first.indices.shape != second.indices.shape or not first.indices.equal(second.indices)
