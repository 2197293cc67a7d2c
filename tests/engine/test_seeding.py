"""Where every seed comes from: noise and lots from the operating system, each by itself, with all of their bits."""

from __future__ import annotations

import sys
from functools import reduce
from operator import and_, or_
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from honestdp import Run, mechanism
from honestdp import optimizers as rules
from honestdp.mechanism import Mechanism
from honestdp.noise import CpuNoise, SecureNoise, os_generator
from honestdp.release import Query
from honestdp.training import assemble

from .worlds import CPU, constants_of, intake_of, toy_data, toy_model

RUN = Run(records=60, lot=30, steps=8, noise=1.0)
RULE = rules.SGD(lr=0.1, clip=1.0)


def made(seed: int | None = None) -> Mechanism:
    intake = intake_of(toy_model(), toy_data())
    constants = constants_of(intake, records=60, lot=30.0, steps=8, noise=[1.0, 1.0])
    return intake.mechanism(constants, seed=seed, secure=False)


def noise_of(one: Mechanism) -> Tensor:
    """An empty lot is pure noise."""
    params = torch.zeros(len(one.constants.noise), one.constants.layout.width, dtype=torch.float64)
    return one.release_of([], params, Query(clip=torch.ones_like(one.constants.noise))).gradient


def members_of(one: Mechanism) -> list[list[int]]:
    one.start(8)
    lots = one.lots()
    return [row[:count].tolist() for row, count in zip(lots.indices[:, 0], lots.counts[:, 0].tolist(), strict=True)]


def test_two_unseeded_mechanisms_share_neither_noise_nor_lots() -> None:
    """Each by itself: a constant seed of the one must not hide behind the randomness of the other."""
    first, second = made(), made()
    assert not (noise_of(first) == noise_of(second)).any()
    assert members_of(first) != members_of(second)
    again = [made(seed=3), made(seed=3)]
    assert noise_of(again[0]).equal(noise_of(again[1]))
    assert members_of(again[0]) == members_of(again[1])


def test_two_unseeded_trainings_share_neither_noise_nor_lots() -> None:
    mechanisms = []
    for _ in range(2):
        job = assemble(toy_model(), toy_data(), run=RUN, optimizers=[RULE] * 2)
        mechanisms.append(job.population([0, 1])._mechanism)
    assert not (noise_of(mechanisms[0]) == noise_of(mechanisms[1])).any()
    assert members_of(mechanisms[0]) != members_of(mechanisms[1])


@pytest.mark.parametrize("seed", [None, 1])
def test_two_chunks_of_one_training_share_neither_noise_nor_lots(seed: int | None) -> None:
    job = assemble(toy_model(), toy_data(), run=RUN, optimizers=[RULE] * 4, noise_seed=seed)
    first, second = (job.population(chunk)._mechanism for chunk in ([0, 1], [2, 3]))
    assert not (noise_of(first) == noise_of(second)).any()
    assert members_of(first) != members_of(second)


def test_the_runs_of_one_chunk_share_neither_noise_nor_lots() -> None:
    one = made()
    drawn = noise_of(one)
    assert not (drawn[0] == drawn[1]).any()
    one.start(8)
    lots = one.lots()
    assert not lots.indices[:, 0].equal(lots.indices[:, 1])


def test_a_fixed_seed_gives_noise_and_lots_different_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, int | None] = {}
    true_source, true_generator = mechanism.noise_source, mechanism.os_generator

    def source(device: torch.device, *, seed: int | None, secure: bool) -> object:
        given["noise"] = seed
        return true_source(device, seed=seed, secure=secure)

    def generator(device: torch.device, seed: int | None) -> torch.Generator:
        given["lots"] = seed
        return true_generator(device, seed)

    monkeypatch.setattr(mechanism, "noise_source", source)
    monkeypatch.setattr(mechanism, "os_generator", generator)
    made(seed=7)
    assert None not in given.values()
    assert len({7, *given.values()}) == 3
    made()
    assert given == {"noise": None, "lots": None}


def every_bit_is_drawn(seeds: list[int], bits: int) -> bool:
    """Each bit is 1 in one seed and 0 in another. With 64 fair seeds one of 128 bits fails that in 1e-17 of cases."""
    return reduce(or_, seeds) == (1 << bits) - 1 and reduce(and_, seeds) == 0


def test_a_gpu_generator_is_seeded_with_63_bits_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    class Generator:
        def __init__(self, device: torch.device) -> None:
            self.device = device

        def manual_seed(self, seed: int) -> None:
            seeds.append(seed)

    monkeypatch.setattr(torch, "Generator", Generator)
    for _ in range(64):
        assert os_generator(torch.device("cuda")).device.type == "cuda"
    assert every_bit_is_drawn(seeds, 63)
    assert not every_bit_is_drawn([seed % (1 << 16) for seed in seeds], 63)
    os_generator(torch.device("cuda"), 11)
    assert seeds[64:] == [11]


def test_all_words_of_the_twister_come_from_the_operating_system_and_not_from_its_first_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one first seed for both, what was not filled is equal. Some word is equal by chance in 2e-7 of cases."""
    monkeypatch.setattr("honestdp.noise.secrets.randbits", lambda bits: 5)
    words = [os_generator(CPU).get_state()[24 : 24 + 8 * 624].view(-1, 8)[:, :4] for _ in range(2)]
    assert (words[0] != words[1]).any(dim=1).sum() == 624


def test_the_key_of_the_secure_generator_has_128_bits_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[int] = []

    def counter(*, key: int) -> np.random.BitGenerator:
        keys.append(key)
        return np.random.PCG64(key)

    monkeypatch.setitem(sys.modules, "randomgen", SimpleNamespace(AESCounter=counter))
    for _ in range(64):
        SecureNoise(CPU)
    assert every_bit_is_drawn(keys, 128)
    assert not every_bit_is_drawn([key % (1 << 16) for key in keys], 128)


def test_unseeded_sources_differ_in_every_word_of_their_state() -> None:
    """A word is equal by chance in 1e-18 of cases."""
    states = [CpuNoise(CPU).state()[0][:3] for _ in range(4)]
    assert all((one != other).all() for i, one in enumerate(states) for other in states[:i])


def test_unseeded_sources_are_seeded_with_128_bits_of_the_operating_system() -> None:
    sources = [CpuNoise(CPU) for _ in range(64)]
    assert every_bit_is_drawn([source._bits.seed_seq.entropy for source in sources], 128)
