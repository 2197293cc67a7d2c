"""The layer rules for Embedding and EmbeddingBag: every position of an example adds its gradient to the row looked up there.

An example touches few rows of a large table, so what is kept are those rows (`Rows`). Where the table has no more rows than the
example has positions, its gradients are smaller and are made. A bag gives all of its rows one gradient, times a number each.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp.gradients.forms import Params, Rows
from honestdp.gradients.rules import Gradients, Rule, Unruled, Wanted, rule


@rule(nn.Embedding)
class Embedding(Rule):
    def covers(self, layer: nn.Module) -> bool:
        return isinstance(layer, nn.Embedding) and layer.max_norm is None

    def forward(self, layer: nn.Module, params: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        weight, x = params["weight"], x.long()
        if len(x) == 1:
            return F.embedding(x, weight[0]), x
        # gather refuses a row that is out of range in every run; one table for all runs would read a neighbour's.
        index = x.flatten(1).unsqueeze(-1).expand(-1, -1, weight.shape[-1])
        return weight.gather(1, index).reshape(*x.shape, weight.shape[-1]), x

    def gradients(self, layer: nn.Module, params: Params, saved: Tensor, grad: Tensor, wanted: Wanted) -> Gradients:
        assert isinstance(layer, nn.Embedding)
        index = saved.reshape(*saved.shape[:2], -1)
        grad = grad.reshape(*index.shape, -1)
        if layer.padding_idx is not None:
            grad = torch.where((index == layer.padding_idx).unsqueeze(-1), 0, grad)
        looked_up = Rows(index, grad, layer.num_embeddings)
        few_rows = layer.num_embeddings <= index.shape[2]
        return {"weight": looked_up.dense()[0] if few_rows else looked_up}


@rule(nn.EmbeddingBag)
class EmbeddingBag(Rule):
    """Bags of one length, `[lot, positions]`, whose rows are added or averaged."""

    def covers(self, layer: nn.Module) -> bool:
        return isinstance(layer, nn.EmbeddingBag) and layer.max_norm is None and layer.mode in ("sum", "mean")

    def forward(self, layer: nn.Module, params: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        assert isinstance(layer, nn.EmbeddingBag)
        if x.dim() != 3:
            raise Unruled("EmbeddingBag is given bags that are not rows of one tensor")
        weight, x, padding = params["weight"], x.long(), layer.padding_idx
        if len(x) == 1:
            return F.embedding_bag(x[0], weight[0], mode=layer.mode, padding_idx=padding).unsqueeze(0), x
        index = x.flatten(1).unsqueeze(-1).expand(-1, -1, weight.shape[-1])
        rows = weight.gather(1, index).view(*x.shape, weight.shape[-1])
        return torch.matmul(self._factors(layer, x, weight).unsqueeze(-2), rows).squeeze(-2), x

    def _factors(self, layer: nn.EmbeddingBag, x: Tensor, like: Tensor) -> Tensor:
        """What each looked-up row is multiplied by before the rows are added."""
        present = (
            torch.ones_like(x, dtype=like.dtype) if layer.padding_idx is None else (x != layer.padding_idx).to(like)
        )
        return present if layer.mode == "sum" else present / present.sum(-1, keepdim=True).clamp(min=1)

    def gradients(self, layer: nn.Module, params: Params, saved: Tensor, grad: Tensor, wanted: Wanted) -> Gradients:
        assert isinstance(layer, nn.EmbeddingBag)
        each = self._factors(layer, saved, grad).unsqueeze(-1) * grad.unsqueeze(-2)
        return {"weight": Rows(saved, each, layer.num_embeddings)}
