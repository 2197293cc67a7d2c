"""When a small kernel is used: where it gives what tensor operations give; one that loses noise or shortens a norm never is."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from honestdp import kernels
from honestdp.boundary.rounding import _TO_WHOLE, FINENESS
from honestdp.kernels import checked
from honestdp.kernels.checked import CheckedPasses
from honestdp.kernels.tensors import PLAIN, Passes

SHIFT = 2 * FINENESS * _TO_WHOLE
RUNS, LOT = 2, 20


def given(name: str, width: int) -> tuple[list[Any], dict[str, Any]]:
    """What a step gives this operation."""
    torch.manual_seed(3)
    rows, weights = torch.randn(RUNS, LOT, width), torch.rand(RUNS, LOT)
    weights[0, 1] = 0
    pixels = torch.randint(0, 256, (50, width), dtype=torch.uint8)
    ways: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "gather": ([pixels, torch.arange(50), torch.randint(0, 50, (RUNS * LOT,)), 1 / 255], {}),
        "weigh": ([rows, weights], {}),
        "widened": ([rows, weights], {}),
        "differs": ([rows.view(torch.int32), rows.clone().view(torch.int32), torch.zeros((), dtype=torch.bool)], {}),
        "noisy": (
            [torch.randn(RUNS, width, dtype=torch.float64), torch.randn(RUNS, width), torch.tensor([1.0, 0.01])],
            {"shift": SHIFT},
        ),
        "outer_square_norms": ([rows, torch.randn(RUNS, LOT, 7)], {"right_is_norms": False, "shift": True}),
    }
    return ways[name]


NAMES = ("gather", "weigh", "widened", "differs", "noisy", "outer_square_norms")


def made(way: Any, name: str, width: int) -> list[Tensor]:
    values, how = given(name, width)
    found = getattr(way, name)(*values, **how)
    return [values[2]] if found is None else list(found) if isinstance(found, tuple) else [found]


class Counted(Passes):
    """Tensor operations that pass for kernels, with one of them done otherwise where that is asked for."""

    def __init__(self, name: str, otherwise: Callable[..., Any] | None = None) -> None:
        self.calls = 0
        usual = getattr(Passes(), name)

        def counted(*values: Any, **how: Any) -> Any:
            self.calls += 1
            return usual(*values, **how) if otherwise is None else otherwise(usual, *values, **how)

        setattr(self, name, counted)


@pytest.mark.parametrize("width", [1, 16, 37])
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_that_gives_the_right_numbers_is_used(name: str, width: int, caplog: Any) -> None:
    kernels = Counted(name)
    tried = CheckedPasses(kernels)
    made(tried, name, width)
    before = kernels.calls
    found = made(tried, name, width)
    assert kernels.calls == before + 1  # nothing is tried twice
    assert not caplog.records
    assert all(torch.equal(one, other) for one, other in zip(found, made(PLAIN, name, width), strict=True))


def no_noise(usual: Any, drawn: Tensor, *rest: Any, **how: Any) -> Any:
    return usual(torch.zeros_like(drawn), *rest, **how)


def less_noise(usual: Any, drawn: Tensor, *rest: Any, **how: Any) -> Any:
    return usual(drawn * 0.99, *rest, **how)


def noise_of_another(usual: Any, drawn: Tensor, total: Tensor, deviation: Tensor, **how: Any) -> Any:
    return usual(drawn, total, deviation.flip(0), **how)


def one_number_without(usual: Any, drawn: Tensor, *rest: Any, **how: Any) -> Any:
    drawn = drawn.clone()
    drawn[-1, -1] = 0
    return usual(drawn, *rest, **how)


def finer(usual: Any, *values: Any, shift: float) -> Any:
    return usual(*values, shift=shift * 2.0**-30)


def infinite(usual: Any, *values: Any, **how: Any) -> Any:
    return usual(*values, **how) * float("nan")


def shorter(usual: Any, *values: Any, **how: Any) -> Any:
    return usual(*values, **how) * 0.999


def shorter_norms(usual: Any, *values: Any) -> Any:
    x, labels, norms = usual(*values)
    return x, labels, norms * 0.999


def neighbours(usual: Any, rows: Tensor, labels: Tensor, index: Tensor, scale: float) -> Any:
    return usual(rows, labels, (index + 1) % len(rows), scale)


def unsilenced(usual: Any, rows: Tensor, weights: Tensor) -> Any:
    return rows * weights[..., None]


def never(usual: Any, one: Tensor, other: Tensor, flag: Tensor) -> None:
    return None


def but_for_the_last(usual: Any, one: Tensor, other: Tensor, flag: Tensor) -> None:
    usual(one.flatten()[:-1], other.flatten()[:-1], flag)


def does_not_compile(usual: Any, *values: Any, **how: Any) -> Any:
    raise RuntimeError("of 7 records")


FAULTS = [
    *(("noisy", fault) for fault in (no_noise, less_noise, noise_of_another, one_number_without, finer, infinite)),
    *(("outer_square_norms", fault) for fault in (shorter, infinite)),
    *(("gather", fault) for fault in (shorter_norms, neighbours)),
    *((name, fault) for name in ("weigh", "widened") for fault in (unsilenced, shorter)),
    *(("differs", fault) for fault in (never, but_for_the_last)),
    *((name, does_not_compile) for name in NAMES),
]


@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_one_that_does_not_is_replaced_and_that_is_said(
    name: str, fault: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "honestdp.kernels"):
        found = made(CheckedPasses(Counted(name, fault)), name, 37)
    assert all(torch.equal(one, other) for one, other in zip(found, made(PLAIN, name, 37), strict=True))
    assert name in caplog.text
    assert "slower" in caplog.text
    assert "records" not in caplog.text


def gapped(value: Any) -> Any:
    """The same numbers, which do not lie one after the other."""
    return torch.stack([value, value], -1)[..., 0] if isinstance(value, Tensor) and value.dim() else value


@pytest.mark.parametrize("name", NAMES)
def test_no_kernel_is_given_what_does_not_lie_one_after_the_other(name: str) -> None:
    """They go by addresses: of weights that are one number for many places they read the next run's, and what lies behind."""
    values, how = given(name, 37)
    lying = [gapped(value) for value in values]
    assert not any(value.is_contiguous() for value in lying if isinstance(value, Tensor) and value.dim())

    def insisting(usual: Any, *got: Any, **how: Any) -> Any:
        assert all(value.is_contiguous() for value in got if isinstance(value, Tensor))
        return usual(*got, **how)

    tried = CheckedPasses(Counted(name, insisting))
    getattr(tried, name)(*lying, **how)
    assert tried._kernels.calls > 1


def test_a_difference_is_found_by_what_stands_in() -> None:
    flag, one = torch.zeros((), dtype=torch.bool), torch.arange(40)
    other = one.clone()
    other[-1] = 7
    CheckedPasses(Counted("differs", never)).differs(one, other, flag)
    assert flag.item()


@pytest.mark.parametrize("name", NAMES)
def test_what_was_not_tried_before_a_capture_is_not_in_it(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checked, "_can_wait", lambda device: False)
    kernels = Counted(name, does_not_compile)
    with caplog.at_level(logging.WARNING, "honestdp.kernels"):
        made(CheckedPasses(kernels), name, 37)
    assert kernels.calls == 0
    assert "captured" in caplog.text


def beside(value: Tensor) -> Tensor:
    """The same numbers, beginning one number later than memory that was asked for does."""
    return torch.empty(value.numel() + 1, dtype=value.dtype)[1:].view(value.shape).copy_(value)


OTHER_DTYPE = {torch.float32: torch.float64, torch.float64: torch.float32, torch.uint8: torch.float32}
OTHER_DTYPE |= {torch.int64: torch.int32, torch.int32: torch.int64}
Call = tuple[list[Any], dict[str, Any]]


def others(name: str) -> dict[str, Call]:
    """What `given(name, 37)` becomes where one thing is otherwise of all that a compiler makes another kernel for."""
    values, how = given(name, 37)
    found = {"another width": given(name, 38)}
    for at, value in enumerate(values):
        if isinstance(value, Tensor):
            ways = {"beginning elsewhere": beside(value)}
            if value.dtype in OTHER_DTYPE:
                ways["of another dtype"] = value.to(OTHER_DTYPE[value.dtype])
            found |= {f"{at} {way}": ([*values[:at], other, *values[at + 1 :]], how) for way, other in ways.items()}
    if name == "gather":
        found["another scale"] = ([*values[:3], 0.5], how)
    if name == "noisy":
        found["another grid"] = (values, {"shift": 2 * SHIFT})
    if name in ("weigh", "widened", "outer_square_norms"):
        found["fewer examples"] = ([value[:, 1:].contiguous() for value in values], how)
    if name == "outer_square_norms":
        found["a wider factor"] = ([values[0], torch.randn(RUNS, LOT, 8)], how)
        found["its norms"] = ([values[0], torch.rand(RUNS, LOT)], how | {"right_is_norms": True})
        found["without a shift"] = (values, how | {"shift": False})
    return found


@pytest.mark.parametrize("name", NAMES)
def test_another_width_dtype_begin_or_setting_is_another_kernel_and_tried_by_itself(name: str) -> None:
    kernels = Counted(name)
    tried = CheckedPasses(kernels)
    for what, (values, how) in {"as usual": given(name, 37), **others(name)}.items():
        calls = []
        for _ in range(2):
            before = kernels.calls
            getattr(tried, name)(*values, **how)
            calls.append(kernels.calls - before)
        assert calls[0] > 1, what  # of made-up numbers first
        assert calls[1] == 1, what


def test_what_a_kernel_has_shown_is_not_believed_of_another() -> None:
    """Two that are asked with the same tensors."""
    tried = CheckedPasses(Counted("widened", shorter))
    values, _ = given("weigh", 37)
    tried.weigh(*values)
    assert torch.equal(tried.widened(*values), PLAIN.widened(*values))


def test_few_made_up_examples_stand_for_as_many_as_a_compiler_makes_the_same_kernel_of() -> None:
    for count in (1, 2, 15, 16, 32, 33, 48, 1000, 1024, 25081):
        few = checked.few(count)
        assert (few == 1) == (count == 1)
        assert few % 16 == count % 16
        assert few <= 32
        assert checked.few(count, 4096) == (count if count <= 4096 else 4096 + count % 16)


def test_the_small_kernels_are_handed_out_as_tried_ones_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gpu:
        type = "cuda"

    monkeypatch.setitem(sys.modules, "honestdp.kernels.fused", Counted("gather"))
    monkeypatch.setattr(torch, "zeros", lambda *size, device=None, **how: torch.empty(*size, **how).zero_())
    assert isinstance(kernels.on.__wrapped__(Gpu()), CheckedPasses)
