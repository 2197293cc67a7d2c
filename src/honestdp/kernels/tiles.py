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


def product_tiles(read: int, made: int) -> tuple[int, int, int, int, int]:
    """The tiles of `forward` and `back` by the channels that they read and make."""
    n = power(made, 64)
    if read % 32 == 0 and (n == 64 or (n == 32 and read >= 64)):
        return 256, n, 32, 8, 3
    return (128, n, 16, 8, 3) if n == 16 and read < 32 else (128, n, 16, 4, 4)


def gradient_tiles(shape: Shape) -> tuple[int, int, int, int, int, int]:
    """Of a gradient, the same for the norm and for the sum: the two must come from the same numbers."""
    if 16 < shape.rows <= 32 and shape.columns > 256:
        return 32, 128, 32, 4, 3, 0
    return power(shape.rows, 64), power(shape.columns, 32), 64, 2, 2, 0
