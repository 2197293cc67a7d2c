"""ADADP as in the code that Mohapatra et al. ran for it (github.com/mshubhankar/ADADP, `MNIST_tests/adadp.py`).

It differs from Koskela & Honkela 2020 in four ways: the step size moves with sqrt(tau / err) and not tau / err; a step whose
err is above tau is taken back; err sums over the 10 copies of the weights that their way of computing gradients keeps, so that
it is sqrt(10) times the error of the weights (`ADADP(published=True)` has these three); and the tolerance is a constant, 0.1 for
logistic regression and 1 for the network, with a first step size of 0.001. Only these facts are theirs, the code is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from honestdp.optimizers import ADADP
from honestdp.optimizers.rule import Number


@dataclass(frozen=True)
class PublishedADADP(ADADP):
    """ADADP with the published code's way and numbers for defaults."""

    lr: Number = 1e-3
    tau: Number | None = 1.0
    published: bool = True
