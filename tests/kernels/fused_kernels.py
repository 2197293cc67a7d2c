"""The GPU kernels against the tensor operations they stand for.

    python -m tests.kernels.fused_kernels [cuda]

On a CPU it needs Triton's interpreter: TRITON_INTERPRET=1. test_fused.py runs it so, tests/gpu_checks.py on a GPU.
"""

from __future__ import annotations

import math
import sys

import torch
from torch import Tensor

INF, NAN = math.inf, math.nan


def compare(device: torch.device) -> str:
    from honestdp.kernels import fused

    torch.manual_seed(1)
    for width in (1, 3, 784, 2048, 5000):
        for rows in (
            torch.randint(0, 256, (40, width), dtype=torch.uint8, device=device),
            torch.randn(40, width, device=device),
            torch.randn(40, width, device=device).half(),
        ):
            _gathers(fused, rows)
    wild = torch.tensor([[NAN, 1.0], [INF, 1.0], [1e30, 1.0], [1e-30, 0.0], [0.0, 0.0], [3.0, 4.0]], device=device)
    every = torch.arange(6, device=device)
    _, labels, norms = fused.gather(wild, every.flip(0), every, 1.0)
    assert labels.tolist() == [5, 4, 3, 2, 1, 0]
    assert norms.isnan().tolist() == [True, False, False, False, False, False]
    assert norms[1:].tolist() == [INF, INF, 0.0, 0.0, 5.0]
    for width in (1, 10, 100, 3000):
        _weighs(fused, width, device)
        for shift in (False, True):
            _multiplies(fused, width, shift, device)
        _rounds(fused, width, device)
        _compares(fused, width, device)
    for rows, lot in ((1, 1), (5, 40), (16, 130), (300, 300)):
        _adds(rows, lot, device)
    return (
        "gathered rows, labels and norms, norms of products, weighted rows, "
        "sums of kept gradients, rounded sums, NaN and infinity among them"
    )


def _gathers(fused, rows: Tensor) -> None:
    from honestdp.boundary.records import PIXEL, prepared

    index = torch.randint(0, len(rows), (7,), device=rows.device)
    labels = torch.randn(len(rows), device=rows.device)
    x, chosen, norms = fused.gather(rows, labels, index, PIXEL if rows.dtype == torch.uint8 else 1.0)
    assert torch.equal(chosen, labels[index])
    assert torch.equal(x, prepared(rows[index], torch.float32)), (rows.shape, rows.dtype)
    torch.testing.assert_close(norms, torch.linalg.vector_norm(x, dim=1))


def _weighs(fused, width: int, device: torch.device) -> None:
    rows, weights = torch.randn(2, 13, width, device=device), torch.rand(2, 13, device=device)
    expected = rows * weights[..., None]
    rows[0, 1], rows[0, 2], rows[1, 4, 0] = NAN, INF, -INF
    weights[0, 1] = weights[0, 2] = weights[1, 4] = 0
    expected[0, 1] = expected[0, 2] = expected[1, 4] = 0
    assert torch.equal(fused.weigh(rows, weights), expected)
    wide = fused.widened(rows, weights)
    assert wide.dtype == torch.float64
    assert torch.equal(wide, torch.where((weights != 0)[..., None], rows, 0).double())


def _adds(rows: int, lot: int, device: torch.device) -> None:
    """Of lots that fill several programs, or end early, or have gaps or nothing in them."""
    from honestdp.kernels import Shape, gradients

    shape = Shape(3, 1, 1, rows, 1, 1, (1, 1), (1, 1), (0, 0), (1, 1))
    kept, weights = torch.randn(4, lot, rows * 4, device=device), torch.rand(4, lot, device=device)
    weights[0, lot // 2 :], weights[1, ::3], weights[2] = 0, 0, 0
    counted = (weights != 0)[..., None]
    wide, shares = torch.where(counted, kept, 0).double(), weights.double()[:, None]
    wanted, most = torch.bmm(shares, wide)[:, 0], torch.bmm(shares, wide.abs())[:, 0]
    kept = torch.where(counted, kept, NAN)
    for dtype, digits in ((torch.float64, 45), (torch.float32, 18)):
        weight, shift = gradients.sum_rows(kept, weights, shape, bias=True, dtype=dtype)
        found = torch.cat([weight.reshape(4, -1), shift], 1)
        assert found.dtype == dtype
        assert ((found - wanted).abs() <= 2.0**-digits * most).all(), (rows, lot, dtype)


def _rounds(fused, width: int, device: torch.device) -> None:
    """Bit for bit, but where the product and the sum were rounded once and not twice: there one cell of the grid apart."""
    from honestdp.boundary.rounding import _TO_WHOLE, FINENESS, grid

    drawn = torch.randn(3, width, dtype=torch.float64, device=device)
    total, deviation = torch.randn(3, width, device=device), torch.tensor([0.3, 1e-5, 0.0], device=device)
    cells = grid(deviation)[:, None]
    shift = cells * _TO_WHOLE
    plain = drawn * deviation.double()[:, None] + total + shift - shift
    found = fused.noisy(drawn, total, deviation, shift=2 * FINENESS * _TO_WHOLE)
    assert found.dtype == torch.float32
    assert ((found - plain.float()).abs() <= cells).all()
    assert (found == plain.float()).float().mean() > 0.999
    assert (found[:1].double() / cells[:1]).frac().eq(0).all()
    assert torch.equal(found[2], total[2])


def _compares(fused, width: int, device: torch.device) -> None:
    one = torch.randint(0, 2**31 - 1, (3, width), dtype=torch.int32, device=device)
    flag, other = torch.zeros((), dtype=torch.bool, device=device), one.clone()
    fused.differs(one, other, flag)
    assert not flag.item()
    other[2, width - 1] ^= 1
    fused.differs(one, other, flag)
    assert flag.item()
    fused.differs(one, one, flag)
    assert flag.item()


def _multiplies(fused, width: int, shift: bool, device: torch.device) -> None:
    """Against the same formula on the CPU, which has no kernels."""
    from honestdp.gradients.forms import Outer

    left, right = torch.randn(2, 13, 1, width), torch.randn(2, 13, 1, 784)
    left[0, 0, 0, 0], left[0, 1, 0, 0], left[0, 2] = NAN, INF, 0
    right[1, 0, 0, 0], right[1, 1, 0, 0], right[1, 2] = NAN, INF, 0
    left[1, 3], right[1, 3] = 1e-30, 1e25
    plain = Outer(left, right, (width, 784), shift=shift).square_norms()
    there = left.flatten(2).to(device), right.flatten(2).to(device)
    squares = fused.outer_square_norms(*there, right_is_norms=False, shift=shift)
    torch.testing.assert_close(squares.cpu(), plain, equal_nan=True)
    norms = torch.linalg.vector_norm(there[1], dim=-1)
    known = fused.outer_square_norms(there[0], norms, right_is_norms=True, shift=shift)
    torch.testing.assert_close(known.cpu(), plain, equal_nan=True)


if __name__ == "__main__":
    print(compare(torch.device(sys.argv[1] if len(sys.argv) > 1 else "cpu")))
