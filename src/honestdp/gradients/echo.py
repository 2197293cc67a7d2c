"""How far noise in all weights of a model moves its outputs, heard on made-up inputs.

Nothing of a record is in it: the weights are those before the first step, which are public, the inputs are drawn from a fixed
seed in the shapes that records have, and so is the noise. A rule sets its step by the table (`optimizers.echo`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from honestdp.gradients import inputs
from honestdp.gradients.inputs import NUMBER, Inputs
from honestdp.gradients.layout import Layout
from honestdp.losses import prediction

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


@torch.no_grad()
def echoes(model: nn.Module, layout: Layout, rows: Tensor, blank: Inputs, classes_at: int | None = -1) -> Tensor:
    """`[runs, norms, shakes]`: the root mean square by which noise of that deviation moves an output of the model, over what the
    outputs bear (`borne`).

    rows: initial weights `[runs, width]`. blank: made-up records, for their shapes. classes_at: the dimension of the outputs that
    classes are along; None where every output stands for itself. Runs with the same weights are heard once. Where the model does
    not take made-up inputs, or makes of them what is not finite, it is taken for a chain of layers.

    What a model draws in eval() mode is drawn from a fixed seed too, the same with and without noise. Were the table another in
    each copy of a search, the same lots and noise would come to other weights, and whoever has both could subtract the noise.
    """
    heard: dict[bytes, Tensor] = {}
    tables = []
    with torch.random.fork_rng(devices=[rows.device] if rows.is_cuda else []):
        for row in rows:
            key = row.cpu().contiguous().view(torch.uint8).numpy().tobytes()
            if key not in heard:
                heard[key] = _heard(model, layout, row, blank, classes_at)
            tables.append(heard[key])
    return torch.stack(tables).clamp(max=torch.finfo(rows.dtype).max).to(rows)


def chain(layout: Layout) -> Tensor:
    """`[norms, shakes]` of a model of which the shapes alone are known: as if its layers came one after the other, with weights
    as torch draws them, of mean square 1 / (3 fan-in). Noise adds up and is passed on by the noise in the layers behind it.
    """
    matrix = [False] * len(layout.fan_in)
    for shape, layer in zip(layout.shapes, layout.layers, strict=True):
        matrix[layer] |= len(shape) > 1
    log_norms, noise = (torch.tensor(each, dtype=torch.float64) for each in (LOG_NORMS, SHAKES))
    log_norms, noise = log_norms[:, None], noise.square()
    square = torch.expm1(2 * log_norms) / layout.entering if layout.entering else torch.ones_like(log_norms)
    moved = torch.zeros(len(LOG_NORMS), len(SHAKES), dtype=torch.float64)
    for fan_in, mixes in zip(layout.fan_in, matrix, strict=True):
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
    """One of the calls that `echoes` makes, to know before the charge that there is memory for them; whatever else goes wrong
    stops none of them.
    """
    with torch.random.fork_rng(devices=[row.device] if row.is_cuda else []), _chained():
        still, x, _ = _made(model, blank)
        _outputs(still, layout, row, x)


@contextmanager
def _chained() -> Iterator[None]:
    """What a model raises here is its own, of inputs that no record may have: it is then a chain. But for a lack of memory, or
    a device that fails: these are another thing in each copy of a search.
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


def _heard(model: nn.Module, layout: Layout, row: Tensor, blank: Inputs, classes_at: int | None) -> Tensor:
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
