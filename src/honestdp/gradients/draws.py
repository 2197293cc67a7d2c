"""`GaussianDraw`: a draw inside a model, which every record makes for itself at every step, as for a Monte Carlo evidence bound.

It draws from torch's generator of the device, as dropout does, so that what was said of dropout holds of it. A training
seeds that generator from its own seed, apart from noise and lots: a training that is resumed makes the same draws
again, and nobody else's draws are moved. A captured graph draws anew at every replay. Where a model is tried on made-up
inputs the draw is switched off, so that what is compared is the same at every call: two ways to a gradient, and an
example alone and in lots of any size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GaussianDraw(nn.Module):
    """mean + scale * e with e standard normal: the reparametrised draw of variational inference, as a layer.

    In training mode every record draws its own e, of the shape of mean, at every step. In eval() mode it gives the
    mean, so that scores are no game of chance. mean and scale: of a record (`[examples, ...]`), or parameters of the
    model that all records share.

    A model may as well call torch.randn or a distribution's rsample(); what it draws outside a layer cannot be switched off while
    the model is tried, so that it goes to the slower, materialised engine and is tried with less.

    >>> import torch, honestdp
    >>> draw = honestdp.GaussianDraw()
    >>> draw(torch.zeros(4, 2), torch.ones(4, 2)).shape
    torch.Size([4, 2])
    >>> draw.eval()(torch.zeros(2), torch.ones(2))
    tensor([0., 0.])
    """

    def __init__(self) -> None:
        super().__init__()
        self.drawn = True
        """False while a model is tried: e is then 1, so that the scale has its part in what is compared."""

    def forward(self, mean: Tensor, scale: Tensor) -> Tensor:
        if not self.training:
            return mean
        return mean + scale * torch.randn_like(mean) if self.drawn else mean + scale
