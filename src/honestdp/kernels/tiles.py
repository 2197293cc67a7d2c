"""Tiles of the convolutions' kernels by the shapes of a layer, as measured on an H200, and the settings that kernels take.

The measurements are in docs/notes/convolution.md.
"""

from __future__ import annotations

import torch

from honestdp.kernels import Shape


def power(size: int, most: int) -> int:
    """The power of two that holds `size`, of at least 16, which products of tiles want, and at most `most`."""
    return max(16, min(most, 1 << (size - 1).bit_length()))


def precision() -> str:
    """Of products of float32: TensorFloat-32 where torch is told so, else three such products."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def settings(shape: Shape) -> tuple[int, ...]:
    """As the kernels take them; the sizes of the output are those after its pool."""
    sides = (shape.channels, shape.height, shape.width, shape.rows, *shape.pooled)
    return (*sides, *shape.kernel, *shape.stride, *shape.padding, *shape.dilation, shape.pool)


Tiles = tuple[int, ...]

MEASURED: dict[tuple[str, int, int, int], Tiles] = {}
"""The best tiles of layers that were measured, by what is done (forward, back, norms), channels, rows and height of the output.

They say how a product is divided up, and nothing of what it is. benchmarks/convolutions.py can try others.
"""


def _measured(what: str, shape: Shape) -> Tiles | None:
    return MEASURED.get((what, shape.channels, shape.rows, shape.out_height))


def product_tiles(shape: Shape, *, back: bool) -> Tiles:
    """The tiles of `forward` and `back`: positions, rows, columns, warps, and stages of loads; 0 of these where loads go through
    the first cache, one product ahead.
    """
    known = _measured("back" if back else "forward", shape)
    if known is not None:
        return known
    read, made = (shape.rows, shape.channels) if back else (shape.channels, shape.rows)
    n = power(made, 64)
    if read % 32 == 0 and (n == 64 or (n == 32 and read >= 64)):
        return 256, n, 32, 8, 3
    return (128, n, 16, 4, 0) if read == 16 else (128, n, 16, 4, 4)


def gradient_tiles(shape: Shape) -> Tiles:
    """Of a gradient, the same for the norm and for the sum: the two must come from the same numbers. Rows, columns, positions,
    warps, stages of loads, whether it is made the other way round, and how many tiles of columns one program makes.
    """
    known = _measured("norms", shape)
    if known is not None:
        return known
    if 16 < shape.rows <= 32 and shape.columns > 256:
        return 32, 128, 32, 4, 3, 0, 1
    return power(shape.rows, 64), power(shape.columns, 32), 64, 2, 2, 0, 1
