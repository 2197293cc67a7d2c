"""Per-example gradients of a population of models, behind two verbs: `norms` and `weighted_sum`.

    result = per_example(model, loss, params, x, y)
    result.norms                 # [runs, lot]
    result.weighted_sum(weights) # name -> [runs, ...]

Every clipping rule of differential privacy is a choice of weights, so nothing more is ever needed of a gradient, and
the per-example gradients themselves need not exist.

>>> import torch, honestdp
>>> model, loss = torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(reduction="none")
>>> params = {name: value.detach()[None] for name, value in model.named_parameters()}
>>> x, y = torch.randn(1, 5, 3), torch.zeros(1, 5, dtype=torch.long)
>>> honestdp.gradients.per_example(model, loss, params, x, y).norms.shape
torch.Size([1, 5])
"""

from honestdp.gradients import layers  # registers the rules for PyTorch's own layers
from honestdp.gradients.engine import PerExample, Prepared, per_example, vet_forward
from honestdp.gradients.mapped import mapped_outputs
from honestdp.gradients.pieces import Dense, Outer, Piece, Product, Rows, outer
from honestdp.gradients.rules import Rule, rule
from honestdp.gradients.untouched import ModelWritten, Untouched
from honestdp.gradients.vetting import RefusedModel

__all__ = [
    "Dense",
    "ModelWritten",
    "Outer",
    "PerExample",
    "Piece",
    "Prepared",
    "Product",
    "RefusedModel",
    "Rows",
    "Rule",
    "Untouched",
    "layers",
    "mapped_outputs",
    "outer",
    "per_example",
    "rule",
    "vet_forward",
]
