"""What lets a kernel be used: one check of its own, outside of any capture, that found nothing off; whatever else is said."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from honestdp.kernels import checked
from honestdp.kernels.checked import Bound, Call

CPU, GPU = torch.device("cpu"), torch.device("cuda")
KEYS = itertools.count()


class Kernel:
    """One that is so far off, and knows how often it was called."""

    def __init__(self, off: float = 0.0, trouble: Exception | None = None) -> None:
        self.off, self.trouble, self.calls, self.key = off, trouble, 0, next(KEYS)

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        assert not torch.is_grad_enabled()
        if self.trouble is not None:
            raise self.trouble
        return x + self.off

    def used(self, device: torch.device = CPU, key: object = None) -> bool:
        def inputs(whole: bool) -> Call:
            return [torch.ones(3, dtype=torch.float64)], {}

        def exactly(whole: bool, call: Call, made: list[Any], right: list[Any]) -> Iterable[Bound]:
            return [(made[0], right[0], 0.0)]

        own = (self.key, key)
        return checked.checked(self, torch.clone, own, exactly, inputs=inputs, device=device, name="forward of 3")


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "honestdp.kernels")


def test_a_kernel_is_compared_once_for_each_key(caplog: pytest.LogCaptureFixture) -> None:
    right, wrong = Kernel(), Kernel(1.0)
    assert [right.used(), right.used()] == [True, True]
    assert right.calls == 2  # of whole numbers, and of others
    assert [wrong.used(), wrong.used()] == [False, False]
    assert wrong.calls == 1
    right.off = 1.0
    assert right.used()
    assert not right.used(key="another shape")
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (Kernel(1e-10), "forward of 3 is off from tensor operations by 1.0e-10 on cpu"),
        (Kernel(math.inf), "forward of 3 is off from tensor operations by inf on cpu"),
        (Kernel(math.nan), "forward of 3 is off from tensor operations by inf on cpu"),
        (Kernel(trouble=RuntimeError("of 7 records")), "forward of 3 does not run (RuntimeError) on cpu"),
    ],
    ids=["a little", "infinitely", "NaN", "does not run"],
)
def test_one_that_is_off_or_does_not_run_is_not_used_and_is_named(
    kernel: Kernel, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not kernel.used()
    assert caplog.messages == [f"{said}: tensor operations do it, slower"]


def test_where_memory_ends_nothing_is_learnt_of_a_kernel() -> None:
    kernel = Kernel(trouble=torch.OutOfMemoryError())
    with pytest.raises(torch.OutOfMemoryError):
        kernel.used()
    kernel.trouble = None
    assert kernel.used()


CAPTURES: dict[str, dict[str, Callable[[], object]]] = {
    "a graph is captured": {"is_current_stream_capturing": lambda: True, "get_sync_debug_mode": lambda: 0},
    "waiting is an error": {"is_current_stream_capturing": lambda: False, "get_sync_debug_mode": lambda: 2},
}


@pytest.mark.parametrize("when", CAPTURES)
def test_what_cannot_be_compared_now_is_not_used_and_is_compared_when_it_can_be(
    when: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kernel, earlier = Kernel(), Kernel()
    for name in CAPTURES[when]:
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    assert earlier.used(GPU)
    for name, told in CAPTURES[when].items():
        monkeypatch.setattr(torch.cuda, name, told)
    assert [kernel.used(GPU), kernel.used(GPU)] == [False, False]
    assert kernel.calls == 0
    assert earlier.used(GPU)
    (said,) = caplog.messages
    assert said.startswith("forward of 3 was not checked before a graph was captured on cuda")
    for name in CAPTURES[when]:
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    assert kernel.used(GPU)
    assert (kernel.calls, earlier.calls) == (2, 2)
