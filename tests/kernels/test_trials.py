"""What lets a kernel be used: one trial of its own, outside of any capture, that found nothing off; whatever else is said."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import pytest
import torch

from honestdp.kernels import trials
from honestdp.kernels.trials import Trials

CPU, GPU = torch.device("cpu"), torch.device("cuda")


class Trial:
    """One that finds a kernel so far off, and knows how often it was held."""

    def __init__(self, off: float = 0.0, trouble: Exception | None = None) -> None:
        self.off, self.trouble, self.held = off, trouble, 0

    def __call__(self) -> float:
        self.held += 1
        assert not torch.is_grad_enabled()
        if self.trouble is not None:
            raise self.trouble
        return self.off


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "honestdp.kernels")


def test_a_kernel_is_tried_once_and_another_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    known, right, wrong = Trials(), Trial(), Trial(1.0)
    assert [known.agreed("one", CPU, right), known.agreed("one", CPU, right)] == [True, True]
    assert [known.agreed("other", CPU, wrong), known.agreed("other", CPU, wrong)] == [False, False]
    assert known.agreed("one", CPU, wrong)
    assert (right.held, wrong.held) == (1, 1)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("trial", "said"),
    [
        (Trial(1e-30), "forward of 3 is off from tensor operations by 1.0e-30 on cpu"),
        (Trial(math.inf), "forward of 3 is off from tensor operations by inf on cpu"),
        (Trial(math.nan), "forward of 3 is off from tensor operations by nan on cpu"),
        (Trial(trouble=RuntimeError("of 7 records")), "forward of 3 does not run (RuntimeError) on cpu"),
    ],
    ids=["a little", "infinitely", "no number", "does not run"],
)
def test_one_that_is_off_or_does_not_run_is_not_used_and_is_named(
    trial: Trial, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not Trials().agreed("it", CPU, trial, "forward of", 3)
    assert caplog.messages == [f"{said}: tensor operations do it, slower"]


def test_where_memory_ends_nothing_is_learnt_of_a_kernel() -> None:
    known, small = Trials(), Trial(trouble=torch.OutOfMemoryError())
    with pytest.raises(torch.OutOfMemoryError):
        known.agreed("it", CPU, small)
    assert known.agreed("it", CPU, Trial())


CAPTURES: dict[str, dict[str, Callable[[], object]]] = {
    "a graph is captured": {"is_current_stream_capturing": lambda: True, "get_sync_debug_mode": lambda: 0},
    "waiting is an error": {"is_current_stream_capturing": lambda: False, "get_sync_debug_mode": lambda: 2},
}


@pytest.mark.parametrize("when", CAPTURES)
def test_what_cannot_be_tried_now_is_not_used_and_is_tried_when_it_can_be(
    when: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known, trial, earlier = Trials(), Trial(), Trial()
    assert known.agreed("earlier", CPU, earlier)
    for name, told in CAPTURES[when].items():
        monkeypatch.setattr(torch.cuda, name, told)
    assert [known.agreed("it", GPU, trial, "forward"), known.agreed("it", GPU, trial, "forward")] == [False, False]
    assert trial.held == 0
    assert known.agreed("earlier", GPU, earlier)
    (said,) = caplog.messages
    assert said.startswith("forward was not tried before a graph was captured on cuda")
    for name in CAPTURES[when]:
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    assert trials.waits(GPU)
    assert known.agreed("it", GPU, trial, "forward")
    assert (trial.held, earlier.held) == (1, 1)
