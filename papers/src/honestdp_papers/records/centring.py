"""Features less their mean, which is released by a Gaussian of its own, out of the same budget as the training that follows.

Group-normalised features have a large mean that all images share, a half of the energy on MNIST: it tells nothing of the
class, and takes its part of every clipped gradient. Normalised in groups, a record of d numbers has a norm of at most sqrt(d),
whatever the image, so that the sum over N records with noise sigma sqrt(d) in every number is one Gaussian of multiplier sigma.
Its error is d sigma / N in all, against a norm of about sqrt(d): hundredths where N is 50,000. sigma is so large that the mean
takes PART of mu^2, the training the rest: 1 % of the training's signal. Both are composed by the accountant, and so are the mean
and a search after it (`records_search.py`). Features that are not normalised image by image are clipped to REACH sqrt(d) in their
mean, with as much more noise.

The mean is made by honestdp's own training: one step on all records, of a linear model without labels, whose gradient is the
record itself.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

import honestdp
from honestdp.planner.shapes import mu_of

PART = 0.02
REACH = 3.0  # deviations of the made-up images that such features are scaled by


def mean_run(budget: honestdp.Budget, records: int) -> honestdp.Run:
    """Of the mean: all records, one step, to two digits of the noise, upwards."""
    noise = 1 / (math.sqrt(PART) * mu_of(budget))
    digit = 10.0 ** (math.floor(math.log10(noise)) - 1)
    return honestdp.Run(records=records, lot=records, steps=1, noise=round(math.ceil(noise / digit) * digit, 6))


def run_after(budget: honestdp.Budget, *, records: int, lot: float, steps: int) -> honestdp.Run:
    """The training that meets the budget together with the mean before it. Needs the accountant."""
    from dp_accounting import ComposedDpEvent

    from honestdp.accounting.calibration import least_multiplier
    from honestdp.selection import Compose

    def together(noise: float) -> Any:
        run = honestdp.Run(records=records, lot=lot, steps=steps, noise=noise)
        return ComposedDpEvent([mean_run(budget, records).event, run.event])

    noise = least_multiplier(budget, together, Compose(candidates=1))
    return honestdp.Run(records=records, lot=lot, steps=steps, noise=noise)


def released_mean(x: Tensor, run: honestdp.Run, *, device: str, preprocessing: str, reach: float = 1.0) -> Tensor:
    """The mean of `x`, `[records, ...]`, clipped to norms of `reach` sqrt(d), with noise: all that leaves."""
    wide = x[0].numel()
    linear = nn.Linear(wide, 1, bias=False)
    nn.init.zeros_(linear.weight)
    model = nn.Sequential(nn.Flatten(), linear)
    rule = honestdp.optimizers.SGD(lr=1.0, clip=reach * math.sqrt(wide))
    how: dict[str, Any] = {"compute": honestdp.Compute(device=device), "preprocessing": preprocessing}
    (result,) = honestdp.train_population(model, x, run=run, optimizers=[rule], **how)
    (weight,) = (each.detach() for each in result.model.parameters())
    return weight.view(x.shape[1:]).to(x.device)
