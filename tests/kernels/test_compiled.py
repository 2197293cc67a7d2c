"""What Triton's compiler makes of the kernels of convolutions for a Hopper GPU, which takes no GPU to see."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton", reason="TRITON IS NOT INSTALLED: nothing compiles kernels here")
if os.environ.get("TRITON_INTERPRET"):
    pytest.skip("kernels are made for the interpreter here", allow_module_level=True)

from honestdp.kernels import Shape, blocks, convolution, gradients  # noqa: E402
from honestdp.kernels.tiles import launched_tiles, product_tiles, settings  # noqa: E402

POOLED = Shape(8, 14, 14, 16, 14, 14, (3, 3), (1, 1), (1, 1), (1, 1), 2)
STRIDED = Shape(8, 15, 15, 16, 6, 6, (4, 4), (2, 2), (0, 0), (1, 1), 1)
LOT = 185


def assembly(shape: Shape, tiles: tuple[int, ...], precision: str, *, back: bool) -> str:
    """`forward` or `back` as PTX for sm_90, with its arguments as a population's are."""
    m, n, k, warps, stages = tiles
    read = shape.rows if back else shape.channels
    x, grad = (_strides(*sizes) for sizes in ((shape.channels, *shape[1:3]), (shape.rows, *shape.pooled)))
    numbers = [LOT, *(grad if back else x)]
    kernel: Any = convolution._back if back else convolution._forward
    first = kernel.arg_names.index("lot")
    given: dict[str, Any] = dict(zip(kernel.arg_names[first:], [*numbers, settings(shape)], strict=False))
    given |= {"BIAS": True, "RELU": False, "PRECISION": precision, "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
    given |= {"AHEAD": convolution._ahead(stages, read, k, shape), "CLOSE": stages < 0, "COUNTED": True}
    return compiled(kernel, given, warps, stages, pool=shape.pool)


def by_blocks(shape: Shape, tiles: tuple[int, ...]) -> str:
    """The way back of several positions at once."""
    m, _, k, warps, stages, down, right = tiles
    grad = _strides(shape.rows, *shape.pooled)
    sizes = (shape.rows, shape.out_height, shape.out_width, shape.channels, shape.height, shape.width)
    block = blocks.Block(*sizes, 2 - shape.padding[0], 2 - shape.padding[1], down, right, 1)
    numbers = [LOT, *grad, block]
    given: dict[str, Any] = dict(zip(blocks._blocks.arg_names[6:], numbers, strict=False))
    given |= {"BIAS": False, "RELU": False, "PRECISION": "tf32", "BLOCK_M": m, "BLOCK_K": k}
    given |= {"AHEAD": False, "CLOSE": stages < 0, "COUNTED": True}
    return compiled(blocks._blocks, given, warps, stages)


def compiled(kernel: Any, given: dict[str, Any], warps: int, stages: int, *, pool: int = 1, wide: str = "fp32") -> str:
    """A kernel as PTX for sm_90. What is not given is a pointer, which 16 divides."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, attributes = {}, {}, {}
    for place, parameter in enumerate(kernel.params):
        name = parameter.name
        if name not in given:
            kind = {"counts": "i32", "out": wide, "chosen": "u8" if pool > 1 else "fp32"}.get(name, "fp32")
            signature[name], attributes[place,] = f"*{kind}", [["tt.divisibility", 16]]
        elif parameter.is_constexpr or given[name] == 1:
            signature[name], constants[place,] = "constexpr", given[name]
        else:
            signature[name] = "i32"
            if given[name] % 16 == 0:
                attributes[place,] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    options = {"num_warps": warps, "num_stages": max(1, abs(stages))}
    made: str = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
    return made


def _strides(channels: int, height: int, width: int) -> tuple[int, int, int, int]:
    return channels * height * width, 1, width * channels, channels


def fed_by_registers(ptx: str) -> int:
    """How many of Hopper's asynchronous products take their first factor out of registers."""
    return len(re.findall(r"wgmma\.mma_async\S+ \{[^}]*\}, \{", ptx))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "precision", "back"),
    [(STRIDED, "tf32x3", False), (POOLED, "tf32", True)],
    ids=["with all digits", "back through a pool"],
)
def test_no_asynchronous_product_is_fed_by_registers(
    shape: Shape, precision: str, back: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The assembler may give those to others while they are read. With the tiles as they were measured there were such."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision == "tf32x3" else "high")
    try:
        tiles, measured = launched_tiles(shape, back=back), product_tiles(shape, back=back)
    finally:
        torch.set_float32_matmul_precision(before)
    made = assembly(shape, tiles, precision, back=back)
    assert fed_by_registers(made) == 0
    assert "mma.sync" in made
    assert fed_by_registers(assembly(shape, measured, precision, back=back)) > 0


DILATED = Shape(16, 9, 9, 16, 4, 4, (4, 4), (2, 2), (2, 1), (2, 1), 1)


def test_no_kernel_has_two_numbers_in_a_register(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The assembler may lose what such a pair is moved by: it read the gradient two rows and a column beside, off by 0.8."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made = assembly(DILATED, (64, 16, 16, 2, 0), "tf32x3", back=True)
    assert "mma.sync" in made
    assert "16x2" not in made


LAST = Shape(32, 10, 10, 64, 8, 8, (3, 3), (1, 1), (0, 0), (1, 1), 1)
FEW = Shape(16, 26, 26, 16, 24, 24, (3, 3), (1, 1), (0, 0), (1, 1), 1)


@pytest.mark.slow
@pytest.mark.parametrize(("stages", "bytes_of_a_load"), [(3, 16), (-3, 8)], ids=["past the first cache", "through it"])
@pytest.mark.parametrize(
    ("shape", "tiles"),
    [(LAST, (64, 64, 32, 4, 1, 2)), (FEW, (128, 64, 32, 4, 2, 2))],
    ids=["two positions", "four positions"],
)
def test_a_way_back_loads_many_numbers_at_once(
    shape: Shape,
    tiles: tuple[int, ...],
    stages: int,
    bytes_of_a_load: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Where the compiler does not see that numbers lie together it loads them one by one, four times as many instructions."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made = by_blocks(shape, (*tiles[:4], stages, *tiles[4:]))
    loads = re.findall(r"cp\.async\.(c[ag])\.shared\.global \[[^]]*\], \[[^]]*\], 0x(\w+)", made)
    assert {(int(size, 16)) for _, size in loads} == {16, bytes_of_a_load}
    assert {way for way, size in loads if int(size, 16) == bytes_of_a_load} == {"cg" if bytes_of_a_load == 16 else "ca"}
    assert "wgmma" in made
    assert "16x2" not in made


@pytest.mark.parametrize("back", [False, True], ids=["forward", "back"])
def test_a_product_of_many_channels_loads_many_numbers_at_once(
    back: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made = assembly(LAST, (128, 32, 32, 4, 2), "tf32", back=back)
    loads = re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^]]*\], \[[^]]*\], 0x(\w+)", made)
    assert {int(size, 16) for size in loads} == {16}


def test_a_sum_of_kept_gradients_reads_ahead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With one or two loads under way and three barriers for every 16 examples it read 3.1 TB/s where other passes read 4."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    given = {"lot": 627, "splits": 5, "width": 18496, "WIDE": triton.language.float64}
    together, share, block, warps, stages = gradients.SUMMED
    given |= {"TOGETHER": together, "SHARE": share, "BLOCK": block, "STAGES": stages}
    made = compiled(gradients._sum_rows, given, warps, stages, wide="fp64")
    loads = re.findall(r"cp\.async\.cg\.shared\.global \[[^]]*\], \[[^]]*\], 0x10", made)
    assert len(loads) >= 3 * 4
    waits = re.findall(r"cp\.async\.wait_group\s+(0x\w+|\d+)", made)
    assert any(int(each, 0) >= 2 for each in waits)
