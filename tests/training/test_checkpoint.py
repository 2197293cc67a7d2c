"""A training stopped at any moment goes on bit for bit, and its checkpoint is whole, secret and its own."""

from __future__ import annotations

import os
import signal
import stat
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

pytest.importorskip("safetensors")

from honestdp import Compute, Run
from honestdp import optimizers as rules
from honestdp.boundary import sampling
from honestdp.boundary.mechanism import Mechanism
from honestdp.checks import InvalidArgument
from honestdp.training import loop
from honestdp.training.train import Interrupted, Result, train, train_population
from tests.forked_python import Forked
from tests.toy_training import toy_data, toy_model

BLOCK = 8  # steps
RUN = Run(records=60, lot=10, steps=6 * BLOCK + 2, noise=0.9)
EVERY_RULE = [
    rules.SGD(lr=0.1, clip=1.0),
    rules.Momentum(lr=0.1, momentum=0.9, clip=1.0),
    rules.Adam(clip=1.0),
    rules.AdamWOSM(clip="auto"),
    rules.ADADP(clip=1.0),
    rules.ADADP(clip=1.0, switch=4),
    rules.OSO(lr=0.1),
    rules.OSO(lr=0.1, momentum=0.5, nu_q=3.0, proportional=True),
    rules.AdamOSO(),
    rules.Quantile(lr=0.1),
    rules.Horizon(average=True),
    rules.Echo(),
]


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is kept between two blocks of steps: few steps make as many of them as hundreds otherwise."""
    monkeypatch.setattr(sampling, "_BLOCK_STEPS", BLOCK)


def weights(results: list[Result]) -> Tensor:
    return torch.stack([torch.cat([p.detach().flatten() for p in r.model.parameters()]) for r in results])


def go(
    path: Path | None,
    *,
    optimizers: list[rules.Rule] = EVERY_RULE,
    run: Run = RUN,
    seconds: float = 0.0,
    **more: object,
) -> list[Result]:
    given = {"noise_seed": 4} | more
    compute = Compute(checkpoint=path, checkpoint_seconds=seconds)
    return train_population(toy_model(), toy_data(), run=run, optimizers=optimizers, compute=compute, **given)


def stop_at(monkeypatch: pytest.MonkeyPatch, block: int, error: type[BaseException]) -> None:
    """The given error in the middle of a block."""
    true, count = Mechanism._eager, [0]

    def eager(self: Mechanism, *args: Any) -> Any:
        count[0] += 1
        if count[0] == block * BLOCK + BLOCK // 2:
            raise error
        return true(self, *args)

    monkeypatch.setattr(Mechanism, "_eager", eager)


@cache
def uninterrupted() -> Tensor:
    return weights(go(None))


@pytest.mark.slow
@pytest.mark.parametrize("block", [0, 3, 8, 20])
def test_ctrl_c_keeps_a_checkpoint_and_the_resumed_result_is_the_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    path = tmp_path / "kept.safetensors"
    with monkeypatch.context() as patch:
        stop_at(patch, block, KeyboardInterrupt)
        with pytest.raises(Interrupted, match=r"to resume, call again .* compute=honestdp.Compute.checkpoint="):
            go(path, seconds=1e9)
    assert weights(go(path)).equal(uninterrupted())


def test_runs_that_had_not_begun_begin_with_the_weights_of_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script makes its module anew when it is run again. With other weights, or a table of Echo's that was heard at others, the
    same lots and noise would come to other results in each copy of the file, whose difference has no noise.
    """

    def start(seed: int, path: Path | None) -> list[Result]:
        how: dict[str, Any] = {"run": RUN, "optimizers": [EVERY_RULE[0], rules.Echo()], "noise_seed": 4}
        return train_population(toy_model(seed=seed), toy_data(), compute=Compute(checkpoint=path), **how)

    path = tmp_path / "kept"
    with monkeypatch.context() as patch:
        stop_at(patch, 3, KeyboardInterrupt)
        with pytest.raises(Interrupted):
            start(1, path)
    resumed = weights(start(2, path))
    assert resumed.equal(weights(start(1, None)))
    assert not resumed.equal(weights(start(2, None)))


def test_a_checkpoint_of_a_rule_that_was_another_is_refused_before_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of Echo before its steps had a bound: it went by another state, and its noise would now be on other weights."""

    def before(self: rules.Echo, params: Tensor, constants: Any) -> dict[str, Tensor]:
        return {name: value for name, value in own(self, params, constants).items() if name != "reach"}

    def moved(self: rules.Echo, params: Tensor, state: Any, release: Any, constants: Any) -> Any:
        return params - release.gradient, {name: state[name] for name in ("size", "allowed")}

    own, path = rules.Echo.memory, tmp_path / "kept"
    with monkeypatch.context() as patch:
        patch.setattr(rules.Echo, "memory", before)
        patch.setattr(rules.Echo, "move", moved)
        stop_at(patch, 3, KeyboardInterrupt)
        with pytest.raises(Interrupted):
            go(path, optimizers=[rules.Echo()])
    stop_at(monkeypatch, 0, AssertionError)
    with pytest.raises(InvalidArgument, match="resumed by the honestdp that began it: here echo goes by another state"):
        go(path, optimizers=[rules.Echo()])


def test_no_checkpoint_of_one_form_of_a_rule_goes_on_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that had not begun would take the new steps with the old noise, and a copy that the old code ends would differ."""
    path = tmp_path / "kept"
    with monkeypatch.context() as patch:
        patch.setattr(rules.Echo, "form", rules.Echo.form - 1)
        stop_at(patch, 3, KeyboardInterrupt)
        with pytest.raises(Interrupted):
            go(path, optimizers=[rules.Echo()])
    stop_at(monkeypatch, 0, AssertionError)
    with pytest.raises(InvalidArgument, match="of the same training; the file differs in optimizers"):
        go(path, optimizers=[rules.Echo()])


def test_the_secure_generator_resumes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("randomgen")
    path = tmp_path / "kept"
    expected = weights(go(None, secure=True, optimizers=EVERY_RULE[:1]))
    with monkeypatch.context() as patch:
        stop_at(patch, 3, KeyboardInterrupt)
        with pytest.raises(Interrupted):
            go(path, secure=True, optimizers=EVERY_RULE[:1])
    assert weights(go(path, secure=True, optimizers=EVERY_RULE[:1])).equal(expected)


class Targets(Dataset):
    """Records with numbers as labels, which nobody looks at before the training."""

    def __len__(self) -> int:
        return len(toy_data()[0])

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        x, y = toy_data()
        return x[number], y[number].float()


def test_decoding_takes_no_number_from_the_generator_of_dropout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DataLoader draws a seed when it begins, and that is earlier in a training that is not interrupted."""

    def go(path: Path | None) -> Tensor:
        torch.manual_seed(1)
        model, run = (
            nn.Sequential(nn.Linear(5, 4), nn.Dropout(), nn.Linear(4, 1)),
            Run(records=60, lot=10, steps=4 * BLOCK + 6, noise=1.0),
        )
        compute = Compute(checkpoint=path, checkpoint_seconds=0.0, workers=1)
        more = {"noise_seed": 4, "compute": compute}
        return weights(train_population(model, Targets(), run=run, optimizers=EVERY_RULE[:1], **more))

    expected = go(None)
    with monkeypatch.context() as patch:
        stop_at(patch, 2, KeyboardInterrupt)
        with pytest.raises(Interrupted):
            go(tmp_path / "kept")
    assert go(tmp_path / "kept").equal(expected)


def test_without_a_checkpoint_ctrl_c_says_that_nothing_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, 1, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt, match="no checkpoint= was given"):
        go(None)


@pytest.mark.slow
def test_a_finished_training_is_read_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = weights(go(tmp_path / "kept"))
    stop_at(monkeypatch, 0, AssertionError)
    assert weights(go(tmp_path / "kept")).equal(first)


CHILD = """
import sys, torch
torch.set_num_threads(1)
from honestdp import Compute, Run, optimizers as rules
from honestdp.training.train import train
x = torch.randn(600, 20, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 10), torch.nn.Dropout(0.2), torch.nn.Linear(10, 2))
result = train(model, (x, y), run=Run(records=600, lot=50, steps=1000, noise=1.0), optimizer=rules.Adam(clip=1.0),
               noise_seed=1, compute=Compute(checkpoint=sys.argv[1], checkpoint_seconds=0.0))
result.save(sys.argv[2])
"""


@pytest.mark.kill
def test_kill_minus_nine_and_resume_gives_the_uninterrupted_bytes(tmp_path: Path) -> None:
    """A model with dropout, whose randomness is torch's own, killed at a random moment after its first checkpoint."""

    def start(kept: str, saved: str) -> Forked:
        return Forked(tmp_path, CHILD, kept, saved)

    def killed(after: float) -> int:
        child = start("kept", "found")
        while not (tmp_path / "kept").exists():
            assert child.poll() is None
            time.sleep(0.01)
        time.sleep(after)
        child.send_signal(signal.SIGKILL)
        return child.wait(300)

    assert start("whole", "expected").wait(300) == 0
    after = 0.3
    while killed(after) == 0:  # done before it was killed, on a machine so quick: sooner, then
        (tmp_path / "kept").unlink()
        (tmp_path / "found").unlink()
        after /= 2
    assert not (tmp_path / "found").exists()
    assert start("kept", "found").wait(300) == 0
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()


def test_a_checkpoint_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        go(tmp_path / "kept", optimizers=EVERY_RULE[:1])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"run": RUN.with_noise(2.0)}, "runs"),
        ({"optimizers": [rules.SGD(lr=0.2, clip=1.0)]}, "optimizers"),
        ({"schedule": "cosine"}, "schedule"),
        ({"noise_seed": 5}, "noise_seed"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path, changed: dict[str, object], named: str) -> None:
    go(tmp_path / "kept", optimizers=EVERY_RULE[:1])
    with pytest.raises(InvalidArgument, match=f"differs in .*{named}"):
        go(tmp_path / "kept", **({"optimizers": EVERY_RULE[:1]} | changed))


def test_a_checkpoint_of_another_model_of_the_same_shapes_is_refused(tmp_path: Path) -> None:
    def train(between: nn.Module) -> None:
        model, rule = nn.Sequential(nn.Linear(5, 4), between, nn.Linear(4, 3)), EVERY_RULE[:1]
        train_population(model, toy_data(), run=RUN, optimizers=rule, compute=Compute(checkpoint=tmp_path / "kept"))

    train(nn.Tanh())
    with pytest.raises(InvalidArgument, match=r"differs in .*model"):
        train(nn.ReLU())


def test_a_checkpoint_of_another_precision_is_refused(tmp_path: Path) -> None:
    def train(dtype: torch.dtype) -> None:
        run, rule = RUN, EVERY_RULE[:1]
        train_population(
            toy_model().to(dtype), toy_data(), run=run, optimizers=rule, compute=Compute(checkpoint=tmp_path / "kept")
        )

    train(torch.float32)
    with pytest.raises(InvalidArgument, match=r"differs in .*dtype"):
        train(torch.float64)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"nonsense")
    with pytest.raises(InvalidArgument, match="checkpoint"):
        go(tmp_path / "kept")


def test_out_of_memory_halves_the_chunk_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a chunk held is let go before the next, whether it fitted or not, and before the weights of all are put together."""
    true, sizes, freed = Mechanism._eager, [], []

    def eager(self: Mechanism, *args: Any) -> Any:
        sizes.append(self._runs)
        if self._runs > 2:
            raise torch.OutOfMemoryError("planted")
        return true(self, *args)

    monkeypatch.setattr(Mechanism, "_eager", eager)
    monkeypatch.setattr(loop, "free_captured", lambda: freed.append(sizes[-1]))
    results = go(None, optimizers=[rules.SGD(lr=0.1 * (i + 1), clip=1.0) for i in range(7)], run=RUN.with_steps(3))
    assert len(results) == 7
    assert freed == [7, 3, 1, 2, 4, 2, 2]
    assert set(sizes) == {7, 3, 4, 1, 2}
    assert "out of memory" in caplog.text
    assert torch.isfinite(weights(results)).all()


def test_a_single_run_that_does_not_fit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(self: Mechanism, *args: Any) -> Any:
        raise torch.OutOfMemoryError("planted")

    monkeypatch.setattr(Mechanism, "_eager", eager)
    with pytest.raises(torch.OutOfMemoryError):
        go(None, optimizers=EVERY_RULE[:1])


def test_a_checkpoint_is_refused_by_a_model_that_holds_other_numbers_beside_its_weights(tmp_path: Path) -> None:
    """The same noise on two functions would betray their difference."""

    class Scaled(torch.nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear, self.scale = torch.nn.Linear(5, 3).double(), torch.tensor(scale)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * self.scale

    settings = {"run": Run(records=60, lot=10, steps=3, noise=1.0), "optimizer": rules.SGD(lr=0.1, clip=1.0)}
    first = train(Scaled(1.0), toy_data(), **settings, compute=Compute(checkpoint=tmp_path / "kept"))
    again = train(Scaled(1.0), toy_data(), **settings, compute=Compute(checkpoint=tmp_path / "kept"))
    assert torch.equal(first.model.linear.weight, again.model.linear.weight)
    with pytest.raises(InvalidArgument, match="code"):
        train(Scaled(2.0), toy_data(), **settings, compute=Compute(checkpoint=tmp_path / "kept"))
