"""The GPU kernels of convolutions, in Triton's interpreter, against the tensor operations they stand for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from honestdp import kernels
from honestdp.gradients import Prepared
from honestdp.gradients.layers import implicit
from honestdp.gradients.precision import products
from honestdp.kernels import checked
from honestdp.kernels.checked import CheckedConvolutions, CheckedNorms
from honestdp.kernels.tensors import EXACT_NORMS, NORMS, STAND_IN
from honestdp.kernels.tiles import MEASURED, gradient_tiles, product_tiles

from ..gradients.plain_autograd import assert_agrees, drawn
from . import plain_convolution, plain_normalisation

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("forward", "back", "unpool", "square_norms", "sum_rows", "weighted_sum")


@pytest.mark.slow
def test_the_kernels_of_convolutions_agree_with_tensor_operations() -> None:
    pytest.importorskip(
        "triton",
        reason="TRITON IS NOT INSTALLED: the kernels are checked by convolution_kernels.py on a GPU",
    )
    told = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.convolution_kernels"]
    found = subprocess.run(command, env=told, capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stderr


def _off(right: Callable[..., Any], which: int) -> Callable[..., Any]:
    """The same, but for one of the tensors that it gives, which is a tenth off."""

    def off(*args: object, **kwargs: object) -> object:
        made = right(*args, **kwargs)
        if isinstance(made, torch.Tensor):
            return 1.1 * made
        scales = [
            0.9 if at == which and part is not None and part.is_floating_point() else 1 for at, part in enumerate(made)
        ]
        return tuple(part if scale == 1 else scale * part for part, scale in zip(made, scales, strict=True))

    return off


def _normed(way: Any, groups: int) -> list[torch.Tensor]:
    """All that a step asks of a norm of groups, of two runs."""
    draws = torch.Generator().manual_seed(1)
    x, slopes = (
        torch.randn(4, 4, 3, 5, generator=draws).contiguous(memory_format=torch.channels_last) for _ in range(2)
    )
    gain, shift = torch.randn(2, 4, generator=draws), torch.randn(2, 4, generator=draws)
    assert way.takes(x, groups)
    out, means, scales = way.forward(x, gain, shift, groups, 1e-5)
    bare = way.forward(x, None, None, groups, 1e-5)
    return [out, means, scales, *bare, *way.back(x, slopes, gain, means, scales, groups)]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_norm_of_groups_by_tensor_operations_is_torchs(groups: int) -> None:
    """Its outputs, and the gradients of input, gain and shift, which autograd gives."""
    draws = torch.Generator().manual_seed(1)
    x = (3 * torch.randn(4, 4, 3, 5, generator=draws) + 1).requires_grad_()
    gain, shift = torch.randn(2, 4, generator=draws), torch.randn(2, 4, generator=draws)
    each = [value.repeat_interleave(2, 0).requires_grad_() for value in (gain, shift)]
    wanted = F.group_norm(x, groups, eps=1e-5) * each[0][..., None, None] + each[1][..., None, None]
    slopes = torch.randn(wanted.shape, generator=draws)
    right = torch.autograd.grad(wanted, [x, *each], slopes)
    for way in (NORMS, EXACT_NORMS):
        out, means, scales = way.forward(x.detach(), gain, shift, groups, 1e-5)
        found = way.back(x.detach(), slopes, gain, means, scales, groups)
        for one, other in zip((out, *found), (wanted.detach(), *right), strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("which", [None, 0, 1, 2], ids=["right", "the first", "the second", "the third"])
@pytest.mark.parametrize("name", ["forward", "back"])
def test_kernels_of_norms_are_used_only_where_they_give_what_torch_gives(
    name: str, which: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where what a kernel gives beside is wrong: the statistics, the gradients of gain and shift."""
    right = {each: getattr(plain_normalisation, each) for each in ("takes", "forward", "back")}
    wrong = right | ({} if which is None else {name: _off(right[name], which)})
    with caplog.at_level("WARNING", logger="honestdp.kernels"):
        found = _normed(CheckedNorms(SimpleNamespace(**wrong)), 2)
    assert {message.split(" of ")[0] for message in caplog.messages} == (set() if which is None else {name})
    for one, other in zip(found, _normed(plain_normalisation, 2), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4, check_stride=False)


def test_a_norm_is_checked_anew_where_its_kernel_is_another(caplog: pytest.LogCaptureFixture) -> None:
    """Of more positions, other groups, or without a gain."""
    asked: list[tuple[Any, ...]] = []

    def forward(x: torch.Tensor, gain: Any, shift: Any, groups: int, eps: float) -> Any:
        asked.append((x.shape[1:], gain is None, groups))
        return plain_normalisation.forward(x, gain, shift, groups, eps)

    way = CheckedNorms(SimpleNamespace(forward=forward))
    x, gain = torch.randn(4, 4, 3, 5), torch.randn(2, 4)
    for call in (
        (x, gain, None, 2, 1e-5),
        (x[..., 1:], gain, None, 2, 1e-5),
        (x, None, gain, 2, 1e-5),
        (x, gain, None, 1, 1e-5),
    ):
        before = len(asked)
        way.forward(*call)
        assert asked[before:] == 3 * [asked[-1]]  # of synthetic numbers twice
        way.forward(*call)
        assert len(asked) == before + 4


@pytest.fixture
def shortened() -> Iterator[None]:
    """As in a step on a GPU."""
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.usefixtures("shortened")
def test_kernels_are_tried_with_the_digits_that_steps_have(caplog: pytest.LogCaptureFixture) -> None:
    """A product that is wrong in TensorFloat-32 alone, which no trial uses and every step does."""

    def back(*args: Any, **how: Any) -> torch.Tensor:
        return (1 if torch.get_float32_matmul_precision() == "highest" else 0.9) * plain_convolution.back(*args, **how)

    way = CheckedConvolutions(_one_of_all(back=back))
    torch.set_float32_matmul_precision("highest")
    with caplog.at_level("WARNING", logger="honestdp.kernels"):
        right = _asked(way, POOLED)
        assert not caplog.messages
        torch.set_float32_matmul_precision("high")
        found = _asked(way, POOLED)
    assert len(caplog.messages) == 1
    assert all(message.startswith("back of ") and "(high)" in message for message in caplog.messages)
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other)


DILATED = kernels.Shape(3, 7, 7, 4, 4, 4, (3, 3), (2, 2), (2, 2), (2, 2))
POOLED = kernels.Shape(3, 6, 6, 4, 6, 6, (3, 3), (1, 1), (1, 1), (1, 1), 2)


def _asked(way: Any, shape: kernels.Shape) -> list[torch.Tensor]:
    """Of a way to convolve all that a step asks for."""
    x = torch.randn(4, shape.channels, shape.height, shape.width, generator=torch.Generator().manual_seed(1))
    weight, bias, counts = (
        x.new_ones(2, shape.rows, shape.channels, 3, 3),
        x.new_ones(2, shape.rows),
        torch.tensor([2, 2]),
    )
    out, chosen = way.forward(x, weight, bias, shape, relu=True, counts=counts)
    slopes = [] if chosen is None else [way.unpool(out, chosen, shape, counts=counts)]
    shares = torch.ones(2, 2)
    how = {"runs": 2, "bias": True, "counts": counts}
    norms = way.square_norms(x, out, chosen, shape, keep=False, **how)[0]
    kept = way.square_norms(x, out, chosen, shape, keep=True, **how)[1]
    sums = [way.weighted_sum(x, out, chosen, shares, shape, bias=True, dtype=torch.float64)]
    sums += [way.sum_rows(kept, shares, shape, bias=True, dtype=torch.float64)]
    back = way.back(out, chosen, weight, shape, counts=counts)
    return [out, *slopes, norms, kept, *sums[0], *sums[1], back]


@pytest.mark.parametrize("shape", [DILATED, POOLED], ids=["dilated", "pooled"])
@pytest.mark.parametrize("name", [None, *NAMES])
def test_a_kernel_that_is_off_at_a_shape_is_not_used_there(
    name: str | None, shape: kernels.Shape, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it is right at another: a compiler makes another kernel of every shape."""
    made = SimpleNamespace(**{each: getattr(plain_convolution, each) for each in NAMES})
    if name is not None:
        right = getattr(made, name)

        def wrong(*args: Any, **how: Any) -> Any:
            found = right(*args, **how)
            if shape not in args:
                return found
            parts = found if isinstance(found, tuple) else (found,)
            spoilt = parts[0].clone()
            spoilt[-1, -1] = spoilt[-1, -1] + 1
            return (spoilt, *parts[1:]) if isinstance(found, tuple) else spoilt

        setattr(made, name, wrong)
    with caplog.at_level("WARNING", logger="honestdp.kernels"):
        found = _asked(CheckedConvolutions(made), shape)
    asked = name is not None and (name != "unpool" or shape is POOLED)
    assert bool(caplog.messages) == asked
    assert all(
        message.startswith(f"{name} of ") and "off from tensor operations" in message for message in caplog.messages
    )
    for one, other in zip(found, _asked(plain_convolution, shape), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-5, check_stride=False)


def test_a_layer_near_a_measured_one_takes_its_tiles() -> None:
    """Of another height, but the same channels and kernel; any other layer goes by the rule."""
    measured = kernels.Shape(16, 26, 26, 32, 24, 24, (3, 3), (1, 1), (0, 0), (1, 1))
    for height in (8, 10, 30):
        assert gradient_tiles(measured._replace(out_height=height)) == MEASURED["norms", 16, 32, 10]
        assert product_tiles(measured._replace(out_height=height), back=True) == MEASURED["back", 16, 32, 10]
    wider = measured._replace(kernel=(5, 5))
    assert gradient_tiles(wider) != MEASURED["norms", 16, 32, 10]
    rows, columns, _, _, _, _, turns = gradient_tiles(wider._replace(rows=64))
    assert rows == 64
    assert (turns - 1) * columns < wider.columns <= turns * columns


SMALL = kernels.Shape(1, 2, 2, 2, 2, 2, (1, 1), (1, 1), (0, 0), (1, 1))


def _cut(values: torch.Tensor) -> torch.Tensor:
    """To the 11 digits of TensorFloat-32."""
    return (values.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("name", [None, "square_norms", "weighted_sum"])
def test_no_record_is_summed_with_more_than_its_norm_where_one_of_the_two_is_not_made_by_its_kernel(
    name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cancels in eleven digits and not in all of them, or the other way round: two ways would let it past the clip."""

    def square_norms(x: torch.Tensor, grad: torch.Tensor, chosen: Any, shape: Any, **how: Any) -> Any:
        return plain_convolution.square_norms(_cut(x), _cut(grad), chosen, shape, **how)

    def weighted_sum(x: torch.Tensor, grad: torch.Tensor, chosen: Any, weights: Any, shape: Any, **how: Any) -> Any:
        return plain_convolution.weighted_sum(_cut(x), _cut(grad), chosen, weights, shape, **how)

    monkeypatch.setattr(implicit, "_KEPT", 0)  # so that no gradient is small enough to be kept between the two
    own = {"square_norms": square_norms, "weighted_sum": weighted_sum}
    if name is not None:
        own[name] = _off(own[name], 0)
    coarse = SimpleNamespace(**{each: getattr(plain_convolution, each) for each in NAMES} | own)
    large, more = 2.0**20, 1 + 2.0**-12  # of which the last digit is the thirteenth
    seen = {"in all digits": [large * more, large, 2.0**8, 0], "in eleven": [large * more, large, 0, 0]}
    for which, slopes in zip(
        seen, ([1.0, -1, -1, 0], [1.0, -1, 0, 0]), strict=True
    ):  # it cancels in the former, the latter
        x = torch.tensor([seen[which], [torch.inf, 1, 1, 1]]).view(2, 1, 2, 2)
        grad = torch.tensor([slopes, [0.0] * 4]).expand(2, 2, 4).reshape(2, 2, 2, 2)
        with products("high", torch.device("cpu")):
            how = implicit.Implicit(CheckedConvolutions(coarse), SMALL)
            form = implicit.Convolved(how, x, grad, None, 1, (2, 1, 1, 1), shift=True)
            squares = form.square_norms()
            weights = torch.where(squares.isfinite(), 1 / squares.sqrt().clamp(min=1), 0)
            totals = [torch.zeros(1, 2, 1, 1, 1), torch.zeros(1, 2)]
            form.add_weighted_sum(totals, weights, counted=None)
        assert torch.cat([total.flatten() for total in totals]).norm() <= 1.0001, which


def _one_of_all(**own: Any) -> SimpleNamespace:
    return SimpleNamespace(**{each: getattr(plain_convolution, each) for each in NAMES} | own)


def test_a_kernel_whose_norms_fall_short_of_what_it_keeps_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """By so little that both are what tensor operations give, to the digits of TensorFloat-32."""

    def square_norms(*args: Any, **how: Any) -> Any:
        squares, kept = plain_convolution.square_norms(*args, **how)
        return 0.995 * squares, kept

    x, grad = torch.ones(2, 3, 7, 7), torch.ones(2, 4, 4, 4)
    with products("high", torch.device("cpu")), caplog.at_level("WARNING", logger="honestdp.kernels"):
        how = {"runs": 1, "bias": True, "keep": True}
        squares, kept = CheckedConvolutions(_one_of_all(square_norms=square_norms)).square_norms(
            x, grad, None, DILATED, **how
        )
    assert ["square_norms" in said for said in caplog.messages] == [True]
    torch.testing.assert_close(squares, kept.square().sum(2))


def test_a_kernel_that_does_not_compile_at_a_shape_is_stood_in_for(caplog: pytest.LogCaptureFixture) -> None:
    """The charge has been made by then. What the compiler says is not repeated."""

    def back(*args: Any, **how: Any) -> Any:
        raise RuntimeError("out of resource: shared memory")

    with caplog.at_level("WARNING", logger="honestdp.kernels"):
        found = _asked(CheckedConvolutions(_one_of_all(back=back)), POOLED)
    assert [("does not run" in said, "back of" in said, "resource" in said) for said in caplog.messages] == [
        (True, True, False)
    ]
    for one, other in zip(found, _asked(plain_convolution, POOLED), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-5, check_stride=False)


def test_a_kernel_that_could_not_be_tried_is_not_used_and_is_tried_when_it_can_be(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That a graph is captured without it is said, once."""
    used: list[bool] = []

    def back(*args: Any, **how: Any) -> Any:
        used.append(True)
        return plain_convolution.back(*args, **how)

    way, x, weight = CheckedConvolutions(_one_of_all(back=back)), torch.ones(2, 4, 4, 4), torch.ones(1, 4, 3, 3, 3)
    monkeypatch.setattr("honestdp.kernels.checked._can_wait", lambda device: False)
    for _ in range(2):
        way.back(x, None, weight, DILATED)
    assert not used
    assert ["back of" in said and "not checked before a graph was captured" in said for said in caplog.messages] == [
        True
    ]
    monkeypatch.setattr("honestdp.kernels.checked._can_wait", lambda device: True)
    way.back(x, None, weight, DILATED)
    assert len(used) == 3  # of made-up numbers twice


def test_a_kernel_is_tried_anew_where_numbers_begin_beside_a_line_of_memory() -> None:
    """One that reads whole lines is compiled for those that do not, and another for those that do."""
    starts: list[int] = []

    def back(grad: torch.Tensor, *rest: Any, **how: Any) -> Any:
        starts.append(grad.data_ptr() % 16)
        return plain_convolution.back(grad, *rest, **how)

    way, room, weight = CheckedConvolutions(_one_of_all(back=back)), torch.ones(129), torch.ones(1, 4, 3, 3, 3)
    for first in (0, 1, 0):
        way.back(room[first : first + 128].view(2, 4, 4, 4), None, weight, DILATED)
    assert starts == [0, 0, 0, 4, 4, 4, 0]  # of made-up numbers twice


def _behind(counts: torch.Tensor, lot: int) -> torch.Tensor:
    return (torch.arange(lot) >= counts[:, None]).flatten()


def test_a_kernel_that_miscounts_its_members_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """One that leaves out a run's last member, or counts all runs by the first. What is behind the last may be anything."""
    ways: list[Callable[[torch.Tensor], torch.Tensor]] = [lambda c: c, lambda c: c - 1, lambda c: c[:1].expand(len(c))]
    for number, miscounted in enumerate(ways):

        def forward(*args: Any, counts: torch.Tensor, taken: Any = miscounted, **how: Any) -> Any:
            out, chosen = plain_convolution.forward(*args, **how)
            out[_behind(taken(counts), len(out) // len(counts))] = torch.nan
            return out, chosen

        with caplog.at_level("WARNING", logger="honestdp.kernels"):
            _asked(CheckedConvolutions(_one_of_all(forward=forward)), DILATED)
        assert len(caplog.messages) == number
    assert all(said.startswith("forward of ") for said in caplog.messages)


def test_what_lies_otherwise_is_tried_anew(caplog: pytest.LogCaptureFixture) -> None:
    """A kernel for pointers that 16 does not divide, and one for a stride of 0, are others: each is off here by itself."""
    shape, draws = DILATED._replace(kernel=(3, 3)), torch.Generator().manual_seed(1)
    weight, whole = torch.randn(1, 4, 3, 3, 3, generator=draws), torch.randn(1 + 2 * 147, generator=draws)
    lying = {
        "as usual": whole[:-1].view(2, 3, 7, 7),
        "off the grid": whole[1:].view(2, 3, 7, 7),
        "the same for all": whole[:147].view(1, 3, 7, 7).expand(2, 3, 7, 7),
    }
    where = {name: (x.data_ptr() % 16, x.stride()) for name, x in lying.items()}
    assert len(set(where.values())) == 3
    for wrong in lying:

        def forward(x: torch.Tensor, *args: Any, wrong: str = wrong, **how: Any) -> Any:
            out, chosen = plain_convolution.forward(x, *args, **how)
            return (1.1 if (x.data_ptr() % 16, x.stride()) == where[wrong] else 1) * out, chosen

        way = CheckedConvolutions(_one_of_all(forward=forward))
        for name, x in lying.items():
            caplog.clear()
            with caplog.at_level("WARNING", logger="honestdp.kernels"):
                found = way.forward(x, weight, None, shape)[0]
            assert bool(caplog.messages) == (name == wrong)
            torch.testing.assert_close(found, plain_convolution.forward(x, weight, None, shape)[0], check_stride=False)


def test_a_trial_compiles_no_kernel_and_a_kernel_that_is_off_changes_no_gradient(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The trial holds the links against autograd by tensor operations; a kernel is held against these where a step asks."""
    asked: list[str] = []

    def spied(name: str) -> Callable[..., Any]:
        def kernel(*args: Any, **how: Any) -> Any:
            asked.append(name)
            return _off(getattr(plain_convolution, name), 0)(*args, **how)

        return kernel

    way = CheckedConvolutions(_one_of_all(**{name: spied(name) for name in NAMES}))
    monkeypatch.setattr(kernels, "convolutions", lambda device: way)
    torch.manual_seed(1)
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(16, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 2)),
        *(nn.Tanh(), nn.Flatten(), nn.Linear(18, 3)),
    )
    params, x, y = drawn(model, 2, torch.float32), torch.randn(2, 4, 1, 14, 14), torch.randint(0, 3, (2, 4))
    prepared = Prepared(model, _loss)
    with torch.no_grad(), caplog.at_level("WARNING", logger="honestdp.kernels"):
        assert prepared.vet(params, x, y, examples=8).layers is not None
        assert asked == []
        assert not caplog.messages
        result = prepared(params, x, y, present=torch.ones(2, 4))
        result.weighted_sum(result.norms)
    assert_agrees(result, model, _loss, params, x, y)
    assert set(asked) == {"forward", "back", "square_norms", "sum_rows"}
    assert {message.split(" of ")[0] for message in caplog.messages} == set(asked)


def _loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, y, reduction="none")


def test_that_kernels_are_compiled_is_said_once_and_only_where_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = iter((0.0, 1.0, 5.0, 6.5, 7.0, 8.0, 9.0, 69.0))  # first calls of 1, 1.5, 1 and 60 seconds
    monkeypatch.setattr(checked, "_spent", 0.0)
    monkeypatch.setattr(checked, "monotonic", lambda: next(clock))
    with caplog.at_level("WARNING", logger="honestdp.kernels"):
        for call in range(4):
            with checked._compiled():
                pass
            assert bool(caplog.messages) == (call >= 2)
    (said,) = caplog.messages
    assert said.startswith("compiling kernels")


@pytest.mark.parametrize("other", ["digits", "runs", "layout", "settings"])
def test_what_has_agreed_is_believed_of_the_same_kernel_alone(other: str) -> None:
    """Of other digits, several runs, numbers that lie otherwise or another padding it is another one, which may be wrong."""
    x, weight = torch.ones(4, 4, 4, 4), torch.ones(2 if other == "runs" else 1, 4, 3, 3, 3)
    x = x.contiguous(memory_format=torch.channels_last) if other == "layout" else x
    padded = DILATED._replace(height=9, width=9, padding=(1, 1)) if other == "settings" else DILATED

    def back(grad: torch.Tensor, chosen: Any, weight: torch.Tensor, shape: Any, **how: Any) -> Any:
        here = {"digits": torch.get_float32_matmul_precision() == "high", "runs": len(weight) > 1}
        wrong = (here | {"settings": shape != DILATED}).get(other, grad.stride(1) == 1)
        return plain_convolution.back(grad, chosen, weight, shape, **how) + 5 * wrong

    tried = CheckedConvolutions(_one_of_all(back=back))
    tried.back(torch.ones(4, 4, 4, 4), None, torch.ones(1, 4, 3, 3, 3), DILATED)
    with products("high" if other == "digits" else "highest", torch.device("cpu")):
        found = tried.back(x, None, weight, padded)
    torch.testing.assert_close(found, plain_convolution.back(x, None, weight, padded), check_stride=False)


@pytest.mark.parametrize("other", ["sizes", "dtype"])
def test_nor_is_it_believed_of_tensors_of_other_sizes_or_digits(other: str) -> None:
    usual, chosen = torch.ones(2, 5, 3, 3), torch.zeros(2, 5, 3, 3, dtype=torch.uint8)
    grad = usual[:, :3] if other == "sizes" else usual.double()

    def unpool(given: torch.Tensor, *rest: Any, **how: Any) -> Any:
        wrong = (given.shape[1], given.dtype) == (grad.shape[1], grad.dtype)
        return plain_convolution.unpool(given, *rest, **how) + 5 * wrong

    tried = CheckedConvolutions(_one_of_all(unpool=unpool))
    for given in (usual, grad):
        picks = chosen[:, : given.shape[1]]
        wanted = plain_convolution.unpool(given, picks, POOLED)
        assert torch.equal(tried.unpool(given, picks, POOLED), wanted)


def test_a_kernel_that_is_wrong_about_which_position_of_a_pool_was_the_largest_is_not_used() -> None:
    """Though the largest number itself is right: its gradient would go elsewhere."""

    def forward(*args: Any, **how: Any) -> Any:
        out, chosen = plain_convolution.forward(*args, **how)
        return out, None if chosen is None else chosen.flip(2)

    x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    weight = torch.randn(1, 4, 3, 3, 3, generator=torch.Generator().manual_seed(2))
    found = CheckedConvolutions(_one_of_all(forward=forward)).forward(x, weight, None, POOLED)[1]
    assert torch.equal(found, plain_convolution.forward(x, weight, None, POOLED)[1])


def test_what_stands_in_for_a_kernel_reads_nothing_of_weight_zero() -> None:
    """Nor does it sum what is no number where the kernel had measured one."""
    x, grad, weights = torch.ones(2, 1, 2, 2), torch.ones(2, 2, 2, 2), torch.tensor([[1.0, 0.0]])
    x[1, 0, 0, 0] = torch.nan
    how: dict[str, Any] = {"bias": True, "dtype": torch.float64}
    kept = STAND_IN.square_norms(x, grad, None, SMALL, runs=1, bias=True, keep=True)[1]
    assert kept is not None
    sums = STAND_IN.sum_rows(kept, weights, SMALL, **how), STAND_IN.weighted_sum(x, grad, None, weights, SMALL, **how)
    for weight, shift in sums:
        assert weight.flatten().tolist() == [4, 4]
        assert shift is not None
        assert shift.flatten().tolist() == [4, 4]
    measured = STAND_IN.weighted_sum(x, grad, None, torch.ones(1, 2), SMALL, **how, squares=torch.ones(1, 2))
    assert all(part is not None and part.isfinite().all() for part in measured)


def test_a_kernel_that_gives_what_is_no_number_is_not_used() -> None:
    def back(*args: Any, **how: Any) -> Any:
        return torch.full_like(plain_convolution.back(*args, **how), torch.nan)

    assert (
        CheckedConvolutions(_one_of_all(back=back))
        .back(torch.ones(2, 4, 4, 4), None, torch.ones(1, 4, 3, 3, 3), DILATED)
        .isfinite()
        .all()
    )


@pytest.mark.parametrize(
    ("module", "family", "gate"),
    [("convolution", "convolutions", CheckedConvolutions), ("normalisation", "normalisations", CheckedNorms)],
)
def test_the_kernels_of_layers_are_handed_out_as_checked_ones_alone(
    module: str, family: str, gate: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _one_of_all()
    monkeypatch.setattr(kernels, "on", lambda device: made)
    monkeypatch.setitem(sys.modules, f"honestdp.kernels.{module}", made)
    assert type(getattr(kernels, family).__wrapped__(torch.device("cpu"))) is gate


def test_kernels_that_cannot_be_loaded_are_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with another compiler than they were written for."""
    monkeypatch.setattr(kernels, "on", lambda device: object())
    monkeypatch.setitem(sys.modules, "honestdp.kernels.convolution", None)
    with caplog.at_level("WARNING", logger="honestdp.kernels"):
        assert kernels.convolutions.__wrapped__(torch.device("cpu")) is None
    assert "NOT used on cpu" in caplog.messages[-1]
