"""Images: a small convolutional network, trained within a budget, with random shifts. Run with `python examples/images.py`.

The digits of scikit-learn, 8 x 8 pixels, which come with it; MNIST and CIFAR-10 are named in docs/data.md.
"""

from __future__ import annotations

import torch
from torch import nn

import honestdp


def network() -> nn.Module:
    """Group norm in the place of batch norm, which mixes the examples of a lot and is refused."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def main(steps: int = 300) -> honestdp.Result:
    data = honestdp.load_dataset("digits")
    (x, y), (test_x, test_y) = (
        (torch.as_tensor(a).reshape(-1, 1, 8, 8), torch.as_tensor(b)) for a, b in (data.train, data.test)
    )

    # Public constants; noise 0 stands for "what the budget asks for".
    run = honestdp.Run(records=len(x), lot=128, steps=steps, noise=0)
    result = honestdp.train(
        network(),
        (x, y),
        run=run,
        budget=honestdp.Budget(epsilon=8.0, delta=1e-5),
        augment=honestdp.augment.CropAndFlip(
            pad=1, flip=False
        ),  # each record is read shifted by a pixel, anew in each step
        preprocessing="pixels divided by 16, a public constant",
    )
    with torch.no_grad():  # these test records are public, so their exact accuracy may be printed
        accuracy = (result.model.eval()(test_x).argmax(1) == test_y).double().mean()
    print(result)
    print(f"accuracy on public test records: {accuracy:.3f}")
    return result


if __name__ == "__main__":
    main()
