"""The layer rule for Embedding: every position of an example adds its gradient to the row that was looked up there.

An example touches few rows of a large table, so what is kept are those rows (`Rows`). Where the table has no more rows than the
example has positions, its gradients are smaller and are made.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp.gradients.forms import Params, Rows
from honestdp.gradients.rules import Gradients, Rule, Wanted, rule


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
