"""Kernels of our own for GPUs; without Triton, tensor operations do the same.

The kernels are on the private side of the boundary, so each is compared with the tensor operations it stands for: on the device
before it is used (honestdp.kernels.checked), and by tests/kernels in Triton's interpreter. The classes of
honestdp.kernels.tensors say what they offer and take.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, cast

import torch

from honestdp.kernels.tensors import Convolutions, Norms, Passes
from honestdp.kernels.tensors import Shape as Shape
from honestdp.logs import logger


@functools.cache
def on(device: torch.device) -> Passes | None:
    """The small kernels, if this device is a GPU and Triton is there and can compile."""
    if device.type != "cuda":
        return None
    try:
        fused: Any = importlib.import_module("honestdp.kernels.fused")
        first = torch.zeros(1, dtype=torch.int64, device=device)
        fused.gather(torch.zeros(1, 1, device=device), first, first, 1.0)
    except Exception as trouble:  # whatever keeps Triton from compiling here: no module, no compiler, no driver
        logger("honestdp.kernels").info("without Triton's kernels, a little slower: %s", trouble)
        return None
    from honestdp.kernels.checked import CheckedPasses

    return cast(Passes, CheckedPasses(fused))


@functools.cache
def convolutions(device: torch.device) -> Convolutions | None:
    """The kernels of convolutions, where there are kernels at all."""
    found = _of_layers("convolution", device)
    if found is None:
        return None
    from honestdp.kernels.checked import CheckedConvolutions

    return cast(Convolutions, CheckedConvolutions(found))


@functools.cache
def normalisations(device: torch.device) -> Norms | None:
    """The kernels of norms of groups, where there are kernels at all."""
    found = _of_layers("normalisation", device)
    if found is None:
        return None
    from honestdp.kernels.checked import CheckedNorms

    return cast(Norms, CheckedNorms(found))


def _of_layers(name: str, device: torch.device) -> Any:
    if on(device) is None:
        return None
    try:
        return importlib.import_module(f"honestdp.kernels.{name}")
    except Exception as trouble:  # as with another Triton than they were written for
        said = "the kernels of %ss are NOT used on %s, which is several times slower: %s"
        logger("honestdp.kernels").warning(said, name, device, type(trouble).__name__)
        return None
