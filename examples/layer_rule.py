"""Your own layer, with a rule that makes it fast: run with `python examples/layer_rule.py`.

honestdp takes the fast way, book-keeping, where every layer with trainable parameters has a rule. A rule answers one
question: given what the layer saw and the gradient of what it gave, what is the gradient of its parameters for each
example? Without a rule the model still trains, with every example's gradient made in full.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

import honestdp
from honestdp import gradients


class Stretch(nn.Module):
    """A learned factor for every feature, and one slope for all of them: z = a * factor + slope * a^2."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(features))
        self.slope = nn.Parameter(torch.zeros(()))

    def forward(self, a: Tensor) -> Tensor:
        return a * self.factor + self.slope * a**2


@gradients.rule(Stretch)
def stretch(layer: nn.Module, params: Mapping[str, Tensor], a: Tensor, grad: Tensor) -> dict[str, Tensor]:
    """By the chain rule dL/dfactor = dL/dz * a and dL/dslope = sum of dL/dz * a^2, for each example.

    a, grad: `[runs, lot, ..., features]`. Returned: `[runs, lot, *shape]` for each parameter. The dimensions between
    the example and its features are summed, since the parameters are shared by all of those positions.
    """
    between = tuple(range(2, a.dim() - 1))
    product = grad * a
    return {
        "factor": product.sum(between) if between else product,
        "slope": (product * a).flatten(2).sum(2),
    }


def main() -> honestdp.Result:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), Stretch(16), nn.Linear(16, 3))
    loss = nn.CrossEntropyLoss(reduction="none")
    runs, lot = 4, 32
    params = {name: torch.randn(runs, *value.shape) / 4 for name, value in model.named_parameters()}
    x, y = torch.randn(runs, lot, 8), torch.randint(0, 3, (runs, lot))

    result = gradients.per_example(model, loss, params, x, y)
    clip = 1.0
    clipped = result.weighted_sum((clip / result.norms).clamp(max=1))

    print(f"engine: {type(result).__name__}")
    print(f"norms, {runs} runs: from {result.norms.min():.3f} to {result.norms.max():.3f}")
    for name, value in clipped.items():
        print(f"clipped sum of {name}: {tuple(value.shape)}")

    # `train` and `tune` find the rule by themselves, and compare it with autograd on made-up inputs before they trust it.
    x, y = torch.randn(500, 8), torch.randint(0, 3, (500,))
    trained = honestdp.train(
        model,
        (x, y),
        run=honestdp.Run(records=500, lot=50, steps=20, noise=2.0),
        optimizer=honestdp.optimizers.SGD(lr=0.5, clip=1.0),
        delta=1e-5,
    )
    print(trained)
    return trained


if __name__ == "__main__":
    main()
