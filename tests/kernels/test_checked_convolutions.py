"""When a kernel is used: rounding never keeps it from that, and one wrong number among what it reads always does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from honestdp.kernels import Shape
from honestdp.kernels.checked import CheckedConvolutions
from honestdp.kernels.tensors import EXACT, STAND_IN

NAMES = ("forward", "back", "square_norms", "sum_rows", "weighted_sum", "unpool")
STRIDED = ((3, 3), (2, 2), (1, 1), (1, 1))
SHAPES = {
    "1-8": Shape(1, 28, 28, 8, 14, 14, *STRIDED),
    "8-16": Shape(8, 14, 14, 16, 7, 7, *STRIDED),
    "16-32": Shape(16, 7, 7, 32, 4, 4, *STRIDED),
    "32-64": Shape(32, 4, 4, 64, 2, 2, *STRIDED),
    "pool": Shape(16, 26, 26, 16, 24, 24, (3, 3), (1, 1), (0, 0), (1, 1), 2),
    "dilated": Shape(16, 9, 9, 16, 4, 4, (4, 4), (2, 2), (2, 1), (2, 1)),
}
SMALL = ("8-16", "32-64", "dilated")


@pytest.fixture(autouse=True)
def _in_tensor_float_32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def given(name: str, shape: Shape, runs: int = 2) -> tuple[list[Any], dict[str, Any]]:
    """What a step of these runs gives this operation: its tensors, and how it is asked."""
    x = torch.zeros(4 * runs, shape.channels, shape.height, shape.width).contiguous(memory_format=torch.channels_last)
    grad = torch.zeros(4 * runs, shape.rows, *shape.pooled).contiguous(memory_format=torch.channels_last)
    chosen = torch.zeros_like(grad, dtype=torch.uint8) if shape.pool > 1 else None
    weight, counts = (
        torch.zeros(runs, shape.rows, shape.channels, *shape.kernel),
        torch.full((runs,), 4, dtype=torch.int32),
    )
    kept, weights = torch.zeros(runs, 4, shape.rows * (shape.columns + 1)), torch.zeros(runs, 4)
    summed = {"bias": True, "dtype": torch.float64}
    ways: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "forward": ([x, weight, torch.zeros(runs, shape.rows)], {"relu": True, "counts": counts}),
        "back": ([grad, chosen, weight], {"counts": counts}),
        "square_norms": ([x, grad, chosen], {"runs": runs, "bias": True, "keep": False, "counts": counts}),
        "sum_rows": ([kept, weights], summed),
        "weighted_sum": ([x, grad, chosen, weights], summed),
        "unpool": ([grad, chosen], {"counts": counts}),
    }
    return ways[name]


def is_used(name: str, shape: Shape, kernel: Callable[..., Any], caplog: pytest.LogCaptureFixture, **more: Any) -> bool:
    """Whether this kernel is used there once it is asked for; else there is a warning."""
    called: list[bool] = []

    def noted(*args: Any, **how: Any) -> Any:
        called.append(
            len(args[0]) == (2 if name == "sum_rows" else 8) and not bool(args[0].any())
        )  # not made-up numbers
        return kernel(*args, **how)

    values, how = given(name, shape)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="honestdp.kernels"):
        asked = (*values, shape)
        getattr(CheckedConvolutions(SimpleNamespace(**{name: noted})), name)(*asked, **how | more)
    assert bool(caplog.messages) != called[-1]
    return called[-1]


def short(value: Any, digits: int) -> Any:
    """A factor as tensor cores read it: without all but its first binary digits."""
    if not isinstance(value, Tensor) or value.dtype != torch.float32 or value.dim() < 4:
        return value
    return value.clone().view(torch.int32).bitwise_and(-(1 << (23 - digits))).view(torch.float32)


def shortened(name: str, digits: int) -> Callable[..., Any]:
    def kernel(*args: Any, **how: Any) -> Any:
        factors = args if name == "unpool" else [short(each, digits) for each in args]
        return getattr(EXACT, name)(*factors, **how)

    return kernel


@pytest.mark.parametrize("at", SHAPES)
def test_no_rounding_of_tensorfloat_32_keeps_a_kernel_from_being_used(
    at: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 8-16 channels it did: made-up numbers cancelled to 0.8 % of their products, and a training was six times slower."""
    for name in NAMES:
        if name != "unpool" or SHAPES[at].pool > 1:
            assert is_used(name, SHAPES[at], shortened(name, 10), caplog), name


def test_kernels_of_fewer_digits_than_torch_is_told_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """bfloat16 in the place of TensorFloat-32, and that in the place of all digits. (Roundings of a norm alone average out.)"""
    for name in ("forward", "back", "square_norms", "weighted_sum"):
        torch.set_float32_matmul_precision("high")
        assert name == "square_norms" or not is_used(name, SHAPES["8-16"], shortened(name, 7), caplog)
        torch.set_float32_matmul_precision("highest")
        assert not is_used(name, SHAPES["8-16"], shortened(name, 10), caplog)
        assert is_used(name, SHAPES["8-16"], getattr(STAND_IN, name), caplog)


def beside(value: Tensor, dim: int) -> Tensor:
    """What is read where the last place along a dimension is taken for the one before it."""
    wrong = value.clone()
    wrong.select(dim, -1).copy_(value.select(dim, -2))
    return wrong


def one_more(value: Tensor) -> Tensor:
    """What is read where a single number is wrong, in the middle, where positions of every pool look at it."""
    wrong = value.clone()
    wrong[tuple(size // 2 for size in value.shape)] += 1
    return wrong


def misread(name: str, place: int, wrong: Callable[[Tensor], Tensor], by: int) -> Callable[..., Any]:
    """The operation with a fault in what it reads of one of its tensors, in TensorFloat-32."""
    right = shortened(name, 10)

    def kernel(*args: Any, **how: Any) -> Any:
        if place == by:
            return right(*args, **how | {"x": wrong(how["x"])})
        return right(*(wrong(each) if at == place else each for at, each in enumerate(args)), **how)

    return kernel


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at", [*SMALL, "pool"])
def test_a_kernel_that_reads_one_place_wrongly_is_not_used(
    name: str, at: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Any tap, channel, row, column, example or run taken for the one beside it, of any of its tensors; or one wrong number."""
    shape = SHAPES[at]
    if name == "unpool" and shape.pool == 1:
        return
    values, how = given(name, shape)
    tensors = [*values, how["x"]] if "x" in how else values
    for place, value in enumerate(tensors):
        if value is None:
            continue
        faults: list[Callable[[Tensor], Tensor]] = [
            partial(beside, dim=dim) for dim in range(value.dim()) if value.shape[dim] > 1
        ]
        mask = place == len(values) or (name, place) == ("channels_last", 1)  # of which the sign alone matters
        if value.dtype == torch.float32 and not mask:
            faults.append(one_more)
        for number, fault in enumerate(faults):
            wrong = misread(name, place, fault, len(values))
            assert not is_used(name, shape, wrong, caplog), (place, number)


def test_a_sum_of_kept_gradients_that_lets_through_what_has_no_weight_or_forgets_later_ones_is_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def let_through(kept: Tensor, weights: Tensor, *rest: Any, **how: Any) -> Any:
        nothing = torch.where((weights == 0)[..., None], kept * 0, kept)  # NaN times 0 is NaN
        return EXACT.sum_rows(nothing, torch.where(weights == 0, 1, weights), *rest, **how)

    def forgotten(kept: Tensor, weights: Tensor, *rest: Any, **how: Any) -> Any:
        place = torch.arange(weights.shape[1])
        return EXACT.sum_rows(kept, torch.where(place // 8 == 2, 0, weights), *rest, **how)

    for kernel in (let_through, forgotten):
        assert not is_used("sum_rows", SHAPES["8-16"], kernel, caplog), kernel


class Counted(TorchDispatchMode):
    """How many operations torch does within, and in which precisions they give numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.dtypes = 0, set[torch.dtype]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.count += 1
        self.dtypes |= {made.dtype} if isinstance(made, Tensor) else set()
        return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forward", "back", "square_norms", "weighted_sum", "unpool"])
def test_what_takes_a_kernels_place_goes_through_all_runs_and_examples_at_once(name: str) -> None:
    """It went run by run, in float64: 927 microseconds a step where a kernel takes 150."""
    shape, found = SHAPES["pool" if name == "unpool" else "8-16"], []
    for runs in (2, 4):
        values, how = given(name, shape, runs)
        with Counted() as seen:
            getattr(STAND_IN, name)(*values, shape, **how)
        found.append(seen.count)
        assert name in ("square_norms", "weighted_sum") or torch.float64 not in seen.dtypes
    assert found[0] == found[1]
