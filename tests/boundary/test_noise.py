"""The noise is standard normal, seeded by the operating system, and can be saved and restored."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from honestdp.boundary.noise import CpuNoise, NoiseSource, SecureNoise, noise_source, torch_generator
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument

CPU = torch.device("cpu")
SOURCES = [CpuNoise]
try:
    import randomgen  # noqa: F401

    SOURCES.append(SecureNoise)
except ImportError:
    pass


@pytest.fixture(params=SOURCES, ids=lambda source: source.__name__)
def source(request: pytest.FixtureRequest) -> NoiseSource:
    return request.param(CPU, Seed.fixed(5))


@pytest.mark.parametrize("numbers", [20_000, 200_000])
def test_noise_is_standard_normal(source: NoiseSource, numbers: int) -> None:
    """Kolmogorov-Smirnov at a false-alarm rate of 1e-6; a spread wrong by 15 % is caught."""
    drawn = source.normal((4, numbers // 4)).flatten().numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert stats.kstest(1.15 * drawn, "norm").pvalue < 1e-6


def test_no_number_is_drawn_twice(source: NoiseSource) -> None:
    first, second = source.normal((2, 100_000)), source.normal((2, 100_000))
    assert not first.equal(second)
    assert not first[0].equal(first[1])
    assert abs(torch.corrcoef(torch.stack([first[0], first[1], second[0], second[1]])) - torch.eye(4)).max() < 0.02


def test_a_restored_source_goes_on_where_it_was(source: NoiseSource) -> None:
    source.normal((1001,))
    kept = [part.clone() for part in source.state()]
    expected = source.normal((300_001,))
    source.normal((17,))
    source.restore(kept)
    assert source.normal((300_001,)).equal(expected)


def box_muller(numbers: int, bits: np.random.SFC64) -> torch.Tensor:
    """Box and Muller's transform of numpy's own numbers, written plainly."""
    half = -(-numbers // 2)
    uniform = np.random.Generator(bits).random(half)
    words = bits.random_raw(-(-half // 2)).view(np.int32)[:half]
    radius, angle = np.sqrt(-2 * np.log1p(-uniform)), np.pi * (words / 2.0**31)
    return torch.from_numpy(np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:numbers])


def test_noise_is_the_transform_of_the_bare_generator() -> None:
    """Shapes in any order, saved and restored anywhere."""
    source, bare = CpuNoise(CPU, Seed.fixed(9)), CpuNoise(CPU, Seed.fixed(9))._bits
    for shape in ((4, 10_000), (4, 10_000), (7,), (2, 100_000), (4, 10_000), (3,), (2, 100_000), (1,)):
        kept = [part.clone() for part in source.state()]
        found = source.normal(shape)
        torch.testing.assert_close(found, box_muller(found.numel(), bare).view(shape), rtol=1e-5, atol=1e-6)
        after = [part.clone() for part in source.state()]
        source.restore(kept)
        assert source.normal(shape).equal(found)
        assert all(one.equal(other) for one, other in zip(source.state(), after, strict=True))


def test_noise_starts_no_thread() -> None:
    """A second thread that calls torch would slow every later product of the process."""
    before = threading.active_count()
    CpuNoise(CPU, Seed.fresh()).normal((16, 79_510))
    assert threading.active_count() == before


def test_the_two_numbers_of_a_pair_are_independent() -> None:
    """They share a radius, so it is their squares that would betray it. False-alarm rate 1e-9; a shared angle is caught."""
    drawn = CpuNoise(CPU, Seed.fixed(2)).normal((100_000,)).view(2, -1)
    for values in (drawn, drawn.square(), drawn.abs().log()):
        assert abs(torch.corrcoef(values)[0, 1]) < 6 / 50_000**0.5
    shared = torch.stack([drawn[0], drawn[0] * 0.5])
    assert abs(torch.corrcoef(shared.square())[0, 1]) > 0.9


def test_noise_has_the_digits_of_a_float64(source: NoiseSource) -> None:
    drawn = source.normal((20_001,))
    assert drawn.dtype == torch.float64
    assert stats.kstest(drawn.numpy(), "norm").pvalue > 1e-6
    assert (drawn != drawn.float().double()).float().mean() > 0.99


def test_a_drawn_buffer_is_not_written_again() -> None:
    source = CpuNoise(CPU, Seed.fixed(9))
    first = source.normal((50_000,))
    copy = first.clone()
    second = source.normal((50_000,))
    assert first.equal(copy)
    assert not second.equal(first)


@pytest.mark.parametrize("kind", SOURCES, ids=lambda kind: kind.__name__)
def test_unseeded_sources_differ_and_seeded_ones_repeat(kind: type) -> None:
    drawn = [kind(CPU, Seed.fresh()).normal((8,)) for _ in range(2)]
    assert not drawn[0].equal(drawn[1])
    assert kind(CPU, Seed.fixed(3)).normal((8,)).equal(kind(CPU, Seed.fixed(3)).normal((8,)))


def test_the_whole_state_of_the_twister_comes_from_the_seed() -> None:
    words = [torch_generator(CPU, Seed.fresh()).get_state()[24 : 24 + 8 * 624] for _ in range(2)]
    differing = (words[0].view(-1, 8)[:, :4] != words[1].view(-1, 8)[:, :4]).any(dim=1).sum()
    assert differing == 624
    again = [torch_generator(CPU, Seed.fixed(1)).get_state() for _ in range(2)]
    assert again[0].equal(again[1])


def test_the_largest_noise_lies_beyond_eight_deviations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extreme uniform, straight ahead; with the 24 bits of a float32 it would stop at 5.77."""

    class Extreme:
        def random(self, count: int) -> np.ndarray:
            return np.full(count, 1 - 2.0**-53)

        def random_raw(self, count: int) -> np.ndarray:
            return np.zeros(count, np.uint64)

    source = CpuNoise(CPU, Seed.fixed(1))
    monkeypatch.setattr(source, "_uniform", Extreme())
    monkeypatch.setattr(source, "_bits", Extreme())
    assert source.normal((2,)).tolist() == pytest.approx([8.5717, 0.0], abs=1e-3)


def test_a_uniform_of_zero_gives_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    source = CpuNoise(CPU, Seed.fixed(1))
    monkeypatch.setattr(source, "_uniform", SimpleNamespace(random=np.zeros))
    assert source.normal((4,)).isfinite().all()


def test_torch_seed_does_not_reach_the_noise() -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        drawn.append(noise_source(CPU, Seed.fresh()).normal((8,)))
    assert not drawn[0].equal(drawn[1])


def test_secure_noise_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "randomgen", None)
    with pytest.raises(ImportError, match="pip install randomgen"):
        SecureNoise(CPU, Seed.fresh())


def test_secure_noise_is_refused_on_a_gpu() -> None:
    with pytest.raises(InvalidArgument, match="secure"):
        SecureNoise(torch.device("cuda"), Seed.fresh())
