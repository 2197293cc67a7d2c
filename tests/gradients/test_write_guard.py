"""Nothing but the optimizer writes to a model in training, and no run starts from what another one has become."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp import Run
from honestdp import optimizers as rules
from honestdp.boundary.noise import noise_source
from honestdp.boundary.query import Constants, Query
from honestdp.boundary.records import Examples
from honestdp.boundary.release import release
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.gradients import ModelWritten, RefusedModel, Untouched
from honestdp.gradients.layout import layout_of, stack
from honestdp.training.population import fresh, modules_of
from honestdp.training.spec import TrainSpec
from honestdp.training.train import assemble, train, train_population
from tests.toy_training import toy_data, toy_model, vetted_of

RUN = Run(records=60, lot=10, steps=5, noise=1.0)
RULE = rules.SGD(lr=0.1, clip=1.0)


class Later(nn.Module):
    """Writes to itself, but only after it has been tried: what no trial can see.

    It reads a number, so that its examples go one by one: torch.func stops most writes by itself.
    """

    armed = False

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
        self.gain = nn.Parameter(torch.ones(5), requires_grad=False)
        self.register_buffer("mean", torch.zeros(5))
        self.head = nn.Linear(3, 3)

    def write(self) -> None:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        if Later.armed:
            self.write()
        scale = 2.0 if x.sum().item() > 1e30 else 1.0
        return self.head(scale * (x - self.mean) * self.gain @ self.weight)


class Counted(Later):
    def write(self) -> None:
        with torch.no_grad():
            self.weight.mul_(0.5)


class ThroughData(Later):
    def write(self) -> None:
        self.weight.data.mul_(0.5)


class SameBits(Later):
    """Nothing changes by this write, which may change something at another step."""

    def write(self) -> None:
        with torch.no_grad():
            self.weight.clamp_(-1e6, 1e6)


class FrozenPart(Later):
    def write(self) -> None:
        self.gain.data.mul_(0.5)


class Statistics(Later):
    def write(self) -> None:
        self.mean.data.add_(0.25)


class Replaced(Later):
    def write(self) -> None:
        self.mean = self.mean + 0.25


class Bookkept(nn.Module):
    """Every layer has a rule, and a buffer is written through its data."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        if Later.armed:
            self.mean.data.add_(0.25)
        return self.layer(x - self.mean)


class BookkeptWeight(Bookkept):
    """A weight that is not read here, since a rule stands in for its layer, carries something to the next step."""

    def forward(self, x: Tensor) -> Tensor:
        if Later.armed:
            self.layer.weight.data.mul_(0.5)
        return self.layer(x)


@pytest.fixture
def armed() -> Iterator[type[Later]]:
    yield Later
    Later.armed = False


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize(
    "kind", [Counted, ThroughData, SameBits, FrozenPart, Statistics, Replaced, Bookkept, BookkeptWeight]
)
def test_a_model_that_writes_to_itself_in_training_stops_it(
    armed: type[Later], kind: type[nn.Module], runs: int
) -> None:
    x, y = toy_data()
    data = x.float(), y
    assemble(kind(), data, run=RUN, optimizers=[RULE] * runs).work(False)
    population = assemble(kind(), data, run=RUN, optimizers=[RULE] * runs).population([*range(runs)])
    armed.armed = True
    with pytest.raises(ModelWritten, match="max_norm=None") as stopped:
        population.block()
    assert not any(character.isdigit() for character in str(stopped.value).replace("(-1, 1)", ""))
    assert stopped.value.__cause__ is None


@pytest.mark.parametrize("kind", [Counted, ThroughData])
def test_what_is_written_in_a_step_never_reaches_the_weights_that_the_optimizer_updates(
    armed: type[Later], kind: type[Later]
) -> None:
    model = kind()
    layout = layout_of(model)
    params = stack([model], layout, torch.device("cpu"))
    before = params.clone()
    constants = Constants(10, 1.0, 5, torch.ones(1), layout, torch.ones(5))
    vetted = vetted_of(model, lambda output, y: output.square().sum(1))
    vetted.cover(torch.zeros(2, 5), torch.zeros(2), runs=1, width=4)
    armed.armed = True
    lot = Examples(torch.randn(1, 4, 5), torch.zeros(1, 4), torch.ones(1, 4))
    with pytest.raises(ModelWritten):
        release(
            [lot],
            params,
            Query(torch.ones(1)),
            vetted=vetted,
            constants=constants,
            noise=noise_source(torch.device("cpu"), Seed.fixed(1)),
        )
    assert torch.equal(params, before)


def test_the_memory_that_a_model_reads_is_not_that_of_the_weights() -> None:
    params = torch.randn(2, 7)
    with Untouched(nn.Linear(2, 2)).lent(params) as lent:
        assert torch.equal(lent, params)
        assert lent.untyped_storage().data_ptr() != params.untyped_storage().data_ptr()


def test_weights_that_are_not_a_number_are_not_taken_for_a_write() -> None:
    model = nn.Linear(2, 2)
    params = torch.tensor([[math.nan, math.inf, -0.0, 1.0]])
    watched = Untouched(model)
    with watched.lent(params):
        pass
    watched.settle()
    with pytest.raises(ModelWritten), watched.lent(params) as lent:
        lent.data[0, 2] = 0.0  # minus zero is equal to zero, and another number


def test_a_write_to_a_large_frozen_part_is_found_wherever_it_is() -> None:
    model = nn.Linear(300, 300)
    for place in (0, 1, 44_999, 89_999):
        watched = Untouched(model)
        watched.settle()
        model.weight.data.view(-1)[place] += 1e-3
        with pytest.raises(ModelWritten):
            watched.settle()


# ---- Where runs start


def test_a_factory_that_returns_the_same_module_gives_every_run_a_copy_of_its_own() -> None:
    only = toy_model()
    before = copy.deepcopy(only.state_dict())
    one, other = modules_of(lambda: only, 2)
    shared = {p.data_ptr() for p in only.parameters()}
    for module in (one, other, fresh(lambda: only, start=0)):
        assert not shared & {p.data_ptr() for p in module.parameters()}
        shared |= {p.data_ptr() for p in module.parameters()}
    first = train(lambda: only, toy_data(), run=RUN, optimizer=RULE, noise_seed=3)
    second = train(lambda: only, toy_data(), run=RUN, optimizer=RULE, noise_seed=3)
    assert all(torch.equal(value, before[name]) for name, value in only.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))
    together = train_population(lambda: only, toy_data(), run=RUN, optimizers=[RULE] * 2, noise_seed=3)
    models = [result.model for result in together]
    assert not {p.data_ptr() for p in models[0].parameters()} & {p.data_ptr() for p in models[1].parameters()}
    assert all(torch.equal(value, before[name]) for name, value in only.state_dict().items())


def test_modules_of_a_factory_that_share_a_trainable_part_are_trained_apart() -> None:
    body = nn.Linear(5, 4).double()

    def make() -> nn.Module:
        return nn.Sequential(body, nn.Tanh(), toy_model()[2])

    before = body.weight.clone()
    results = train_population(make, toy_data(), run=RUN, optimizers=[RULE, rules.SGD(lr=0.5, clip=1.0)])
    assert torch.equal(body.weight, before)
    assert not torch.equal(results[0].model[0].weight, results[1].model[0].weight)


def test_a_factory_whose_parameters_have_hooks_or_shared_memory_is_refused() -> None:
    def hooked() -> nn.Module:
        model = toy_model()
        model[0].weight.register_hook(lambda gradient: 2 * gradient)
        return model

    def views() -> nn.Module:
        model, buffer = toy_model(), torch.randn(4, 5, dtype=torch.float64)
        model[0].weight, model[0].bias = nn.Parameter(buffer), nn.Parameter(buffer[:, 0])
        return model

    for make, why in ((hooked, "hooks"), (views, "memory of their own")):
        for given in (make, make()):
            with pytest.raises(RefusedModel, match=why):
                train(given, toy_data(), run=RUN, optimizer=RULE)
            with pytest.raises(RefusedModel, match=why):
                fresh(given, start=0)


# ---- At the width of the real lot, before a record is read


class FromSixteen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out - out.mean(0) if len(x) >= 16 else out


def hardest(output: Tensor, y: Tensor) -> Tensor:
    losses = F.cross_entropy(output, y, reduction="none")
    if len(losses) <= 16:
        return losses
    return torch.where(losses >= losses.detach().topk(16).values[-1], losses, 0)


def test_a_model_and_a_loss_are_tried_at_the_width_of_the_lot() -> None:
    narrow, wide = Run(records=60, lot=1, steps=1, noise=1.0), Run(records=60, lot=30, steps=1, noise=1.0)
    train(FromSixteen(), toy_data(), run=narrow, optimizer=RULE)
    train(toy_model(), toy_data(), run=narrow, optimizer=RULE, loss=hardest)
    with pytest.raises(RefusedModel, match="FromSixteen"):
        assemble(FromSixteen(), toy_data(), run=wide, optimizers=[RULE])
    with pytest.raises(InvalidArgument, match="loss that mixes"):
        assemble(toy_model(), toy_data(), run=wide, optimizers=[RULE], spec=TrainSpec(loss=hardest))


def test_a_population_is_tried_at_the_width_of_all_of_its_runs() -> None:
    """They go through the model as one batch."""
    run = Run(records=60, lot=1, steps=1, noise=1.0)
    with pytest.raises(RefusedModel, match="FromSixteen"):
        train_population(FromSixteen(), toy_data(), run=run, optimizers=[RULE] * 3)


def test_no_record_is_read_before_the_trial_and_nothing_is_tried_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial at the width of the lot at hand would come and go with the sizes of lots."""
    wide = Run(records=60, lot=30, steps=3, noise=1.0)
    with monkeypatch.context() as unread:
        unread.setattr("honestdp.boundary.records.DeviceRecords.fetch", lambda *_: pytest.fail("a record was read"))
        with pytest.raises(RefusedModel):
            assemble(FromSixteen(), toy_data(), run=wide, optimizers=[RULE])
    population = assemble(toy_model(), toy_data(), run=wide, optimizers=[RULE] * 2).population([0, 1])
    for name in ("refuse_mixing", "refuse_mixing_loss"):
        monkeypatch.setattr(f"honestdp.gradients.prepared.{name}", lambda *_, **__: pytest.fail("it was tried again"))
    population.block()


def test_no_piece_of_a_lot_is_wider_than_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Widths(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            out: Tensor = self.layer(x)
            return out

    job = assemble(Widths(), toy_data(), run=Run(records=60, lot=20, steps=40, noise=1.0), optimizers=[RULE])
    population = job.population([0])
    tried = max(seen) - 1  # one more came in
    monkeypatch.setattr(population._mechanism, "_rate", 0.9)  # lots far wider than declared
    seen.clear()
    population.block()
    assert 0 < max(seen) <= population._mechanism._width <= tried
    assert len(seen) > 40
