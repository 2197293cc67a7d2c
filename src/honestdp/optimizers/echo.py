"""Echo: nothing to tune; one step size, set by how far the noise of the whole run moves the model's outputs.

Noise is the same in all directions of the weights, so while a model is nearly linear in them no layer needs a step of its own:
signal sum(eta_l G_l^2) at noise sum(eta_l^2 G_l^2) is largest where all eta_l are equal. What is left is one number. Steps of
size eta with decay leave noise of deviation s = eta sigma sqrt(T/2) / L in every weight at the end. It may move an output by
2, in root mean square, and that gives s:

    eta = sqrt(2) s / sqrt((sigma sqrt(T) / L)^2 + 1/50^2)

with clip 1 and the decay h(t) = sqrt(1 - t/T), as in Horizon, and without momentum: clipped gradients keep their length, so that
old ones overshoot. Where noise saturates what lies between, an output may be moved by 1 and less, and where the model is linear
in its weights by ln(C + 1) for C classes, where half of a record's gradient is gone (`gradients.echo.borne`). Little noise alone
would allow steps that are longer than the weights are: none is longer than 2 |theta_0| / D, for initial weights theta_0 in D
matrices, if there are several.

How far noise moves an output is measured, at the initial weights and on made-up inputs (`gradients.echo`), so that whatever lies
between a weight and the outputs is in it: depth, width, pools, normalisation, skips, attention, and that noise in one matrix is
passed on by noise in the next. It depends on n, the size of the records.

n belongs to the data, so it is released: every step asks, beside the gradient, for the mean of ln sqrt(1 + |x|^2) over its lot,
clipped to a public range (`boundary.query`), with noise 7.124 sigma. That leaves 1.01 sigma to the gradient: both together are
one Gaussian of noise sigma, and are accounted as the step. A step takes for n the mean of all releases so far and of a public
guess, weighed by their variances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from honestdp.boundary.query import HALF_RANGE, Constants, InputNorm, Query, Release
from honestdp.gradients.echo import LOG_NORMS, SHAKES, chain
from honestdp.optimizers.learnt import DIRECTION_NOISE, SHARED
from honestdp.optimizers.rule import FixedClip, State

FLOOR = 1 / 50
REACH = 2.0
"""A step is at most so many times the norm of the initial weights, divided by the number of matrices."""
GUESS = 0.35
"""Of the root mean square of a record's numbers: what images and tables of numbers in [0, 1] have."""
ASKED = (
    "beside its gradient every step releases the mean logarithm of the norms of its lot's inputs, clipped to "
    f"[0, {2 * HALF_RANGE:.2f}]; {SHARED}; of tokens it asks nothing"
)
"""What a statement says of such a rule."""


@dataclass(frozen=True)
class Sized(FixedClip):
    """A rule with nothing to tune that sets its own pace, and keeps in its state's `size` the sum of what was released of n."""

    clip = 1.0
    own_pace = True

    def __post_init__(self) -> None:
        """There is nothing to check."""

    def query(self, state: State, constants: Constants) -> Query:
        plain = super().query(state, constants)
        if not constants.layout.entering:
            return plain
        return replace(plain, second=InputNorm(DIRECTION_NOISE * HALF_RANGE * constants.noise))


@dataclass(frozen=True)
class Echo(Sized, name="echo"):
    """Nothing to tune: the step size follows from the steps, the noise, the lot, and how far noise in the weights moves what the
    model answers, which is measured on made-up inputs as large as the records are. That every step releases beside the gradient,
    out of the same noise. Take it where a search is not worth its privacy: it is the default where the loss is a cross-entropy.
    It sets its own pace and takes no schedule.

    weight_decay: see `Rule`.

    >>> import honestdp
    >>> honestdp.optimizers.Echo()
    Echo()
    """

    by_echo = True
    form = 1  # without momentum, and with a bound on the step
    asks = f"echo: {ASKED}"

    def memory(self, params: Tensor, constants: Constants) -> State:
        echo = constants.echo
        if echo is None:
            echo = chain(constants.layout).to(params).expand(len(params), -1, -1)
        return {"size": torch.zeros_like(params[:, 0]), "allowed": allowed(echo), "reach": _reach(params, constants)}

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        size = state["size"] if release.second is None else state["size"] + release.second
        paced = self._eta(size, state["step"] + 1, state, constants) * ahead(state, constants)
        memory = {"size": size, "allowed": state["allowed"], "reach": state["reach"]}
        return params - paced * release.gradient, memory

    def pace(self, state: State, constants: Constants) -> Tensor:
        return self._eta(state["size"], state["step"], state, constants) * ahead(state, constants)

    def _eta(self, size: Tensor, count: Tensor, state: State, constants: Constants) -> Tensor:
        """eta, a column, after so many releases of the size that add up to `size`."""
        deviation = _between(known(size, count, constants), state["allowed"]).exp()
        unit = constants.noise * (math.sqrt(max(1, constants.steps)) / constants.lot)
        eta = math.sqrt(2) * deviation / (unit.square() + FLOOR**2).sqrt()
        return torch.minimum(eta, state["reach"])[:, None]


def _reach(params: Tensor, constants: Constants) -> Tensor:
    """The longest step, `[runs]`, by the initial weights; a norm below 1 counts as 1. Where one matrix is all there is none.

    In float64, so that it is the same to the last digit however many runs are together: in every copy of a run.
    """
    matrices = sum(mixing(constants))
    if matrices < 2:
        return torch.full_like(params[:, 0], math.inf)
    norms: Tensor = torch.linalg.vector_norm(params, dim=1, dtype=torch.float64)
    return (REACH / matrices * norms.clamp(min=1)).to(params)


def allowed(echo: Tensor) -> Tensor:
    """ln s, `[runs, norms]`: the deviation that moves an output by what it bears, which is 1 in the table, by straight lines
    between the logarithms of SHAKES and of what they do. It grows with them, but for draws: so does what is taken. Below the
    least it is in proportion.
    """
    moves = echo.clamp(min=torch.finfo(echo.dtype).tiny).log().cummax(2).values
    shakes = [math.log(shake) for shake in SHAKES]
    found = shakes[0] - moves[..., 0].clamp(min=0)
    for number in range(len(shakes) - 1):
        low, high = moves[..., number], moves[..., number + 1]
        part = (-low / (high - low).clamp(min=1e-6)).clamp(0, 1)
        found = found + (shakes[number + 1] - shakes[number]) * part
    return found


def _between(log_norm: Tensor, logs: Tensor) -> Tensor:
    """ln s at this ln n, `[runs]`, by straight lines between LOG_NORMS and level beyond them."""
    found = logs[:, 0]
    for number in range(len(LOG_NORMS) - 1):
        low, high = LOG_NORMS[number], LOG_NORMS[number + 1]
        part = ((log_norm - low) / (high - low)).clamp(0, 1)
        found = found + part * (logs[:, number + 1] - logs[:, number])
    return found


def ahead(state: State, constants: Constants) -> Tensor:
    """h(t), a column."""
    left = (1 - state["step"].double() / constants.steps).clamp(min=0)
    return left.sqrt().to(state["size"].dtype)[:, None]


def known(size: Tensor, count: Tensor, constants: Constants) -> Tensor:
    """ln n, `[runs]`: the public guess, of variance 1, and `count` releases that add up to `size`, by their variances."""
    entering = constants.layout.entering
    if not entering:
        return torch.zeros_like(size)
    guess = min(math.log1p(entering * GUESS**2) / 2, 2 * HALF_RANGE)
    drawn = (DIRECTION_NOISE * constants.noise / constants.lot).square() + 1 / constants.lot
    weight = 1 / (HALF_RANGE**2 * drawn)
    return ((guess + weight * size) / (1 + weight * count.to(size.dtype))).clamp(0, 2 * HALF_RANGE)


def mixing(constants: Constants) -> list[bool]:
    """Which layers mix their inputs: those with a matrix, but for a table that rows are looked up in."""
    layout = constants.layout
    matrices = [False] * len(layout.fan_in)
    for shape, layer in zip(layout.shapes, layout.layers, strict=True):
        matrices[layer] |= len(shape) > 1
    return matrices
