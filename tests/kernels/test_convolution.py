"""The GPU kernels of convolutions, in Triton's interpreter, against the tensor operations they stand for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from honestdp import kernels
from honestdp.gradients.layers import implicit
from honestdp.gradients.precision import products
from honestdp.kernels.agreement import disagreements
from honestdp.kernels.tiles import MEASURED, gradient_tiles, product_tiles
from honestdp.kernels.tried import Tried

from . import plain_convolution, plain_normalisation

CHECK = Path(__file__).resolve().parents[2] / "benchmarks" / "convolution_kernels.py"
NAMES = ("forward", "back", "unpool", "channels_last", "square_norms", "sum_rows", "weighted_sum")


def test_the_kernels_of_convolutions_agree_with_tensor_operations() -> None:
    pytest.importorskip(
        "triton",
        reason="TRITON IS NOT INSTALLED: the kernels are checked by benchmarks/convolution_kernels.py on a GPU",
    )
    told = {**os.environ, "TRITON_INTERPRET": "1"}
    found = subprocess.run([sys.executable, "-W", "ignore", str(CHECK)], env=told, capture_output=True, text=True)
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


@pytest.mark.parametrize("which", [0, 1, 2], ids=["the first", "the second", "the third"])
@pytest.mark.parametrize("module", [plain_convolution, plain_normalisation], ids=["convolutions", "norms"])
def test_kernels_are_used_only_where_they_give_what_torch_gives(module: ModuleType, which: int) -> None:
    """Also where what a kernel gives beside is wrong: gradients that are kept, the sum for a bias, a gain or a shift."""
    norms = module is plain_normalisation
    kind = "normalisation" if norms else "convolution"
    names = ("takes", "forward", "back") if norms else NAMES
    right = {name: getattr(module, name) for name in names}
    device = torch.device("cpu")
    assert disagreements(kind, SimpleNamespace(**right), device) == []
    for name in names:
        wrong = disagreements(kind, SimpleNamespace(**right | {name: _off(right[name], which)}), device)
        harmless = (name, which) == ("forward", 1) and not norms  # which positions: no number that could be scaled
        single = name in ("back", "unpool", "channels_last") and not norms  # one tensor, and no second
        parts = 3 if norms else 1 if single else 2
        assert bool(wrong) == (single or (which < parts and not harmless and name != "takes"))


def test_kernels_that_are_off_are_named_in_a_warning_with_how_far(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = SimpleNamespace(**{name: getattr(plain_convolution, name) for name in NAMES})
    wrong.back = _off(plain_convolution.back, 0)
    monkeypatch.setattr(kernels, "on", lambda device: wrong)
    monkeypatch.setitem(sys.modules, "honestdp.kernels.convolution", wrong)
    with caplog.at_level("WARNING", logger="honestdp.kernels"):
        assert kernels.convolutions.__wrapped__(torch.device("cpu")) is None
    (said,) = caplog.messages
    assert "NOT used on cpu" in said
    for part in ("back by 1.0e-01 (highest)", "back by 1.0e-01 (high)", "back with ReLU by 1.0e-01"):
        assert part in said
    assert "forward" not in said


def test_kernels_are_tried_with_the_digits_that_steps_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that is wrong in TensorFloat-32 alone, which no trial uses and every step does."""
    made = SimpleNamespace(**{name: getattr(plain_convolution, name) for name in NAMES})

    def back(*args: object, **kwargs: object) -> torch.Tensor:
        scale = 1 if torch.get_float32_matmul_precision() == "highest" else 0.9
        return scale * plain_convolution.back(*args, **kwargs)  # type: ignore[arg-type]

    made.back = back
    wrong = disagreements("convolution", made, torch.device("cpu"))
    assert wrong
    assert all(line.endswith("(high)") for line in wrong)
    assert torch.get_float32_matmul_precision() == "highest"


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
    out, chosen = way.forward(x, weight, bias, shape, relu=True, first=False, counts=counts)
    slopes = [] if chosen is None else [way.unpool(out, chosen, shape, counts=counts)]
    shares = torch.ones(2, 2)
    how = {"runs": 2, "bias": True, "counts": counts}
    norms = way.square_norms(x, out, chosen, shape, keep=False, **how)[0]
    kept = way.square_norms(x, out, chosen, shape, keep=True, **how)[1]
    sums = [way.weighted_sum(x, out, chosen, shares, shape, bias=True, dtype=torch.float64)]
    sums += [way.sum_rows(kept, shares, shape, bias=True, dtype=torch.float64)]
    whole = way.channels_last(out.contiguous(), None, counts=counts)
    back = [way.back(out, chosen, weight, shape, x=before, counts=counts) for before in (None, x)]
    return [out, *slopes, norms, kept, *sums[0], *sums[1], whole, *back]


@pytest.mark.parametrize("shape", [DILATED, POOLED], ids=["dilated", "pooled"])
@pytest.mark.parametrize("name", [None, *NAMES])
def test_a_kernel_that_is_off_at_a_shape_is_not_used_there(
    name: str | None, shape: kernels.Shape, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it is right at the shape that was tried first: a compiler makes another kernel of every shape."""
    made = SimpleNamespace(**{each: getattr(plain_convolution, each) for each in NAMES})
    if name is not None:
        right = getattr(made, name)

        def wrong(*args: Any, **how: Any) -> Any:
            found = right(*args, **how)
            if name != "channels_last" and shape not in args:
                return found
            parts = found if isinstance(found, tuple) else (found,)
            spoilt = parts[0].clone()
            spoilt[-1, -1] = spoilt[-1, -1] + 1
            return (spoilt, *parts[1:]) if isinstance(found, tuple) else spoilt

        setattr(made, name, wrong)
    assert disagreements("convolution", made, torch.device("cpu")) == [] or name == "channels_last"
    with caplog.at_level("WARNING", logger="honestdp.kernels"):
        found = _asked(Tried(made), shape)
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
"""Of so few positions that gradients are not kept between their norm and their sum."""


def _cut(values: torch.Tensor) -> torch.Tensor:
    """To the 11 digits of TensorFloat-32."""
    return (values.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("name", [None, "square_norms", "weighted_sum"])
def test_no_record_is_summed_with_more_than_its_norm_where_one_of_the_two_is_not_made_by_its_kernel(
    name: str | None,
) -> None:
    """It cancels in eleven digits and not in all of them, or the other way round: two ways would let it past the clip."""

    def square_norms(x: torch.Tensor, grad: torch.Tensor, chosen: Any, shape: Any, **how: Any) -> Any:
        return plain_convolution.square_norms(_cut(x), _cut(grad), chosen, shape, **how)

    def weighted_sum(x: torch.Tensor, grad: torch.Tensor, chosen: Any, weights: Any, shape: Any, **how: Any) -> Any:
        return plain_convolution.weighted_sum(_cut(x), _cut(grad), chosen, weights, shape, **how)

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
            how = implicit.Implicit(Tried(coarse), SMALL)
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
        squares, kept = Tried(_one_of_all(square_norms=square_norms)).square_norms(x, grad, None, DILATED, **how)
    assert ["square_norms" in said for said in caplog.messages] == [True]
    torch.testing.assert_close(squares, kept.square().sum(2))


def test_a_kernel_that_does_not_compile_at_a_shape_is_stood_in_for(caplog: pytest.LogCaptureFixture) -> None:
    """The charge has been made by then. What the compiler says is not repeated."""

    def back(*args: Any, **how: Any) -> Any:
        raise RuntimeError("out of resource: shared memory")

    with caplog.at_level("WARNING", logger="honestdp.kernels"):
        found = _asked(Tried(_one_of_all(back=back)), POOLED)
    assert [("does not run" in said, "back of" in said, "resource" in said) for said in caplog.messages] == [
        (True, True, False)
    ] * 2
    for one, other in zip(found, _asked(plain_convolution, POOLED), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-5, check_stride=False)


def test_a_kernel_that_could_not_be_tried_is_not_used_and_is_tried_when_it_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[bool] = []

    def back(*args: Any, **how: Any) -> Any:
        used.append(True)
        return plain_convolution.back(*args, **how)

    tried, x, weight = Tried(_one_of_all(back=back)), torch.ones(2, 4, 4, 4), torch.ones(1, 4, 3, 3, 3)
    monkeypatch.setattr("honestdp.kernels.tried._waits", lambda device: False)
    tried.back(x, None, weight, DILATED)
    assert not used
    monkeypatch.setattr("honestdp.kernels.tried._waits", lambda device: True)
    tried.back(x, None, weight, DILATED)
    assert len(used) == 3  # of made-up numbers twice


def test_a_kernel_is_tried_anew_where_numbers_begin_beside_a_line_of_memory() -> None:
    """One that reads whole lines is compiled for those that do not, and another for those that do."""
    starts: list[int] = []

    def channels_last(grad: torch.Tensor, after: torch.Tensor | None, **how: Any) -> Any:
        starts.append(grad.data_ptr() % 16)
        return plain_convolution.channels_last(grad, after, **how)

    tried, room = Tried(_one_of_all(channels_last=channels_last)), torch.ones(41)
    for first in (0, 1, 0):
        tried.channels_last(room[first : first + 40].view(2, 5, 2, 2), None)
    assert starts == [0, 0, 0, 4, 4, 4, 0]  # of made-up numbers twice
