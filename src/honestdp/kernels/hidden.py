"""A nought of which the compiler of kernels does not know that it is one, so that it narrows no position to half a register.

Where LLVM sees that rows and columns are small it computes them in 16 bits, two in a register. NVIDIA's assembler, as Triton
brings it along (of CUDA 12.8 and of 12.9), then may lose the constant by which such a pair is moved, a convolution's padding: a
way back that read other positions, off by 0.8 (docs/notes/convolution.md). tests/kernels/test_compiled.py sees to it that
kernels have no such pairs.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def nought(lot):
    """0, since a lot has an example at least; added to a position before its row and its column are found.

    lot: an argument of the kernel that is not specialised: of a lot of one the compiler would know.
    """
    return tl.multiple_of(tl.minimum(lot, 0), 16)
