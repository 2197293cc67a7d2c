"""Curves on the disk: a whole line for every step, once, whatever stops the training; and no clock in them."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import honestdp
from honestdp import Compute, JsonLines, Run, TensorBoard
from honestdp.checks import InvalidArgument
from honestdp.errors import Interrupted
from tests.forked_python import Forked
from tests.toy_training import toy_data, toy_model

RUN = Run(records=60, lot=10, steps=150, noise=0.9)
METRICS: dict[str, Any] = {"norm": lambda model: sum(p.norm() for p in model.parameters())}


def go(on_step: Any, **more: Any) -> honestdp.Result:
    given = {"run": RUN, "every": 10, "optimizer": honestdp.optimizers.SGD(lr=0.5, clip=1.0), "noise_seed": 4} | more
    return honestdp.train(toy_model(), toy_data(), on_step=on_step, **given)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_step_is_a_line_with_the_metrics(tmp_path: Path) -> None:
    result = go(JsonLines(tmp_path / "curve", metrics={**METRICS, "one": lambda model: 1}))
    found = lines(tmp_path / "curve")
    assert [line["step"] for line in found] == [*range(0, 151, 10)]
    assert set(found[0]) == {"step", "norm", "one"}
    assert found[-1]["norm"] == pytest.approx(METRICS["norm"](result.model).item())


class Stopping:
    """A writer that is stopped at a step, before or after it has written."""

    def __init__(self, writer: Any, at: int, *, after: bool) -> None:
        self.writer, self.at, self.after = writer, at, after

    def __call__(self, step: int, model: nn.Module) -> None:
        if step != self.at or self.after:
            self.writer(step, model)
        if step == self.at:
            self.at = -1
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("anew", [False, True])
def test_a_resumed_training_writes_no_step_twice_and_leaves_none_out(tmp_path: Path, after: bool, anew: bool) -> None:
    """In another process, where the writer is made anew, and in a notebook, where it is the same one."""
    go(JsonLines(tmp_path / "whole", metrics=METRICS))
    compute = Compute(checkpoint=tmp_path / "kept")
    writer = JsonLines(tmp_path / "curve", metrics=METRICS)
    stopping = Stopping(writer, 100, after=after)
    with pytest.raises(Interrupted):
        go(stopping, compute=compute)
    go(JsonLines(tmp_path / "curve", metrics=METRICS) if anew else writer, compute=compute)
    assert (tmp_path / "curve").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_training_that_is_over_leaves_its_curve_alone_and_a_new_one_begins_anew(tmp_path: Path) -> None:
    compute = Compute(checkpoint=tmp_path / "kept")
    go(JsonLines(tmp_path / "curve", metrics=METRICS), compute=compute)
    before = (tmp_path / "curve").read_bytes()
    go(JsonLines(tmp_path / "curve", metrics=METRICS), compute=compute)
    assert (tmp_path / "curve").read_bytes() == before
    go(JsonLines(tmp_path / "curve", metrics=METRICS), run=RUN.with_steps(20))
    assert [line["step"] for line in lines(tmp_path / "curve")] == [0, 10, 20]


def test_half_a_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "curve"
    path.write_text('{"step": 0, "norm": 1.0}\n{"step": 10, "norm": 2.0}\n{"step": 20, "no')
    JsonLines(path, metrics=METRICS)(20, toy_model())
    assert [line["step"] for line in lines(path)] == [0, 10, 20]


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "[1]\n", '{"loss": 3}\n', '{"step": "x"}\n', "\n"])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "curve").write_text(content)
    with pytest.raises(InvalidArgument, match="path must be a new file, or one that JsonLines wrote"):
        JsonLines(tmp_path / "curve", metrics=METRICS)
    assert (tmp_path / "curve").read_text() == content


CHILD = """
import sys, torch
torch.set_num_threads(1)
import honestdp
from tests.training.test_writers import METRICS, RUN, toy_data, toy_model
run = RUN.with_steps(3000)
honestdp.train(toy_model(), toy_data(), run=run, every=1, optimizer=honestdp.optimizers.SGD(lr=0.5, clip=1.0), noise_seed=4,
               on_step=honestdp.JsonLines(sys.argv[1], metrics=METRICS),
               compute=honestdp.Compute(checkpoint=sys.argv[2], checkpoint_seconds=0.0))
"""


@pytest.mark.kill
def test_kill_minus_nine_leaves_whole_lines(tmp_path: Path) -> None:
    child = Forked(tmp_path, CHILD, "curve", "kept", path=Path(__file__).parents[2])
    while not (tmp_path / "curve").exists() or (tmp_path / "curve").read_bytes().count(b"\n") < 100:
        assert child.poll() is None
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait(60)
    assert (tmp_path / "curve").read_text().endswith("\n")
    steps = [line["step"] for line in lines(tmp_path / "curve")]
    assert steps == [*range(len(steps))]


def test_what_json_does_not_have_is_written_as_a_word(tmp_path: Path) -> None:
    values = iter([float("nan"), float("inf"), float("-inf")])
    writer = JsonLines(tmp_path / "curve", metrics={"loss": lambda model: next(values)})
    for step in range(3):
        writer(step, toy_model())
    assert [line["loss"] for line in lines(tmp_path / "curve")] == ["NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize("kind", [JsonLines, TensorBoard])
@pytest.mark.parametrize(
    ("metrics", "named"), [(None, "metrics"), ({}, "metrics"), ({"a": 1}, "metrics"), ({1: len}, "metrics")]
)
def test_metrics_that_are_none_are_refused(tmp_path: Path, kind: Any, metrics: Any, named: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{named} must be"):
        kind(tmp_path / "curve", metrics=metrics)


@pytest.mark.parametrize("kind", [JsonLines, TensorBoard])
def test_a_metric_that_gives_no_number_is_named_before_the_first_step(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"metrics must be functions that return a number, got .a list of 'loss'"):
        go(kind(tmp_path / "curve", metrics={"loss": lambda model: [1, 2]}))


def events(folder: Path) -> list[Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return list(read.Scalars("norm"))


def test_tensorboard_shows_the_same_curve_also_of_a_resumed_training_and_no_times(tmp_path: Path) -> None:
    compute = Compute(checkpoint=tmp_path / "kept")
    with pytest.raises(Interrupted):
        go(Stopping(TensorBoard(tmp_path / "board", metrics=METRICS), 100, after=True), compute=compute)
    assert [event.step for event in events(tmp_path / "board")] == [*range(0, 101, 10)]
    go(TensorBoard(tmp_path / "board", metrics=METRICS), compute=compute)
    go(JsonLines(tmp_path / "curve", metrics=METRICS))
    found, expected = events(tmp_path / "board"), lines(tmp_path / "curve")
    assert [event.step for event in found] == [line["step"] for line in expected]
    assert [event.value for event in found] == pytest.approx([line["norm"] for line in expected])
    assert len({event.wall_time for event in found}) == 2  # one of each process, and none of a step


def test_without_tensorboard_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        TensorBoard(tmp_path, metrics=METRICS)
