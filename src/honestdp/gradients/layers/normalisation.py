"""Layer rules for normalisations with a gain and a shift: layer, group, instance and RMS norm, and batch norm in eval().

z = w * n(a) + b with n free of parameters, so for one example dL/dw is the sum of dL/dz n(a), and dL/db that of dL/dz,
over the positions that share the gain.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp import kernels
from honestdp.gradients.forms import Form, Params
from honestdp.gradients.rules import Composite, Gradients, Rule, Unruled, Use, Wanted, rule
from honestdp.kernels.tensors import Norms


class Affine(Rule):
    """A gain and a shift after `normalise`. They lie along the last dimensions, or along the channels."""

    def normalise(self, layer: Any, x: Tensor) -> Tensor:
        """n(a) for `x` `[examples, ...]`."""
        raise NotImplementedError

    def spread(self, layer: Any, value: Tensor, dims: int) -> Tensor:
        """A parameter `[runs, ...]` shaped to multiply values of `dims` dimensions `[runs, lot, ...]`."""
        raise NotImplementedError

    def gather(self, layer: Any, values: Tensor) -> Tensor:
        """`values` `[runs, lot, ...]` summed over the positions that share a parameter."""
        raise NotImplementedError

    def forward(self, layer: nn.Module, params: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        normal = self.normalise(layer, x.flatten(0, 1)).view(x.shape)
        gain = self.spread(layer, params["weight"], x.dim())
        if "bias" not in params:
            return normal * gain, normal
        return torch.addcmul(self.spread(layer, params["bias"], x.dim()), normal, gain), normal

    def gradients(self, layer: nn.Module, params: Params, saved: Tensor, grad: Tensor, wanted: Wanted) -> Gradients:
        gradients: dict[str | tuple[str, ...], Tensor | Form] = {}
        if "weight" in wanted:
            gradients["weight"] = self.gather(layer, grad * saved)
        if "bias" in wanted:
            gradients["bias"] = self.gather(layer, grad)
        return gradients


class LastDimensions(Affine):
    def spread(self, layer: Any, value: Tensor, dims: int) -> Tensor:
        return value.reshape(len(value), *[1] * (dims - value.dim()), *value.shape[1:])

    def gather(self, layer: Any, values: Tensor) -> Tensor:
        between = tuple(range(2, values.dim() - len(layer.normalized_shape)))
        return values.sum(between) if between else values


class Channels(Affine):
    def spread(self, layer: Any, value: Tensor, dims: int) -> Tensor:
        return value.reshape(len(value), 1, -1, *[1] * (dims - 3))

    def gather(self, layer: Any, values: Tensor) -> Tensor:
        return values.flatten(3).sum(3) if values.dim() > 3 else values


@rule(nn.LayerNorm)
class LayerNorm(LastDimensions):
    def normalise(self, layer: nn.LayerNorm, x: Tensor) -> Tensor:
        return F.layer_norm(x, layer.normalized_shape, None, None, layer.eps)


@rule(nn.RMSNorm)
class RMSNorm(LastDimensions):
    def normalise(self, layer: nn.RMSNorm, x: Tensor) -> Tensor:
        return F.rms_norm(x, layer.normalized_shape, None, layer.eps)


class _Once:
    """One use of a norm of groups by kernels: what its way back leaves for the gradients of gain and shift."""

    def __init__(self, found: Norms, groups: int, eps: float) -> None:
        self._kernels, self._groups, self._eps = found, groups, eps
        self._read: tuple[Tensor, Tensor | None, Tensor, Tensor] | None = None
        self._made: tuple[Tensor, Tensor, Tensor] | None = None

    def forward(self, x: Tensor, gain: Tensor | None, shift: Tensor | None) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        out, means, scales = self._kernels.forward(x, gain, shift, self._groups, self._eps)
        self._read = (x, gain, means, scales)
        return out

    def back(self, grad: Tensor) -> Tensor:
        """The gradient of the input; the gradients of gain and shift are kept, with the tensor that they are of."""
        assert self._read is not None
        x, gain, means, scales = self._read
        slopes = grad.contiguous(memory_format=torch.channels_last)
        found, gains, shifts = self._kernels.back(x, slopes, gain, means, scales, self._groups)
        self._made = (grad, gains, shifts)
        return found

    def gradients(self, grad: Tensor, wanted: Wanted) -> Gradients:
        """From the gradient `[runs, lot, ...]` of the output; made anew where the way back was not gone, or with another."""
        made = self._made
        if made is None or made[0].data_ptr() != grad.data_ptr() or made[0].numel() != grad.numel():
            self.back(grad.flatten(0, 1))
        assert self._made is not None
        names = {"weight": self._made[1], "bias": self._made[2]}
        return {name: value.view(*grad.shape[:3]) for name, value in names.items() if name in wanted}


class _InOnePass(torch.autograd.Function):
    """The norm with gain and shift `[runs, channels]` as an operation of autograd, whose gradient goes to x alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor | None, shift: Tensor | None, use: _Once) -> Tensor:
        ctx.use = use
        return use.forward(x, gain, shift)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.use.back(grads[0]), None, None, None


@rule(nn.GroupNorm)
class GroupNorm(Channels, Composite):
    def normalise(self, layer: nn.GroupNorm, x: Tensor) -> Tensor:
        return F.group_norm(x, layer.num_groups, None, None, layer.eps)

    def run(self, layer: Any, use: Use, x: Tensor) -> Tensor:
        """By kernels where there are some: their way back through the layer makes the gradients of gain and shift too."""
        if (found := _kernels(layer, use, x)) is None:
            out, normal = self.forward(layer, use.params, x.view(use.runs, -1, *x.shape[1:]))
            return use.note(
                out.flatten(0, 1), lambda grad: self.gradients(layer, use.params, normal, grad, use.wanted), normal
            )
        once = _Once(found, layer.num_groups, layer.eps)
        out = _InOnePass.apply(x, use.params.get("weight"), use.params.get("bias"), once)  # type: ignore[no-untyped-call]
        return use.note(out, lambda grad: once.gradients(grad, use.wanted), x)


def _kernels(layer: nn.GroupNorm, use: Use, x: Tensor) -> Norms | None:
    if x.dim() != 4 or any(value.dtype != torch.float32 for value in (x, *use.params.values())):
        return None
    found = kernels.normalisations(x.device)
    return found if found is not None and found.takes(x, layer.num_groups) else None


@rule(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
class InstanceNorm(Channels):
    def normalise(self, layer: Any, x: Tensor) -> Tensor:
        if x.dim() == layer._get_no_batch_dim():
            raise Unruled(f"{type(layer).__name__} is given examples without a dimension for them")
        layer._check_input_dim(x)
        from_input = layer.training or not layer.track_running_stats
        return F.instance_norm(x, layer.running_mean, layer.running_var, None, None, from_input, 0.0, layer.eps)


@rule(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
class FixedBatchNorm(Channels):
    """With fixed statistics only: in training mode the module is refused."""

    def covers(self, layer: Any) -> bool:
        return not layer.training and layer.running_mean is not None

    def normalise(self, layer: Any, x: Tensor) -> Tensor:
        layer._check_input_dim(x)
        return F.batch_norm(x, layer.running_mean, layer.running_var, None, None, False, 0.0, layer.eps)
