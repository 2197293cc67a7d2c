"""Releases lie on a public grid far below their noise, their last digits tell nothing, and their noise is the same whatever the
lot holds."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from honestdp.boundary import release as step
from honestdp.boundary import rounding
from honestdp.boundary.noise import CpuNoise, NoiseSource, SecureNoise
from honestdp.boundary.query import HALF_RANGE, Constants, Query, Release
from honestdp.boundary.records import Examples
from honestdp.boundary.release import PIECE, release
from honestdp.boundary.rounding import grid, noisy
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import layout_of, stack
from tests.toy_training import CPU, second_question, vetted_of

SOURCES = [CpuNoise, SecureNoise] if importlib.util.find_spec("randomgen") else [CpuNoise]
every_source = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
EXTRAS = ["none", "direction", "quantile", "norm"]


class Linear(nn.Module):
    """w x, from w = 0 unless said otherwise."""

    def __init__(self, features: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def plain(output: Tensor, y: Tensor) -> Tensor:
    """The gradient of a record is its x, whatever the weights."""
    return output


def released(
    x: Tensor, query: Query, source: NoiseSource, *, lot: float = 10.0, sigma: float = 2.0, piece: int = PIECE
) -> Release:
    """What leaves for a lot of the records x `[lot, features]`, whose gradients are the records themselves."""
    model = Linear(x.shape[1], x.dtype)
    layout = layout_of(model, CPU)
    constants = Constants(1000, lot, 1, torch.tensor([sigma], dtype=x.dtype), layout, torch.ones(1, dtype=x.dtype))
    pieces = [
        Examples(part[None], torch.zeros(1, len(part), dtype=x.dtype), torch.ones(1, len(part), dtype=x.dtype))
        for part in x.split(piece)
        if len(part)
    ]
    params = stack([model], layout, CPU)
    return release(pieces, params, query, vetted=vetted_of(model, plain), constants=constants, noise=source)


def asked(extra: str, dtype: torch.dtype, clip: float = 1.0) -> Query:
    number = torch.tensor([1.0], dtype=dtype)
    return Query(clip * number, second=second_question(extra, (14.0 if extra != "quantile" else 3.0) * number))


def test_the_grid_is_a_power_of_two_well_below_the_deviation() -> None:
    deviation = torch.cat([torch.logspace(-30, 30, 999), 2.0 ** torch.arange(-20.0, 20)])
    cells = grid(deviation)
    assert torch.frexp(cells)[0].eq(0.5).all()
    assert (deviation.double() / cells).min() >= 2**12
    assert (deviation.double() / cells).max() <= 2**13
    assert grid(torch.zeros(3)).eq(0).all()


@every_source
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("extra", EXTRAS)
def test_every_answer_is_a_multiple_of_its_grid(source: type, dtype: torch.dtype, extra: str) -> None:
    x = torch.randn(7, 500, generator=torch.Generator().manual_seed(1), dtype=dtype)
    found = released(x, asked(extra, dtype, clip=0.3), source(CPU, Seed.fixed(1)))
    share = {"none": 1.0, "direction": 14 / (14**2 - 2**2) ** 0.5, "quantile": 6 / (6**2 - 2**2) ** 0.5}
    share |= {"norm": (1 - (2 * HALF_RANGE / 14) ** 2) ** -0.5}
    deviations = {"gradient": 2 * share[extra] * 0.3 / 10}
    deviations |= {} if extra == "none" else {"second": (3 if extra == "quantile" else 14) / 10}
    centre = {"quantile": 0.5, "norm": HALF_RANGE}
    for name, deviation in deviations.items():
        values = getattr(found, name).double() - (centre.get(extra, 0) if name == "second" else 0)
        cells = values / grid(torch.tensor([deviation], dtype=torch.float64))
        assert cells.equal(cells.round()), name
        assert cells.ne(0).float().mean() > 0.9


def low_digits(values: Tensor, cell: float) -> np.ndarray:
    """How often each of 64 residues comes up among the multiples of `cell` / 64 that the values are."""
    places = (values.double() / cell * 64).round().long() % 64
    return np.bincount(places.flatten().numpy(), minlength=64)


def tells_apart(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two counts are of different laws, at a false-alarm rate of 1e-9."""
    seen = (one + other) > 0
    table = np.stack([one[seen], other[seen]])
    return table.shape[1] > 1 and stats.chi2_contingency(table).pvalue < 1e-9


def world(act: Callable[[Tensor], Tensor], record: bool) -> Tensor:
    """Releases of 200,000 coordinates from zero weights, with a record of many digits or without."""
    total = torch.full((1, 200_000), 0.0123456789 if record else 0.0)
    return act(total)


@every_source
def test_the_last_digits_of_a_release_do_not_tell_whether_a_record_was_there(source: type) -> None:
    """The attack: values that noise alone cannot take. It sees a plain float32 sum at once, and nothing of ours.

    Noise of deviation 1 is added to a sum 80 times smaller, so that the values themselves tell next to nothing.
    """
    deviation = torch.tensor([1.0])
    cell = grid(deviation).item()

    def ours(total: Tensor) -> Tensor:
        return noisy(total, deviation, source(CPU, Seed.fresh()), dtype=torch.float32)

    def naive(total: Tensor) -> Tensor:
        return source(CPU, Seed.fresh()).normal(tuple(total.shape)).float() + total

    for fineness in (1.0, 2.0, 8.0, 64.0):
        assert not tells_apart(*(low_digits(world(ours, there), fineness * cell) for there in (False, True)))
    # Near zero a float32 has more digits than 2^-26; what was added to a larger number has not.
    assert tells_apart(*(low_digits(world(naive, there), 2.0**-26) for there in (False, True)))


def test_rounding_is_to_the_nearest_multiple_and_comes_after_the_noise() -> None:
    total = torch.randn(3, 70_000, generator=torch.Generator().manual_seed(2))
    deviation = torch.tensor([0.1, 3.0, 0.0])
    found = noisy(total, deviation, CpuNoise(CPU, Seed.fixed(3)), dtype=torch.float64)
    source = CpuNoise(CPU, Seed.fixed(3))
    drawn = torch.stack(
        [torch.cat([source.normal((1, part)) for part in (32768, 32768, 4464)], 1)[0] for _ in range(3)]
    )
    exact = total.double() + drawn * deviation.double()[:, None]
    cells = grid(deviation)[:, None]
    assert ((found - exact).abs() <= cells / 2 + 1e-15).all()
    assert found[2].equal(total[2].double())
    assert (found[:2] - exact[:2]).abs().amax(1).gt(0.49 * cells[:2, 0]).all()


def test_noise_follows_its_law_on_the_grid() -> None:
    """Kolmogorov-Smirnov at 1e-6, on values a thousandth of the deviation apart; one wrong by 2 % is caught."""
    found = noisy(torch.zeros(1, 300_000), torch.tensor([0.37]), CpuNoise(CPU, Seed.fixed(4)), dtype=torch.float32)
    assert stats.kstest(found[0].double().numpy() / 0.37, "norm").pvalue > 1e-6
    assert stats.kstest(found[0].double().numpy() / 0.37 * 1.02, "norm").pvalue < 1e-6


LOTS = {
    "empty": torch.zeros(0, 40),
    "one record": torch.ones(1, 40),
    "tiny norms": 1e-9 * torch.randn(20, 40, generator=torch.Generator().manual_seed(1)),
    "small norms": 0.01 * torch.randn(20, 40, generator=torch.Generator().manual_seed(2)),
    "huge norms": 1e6 * torch.randn(20, 40, generator=torch.Generator().manual_seed(3)),
    "one huge": torch.cat([torch.zeros(19, 40), torch.full((1, 40), 1e9)]),
    "not numbers": torch.full((5, 40), torch.nan),
    "many": torch.randn(9000, 40, generator=torch.Generator().manual_seed(4)),
}


class Silence:
    """A noise source of zeros: what is left is the signal."""

    generators = ()

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64)


def noise_of(x: Tensor, query: Query) -> dict[str, Tensor]:
    """The noise in each answer for a lot, by taking away what is released without any."""
    whole, signal = (released(x.double(), query, source) for source in (CpuNoise(CPU, Seed.fixed(5)), Silence()))
    names = [name for name in ("gradient", "second") if getattr(whole, name) is not None]
    return {name: getattr(whole, name) - getattr(signal, name) for name in names}


@pytest.mark.usefixtures("fine_grid")
@pytest.mark.parametrize("name", LOTS)
@pytest.mark.parametrize("query", [*EXTRAS, "automatic"])
def test_the_noise_of_a_step_is_the_same_whatever_the_lot_holds(query: str, name: str) -> None:
    """With one seed, bit for bit but for the grid: no norm, no count and no value of the lot has a say in it."""
    automatic = query == "automatic"
    number = torch.tensor([0.7], dtype=torch.float64)
    question = Query(number, automatic=True) if automatic else asked(query, torch.float64, clip=0.7)
    expected, found = noise_of(LOTS["empty"], question), noise_of(LOTS[name], question)
    assert found.keys() == expected.keys()
    for part, values in expected.items():
        assert values.abs().max() > 0.01
        torch.testing.assert_close(found[part], values, rtol=0, atol=1e-12)
    deviation = 2.0 * (1.0 if automatic else 0.7) / 10
    if query in ("none", "automatic"):
        drawn = CpuNoise(CPU, Seed.fixed(5)).normal((1, 40))
        torch.testing.assert_close(expected["gradient"], drawn * deviation, rtol=1e-9, atol=0)


def moved_by_the_last(x: Tensor, monkeypatch: pytest.MonkeyPatch, extra: str = "none") -> float:
    """By how many clips the last record moves a sum without noise; `extra`: that of the second answer, by how much."""
    query, answer = asked(extra, torch.float32), "gradient" if extra == "none" else "second"
    # The sum itself: what leaves is noisy first, and of as few digits as the model's weights.
    monkeypatch.setattr(step, "noisy", lambda total, deviation, source, dtype, ranks: total.double())
    sent = (released(part, query, Silence(), lot=1.0, sigma=0.0) for part in (x, x[:-1]))
    whole, without = (getattr(one, answer) for one in sent)
    return (whole - without).norm().item()


@pytest.mark.slow
@pytest.mark.parametrize("records", [4096, 100_000, 1_000_000])
def test_no_record_moves_a_long_sum_by_more_than_its_clip(records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that point the same way: every partial sum is as long as it can be, and rounds as much."""
    one = torch.randn(8, generator=torch.Generator().manual_seed(3)) * 3
    assert moved_by_the_last(one.expand(records, 8).contiguous(), monkeypatch) <= 1.0
    spread = one * torch.rand(records, 1, generator=torch.Generator().manual_seed(4)).add(0.5)
    assert moved_by_the_last(spread, monkeypatch) <= 1.0


@pytest.mark.slow
def test_one_long_sum_in_float32_would_move_by_more(monkeypatch: pytest.MonkeyPatch) -> None:
    one = torch.randn(8, generator=torch.Generator().manual_seed(3)) * 3
    monkeypatch.setattr(step, "_plus", lambda total, piece: piece if total is None else total.add_(piece))
    monkeypatch.setattr(step, "_margin", lambda params, terms: 0.0)
    monkeypatch.setattr(step, "_summed_in", lambda params, terms: torch.float32)
    assert moved_by_the_last(one.expand(1_000_000, 8).contiguous(), monkeypatch) > 1.001


def drifting(n: int, held_back: float) -> Tensor:
    """Gradients `[n, 1]` whose partial sums, with the first record, lie just above a power of two, and without it just below:
    every later one is then rounded otherwise. Made for weights of (1 - held_back) / n.
    """
    share, unit = (1 - held_back) / n, 2.0**-25
    many = int(0.5 / share)
    x = torch.zeros(n, 1, dtype=torch.float64)
    x[1 : many + 1] = 1
    x[many + 1] = (0.5 - many * share - 8 * unit) / share
    rest = torch.tensor([1.2, -0.8], dtype=torch.float64).repeat(n)[: n - many - 2]
    x[many + 2 :, 0] = rest * unit / share
    return x.float()


@pytest.mark.parametrize("n", [100, 200, 330, 400, 1000, 4096])
def test_no_record_moves_a_sum_by_more_than_its_clip_where_rounding_drifts(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a layer with a rule and through one without; with the margin in force, and made for it."""
    monkeypatch.setattr(step, "noisy", lambda total, deviation, source, dtype, ranks: total.double())
    plain_layer = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(plain_layer.weight)
    for model in (plain_layer, Linear(1)):
        layout = layout_of(model, CPU)
        constants = Constants(n, float(n), 1, torch.tensor([0.0]), layout, torch.ones(1))
        params = stack([model], layout, CPU)
        terms = step._terms(constants, n)
        without = drifting(n, step._margin(params, terms))
        whole = without.clone()
        whole[0] = 1
        sums = []
        for x in (whole, without):
            lot = [Examples(x[None], torch.zeros(1, n), torch.ones(1, n))]
            vetted = vetted_of(model, lambda output, y: output.reshape(len(y)))
            found = release(
                lot,
                params,
                Query(torch.tensor([1.0])),
                vetted=vetted,
                constants=constants,
                noise=Silence(),
                width=n,
            )
            sums.append(found.gradient * n)
        assert (sums[0] - sums[1]).norm().item() <= 1.0


def test_a_float32_sum_of_many_without_a_margin_does_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "_margin", lambda params, terms: 0.0)
    monkeypatch.setattr(step, "_summed_in", lambda params, terms: torch.float32)
    with pytest.raises(AssertionError):
        test_no_record_moves_a_sum_by_more_than_its_clip_where_rounding_drifts(330, monkeypatch)


@pytest.mark.parametrize("extra", ["none", "direction"])
@pytest.mark.parametrize("seed", range(20))
def test_the_margin_covers_what_a_piece_rounds(seed: int, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any record of a full piece, whatever its neighbours: lengths from tiny to clipped, few or many directions."""
    maker = torch.Generator().manual_seed(seed)
    directions = torch.randn(1 + seed % 3, 33, generator=maker)
    chosen = torch.randint(0, len(directions), (PIECE,), generator=maker)
    x = directions[chosen] * 10 ** torch.empty(PIECE, 1).uniform_(-3, 3, generator=maker)
    x[-1] = directions[0] * 1e3
    assert moved_by_the_last(x, monkeypatch, extra) <= 1.0


@pytest.mark.parametrize(("records", "lot"), [(60, 20), (1000, 10), (60_000, 256), (60_000, 512), (10**6, 5000)])
def test_the_margin_is_made_for_lots_that_hardly_one_in_a_billion_exceeds(records: int, lot: int) -> None:
    """Of pieces of 8 a lot has many: how long it may be is then its law's alone."""
    constants = Constants(records, float(lot), 1, torch.ones(1), layout_of(Linear(1), CPU), torch.ones(1))
    law = stats.binom(records, lot / records)
    assert law.sf(step._terms(constants, 8) / 8) < 1e-9
    assert law.sf(lot) > 0.3


def test_a_piece_wider_than_declared_is_refused() -> None:
    with pytest.raises(RuntimeError, match="wider"):
        released(torch.ones(PIECE + 1, 2), Query(torch.tensor([1.0])), Silence(), piece=PIECE + 1)


def test_the_fineness_is_read_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests of the engine make the grid finer; this is what they rely on."""
    before = grid(torch.tensor([1.0])).item()
    monkeypatch.setattr(rounding, "FINENESS", 2.0**-48)
    assert grid(torch.tensor([1.0])).item() == before * 2.0**-35
