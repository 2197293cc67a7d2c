"""Tiles of the convolutions' kernels by the shapes of a layer, as measured on an H200, and the settings that kernels take.

The measurements are in docs/notes/convolution.md.
"""

from __future__ import annotations

from collections import namedtuple

import torch

from honestdp.kernels import Shape


def power(size: int, most: int) -> int:
    """The power of two that holds `size`, of at least 16, which products of tiles want, and at most `most`."""
    return max(16, min(most, 1 << (size - 1).bit_length()))


def precision() -> str:
    """Of products of float32: TensorFloat-32 where torch is told so, else three such products."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


Settings = namedtuple("Settings", "C H W R OH OW KH KW SH SW PH PW DH DW POOL")
"""A convolution as one constant of a kernel: channels and sides of its input and of its output, which is that of its pool;
kernel, stride, padding, dilation and pool."""
Tile = namedtuple("Tile", "PRECISION O K P FLIP")
"""A product of a gradient, likewise: its precision, rows, columns and positions, and whether it is made the other way round."""


def settings(shape: Shape) -> Settings:
    sides = (shape.channels, shape.height, shape.width, shape.rows, *shape.pooled)
    return Settings(*sides, *shape.kernel, *shape.stride, *shape.padding, *shape.dilation, shape.pool)


# Kernels take something of the same dtype in the place of what is missing: for every list of dtypes a launcher is compiled, which
# takes half a second. Lots of every size share a kernel for the same reason (do_not_specialize).

Tiles = tuple[int, ...]

MEASURED: dict[tuple[str, int, int, int], Tiles] = {
    ("back", 16, 16, 24): (128, 16, 16, 4, -3),
    ("back", 16, 16, 32): (128, 16, 16, 4, 0),
    ("back", 16, 32, 10): (32, 16, 32, 1, 3),
    ("back", 32, 32, 16): (128, 32, 32, 4, 0),
    ("back", 32, 64, 8): (64, 32, 32, 4, 3),
    ("back", 32, 64, 11): (128, 32, 32, 4, 1),
    ("back", 64, 64, 8): (128, 64, 32, 4, -3),
    ("back by blocks", 16, 16, 24): (128, 64, 32, 8, 3, 2, 2),
    ("back by blocks", 16, 32, 10): (64, 32, 32, 4, 3, 1, 2),
    ("back by blocks", 32, 64, 8): (128, 64, 32, 4, 3, 1, 2),
    ("forward", 1, 16, 26): (128, 16, 16, 4, 4),
    ("forward", 1, 32, 26): (128, 32, 16, 4, 4),
    ("forward", 16, 16, 24): (128, 16, 16, 4, 2),
    ("forward", 16, 16, 32): (128, 16, 16, 4, 0),
    ("forward", 16, 32, 10): (128, 32, 16, 4, 0),
    ("forward", 32, 32, 16): (128, 32, 32, 4, 0),
    ("forward", 32, 64, 8): (128, 64, 32, 8, 3),
    ("forward", 32, 64, 11): (128, 64, 32, 4, 0),
    ("forward", 64, 64, 8): (128, 64, 32, 8, 3),
    ("forward by blocks", 16, 16, 24): (128, 64, 32, 4, 3, 2, 2),
    ("kept", 16, 16, 24): (16, 16, 16, 1, 3, 2, 1),
    ("kept", 16, 16, 32): (16, 16, 32, 1, 2, 2, 1),
    ("kept", 16, 32, 10): (32, 16, 32, 1, 2, 2, 1),
    ("kept", 32, 32, 16): (32, 16, 32, 1, 2, 2, 1),
    ("kept", 32, 64, 8): (32, 16, 16, 1, 3, 2, 1),
    ("kept", 32, 64, 11): (32, 16, 16, 1, 3, 2, 1),
    ("kept", 64, 64, 8): (32, 16, 16, 1, 3, 2, 1),
    ("norms", 1, 16, 26): (16, 16, 64, 2, 2, 0, 1),
    ("norms", 1, 32, 26): (32, 16, 64, 2, 1, 0, 1),
    ("norms", 16, 16, 24): (16, 32, 64, 2, 2, 0, 1),
    ("norms", 16, 16, 32): (16, 32, 64, 2, 2, 0, 1),
    ("norms", 16, 32, 10): (32, 64, 64, 4, 1, 0, 3),
    ("norms", 32, 32, 16): (32, 128, 32, 4, 3, 0, 1),
    ("norms", 32, 64, 8): (64, 32, 64, 2, 1, 0, 9),
    ("norms", 32, 64, 11): (64, 32, 64, 2, 1, 0, 9),
    ("norms", 64, 64, 8): (64, 32, 64, 2, 1, 0, 18),
}
"""The best tiles of layers that were measured, by what is done, channels, rows and height of the output. What is done: forward,
back, each of them "by blocks" too, norms, and norms of gradients that are "kept".

All of them have kernels of 3x3. They say how a product is divided up, and nothing of what it is: a layer of another height takes
those of the nearest. benchmarks/convolutions.py can try others.
"""


def _measured(what: str, shape: Shape) -> Tiles | None:
    if shape.kernel != (3, 3):
        return None
    heights = [key[3] for key in MEASURED if key[:3] == (what, shape.channels, shape.rows)]
    nearest = min(heights, key=lambda height: abs(height - shape.out_height), default=0)
    return MEASURED.get((what, shape.channels, shape.rows, nearest))


def product_tiles(shape: Shape, *, back: bool) -> Tiles:
    """The tiles of `forward` and `back`: positions, rows, columns, warps, and stages of loads; 0 of these where loads go through
    the first cache, one product ahead, and below 0 where so many do (`forward`).
    """
    known = _measured("back" if back else "forward", shape)
    if known is not None:
        return known
    read, made = (shape.rows, shape.channels) if back else (shape.channels, shape.rows)
    n = power(made, 64)
    if read == 16:
        return 128, n, 16, 4, 0
    if read % 32 == 0:  # what is not of one product ahead is best without pipelining
        return 128, n, 32, 4, 0 if read == 32 else 1
    return 128, n, 16, 4, 4


def launched_tiles(shape: Shape, *, back: bool) -> Tiles:
    """Those tiles, but of two warps where a factor of the product comes out of registers: with all digits, which are three
    products of parts of it, and on the way back through a pool, which is picked.

    From four warps on Triton makes such a product of Hopper's asynchronous instructions (wgmma), and the assembler that it
    brings along, up to that of CUDA 13.2, may give their registers to others while they are still read: wrong numbers, seldom.
    """
    m, n, k, warps, stages = product_tiles(shape, back=back)
    picked = precision() == "tf32x3" or (back and shape.pool > 1)
    return (64, n, k, 2, stages) if picked else (m, n, k, warps, stages)


BY_BLOCKS = 7
"""Numbers of the tiles of honestdp.kernels.blocks."""


def block_tiles(shape: Shape, *, back: bool) -> Tiles:
    """Where several positions at once are quicker (honestdp.kernels.blocks): blocks, columns, numbers of a patch, warps, stages
    of loads, height and width of a block; else nothing. Of TensorFloat-32 alone: with all digits every product is three.
    """
    known = None if precision() == "tf32x3" else _measured("back by blocks" if back else "forward by blocks", shape)
    return known or ()


def one_position(tiles: Tiles | None) -> Tiles | None:
    """These tiles, unless they are those of several positions at once."""
    return None if tiles is None or len(tiles) == BY_BLOCKS else tiles


BY_TAPS = 2
"""In the place of "the other way round": a gradient that is kept is made by honestdp.kernels.taps; columns are then channels."""


def kept_tiles(shape: Shape) -> Tiles:
    """Of a gradient that is kept: its norm and its sum are of the same numbers, however these were made.

    With all digits not by taps: nine times three products are long to compile, and want more registers than there are.
    """
    if precision() == "tf32x3" or not nine_parts(shape) or shape.rows < 16:
        return gradient_tiles(shape)
    return _measured("kept", shape) or (32 if shape.rows > 16 else 16, 16, 32, 1, 2, BY_TAPS, 1)


def nine_parts(shape: Shape) -> bool:
    """Whether a convolution is one of 3x3, of channels that fill tiles, and without a pool: honestdp.kernels.taps takes it."""
    return shape.kernel == (3, 3) and shape.channels % 16 == 0 and shape.pool == 1


def gradient_tiles(shape: Shape) -> Tiles:
    """Of a gradient, the same for the norm and for the sum: the two must come from the same numbers. Rows, columns, positions,
    warps, stages of loads, whether it is made the other way round, and how many tiles of columns one program makes.
    """
    known = _measured("norms", shape)
    if known is not None:
        return known
    if 16 < shape.rows <= 32 and shape.columns > 256:
        return 32, 128, 32, 4, 3, 0, 1
    k = power(shape.columns, 32)
    if shape.rows > 32:  # a program makes all columns: what it has read is in the first cache
        return 64, k, 64, 2, 1, 0, -(-shape.columns // k)
    return power(shape.rows, 64), k, 64, 2, 2 if shape.pool == 1 else 1, 0, 1
