"""Echo: nothing to tune; one step size, set by how far the noise of the whole run moves the model's outputs.

Noise is the same in all directions of the weights, so while a model is nearly linear in them no layer needs a step of its own:
signal sum(eta_l G_l^2) at noise sum(eta_l^2 G_l^2) is largest where all eta_l are equal. What is left is one number. Steps of
size eta with decay leave noise of deviation s = eta sigma sqrt(T/2) / L in every weight at the end. It may move an output by
2, in root mean square, and that gives s:

    eta = sqrt(2) s / sqrt((sigma sqrt(T) / L)^2 + 1/50^2)

with clip 1 and the decay h(t) = sqrt(1 - t/T), as in Horizon, and without momentum: clipped gradients keep their length, so that
old ones overshoot. Where noise saturates what lies between, an output may be moved by 1 and less, and where the model is linear
in its weights by ln(C + 1) for C classes, where half of a record's gradient is gone (`borne`). Little noise alone
would allow steps that are longer than the weights are: none is longer than 2 |theta_0| / D, for initial weights theta_0 in D
matrices, if there are several.

How far noise moves an output is measured, at the initial weights and on made-up inputs (`echoes`), so that whatever lies
between a weight and the outputs is in it: depth, width, pools, normalisation, skips, attention, and that noise in one matrix is
passed on by noise in the next. Nothing of a record is in the measurement: the weights before the first step are public, and the
inputs, in the shapes that records have, are drawn from a fixed seed, as is the noise. The result depends on n, the size of the
records.

n belongs to the data, so it is released: every step asks, beside the gradient, for the mean of ln sqrt(1 + |x|^2) over its lot,
clipped to a public range (`boundary.query`), with noise 7.124 sigma. That leaves 1.01 sigma to the gradient: both together are
one Gaussian of noise sigma, and are accounted as the step. A step takes for n the mean of all releases so far and of a public
guess, weighed by their variances.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from honestdp.boundary.query import HALF_RANGE, Constants, InputNorm, Query, Release
from honestdp.gradients import inputs
from honestdp.gradients.inputs import NUMBER, Inputs
from honestdp.gradients.layout import Layout
from honestdp.losses import prediction
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
SHAKES = tuple(2.0**power for power in range(-9, 2))
"""Deviations of the noise in every weight."""
LOG_NORMS = (0.35, 1.0, 2.0, 3.5, 5.0, 6.9)
"""ln sqrt(1 + |x|^2) of the made-up records x; of tokens only the first is tried, since they have no size."""
_EXAMPLES, _DRAWS = 8, 8
_STRAIGHT = 0.02
"""How far twice the noise may be from twice the move where a model is linear in its weights: what float32 leaves of it."""
_FURTHEST = 1e200
"""The square of what noise moves an output by in a chain, at most: a hundred layers would leave the range of float64."""
_NO_MEMORY = ("DefaultCPUAllocator", "STATUS_ALLOC_FAILED", "STATUS_NOT_INITIALIZED")
"""What torch says of a lack of memory in a plain RuntimeError: on a CPU, and in the libraries of a GPU."""
_NOISE_SEED, _INPUT_SEED, _MODEL_SEED = 18, 19, 20
"""Several: noise that repeats the inputs would lie in their direction."""


@dataclass(frozen=True)
class Echo(FixedClip, name="echo"):
    """Nothing to tune: the step size follows from the steps, the noise, the lot, and how far noise in the weights moves what
    the model answers, which is measured on made-up inputs as large as the records are. Every step releases that size beside
    the gradient, out of the same noise. Take it where a search is not worth its privacy: it is the default where the loss
    is a cross-entropy. It sets its own pace and takes no schedule.

    weight_decay: see `Rule`.

    >>> import honestdp
    >>> honestdp.optimizers.Echo()
    Echo()
    """

    clip = 1.0
    own_pace = True
    by_echo = True
    form = 1  # without momentum, and with a bound on the step
    asks = f"echo: {ASKED}"

    def query(self, state: State, constants: Constants) -> Query:
        plain = super().query(state, constants)
        if not constants.layout.entering:
            return plain
        return replace(plain, second=InputNorm(DIRECTION_NOISE * HALF_RANGE * constants.noise))

    def memory(self, params: Tensor, constants: Constants) -> State:
        """size: the sum of the releases of n. allowed: ln s by the table of echoes. reach: the longest step."""
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
    matrices = sum(mixing(constants.layout))
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


def mixing(layout: Layout) -> list[bool]:
    """Which layers mix their inputs: those with a matrix, but for a table that rows are looked up in."""
    matrices = [False] * len(layout.fan_in)
    for shape, layer in zip(layout.shapes, layout.layers, strict=True):
        matrices[layer] |= len(shape) > 1
    return matrices


@torch.no_grad()
def echoes(model: nn.Module, layout: Layout, rows: Tensor, blank: Inputs, classes_at: int | None = -1) -> Tensor:
    """`[runs, norms, shakes]`: the root mean square by which noise of that deviation moves an output of the model, over what the
    outputs bear (`borne`).

    rows: initial weights `[runs, width]`. blank: made-up records, for their shapes. classes_at: the dimension of the outputs that
    classes are along; None where every output stands for itself. Runs with the same weights are measured once. A model that does
    not take made-up inputs, or whose outputs for them are not finite, is taken for a chain of layers.

    A model that draws in eval() mode draws from a fixed seed too, the same with and without noise. If the table differed between
    copies of a search, the same lots and noise would lead to other weights, and whoever has both copies could subtract the noise.
    """
    measured: dict[bytes, Tensor] = {}
    tables = []
    with torch.random.fork_rng(devices=[rows.device] if rows.is_cuda else []):
        for row in rows:
            key = row.cpu().contiguous().view(torch.uint8).numpy().tobytes()
            if key not in measured:
                measured[key] = _measured(model, layout, row, blank, classes_at)
            tables.append(measured[key])
    return torch.stack(tables).clamp(max=torch.finfo(rows.dtype).max).to(rows)


def chain(layout: Layout) -> Tensor:
    """`[norms, shakes]` of a model of which the shapes alone are known: as if its layers came one after the other, with weights
    as torch draws them, of mean square 1 / (3 fan-in). Noise adds up and is passed on by the noise in the layers behind it.
    """
    log_norms, noise = (torch.tensor(each, dtype=torch.float64) for each in (LOG_NORMS, SHAKES))
    log_norms, noise = log_norms[:, None], noise.square()
    square = torch.expm1(2 * log_norms) / layout.entering if layout.entering else torch.ones_like(log_norms)
    moved = torch.zeros(len(LOG_NORMS), len(SHAKES), dtype=torch.float64)
    for fan_in, mixes in zip(layout.fan_in, mixing(layout), strict=True):
        if not mixes:  # normalised
            square, moved = torch.ones_like(square), moved.clamp(max=1)
        elif fan_in == 1:  # a row that is looked up
            square, moved = torch.ones_like(square), noise.expand_as(moved)
        else:
            moved = (noise * (1 + fan_in * (square + moved)) + moved / 3).clamp(max=_FURTHEST)
            square = square / 3
    outputs = next((shape[0] for shape in reversed(layout.shapes) if shape), 1)  # behind it may be a scale, of no side
    return borne(moved.clamp(min=noise).sqrt(), outputs)


def borne(table: Tensor, outputs: int) -> Tensor:
    """`[norms, shakes]` over what a move may be.

    A model that is linear in its weights has nothing that bends but the loss, which is convex: noise that it is given is
    unlearned like any other error. Of C classes that are alike at first, half of a record's gradient is gone when its own
    class is ln(C + 1) ahead. So far the outputs may go: 1.1 for two classes and 2.4 for ten. Linear is what answers twice the
    noise with twice the move, which the table shows. For every other model see `_borne_by_a_network`.
    """
    moves = table.clamp(min=torch.finfo(table.dtype).tiny).log()
    bent = (moves.diff(dim=1) - math.log(2)).abs().max()
    if bool(bent < _STRAIGHT):
        return table / math.log(outputs + 1) if outputs > 1 else table
    return table / _borne_by_a_network(moves)


def _borne_by_a_network(moves: Tensor) -> Tensor:
    """`[norms, 1]` of the logarithms of moves `[norms, shakes]`: by what twice the noise does where the move is 1.

    In a network noise is passed on by noise, so that twice as much of it moves outputs more than twice as far: of networks that
    bear a move of 2, 2.4 times and more. Where it does not, what is between saturates: outputs move no further, but units that
    are stuck learn little, and 1 is too much already. Of 48 settings none is between 2.15 and 2.4
    (papers/docs/notes/tuning-free.md); the line through 1 at 2.1 and 2 at 2.5 keeps a table's draws from deciding.
    """
    grown = moves.cummax(1).values
    last = grown.shape[1] - 2  # where twice the noise is still in the table
    below = (grown < 0).sum(1, keepdim=True).sub(1).clamp(0, last)
    low, high = grown.gather(1, below), grown.gather(1, below + 1)
    part = (-low / (high - low).clamp(min=1e-6)).clamp(0, 1)
    further = grown.gather(1, (below + 2).clamp(max=last + 1))
    doubled = ((1 - part) * (high - low) + part * torch.where(below < last, further - high, high - low)).exp()
    return (1 + (doubled - 2.1) / 0.4).clamp(0.5, 2)


@torch.no_grad()
def try_once(model: nn.Module, layout: Layout, row: Tensor, blank: Inputs) -> None:
    """Make one of the calls that `echoes` makes, to know before the charge that there is memory for them; no other trouble in it
    stops a training.
    """
    with torch.random.fork_rng(devices=[row.device] if row.is_cuda else []), _chained():
        still, x, _ = _made(model, blank)
        _outputs(still, layout, row, x)


@contextmanager
def _chained() -> Iterator[None]:
    """Catch whatever a model raises on inputs that no record may have: it is then taken for a chain. A lack of memory and a
    failing device are raised: they may come in one copy of a search and not in another.
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except Exception as trouble:
        if any(words in str(trouble) for words in _NO_MEMORY):
            raise MemoryError(*trouble.args) from trouble


def _made(model: nn.Module, blank: Inputs) -> tuple[nn.Module, Inputs, int]:
    """The model at rest, made-up inputs of every norm, and of how many norms they are."""
    still, norms = copy.deepcopy(model).eval(), LOG_NORMS[:1] if inputs.entering(blank) == 0 else LOG_NORMS
    return still, inputs.joined([made_up(still, blank, log_norm) for log_norm in norms]), len(norms)


def _measured(model: nn.Module, layout: Layout, row: Tensor, blank: Inputs, classes_at: int | None) -> Tensor:
    with _chained():
        still, x, norms = _made(model, blank)
        before, noisy = _outputs(still, layout, row, x), torch.empty_like(row)
        outputs = 1 if classes_at is None else before.shape[classes_at]
        table = torch.zeros(norms, len(SHAKES), dtype=torch.float64)
        for noise in _noises(layout, row):
            for place, shake in enumerate(SHAKES):
                moved = _outputs(still, layout, torch.add(row, noise, alpha=shake, out=noisy), x) - before
                table[:, place] += _squares(moved, norms, classes_at) / _DRAWS
        if bool(table.isfinite().all()) and bool((table[:, -1] > 0).all()):
            return borne(table.sqrt(), outputs).expand(len(LOG_NORMS), -1)
    return chain(layout)


def _squares(moved: Tensor, norms: int, classes_at: int | None) -> Tensor:
    """Of each norm the mean square of a move. What moves the outputs of all classes alike changes no answer."""
    classes = 1 if classes_at is None else moved.shape[classes_at]
    if classes > 1:
        moved = (moved - moved.mean(classes_at, keepdim=True)) * math.sqrt(classes / (classes - 1))
    return moved.square().reshape(norms, -1).mean(1).cpu()


def _outputs(model: nn.Module, layout: Layout, row: Tensor, x: Inputs) -> Tensor:
    """`[examples, ...]`, in float64: what of the model's output is its prediction."""
    torch.default_generator.manual_seed(_MODEL_SEED)
    if row.is_cuda:
        torch.cuda.default_generators[row.device.index].manual_seed(_MODEL_SEED)
    weights = {name: value[0] for name, value in layout.views(row[None]).items()}
    found = prediction(inputs.call_with(model, weights, x)).double()
    return found if found.dim() > 1 else found[:, None]


def _noises(layout: Layout, row: Tensor) -> Iterator[Tensor]:
    """Normal numbers in the place of every weight; drawn on the CPU, so that they are the same everywhere."""
    drawn = torch.Generator().manual_seed(_NOISE_SEED)
    weights = layout.columns([1.0] * len(layout.shapes)) > 0 if layout.gaps else slice(None)
    for _ in range(_DRAWS):
        noise = torch.zeros(layout.width)
        noise[weights] = torch.randn(layout.total, generator=drawn)
        yield noise.to(row)


def made_up(model: nn.Module, blank: Inputs, log_norm: float) -> Inputs:
    """Records of this size in the shapes of `blank`: quantities as normal numbers around half of their mean square, as pictures
    and counts have; tokens of all words that every table of the model has, but for the first, which often is none; without a
    table 0 and 1, since of whole numbers that are no tokens nobody knows how large they are.
    """
    drawn = torch.Generator().manual_seed(_INPUT_SEED)
    tables = [part.num_embeddings for part in model.modules() if isinstance(part, (nn.Embedding, nn.EmbeddingBag))]
    size = math.sqrt(math.expm1(2 * log_norm) / max(1, inputs.entering(blank)) / 2)
    plain = inputs.blank(model, blank, _EXAMPLES)

    def drawn_like(leaf: Tensor, role: str) -> Tensor:
        if leaf.is_floating_point():
            return (size * (1 + torch.randn(leaf.shape, generator=drawn))).to(leaf)
        if role != NUMBER or leaf.dtype == torch.bool or (tables and min(tables) < 2):
            return leaf
        low, high = (1, min(tables)) if tables else (0, 2)
        return torch.randint(low, high, leaf.shape, generator=drawn).to(leaf)

    parts = [
        drawn_like(leaf, role) for leaf, role in zip(inputs.leaves(plain), inputs.roles(model, blank), strict=True)
    ]
    made: Inputs = inputs.like(blank, parts)
    return made
