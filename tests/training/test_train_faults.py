"""What a training must survive, or refuse clearly before anything is released."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset, get_worker_info

from honestdp import Budget, Compute, Run, by_person
from honestdp import optimizers as rules
from honestdp.boundary.decoding import WorkerDied
from honestdp.boundary.mechanism import Mechanism
from honestdp.checks import InvalidArgument
from honestdp.gradients import RefusedModel
from honestdp.training.spec import TrainSpec
from honestdp.training.train import Result, assemble, train, train_population
from tests.toy_training import toy_data, toy_model

RUN = Run(records=60, lot=10, steps=5, noise=1.0)
RULE = rules.SGD(lr=0.1, clip=1.0)


def float_model() -> nn.Module:
    return toy_model().float()


def weights(result: Result) -> Tensor:
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


def refused_before_release(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a release was made")

    monkeypatch.setattr(Mechanism, "_release", never)


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize(
    "rule", [RULE, rules.OSO(lr=0.1), rules.Quantile(lr=0.1), rules.Horizon(), rules.Echo(), rules.ADADP(clip=1.0)]
)
def test_poisoned_records_leave_finite_weights(poison: float, rule: rules.Rule) -> None:
    x, y = toy_data()
    x = x.float()
    x[::2] = poison
    run = Run(records=60, lot=30, steps=6, noise=1.0)
    assert torch.isfinite(weights(train(float_model(), (x, y), run=run, optimizer=rule))).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.bfloat16])
def test_data_of_any_precision_takes_the_models(dtype: torch.dtype) -> None:
    x, y = toy_data()
    result = train(float_model(), (x.to(dtype), y), run=RUN, optimizer=RULE)
    assert weights(result).dtype == torch.float32


@pytest.mark.parametrize("home", [tuple, lambda pair: Pairs(*pair)], ids=["arrays", "dataset"])
@pytest.mark.parametrize("label", [-100, -1, 3, 1000])
@pytest.mark.parametrize("loss", [None, nn.CrossEntropyLoss(reduction="none")], ids=["default", "torch"])
def test_a_record_whose_label_is_no_class_contributes_zero_and_nobody_is_told(loss: Any, label: int, home: Any) -> None:
    """As a record of NaN does: to stop would tell that it is there."""
    x, y = toy_data()
    missing, other = x.clone(), y.clone()
    missing[17], other[17] = torch.nan, label
    run = Run(records=60, lot=60, steps=2, noise=1.0)
    given: dict[str, Any] = {
        "run": run,
        "optimizer": RULE,
        "noise_seed": 1,
        "compute": Compute(workers=0),
        "loss": loss,
    }
    first, second, whole = (
        weights(train(toy_model(), home(pair), **given)) for pair in ((x, other), (missing, y), (x, y))
    )
    assert torch.allclose(first, second, rtol=0, atol=1e-12)
    assert not torch.allclose(first, whole, rtol=0, atol=1e-6), "it would not be seen"


def test_a_persons_row_whose_label_is_no_class_contributes_zero_and_the_others_count() -> None:
    x, y = toy_data()
    missing, other = x.clone(), y.clone()
    missing[17], other[17] = torch.nan, 9
    run = Run(records=30, lot=30, steps=2, noise=1.0)
    found = []
    for pair in ((x, other), (missing, y), (x, y)):
        people = by_person(pair, [i // 2 for i in range(60)], rows=2)
        found.append(weights(train(toy_model(), people, run=run, optimizer=RULE, noise_seed=1)))
    assert not torch.allclose(found[0], found[1], rtol=0, atol=1e-6), "the person's other row counts"
    assert not torch.allclose(found[0], found[2], rtol=0, atol=1e-6)


def test_a_label_that_the_loss_itself_takes_is_left_to_it() -> None:
    """Pixels to be ignored, and a loss that learns from what has no label."""

    def half_labelled(output: Tensor, y: Tensor) -> Tensor:
        known = y >= 0
        return torch.where(known, functional.cross_entropy(output, y.clamp(0), reduction="none"), -output.logsumexp(1))

    x, y = toy_data()
    y[::2] = -1
    run = Run(records=60, lot=60, steps=2, noise=1.0)
    given: dict[str, Any] = {"run": run, "optimizer": RULE, "noise_seed": 1}
    zero = x.clone()
    zero[::2] = torch.nan
    first = weights(train(toy_model(), (x, y), loss=half_labelled, **given))
    assert not torch.allclose(first, weights(train(toy_model(), (zero, y), loss=half_labelled, **given)), atol=1e-6)
    pixels = nn.Conv2d(1, 3, 1).double()
    images, labels = torch.randn(60, 1, 4, 4, dtype=torch.float64), torch.randint(0, 3, (60, 4, 4))
    labels[17, 0] = -100
    gone = labels.clone()
    gone[17] = 77
    one, other = (weights(train(pixels, (images, some), **given)) for some in (labels, gone))
    assert not torch.allclose(one, other, rtol=0, atol=1e-6), "the other pixels count"


def test_no_trainable_parameters_is_refused() -> None:
    model = toy_model()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(InvalidArgument, match="at least one trainable parameter"):
        train(model, toy_data(), run=RUN, optimizer=RULE)


def test_frozen_parameters_stay_as_they_are() -> None:
    model = toy_model()
    model[0].weight.requires_grad_(False)
    result = train(model, toy_data(), run=RUN, optimizer=RULE)
    assert result.model[0].weight.equal(model[0].weight)
    assert not result.model[2].weight.equal(model[2].weight)


def test_no_steps_returns_the_initial_weights_at_no_cost() -> None:
    model = toy_model()
    result = train(model, toy_data(), run=RUN.with_steps(0), optimizer=RULE, delta=1e-5)
    assert weights(result).equal(torch.cat([p.flatten() for p in model.parameters()]))
    assert result.epsilon == 0
    assert "NOT PRIVATE" not in str(result.statement)


class Squeezed(nn.Module):
    """A model that loses the examples' dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = toy_model()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).sum(dim=0)


def test_a_model_of_the_wrong_output_shape_is_refused_before_any_release(monkeypatch: pytest.MonkeyPatch) -> None:
    refused_before_release(monkeypatch)
    with pytest.raises(InvalidArgument, match="one row per example"):
        train(Squeezed(), toy_data(), run=RUN, optimizer=RULE)
    x, y = toy_data()
    with pytest.raises(InvalidArgument, match="as many numbers per example"):
        train(toy_model(), (x, y.double()), run=RUN, optimizer=RULE)


class Pairs(Dataset):
    """A map-style Dataset of examples."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self.x[number], self.y[number]


class Deadly(Pairs):
    """Its worker processes die while decoding a record; the first record can be looked at."""

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        if number > 0:
            os._exit(3)
        return super().__getitem__(number)


def test_a_dying_dataset_worker_is_named() -> None:
    with pytest.raises(RuntimeError, match="worker process of the Dataset died"):
        train(toy_model(), Deadly(*toy_data()), run=RUN, optimizer=RULE, compute=Compute(workers=1))


class Killed(Pairs):
    """Its worker processes are killed: when they decode a certain record, or after some time, in the middle of a training."""

    def __init__(self, x: Tensor, y: Tensor, *, at: int | None = None, after: float = math.inf) -> None:
        super().__init__(x, y)
        self.at, self.after, self.made = at, after, time.monotonic()

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        late = time.monotonic() - self.made > self.after
        if get_worker_info() is not None and (number == self.at or late):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(number)


# torch's handler may raise while torch itself opens a temporary file, which then is closed by the garbage collector alone
@pytest.mark.kill
@pytest.mark.filterwarnings("ignore:.*:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", [{"at": 30}, {"after": 0.3}, {"after": 0.6}], ids=str)
def test_a_killed_worker_is_named_wherever_it_is_noticed(how: dict[str, Any], workers: int) -> None:
    """torch says so in a signal handler or by a broken connection; afterwards no worker is left and no signal comes late."""
    data, run = Killed(*toy_data(), **how), Run(records=60, lot=10, steps=100_000, noise=0.9)
    before = set(multiprocessing.active_children())
    for _ in range(3):
        data.made = time.monotonic()
        with pytest.raises(WorkerDied, match="workers=0 to see the error"):
            train(toy_model(), data, run=run, optimizer=RULE, compute=Compute(workers=workers))
        assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("DataLoader worker (pid 7) is killed by signal: Killed. ", WorkerDied),
        ("DataLoader worker (pid(s) 7) exited unexpectedly", WorkerDied),
        ("Caught RuntimeError in DataLoader worker process 0.", RuntimeError),
        ("the model fails", RuntimeError),
    ],
)
def test_a_death_told_in_the_middle_of_a_step_is_named(
    words: str, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*_: object) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(Mechanism, "_release", told)
    with pytest.raises(RuntimeError) as raised:
        train(toy_model(), Pairs(*toy_data()), run=RUN, optimizer=RULE, compute=Compute(workers=1))
    assert type(raised.value) is expected


def test_no_worker_outlives_its_training(monkeypatch: pytest.MonkeyPatch) -> None:
    before, during = set(multiprocessing.active_children()), []
    true = Mechanism._release

    def release(self: Mechanism, *given: Any) -> Any:
        during.append(len(set(multiprocessing.active_children()) - before))
        return true(self, *given)

    monkeypatch.setattr(Mechanism, "_release", release)
    job = assemble(
        toy_model(), Pairs(*toy_data()), run=RUN, optimizers=[RULE], spec=TrainSpec(compute=Compute(workers=2))
    )
    assert set(multiprocessing.active_children()) <= before
    job.work(False)
    assert set(during) == {2}
    assert set(multiprocessing.active_children()) <= before


def test_an_error_of_the_dataset_stays_what_it_is() -> None:
    def broken(x: Tensor, y: Tensor, number: int) -> Any:
        if number > 0:
            raise OSError("the file is missing")
        return x, y

    before = set(multiprocessing.active_children())
    with pytest.raises(OSError, match="the file is missing"):
        train(toy_model(), Odd(broken), run=RUN, optimizer=RULE, compute=Compute(workers=1))
    assert set(multiprocessing.active_children()) <= before


class Odd(Pairs):
    def __init__(self, record: Callable[[Tensor, Tensor, int], Any]) -> None:
        super().__init__(*toy_data())
        self.record = record

    def __getitem__(self, number: int) -> Any:
        return self.record(self.x[number], self.y[number], number)


@pytest.mark.parametrize(
    ("record", "named"),
    [
        (lambda x, y, number: (x, y, number), r"pairs \(x, y\), got 'a Dataset of tuple of 3'"),
        (lambda x, y, number: x, r"pairs \(x, y\), got 'a Dataset of Tensor'"),
        (
            lambda x, y, number: (x, None),
            "pairs of tensors, arrays or numbers, got 'a Dataset of pairs of Tensor and NoneType'",
        ),
        (lambda x, y, number: (x[: 4 if number == 7 else 5], y), "share one shape"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_of_odd_records_is_told_what_they_should_be(record: Any, named: str, workers: int) -> None:
    every = Run(records=60, lot=60, steps=1, noise=1.0)  # a lot of all records
    with pytest.raises(InvalidArgument, match=named):
        train(toy_model(), Odd(record), run=every, optimizer=RULE, compute=Compute(workers=workers))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"delta": 2.0}, "delta"),
        ({"delta": "x"}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"schedule": lambda step: "a"}, r"schedule\(0\) must be a finite number, got 'a'"),
        ({"compute": Compute(checkpoint=".")}, "a file in a folder"),
        ({"noise_seed": True}, "noise_seed"),
        ({"noise_seed": 1 << 64}, "noise_seed"),
    ],
)
def test_arguments_are_refused_before_a_record_is_read(
    changed: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_before_release(monkeypatch)
    with pytest.raises(InvalidArgument, match=named):
        train(toy_model(), toy_data(), run=RUN, optimizer=RULE, **changed)


def test_complex_records_are_refused_by_their_name() -> None:
    x, y = toy_data()
    with pytest.raises(InvalidArgument, match=r"data\[0\] must be .* real numbers"):
        train(toy_model(), (x + 1j, y), run=RUN, optimizer=RULE)


def test_a_hook_on_a_parameter_is_refused() -> None:
    model = toy_model()
    next(model.parameters()).register_hook(lambda grad: 0 * grad)
    with pytest.raises(RefusedModel, match="free of hooks on parameters"):
        train(model, toy_data(), run=RUN, optimizer=RULE)


def test_a_delta_can_be_given_afterwards() -> None:
    result = train(toy_model(), toy_data(), run=RUN, optimizer=RULE)
    with pytest.raises(InvalidArgument, match=r"result.at\(delta\)"):
        result.epsilon  # noqa: B018
    whole = train(toy_model(), toy_data(), run=RUN, optimizer=RULE, delta=1e-5)
    assert result.at(1e-5).epsilon == whole.epsilon
    with pytest.raises(InvalidArgument, match="delta"):
        result.at(1.0)


def test_without_noise_the_statement_needs_no_delta() -> None:
    result = train(toy_model(), toy_data(), run=RUN.with_noise(0.0), optimizer=RULE)
    assert str(result.statement).startswith("NOT PRIVATE")


def test_no_step_meets_any_budget() -> None:
    run = Run(records=60, lot=10, steps=0, noise=0.0)
    result = train(toy_model(), toy_data(), run=run, optimizer=RULE, budget=Budget(1.0, 1e-5))
    assert result.epsilon == 0


def test_every_home_of_the_records_gives_the_same_weights(tmp_path: Path) -> None:
    x, y = toy_data()
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "y.npy", y.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r"), np.load(tmp_path / "y.npy", mmap_mode="r")
    homes = [(x, y), (x.numpy(), y.numpy()), mapped, TensorDataset(x, y), Pairs(x, y)]
    found = [
        weights(train(toy_model(), home, run=RUN, optimizer=RULE, noise_seed=3, compute=Compute(workers=0)))
        for home in homes
    ]
    found.append(
        weights(train(toy_model(), Pairs(x, y), run=RUN, optimizer=RULE, noise_seed=3, compute=Compute(workers=1)))
    )
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-12, atol=1e-14)


def test_bytes_stay_bytes_and_are_scaled_when_gathered() -> None:
    maker = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (60, 5), dtype=torch.uint8, generator=maker)
    _, y = toy_data()
    as_bytes = weights(train(float_model(), (pixels, y), run=RUN, optimizer=RULE, noise_seed=3))
    as_floats = weights(train(float_model(), (pixels.float() / 255, y), run=RUN, optimizer=RULE, noise_seed=3))
    torch.testing.assert_close(as_bytes, as_floats, rtol=1e-5, atol=1e-6)


def test_records_and_labels_of_different_length_are_refused() -> None:
    x, y = toy_data()
    with pytest.raises(InvalidArgument, match="one label for each input"):
        train(toy_model(), (x, y[:-1]), run=RUN, optimizer=RULE)


def test_noise_zero_trains_and_is_not_private() -> None:
    result = train(toy_model(), toy_data(), run=RUN.with_noise(0.0), optimizer=RULE, delta=1e-5)
    assert result.epsilon == math.inf
    assert "NOT PRIVATE" in str(result.statement)
    assert "infinite" in str(result.statement)


@pytest.mark.parametrize(
    "rule", [rules.OSO(lr=0.1), rules.Quantile(lr=0.1), rules.Horizon(), rules.Echo(), rules.Adam(clip="auto")]
)
def test_noise_zero_is_defined_for_every_rule(rule: rules.Rule) -> None:
    result = train(toy_model(), toy_data(), run=RUN.with_noise(0.0), optimizer=rule)
    assert torch.isfinite(weights(result)).all()


def test_a_fixed_noise_seed_is_not_private() -> None:
    result = train(toy_model(), toy_data(), run=RUN, optimizer=RULE, delta=1e-5, noise_seed=1)
    assert "NOT PRIVATE" in str(result.statement)
    open_seed = train(toy_model(), toy_data(), run=RUN, optimizer=RULE, delta=1e-5)
    assert "NOT PRIVATE" not in str(open_seed.statement)


def test_lot_equal_to_records_is_full_batch_descent() -> None:
    """Rate one without noise: the plain average over all records of the clipped gradients, twice the same."""
    run = Run(records=60, lot=60, steps=4, noise=0.0)
    first, second = (weights(train(toy_model(), toy_data(), run=run, optimizer=RULE)) for _ in range(2))
    assert first.equal(second)
    x, y = toy_data()
    model = toy_model()
    for _ in range(4):
        grads = []
        for i in range(60):
            model.zero_grad()
            nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
            grad = torch.cat([p.grad.flatten() for p in model.parameters()])
            grads.append(grad * min(1.0, 1.0 / grad.norm().item()))
        move = 0.1 * sum(grads) / 60
        at = 0
        with torch.no_grad():
            for p in model.parameters():
                p -= move[at : at + p.numel()].view_as(p)
                at += p.numel()
    torch.testing.assert_close(first, torch.cat([p.detach().flatten() for p in model.parameters()]))


def test_the_users_module_is_not_changed() -> None:
    model = toy_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = train(model, toy_data(), run=RUN, optimizer=RULE)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert result.model is not model
    assert "forward" not in model[0].__dict__


def test_float_labels_are_regression() -> None:
    x, _ = toy_data()
    y = x @ torch.arange(5.0).double()
    run = Run(records=60, lot=60, steps=150, noise=0.01)
    result = train(nn.Linear(5, 1).double(), (x, y), run=run, optimizer=rules.SGD(lr=0.05, clip=100.0))
    assert (result.model(x)[:, 0] - y).square().mean() < 0.1


def test_a_population_mixes_rules_numbers_noises_and_initial_weights() -> None:
    optimizers = [
        rules.SGD(lr=0.1, clip=1.0),
        rules.Adam(clip=0.5),
        rules.SGD(lr=0.2, clip=0.5),
        rules.SGD(lr=0.1, clip="auto"),
    ]
    runs = [RUN.with_noise(noise) for noise in (1.0, 2.0, 3.0, 4.0)]
    models = [toy_model(seed=i) for i in range(4)]
    results = train_population(models, toy_data(), run=runs, optimizers=optimizers, noise_seed=1)
    assert [r.optimizer for r in results] == optimizers
    assert [r.run.noise for r in results] == [1.0, 2.0, 3.0, 4.0]
    for model, result in zip(models, results, strict=True):
        assert (weights(result) - torch.cat([p.flatten() for p in model.parameters()])).norm() < 3


def test_a_factory_gives_every_run_its_own_start() -> None:
    made = []

    def factory() -> nn.Module:
        made.append(toy_model(seed=len(made)))
        return made[-1]

    results = train_population(factory, toy_data(), run=RUN.with_steps(0), optimizers=[RULE] * 3)
    assert len(made) == 3
    assert not weights(results[0]).equal(weights(results[1]))


def test_results_of_a_population_charge_every_run() -> None:
    results = train_population(toy_model(), toy_data(), run=RUN, optimizers=[RULE] * 4, delta=1e-5)
    single = train(toy_model(), toy_data(), run=RUN, optimizer=RULE, delta=1e-5)
    assert results[0].epsilon_alone == pytest.approx(single.epsilon)
    assert results[0].epsilon > single.epsilon
    assert "all 4 runs" in str(results[0].statement)


def test_a_budget_takes_the_place_of_the_noise() -> None:
    run = Run(records=60, lot=10, steps=5, noise=0)
    result = train(toy_model(), toy_data(), run=run, optimizer=RULE, budget=Budget(3.0, 1e-5))
    assert 2.9 < result.epsilon <= 3.0
    pair = train_population(toy_model(), toy_data(), run=run, optimizers=[RULE] * 2, budget=Budget(3.0, 1e-5))
    assert pair[0].run.noise > result.run.noise
    assert pair[0].epsilon <= 3.0
    with pytest.raises(InvalidArgument, match="0 when a budget is given"):
        train(toy_model(), toy_data(), run=RUN, optimizer=RULE, budget=Budget(3.0, 1e-5))


def test_secure_noise_trains() -> None:
    pytest.importorskip("randomgen")
    first = weights(train(toy_model(), toy_data(), run=RUN, optimizer=RULE, secure=True, noise_seed=1))
    second = weights(train(toy_model(), toy_data(), run=RUN, optimizer=RULE, secure=True, noise_seed=1))
    assert first.equal(second)
    assert not first.equal(weights(train(toy_model(), toy_data(), run=RUN, optimizer=RULE, noise_seed=1)))


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"optimizers": []}, "optimizers"),
        ({"run": [RUN, RUN]}, "run"),
        ({"run": [RUN.with_steps(3)] * 2 + [RUN], "optimizers": [RULE] * 3}, "run"),
        ({"optimizers": ["sgd"]}, "optimizer"),
        ({"schedule": "linear"}, "schedule"),
        ({"optimizers": [rules.Horizon()], "schedule": "cosine"}, "schedule"),
        ({"schedule": lambda step: math.nan}, "schedule"),
        ({"data": 3}, "data"),
        ({"model": 3}, "model"),
        ({"model": [toy_model(), toy_model()]}, "model"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, object], argument: str) -> None:
    given = {"model": toy_model(), "data": toy_data(), "run": RUN, "optimizers": [RULE]} | wrong
    with pytest.raises(InvalidArgument, match=argument):
        train_population(given.pop("model"), given.pop("data"), **given)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rules.SGD(lr=-1.0, clip=1.0),
        lambda: rules.SGD(lr=0.1, clip=0.0),
        lambda: rules.SGD(lr=0.1, clip="automatic"),
        lambda: rules.Momentum(lr=0.1, momentum=1.0, clip=1.0),
        lambda: rules.Adam(clip=1.0, beta2=1.5),
        lambda: rules.ADADP(clip=1.0, keep="both"),
        lambda: rules.ADADP(clip=1.0, tau=0.0),
        lambda: rules.OSO(lr=0.1, clip="auto"),
        lambda: rules.Quantile(lr=0.1, quantile=1.0),
    ],
)
def test_wrong_hyperparameters_are_refused(make: object) -> None:
    with pytest.raises(InvalidArgument):
        make()


@pytest.mark.parametrize("quantile", [0.0, 1.0, 2.0])
def test_a_quantile_that_is_none_is_told_both_its_ends(quantile: float) -> None:
    with pytest.raises(InvalidArgument, match=f"quantile must be strictly between 0 and 1, got {quantile}"):
        rules.Quantile(lr=0.1, quantile=quantile)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "way_out"),
    [
        (lambda: torch.jit.script(nn.Linear(5, 3)), "Python module itself"),
        (lambda: nn.Sequential(torch.jit.script(nn.Linear(5, 3))), "Python module itself"),
        (lambda: nn.DataParallel(nn.Linear(5, 3)), "its attribute .module"),
        (lambda: nn.Linear(5, 3, device="meta"), "make it on a real device"),
    ],
)
def test_a_model_that_cannot_be_reached_is_refused_with_the_way_out(make: object, way_out: str) -> None:
    x, y = toy_data()
    with pytest.raises(RefusedModel, match=way_out):
        train(
            make(), (x, y), run=Run(records=len(x), lot=10, steps=2, noise=1.0), optimizer=rules.SGD(lr=0.1, clip=1.0)
        )
