"""Populations are cut to the machine: by memory, by measured speed, one kind of rule at a time."""

from __future__ import annotations

import pytest
import torch

from honestdp import Run
from honestdp import optimizers as rules
from honestdp.boundary.mechanism import Mechanism
from honestdp.training import chunks
from honestdp.training.chunks import free_memory, largest_chunk, plan_chunks, quickest_chunk
from honestdp.training.train import assemble, train_population
from tests.toy_training import toy_data, toy_model

CPU = torch.device("cpu")


def test_chunks_hold_one_kind_of_rule_and_every_run_once() -> None:
    mixed = [rules.SGD(lr=0.1, clip=1.0), rules.SGD(lr=0.2, clip="auto"), rules.Adam(clip=1.0)] * 5
    planned = plan_chunks(mixed, 3)
    assert sorted(run for chunk in planned for run in chunk) == list(range(15))
    assert max(map(len, planned)) <= 3
    for chunk in planned:
        assert len({(type(mixed[run]), mixed[run].clip == "auto") for run in chunk}) == 1


def test_chunks_of_one_kind_are_nearly_equal() -> None:
    sizes = [len(chunk) for chunk in plan_chunks([rules.Horizon()] * 17, 8)]
    assert sum(sizes) == 17
    assert max(sizes) - min(sizes) <= 1


def test_memory_bounds_a_chunk() -> None:
    assert largest_chunk(1 << 60, free_memory(CPU)) == 1
    assert largest_chunk(1 << 10, free_memory(CPU)) > 1000


class Timed:
    """Stands for a population whose steps take a known time."""

    def __init__(self, seconds: float, clock: list[float]) -> None:
        self.seconds, self.clock, self.params = seconds, clock, torch.empty(0)

    def block(self, most: int) -> None:
        self.clock[0] += most * self.seconds


@pytest.mark.parametrize(("best", "slow"), [(4, (16, 8, 2, 1)), (16, (8, 4, 2, 1))])
def test_the_quickest_size_per_run_is_taken(monkeypatch: pytest.MonkeyPatch, best: int, slow: tuple[int, ...]) -> None:
    clock = [0.0]
    monkeypatch.setattr(chunks, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def rehearse(size: int) -> Timed:
        return Timed(size * (1.0 if size == best else 1.5), clock)

    assert quickest_chunk(rehearse, most=100, runs=16, steps=10_000) == best


class Disturbed(Timed):
    """Every other turn takes ten times as long, since the machine does something else."""

    def block(self, most: int) -> None:
        self.clock[0] += most * self.seconds * (10 if len(self.clock) % 4 < 2 else 1)
        self.clock.append(0.0)


@pytest.mark.parametrize("kind", [Timed, Disturbed])
def test_a_busy_machine_does_not_break_up_a_population(monkeypatch: pytest.MonkeyPatch, kind: type[Timed]) -> None:
    """The whole is taken where nothing is clearly faster, however the turns are disturbed."""
    clock = [0.0]
    monkeypatch.setattr(chunks, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def rehearse(size: int) -> Timed:
        return kind(size * (1.0 if size == 1 else 1.05), clock)

    assert quickest_chunk(rehearse, most=100, runs=16, steps=10_000) == 16


def test_short_trainings_are_not_measured() -> None:
    def never(size: int) -> Timed:
        raise AssertionError("measured")

    assert quickest_chunk(never, most=100, runs=16, steps=10) == 16


def test_measuring_reads_no_record_and_any_number_of_steps_can_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training with fewer steps than a rehearsal makes; the true records are fetched by the training alone."""
    x, y = toy_data()
    run = Run(records=60, lot=10, steps=20, noise=1.0)
    many = [rules.SGD(lr=0.1, clip=1.0)] * 250
    job = assemble(toy_model(), (x, y), run=run, optimizers=many)
    with monkeypatch.context() as patch:
        patch.setattr(type(job.intake._records), "fetch", None)
        assert sum(len(chunk) for chunk in job.chunks()) == 250
    assert len(train_population(toy_model(), (x, y), run=run, optimizers=many)) == 250


def test_a_population_in_chunks_is_as_private_as_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chunk makes its own mechanism with its own generators, also under a fixed seed."""
    monkeypatch.setattr("honestdp.training.loop.largest_chunk", lambda *_: 2)
    made: list[Mechanism] = []
    true = Mechanism.__init__

    def init(self: Mechanism, *args: object, **kwargs: object) -> None:
        true(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(Mechanism, "__init__", init)
    run = Run(records=60, lot=10, steps=3, noise=1.0)
    train_population(toy_model(), toy_data(), run=run, optimizers=[rules.SGD(lr=0.1, clip=1.0)] * 6, noise_seed=1)
    assert len(made) == 3
    found = [torch.cat(mechanism._noise.state()) for mechanism in made]
    assert not any(one.equal(other) for i, one in enumerate(found) for other in found[:i])
