"""The layer rule for MultiheadAttention: its projections are linear layers along the sequence, and the rest has no parameters.

torch keeps the projections of queries, keys and values in one matrix, each in a third of its rows. Where all three are of the
same sequence they are one product; otherwise each gives the gradient of its rows, with zeros for the others. The projection of
the output is a layer by itself.

`MappableAttention` is for models that torch.func maps: torch's own attention draws what is dropped into a tensor that knows
nothing of the map, which torch.func refuses, so attention with dropout is written out of operations that it can map.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.overrides import TorchFunctionMode

from honestdp.gradients.layers.linear import Linear, gradients_of, linear
from honestdp.gradients.rules import Composite, Unruled, Use, rule

rule(NonDynamicallyQuantizableLinear)(Linear)


def project(use: Use, x: Tensor, first: int, count: int) -> Tensor:
    """x `[runs * lot, ..., features]` times so many rows of the layer's matrix, from the first on; noted where it is trained."""
    names = {"weight": "in_proj_weight", "bias": "in_proj_bias"}
    params = {part: use.params[name].narrow(1, first, count) for part, name in names.items() if name in use.params}
    out = linear(params, x, runs=use.runs)
    if not use.wanted & {*names.values()}:
        return out
    by_run = x.view(use.runs, -1, *x.shape[1:])
    others = first, use.params["in_proj_weight"].shape[1] - first - count
    return use.note(out, lambda grad: gradients_of(use, names, by_run, F.pad(grad, others)), x)


@rule(nn.MultiheadAttention)
class Attention(Composite):
    def covers(self, layer: nn.Module) -> bool:
        """Not with keys or values of another width, nor with positions that are added to the sequence."""
        assert isinstance(layer, nn.MultiheadAttention)
        plain = layer.in_proj_weight is not None and layer.bias_k is None and not layer.add_zero_attn
        out = layer.out_proj
        return (
            plain
            and type(out) is NonDynamicallyQuantizableLinear
            and not out._forward_hooks
            and not out._forward_pre_hooks
        )

    def run(
        self,
        layer: Any,
        use: Use,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if query.dim() != 3 or (is_causal and attn_mask is None):
            raise Unruled(
                f"{type(layer).__name__} is called without a dimension for the examples, or without the mask it names"
            )
        q, k, v = (_heads(x, layer) for x in _projected(layer, use, query, key, value))
        mask = _mask(attn_mask, key_padding_mask, like=q)
        dropout = layer.dropout if layer.training else 0.0
        weights = None
        if need_weights:
            scores = torch.matmul(q, k.mT) * layer.head_dim**-0.5
            weights = F.dropout(torch.softmax(scores if mask is None else scores + mask, -1), dropout)
            seen = torch.matmul(weights, v)
        else:
            seen = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        out = layer.out_proj(seen.transpose(1, 2).flatten(2))
        out = out if layer.batch_first else out.transpose(0, 1)
        return out, weights.mean(1) if weights is not None and average_attn_weights else weights


def _projected(layer: Any, use: Use, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    width = layer.embed_dim

    def ordered(x: Tensor) -> Tensor:
        return x if layer.batch_first else x.transpose(0, 1)

    if query is key and key is value:
        q, k, v = project(use, ordered(query), 0, 3 * width).chunk(3, -1)
        return q, k, v
    q = project(use, ordered(query), 0, width)
    if key is value:
        k, v = project(use, ordered(key), width, 2 * width).chunk(2, -1)
        return q, k, v
    k = project(use, ordered(key), width, width)
    return q, k, project(use, ordered(value), 2 * width, width)


def _heads(x: Tensor, layer: Any) -> Tensor:
    """`[examples, heads, positions, width of a head]`."""
    return x.view(*x.shape[:-1], layer.num_heads, layer.head_dim).transpose(1, 2)


def _mask(attn_mask: Tensor | None, padding: Tensor | None, like: Tensor) -> Tensor | None:
    """What is added to the scores `[examples, heads, queries, keys]`: minus infinity where something is not to be seen."""
    mask = None if attn_mask is None else _added(attn_mask, like)
    if mask is not None and mask.dim() == 3:  # one for each head of each example
        mask = mask.reshape(len(like), -1, *mask.shape[1:])
    if padding is None:
        return mask
    hidden = _added(padding, like)[:, None, None]
    return hidden if mask is None else mask + hidden


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype is not torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill_(mask, -torch.inf)


class MappableAttention(TorchFunctionMode):
    """Within, attention that drops something is `attention`; all else is as it was."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and (kwargs.get("dropout_p") or args[4:5] not in ((), (0.0,))):
            return attention(*args, **kwargs)
        return func(*args, **kwargs)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As `scaled_dot_product_attention`: query `[..., l, d]`, key `[..., s, d]`, value `[..., s, e]` -> `[..., l, e]`.

    A place that may attend to nothing gets zeros, as there.
    """
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    return F.dropout(weights, dropout_p) @ value
