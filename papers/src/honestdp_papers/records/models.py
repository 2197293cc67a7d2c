"""The models of `records.py`: on scattering features `[channels, side, side]`, 81 channels a colour.

- `linear`: Tramer & Boneh's, one linear layer.
- `published-cnn`: Tramer & Boneh's too, layer by layer as in the code that they published (ftramer/Handcrafted-DP, models.py):
  CIFAR10_CNN for three colours, MNIST_CNN for one. Their input normalisation is no part of it: features are normalised before.
- `cnn`: ours. It was made after a description of theirs and is another network: 32 filters where CIFAR10_CNN has 64, and the
  same for one colour, where MNIST_CNN has a stride, fewer filters and a hidden layer. Lines that call it so stay what they were.
- `mirror-cnn`: ours, for photographs: `published-cnn` on an image and on its mirror image, the logits averaged.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp_papers.records.scattering import channels as channels_of_a_colour
from honestdp_papers.records.scattering import mirror_image

GAP = 2
"""Rows of zeros between two views: one keeps their convolutions apart, two keep the pools behind them in step."""


def linear(channels: int, side: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side * width, 10))


def cnn(channels: int, side: int, _: int) -> nn.Module:
    last = side // 2 if side > 2 else side
    pool = nn.MaxPool2d(2) if side > 2 else nn.Identity()
    head = nn.Sequential(nn.Flatten(), nn.Linear(32 * last**2, 10))
    return nn.Sequential(
        nn.Conv2d(channels, 64, 3, padding=1), nn.Tanh(), pool, nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(), head
    )


def published_cnn(channels: int, side: int, _: int) -> nn.Module:
    """By the number of colours, as theirs: one is MNIST's and Fashion-MNIST's network, three are CIFAR-10's."""
    if channels == channels_of_a_colour():
        first, second = nn.Conv2d(channels, 16, 3, stride=2, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        dense = nn.Linear(32 * ((side + 1) // 2) ** 2, 32)
        return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Flatten(), dense, nn.Tanh(), nn.Linear(32, 10))
    first, second = nn.Conv2d(channels, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)
    head = nn.Linear(64 * (side // 2) ** 2, 10)
    return nn.Sequential(first, nn.Tanh(), nn.MaxPool2d(2), second, nn.Tanh(), nn.Flatten(), head)


class Views(nn.Module):
    """Features `[n, channels, s, s]` above those of the mirror image, with rows of zeros between: `[n, channels, 2 s + 2, s]`.

    The mirror image's are those of the image with columns reversed and angles turned (`scattering.mirror_image`).
    """

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([F.pad(x, (0, 0, 0, GAP)), mirror_image(x)], 2)


class Apart(nn.Module):
    """The row between two views made zeros again, as the margin is that a view by itself would have there."""

    def forward(self, x: Tensor) -> Tensor:
        side = (x.shape[2] - 1) // 2
        return torch.cat([F.pad(x[:, :, :side], (0, 0, 0, 1)), x[:, :, side + 1 :]], 2)


def mirror_cnn(channels: int, side: int, _: int) -> nn.Module:
    """`published_cnn` of three colours on both mirror images at once: exactly the mean of its logits, for the same weights.

    Left and right of a photograph mean the same, which is public; a record's logits hang on that record alone, so it costs no
    privacy. The views lie in one image, so that every layer is used once and a GPU's kernels take its convolutions: the linear
    layer is a convolution as large as a view, with a stride from one view to the next, and the last pool takes the mean of both.
    """
    if side % 2:
        raise ValueError(f"side must be even, got {side}")
    half = side // 2
    first, second = nn.Conv2d(channels, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)
    head = nn.Conv2d(64, 10, half, stride=(half + 1, 1))
    mean = nn.Sequential(nn.AvgPool2d((2, 1)), nn.Flatten())
    return nn.Sequential(Views(), first, nn.Tanh(), nn.MaxPool2d(2), Apart(), second, nn.Tanh(), head, mean)


MODELS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "linear": linear,
    "published-cnn": published_cnn,
    "cnn": cnn,
    "mirror-cnn": mirror_cnn,
}
