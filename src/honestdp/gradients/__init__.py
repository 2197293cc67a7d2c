"""Per-example gradients of a population of models, behind two verbs: `norms` and `weighted_sum`.

    result = per_example(model, loss, params, x, y)
    result.norms                 # [runs, lot]
    result.weighted_sum(weights) # name -> [runs, ...]

Every clipping rule of differential privacy is a choice of weights, so nothing more is ever needed of a gradient, and
the per-example gradients themselves need not exist.

Where to read: `prepared` is the call. It asks whether the model may be trained (`vetting` by its modules, `independence` and
`loss_independence` by trial with a `probe`; `branching` sees code that reads numbers to choose its way) and which engine takes it
(`choice`). `bookkeeping` goes by the `rules` of `layers`, forward and back `by_formula` or `by_autograd`, and gives `forms` of
gradients; `grouped` adds up the rows of a person. `materialised` makes every gradient. `strict` maps each example by itself;
`write_guard` stops a model that writes to its own weights; `layout` and `precision` are for whoever holds the weights.

>>> import torch, honestdp
>>> model, loss = torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(reduction="none")
>>> params = {name: value.detach()[None] for name, value in model.named_parameters()}
>>> x, y = torch.randn(1, 5, 3), torch.zeros(1, 5, dtype=torch.long)
>>> honestdp.gradients.per_example(model, loss, params, x, y).norms.shape
torch.Size([1, 5])
"""

from honestdp.gradients import layers  # registers the rules for PyTorch's own layers
from honestdp.gradients.forms import Dense, Form, Outer, PerExample, Product, Rows, outer
from honestdp.gradients.prepared import Prepared, per_example, vet_forward
from honestdp.gradients.rules import Rule, rule
from honestdp.gradients.strict import mapped_outputs
from honestdp.gradients.vetting import RefusedModel
from honestdp.gradients.write_guard import ModelWritten, Untouched

__all__ = [
    "Dense", "Form", "ModelWritten", "Outer", "PerExample", "Prepared", "Product", "RefusedModel", "Rows", "Rule",
    "Untouched", "layers", "mapped_outputs", "outer", "per_example", "rule", "vet_forward",
]  # fmt: skip
