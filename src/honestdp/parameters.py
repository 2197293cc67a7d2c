"""The weights of a population as one matrix `[runs, d]`, and as the dictionary of tensors a model reads.

A rule over releases treats all coordinates alike, so it works on the matrix; a model reads views of the same memory.
Only what is public is kept here: names, shapes, and each layer's size and fan-in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from honestdp.checks import InvalidArgument


@dataclass(frozen=True)
class Layout:
    """Where each trainable parameter lies in a run's row of d numbers.

    names, shapes: the trainable parameters, in the module's order.
    layers: for each parameter the number of its layer (the module that owns it).
    fan_in: for each layer the number of inputs one output reads.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    layers: tuple[int, ...]
    fan_in: tuple[int, ...]

    @property
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

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """`[runs, d]` -> name -> `[runs, ...]`, sharing the memory."""
        parts = torch.split(flat, list(self.sizes), dim=1)
        return {n: p.view(flat.shape[0], *s) for n, p, s in zip(self.names, parts, self.shapes, strict=True)}

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """name -> `[runs, ...]` to `[runs, d]`, a copy."""
        return torch.cat([tensors[name].flatten(1) for name in self.names], dim=1)


def layout_of(module: nn.Module) -> Layout:
    """The layout of a module's trainable parameters."""
    names: list[str] = []
    shapes: list[tuple[int, ...]] = []
    layers: list[int] = []
    fan_in: list[int] = []
    owners: dict[str, int] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        owner = name.rpartition(".")[0]
        if owner not in owners:
            owners[owner] = len(fan_in)
            fan_in.append(_fan_in(module.get_submodule(owner)))
        names.append(name)
        shapes.append(tuple(parameter.shape))
        layers.append(owners[owner])
    if not names:
        wanted = "a module with at least one trainable parameter (all are frozen, or there are none)"
        raise InvalidArgument("model", type(module).__name__, wanted)
    kinds = {p.dtype for p in module.parameters() if p.requires_grad}
    if len(kinds) != 1 or not next(iter(kinds)).is_floating_point:
        raise InvalidArgument(
            "model", sorted(map(str, kinds)), "a module whose trainable parameters share one floating dtype"
        )
    return Layout(tuple(names), tuple(shapes), tuple(layers), tuple(fan_in))


def _fan_in(layer: nn.Module) -> int:
    """Inputs that reach one output: a looked-up row or a scaled coordinate counts as one."""
    weight = getattr(layer, "weight", None)
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) or not isinstance(weight, Tensor) or weight.dim() < 2:
        own = [p for p in layer.parameters(recurse=False) if p.dim() >= 2]
        single = isinstance(weight, Tensor) or isinstance(layer, nn.Embedding) or not own
        return 1 if single else max(math.prod(p.shape[1:]) for p in own)
    if isinstance(layer, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
        return layer.in_channels // layer.groups * math.prod(layer.kernel_size)
    return math.prod(weight.shape[1:])


def stack(modules: list[nn.Module], layout: Layout, device: torch.device) -> Tensor:
    """The initial weights of the modules as one matrix `[runs, d]`."""
    rows = []
    for module in modules:
        own = {n: p for n, p in module.named_parameters() if p.requires_grad}
        if tuple((n, tuple(p.shape)) for n, p in own.items()) != tuple(zip(layout.names, layout.shapes, strict=True)):
            raise InvalidArgument("model", type(module).__name__, "of one architecture for every run of a population")
        rows.append(torch.cat([p.detach().flatten() for p in own.values()]))
    return torch.stack([row.to(device) for row in rows])
