"""The layout of a population's weights: one matrix `[runs, width]`, and the dictionary of tensors that a model reads.

A rule over releases treats all coordinates alike, so it works on the matrix; a model reads views of the same memory.
On a GPU every tensor begins where a fast product may read it, so a row can have gaps: the width is then above d, the
number of parameters. Gaps hold zeros in weights and releases, and every rule leaves them so.
Only what is public is kept here: names, shapes, each layer's size and fan-in, and how many numbers enter the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor, nn

from honestdp.checks import InvalidArgument

GPU_ALIGN = 4
"""Numbers: 16 bytes of float32, what the tensor cores' products want of the beginning and the stride of a matrix."""


@dataclass(frozen=True)
class Layout:
    """Where each trainable parameter lies in a run's row.

    names, shapes: the trainable parameters, in the module's order.
    layers: for each parameter the number of its layer (the module that owns it).
    fan_in: for each layer the number of inputs one output reads.
    align: every tensor begins at a multiple of so many numbers.
    entering: how many numbers of one example enter the model; 0 where they are tokens, or unknown.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    layers: tuple[int, ...]
    fan_in: tuple[int, ...]
    align: int = 1
    entering: int = 0

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def total(self) -> int:
        """d, the number of trainable parameters of one run."""
        return sum(self.sizes)

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """d_l, the parameters of each layer."""
        counts = [0] * len(self.fan_in)
        for size, layer in zip(self.sizes, self.layers, strict=True):
            counts[layer] += size
        return tuple(counts)

    @cached_property
    def _cuts(self) -> list[int]:
        """A row as each tensor and the gap after it, in turn."""
        return [part for size in self.sizes for part in (size, -size % self.align)]

    @property
    def width(self) -> int:
        """How long a row is: d and the gaps."""
        return sum(self._cuts)

    @cached_property
    def gaps(self) -> tuple[slice, ...]:
        """The columns that belong to no parameter."""
        ends = list(accumulate(self._cuts))
        return tuple(slice(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b)

    def columns(self, values: Sequence[float]) -> Tensor:
        """One number for each tensor -> `[width]`, float64: that number in all of its columns, 0 in the gaps."""
        spread = [part for value in values for part in (value, 0.0)]
        return torch.tensor(spread, dtype=torch.float64).repeat_interleave(torch.tensor(self._cuts))

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """`[runs, width]` -> name -> `[runs, ...]`, sharing the memory."""
        runs = flat.shape[0]
        parts = flat.split_with_sizes(self._cuts, 1)[::2] if self.gaps else flat.split_with_sizes(self.sizes, 1)
        return {n: p.view(runs, *s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}


def layout_of(module: nn.Module, device: torch.device | None = None) -> Layout:
    """The layout of a module's trainable parameters, with gaps where `device` is a GPU."""
    trainable = {name: value for name, value in module.named_parameters() if value.requires_grad}
    if not trainable:
        wanted = "a module with at least one trainable parameter (all are frozen, or there are none)"
        raise InvalidArgument("model", type(module).__name__, wanted)
    kinds = {value.dtype for value in trainable.values()}
    if len(kinds) != 1 or not next(iter(kinds)).is_floating_point:
        wanted = "a module whose trainable parameters share one floating dtype"
        raise InvalidArgument("model", sorted(map(str, kinds)), wanted)
    align = GPU_ALIGN if device is not None and device.type == "cuda" else 1
    owners = [name.rpartition(".")[0] for name in trainable]
    numbers = {owner: number for number, owner in enumerate(dict.fromkeys(owners))}
    shapes, layers = (tuple(value.shape) for value in trainable.values()), (numbers[owner] for owner in owners)
    fan_in = (_fan_in(module.get_submodule(owner)) for owner in numbers)
    return Layout(tuple(trainable), tuple(shapes), tuple(layers), tuple(fan_in), align)


def _fan_in(layer: nn.Module) -> int:
    """Inputs that reach one output: a looked-up row or a scaled coordinate counts as one."""
    weight = getattr(layer, "weight", None)
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) or not isinstance(weight, Tensor) or weight.dim() < 2:
        matrices = [p for p in layer.parameters(recurse=False) if p.dim() >= 2]
        single = isinstance(weight, Tensor) or isinstance(layer, nn.Embedding) or not matrices
        return 1 if single else max(math.prod(p.shape[1:]) for p in matrices)
    if isinstance(layer, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
        return layer.in_channels // layer.groups * math.prod(layer.kernel_size)
    return math.prod(weight.shape[1:])


def dtype_of(module: nn.Module) -> torch.dtype:
    """Of the trainable parameters."""
    return next(value.dtype for value in module.parameters() if value.requires_grad)


def stack(modules: list[nn.Module], layout: Layout, device: torch.device) -> Tensor:
    """The initial weights of the modules as one matrix `[runs, width]`."""
    rows = torch.zeros(len(modules), layout.width, dtype=dtype_of(modules[0]))
    for row, module in zip(rows, modules, strict=True):
        trainable = {n: p for n, p in module.named_parameters() if p.requires_grad}
        if (tuple(trainable), tuple(tuple(p.shape) for p in trainable.values())) != (layout.names, layout.shapes):
            raise InvalidArgument("model", type(module).__name__, "of one architecture for every run of a population")
        for name, view in layout.views(row[None]).items():
            view[0] = trainable[name].detach()
    return rows.to(device)


@torch.no_grad()
def load_row(module: nn.Module, layout: Layout, row: Tensor) -> nn.Module:
    """The module with a run's weights, a row `[width]` of a population's matrix of this layout."""
    parameters = dict(module.named_parameters())
    for name, value in layout.views(row[None]).items():
        parameters[name].copy_(value[0])
    return module
