"""The noise is standard normal, seeded by the operating system, and can be saved and restored."""

from __future__ import annotations

import sys

import pytest
import torch
from scipy import stats

from honestdp.checks import InvalidArgument
from honestdp.noise import NoiseSource, SecureNoise, TorchNoise, noise_source, os_generator, split_seed

CPU = torch.device("cpu")
SOURCES = [TorchNoise]
try:
    import randomgen  # noqa: F401

    SOURCES.append(SecureNoise)
except ImportError:
    pass


@pytest.fixture(params=SOURCES, ids=lambda source: source.__name__)
def source(request: pytest.FixtureRequest) -> NoiseSource:
    return request.param(CPU, 5)


@pytest.mark.parametrize("numbers", [20_000, 200_000])
def test_noise_is_standard_normal(source: NoiseSource, numbers: int) -> None:
    """Kolmogorov-Smirnov at a false-alarm rate of 1e-6; a spread wrong by 15 % is caught."""
    drawn = source.normal(torch.empty(4, numbers // 4)).flatten().double().numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert stats.kstest(1.15 * drawn, "norm").pvalue < 1e-6


def test_no_number_is_drawn_twice(source: NoiseSource) -> None:
    first, second = source.normal(torch.empty(2, 100_000)), source.normal(torch.empty(2, 100_000))
    assert not first.equal(second)
    assert not first[0].equal(first[1])
    assert abs(torch.corrcoef(torch.stack([first[0], first[1], second[0], second[1]])) - torch.eye(4)).max() < 0.02


def test_a_restored_source_goes_on_where_it_was(source: NoiseSource) -> None:
    source.normal(torch.empty(1001))
    kept = [part.clone() for part in source.state()]
    expected = source.normal(torch.empty(300_001))
    source.normal(torch.empty(17))
    source.restore(kept)
    assert source.normal(torch.empty(300_001)).equal(expected)


def test_noise_drawn_by_two_threads_is_the_noise_of_the_bare_generators() -> None:
    """Shapes in any order, saved and restored anywhere."""

    def drawn(part: torch.Tensor, generator: torch.Generator) -> None:
        for piece in part.view(-1).split(1 << 14):
            first, second = (torch.empty_like(piece).normal_(std=0.5**0.5, generator=generator) for _ in range(2))
            piece.copy_(first + second)

    source, bare = TorchNoise(CPU, 9), [os_generator(CPU, split_seed(9, stream)) for stream in range(2)]
    for shape in ((4, 10_000), (4, 10_000), (7,), (2, 100_000), (4, 10_000), (3,), (2, 100_000), (2, 100_000)):
        kept = [part.clone() for part in source.state()]
        found = source.normal(torch.empty(shape))
        expected = torch.empty(shape)
        if expected.numel() >= 1 << 17:
            for part, generator in zip(expected.view(-1).tensor_split(2), bare, strict=True):
                drawn(part, generator)
        else:
            drawn(expected, bare[0])
        assert found.equal(expected)
        after = [part.clone() for part in source.state()]
        source.restore(kept)
        assert source.normal(torch.empty(shape)).equal(expected)
        assert all(one.equal(other) for one, other in zip(source.state(), after, strict=True))


def test_a_drawn_buffer_is_not_written_again() -> None:
    source = TorchNoise(CPU, 9)
    first = source.normal(torch.empty(50_000))
    copy = first.clone()
    second = source.normal(torch.empty(50_000))
    assert first.equal(copy)
    assert not second.equal(first)


@pytest.mark.parametrize("kind", SOURCES, ids=lambda kind: kind.__name__)
def test_unseeded_sources_differ_and_seeded_ones_repeat(kind: type) -> None:
    drawn = [kind(CPU).normal(torch.empty(8)) for _ in range(2)]
    assert not drawn[0].equal(drawn[1])
    assert kind(CPU, 3).normal(torch.empty(8)).equal(kind(CPU, 3).normal(torch.empty(8)))


def test_the_whole_state_of_the_twister_comes_from_the_operating_system() -> None:
    words = [os_generator(CPU).get_state()[24 : 24 + 8 * 624] for _ in range(2)]
    differing = (words[0].view(-1, 8)[:, :4] != words[1].view(-1, 8)[:, :4]).any(dim=1).sum()
    assert differing == 624
    seeded = os_generator(CPU, 1).get_state()
    assert seeded.equal(torch.Generator().manual_seed(1).get_state())


def _twister_of_ones() -> torch.Tensor:
    """A state from which the Mersenne twister gives 624 words of 32 one-bits: its tempering, undone."""
    mask = 2**32 - 1
    word = mask
    for undo in (
        lambda y, x: y ^ (x >> 18),
        lambda y, x: y ^ ((x << 15) & 0xEFC60000),
        lambda y, x: y ^ ((x << 7) & 0x9D2C5680),
        lambda y, x: y ^ (x >> 11),
    ):
        tempered = word
        for _ in range(32):
            word = undo(tempered, word) & mask
    state = torch.Generator().manual_seed(1).get_state()
    state[8:12].view(torch.int32)[0] = 624  # words left before the state is renewed
    state[24 : 24 + 8 * 624].view(torch.int64)[:] = word
    return state


def test_the_largest_noise_lies_beyond_eight_deviations() -> None:
    """The extreme uniforms are planted in the generator; one draw alone stops at 5.77."""
    source = TorchNoise(CPU, 1)
    source.generators[0].set_state(_twister_of_ones())
    assert torch.rand(16, generator=source.generators[0]).min() == 1 - 2.0**-24
    source.generators[0].set_state(_twister_of_ones())
    assert 5.7 < torch.empty(16).normal_(generator=source.generators[0]).max() < 5.8
    source.generators[0].set_state(_twister_of_ones())
    assert 8.1 < source.normal(torch.empty(16)).max() < 8.2


def test_torch_seed_does_not_reach_the_noise() -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        drawn.append(noise_source(CPU).normal(torch.empty(8)))
    assert not drawn[0].equal(drawn[1])


def test_seeds_for_different_purposes_differ() -> None:
    assert split_seed(None, 1) is None
    assert len({split_seed(7, purpose) for purpose in range(100)}) == 100


def test_secure_noise_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "randomgen", None)
    with pytest.raises(ImportError, match="pip install randomgen"):
        SecureNoise(CPU)


def test_secure_noise_is_refused_on_a_gpu() -> None:
    with pytest.raises(InvalidArgument, match="secure"):
        SecureNoise(torch.device("cuda"))
