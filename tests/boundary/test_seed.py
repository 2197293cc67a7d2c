"""Where every seed comes from: a secret of the operating system, with children of their own for noise and lots."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from honestdp import Run
from honestdp import optimizers as rules
from honestdp.augment import CropAndFlip
from honestdp.boundary import mechanism
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.noise import CpuNoise, SecureNoise, torch_generator
from honestdp.boundary.query import Query
from honestdp.boundary.seed import Seed
from honestdp.training.spec import TrainSpec
from honestdp.training.train import assemble
from tests.toy_training import CPU, constants_of, intake_of, toy_data, toy_model

RUN = Run(records=60, lot=30, steps=8, noise=1.0)
RULE = rules.SGD(lr=0.1, clip=1.0)


def made(seed: int | None = None) -> Mechanism:
    intake = intake_of(toy_model(), toy_data())
    constants = constants_of(intake, records=60, lot=30.0, steps=8, noise=[1.0, 1.0])
    return intake.mechanism(constants, seed=Seed.fresh() if seed is None else Seed.fixed(seed), secure=False)


def noise_of(one: Mechanism) -> Tensor:
    """An empty lot is pure noise."""
    params = torch.zeros(len(one.constants.noise), one.constants.layout.width, dtype=torch.float64)
    return one._release([], params, Query(clip=torch.ones_like(one.constants.noise))).gradient


def differ(one: Tensor, other: Tensor) -> bool:
    """Whether noises were drawn apart. Rounded to the same grid, two numbers are equal once in 10,000 pairs: of fewer than a
    hundred, more than five once in 10^15 times.
    """
    return int((one == other).sum()) <= 5


def members_of(one: Mechanism) -> list[list[int]]:
    one._start(8)
    lots = one._lots()
    return [row[:count].tolist() for row, count in zip(lots.indices[:, 0], lots.counts[:, 0].tolist(), strict=True)]


def children_of(make: Callable[[Seed], Any]) -> list[tuple[object, ...]]:
    """The names of the children that are taken of one seed, in the order in which they are."""
    taken: list[tuple[object, ...]] = []
    original, whole = Seed.child, Seed.fixed(1)

    def noted(self: Seed, *names: Any) -> Seed:
        taken.extend([names] if self is whole else [])
        return original(self, *names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Seed, "child", noted)
        make(whole)
    return taken


@pytest.mark.slow
def test_noise_lots_and_variants_are_drawn_from_seeds_apart() -> None:
    """Numbers of one stream that serve two ends would tell of the noise by what they chose."""
    images = PrivateData((torch.rand(60, 1, 4, 4), torch.randint(0, 2, (60,)))).augmented(CropAndFlip(pad=1))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    intake = take_in(model, images, records=60, loss=None, device=CPU, workers=0, lot=30.0)
    constants = constants_of(intake, records=60, lot=30.0, steps=8, noise=[1.0])
    taken = children_of(lambda seed: intake.mechanism(constants, seed=seed, secure=False))
    assert {("noise",), ("lots",), ("augmentation",)} <= set(taken)
    assert len(taken) == len(set(taken))


def test_of_a_round_too() -> None:
    intake = intake_of(toy_model(), toy_data())
    constants = constants_of(intake, records=60, lot=30.0, steps=8, noise=[1.0])
    rounds = intake.mechanism(constants, seed=Seed.fresh(), secure=False)
    taken = children_of(lambda seed: rounds.begin(seed, made=0))
    assert {("noise",), ("lots",)} <= set(taken)
    assert len(taken) == len(set(taken))


def test_two_unseeded_mechanisms_share_neither_noise_nor_lots() -> None:
    """Each by itself: a constant seed of the one must not hide behind the randomness of the other."""
    first, second = made(), made()
    assert differ(noise_of(first), noise_of(second))
    assert members_of(first) != members_of(second)
    again = [made(seed=3), made(seed=3)]
    assert noise_of(again[0]).equal(noise_of(again[1]))
    assert members_of(again[0]) == members_of(again[1])


def test_two_unseeded_trainings_share_neither_noise_nor_lots() -> None:
    mechanisms = []
    for _ in range(2):
        job = assemble(toy_model(), toy_data(), run=RUN, optimizers=[RULE] * 2)
        mechanisms.append(job.population([0, 1])._mechanism)
    assert differ(noise_of(mechanisms[0]), noise_of(mechanisms[1]))
    assert members_of(mechanisms[0]) != members_of(mechanisms[1])


@pytest.mark.parametrize("seed", [None, 1])
def test_two_chunks_of_one_training_share_neither_noise_nor_lots(seed: int | None) -> None:
    job = assemble(toy_model(), toy_data(), run=RUN, optimizers=[RULE] * 4, spec=TrainSpec(noise_seed=seed))
    first, second = (job.population(chunk)._mechanism for chunk in ([0, 1], [2, 3]))
    assert differ(noise_of(first), noise_of(second))
    assert members_of(first) != members_of(second)


def test_the_runs_of_one_chunk_share_neither_noise_nor_lots() -> None:
    one = made()
    drawn = noise_of(one)
    assert differ(drawn[0], drawn[1])
    one._start(8)
    lots = one._lots()
    assert not lots.indices[:, 0].equal(lots.indices[:, 1])


def test_noise_and_lots_have_different_children_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: dict[str, Seed] = {}
    true_source, true_generator = mechanism.noise_source, mechanism.torch_generator

    def source(device: torch.device, seed: Seed, *, secure: bool) -> object:
        seeds["noise"] = seed
        return true_source(device, seed, secure=secure)

    def generator(device: torch.device, seed: Seed) -> torch.Generator:
        seeds["lots"] = seed
        return true_generator(device, seed)

    monkeypatch.setattr(mechanism, "noise_source", source)
    monkeypatch.setattr(mechanism, "torch_generator", generator)
    made(seed=7)
    assert len({Seed.fixed(7).key, *(seed.key for seed in seeds.values())}) == 3


def in_a_fixed_world(act: Callable[[], Any]) -> list[Any]:
    """What `act` gives twice, each time with every global generator in the same state."""
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002 (the global one is asked about)
        random.seed(0)
        results.append(act())
    return results


def test_no_global_generator_reaches_lots_noise_or_a_gpu_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lots are unequal by chance, and so is noise: false alarms below 1e-9."""
    lots = in_a_fixed_world(lambda: members_of(made()))
    assert lots[0] != lots[1]
    drawn = in_a_fixed_world(lambda: noise_of(made()))
    assert differ(drawn[0], drawn[1])
    jobs = in_a_fixed_world(lambda: assemble(toy_model(), toy_data(), run=RUN, optimizers=[RULE]))
    trained = [job.population([0])._mechanism for job in jobs]
    assert members_of(trained[0]) != members_of(trained[1])
    seeds: list[int] = []
    monkeypatch.setattr(torch, "Generator", recording(seeds))
    in_a_fixed_world(lambda: torch_generator(torch.device("cuda"), Seed.fresh()))
    assert len(set(seeds)) == 2


def test_no_global_generator_is_moved_by_making_a_seed_or_a_mechanism() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    noise_of(made())
    members_of(made())
    assert torch.get_rng_state().equal(before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert random.getstate() == before[2]


def test_a_seed_has_children_that_differ_by_every_part_of_their_names() -> None:
    seed = Seed.fixed(1)
    names = [(), (1,), ("1",), (1, 1), ("1", 1), (11,), ("a",), ("a", "b"), ("ab",), ("a, b",), ("a', 'b",)]
    assert len({seed.child(*name).key for name in names} | {seed.key, seed.bytes(32)}) == len(names) + 2
    assert seed.child(1).key == Seed.fixed(1).child(1).key
    assert seed.child(1).key != Seed.fixed(2).child(1).key
    assert seed.child("x").is_fixed
    assert not Seed.fresh().child("x").is_fixed


def test_a_seed_does_not_print_its_key() -> None:
    seed = Seed.fresh()
    assert seed.key.hex() not in repr(seed)
    assert repr(seed.key) not in repr(seed)


def test_a_fresh_seed_is_256_bits_of_the_operating_system() -> None:
    assert every_bit_is_drawn([int.from_bytes(Seed.fresh().key, "big") for _ in range(64)], 256)


def every_bit_is_drawn(seeds: list[int], bits: int) -> bool:
    """Each bit is 1 in one seed and 0 in another. With 64 fair seeds one of 128 bits fails that in 1e-17 of cases."""
    return reduce(or_, seeds) == (1 << bits) - 1 and reduce(and_, seeds) == 0


def recording(seeds: list[int]) -> type:
    """Stands for torch.Generator where there is no GPU, and notes how it is seeded."""

    class Generator:
        def __init__(self, device: torch.device) -> None:
            self.device = device

        def manual_seed(self, seed: int) -> None:
            seeds.append(seed)

    return Generator


def test_a_gpu_generator_is_seeded_with_63_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch, "Generator", recording(seeds))
    for _ in range(64):
        assert torch_generator(torch.device("cuda"), Seed.fresh()).device.type == "cuda"
    assert every_bit_is_drawn(seeds, 63)
    assert not every_bit_is_drawn([seed % (1 << 16) for seed in seeds], 63)


def test_the_key_of_the_secure_generator_has_128_bits_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[int] = []

    def counter(*, key: int) -> np.random.BitGenerator:
        keys.append(key)
        return np.random.PCG64(key)

    monkeypatch.setitem(sys.modules, "randomgen", SimpleNamespace(AESCounter=counter))
    for _ in range(64):
        SecureNoise(CPU, Seed.fresh())
    assert every_bit_is_drawn(keys, 128)
    assert not every_bit_is_drawn([key % (1 << 16) for key in keys], 128)


def test_fresh_sources_differ_in_every_word_of_their_state() -> None:
    """A word is equal by chance in 1e-18 of cases."""
    states = [CpuNoise(CPU, Seed.fresh()).state()[0][:3] for _ in range(4)]
    assert all((one != other).all() for i, one in enumerate(states) for other in states[:i])


def test_a_source_on_a_cpu_is_seeded_with_all_bits_of_the_seed() -> None:
    sequences = [CpuNoise(CPU, Seed.fresh())._bits.seed_seq for _ in range(64)]
    assert every_bit_is_drawn([sequence.entropy for sequence in sequences], 256)
    assert {sequence.pool_size for sequence in sequences} == {8}
