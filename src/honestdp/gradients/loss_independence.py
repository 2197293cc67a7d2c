"""Whether a loss looks at one example at a time: tried on what the model makes of made-up inputs, at the width of a lot."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.branching import Reads
from honestdp.gradients.grouped import slopes
from honestdp.gradients.independence import halves, same, with_rows
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.outputs import IGNORED, main, on_cpu, own_loss
from honestdp.gradients.probe import LOT, Probe, drew, flat, seed_draws, without_dropout
from honestdp.gradients.write_guard import NOTHING, code_of
from honestdp.losses import Loss, one_each

_ALONE = 6
"""Examples of a lot that are also given to the loss alone."""
_FEW = 6
"""Examples of which the model makes outputs for the loss."""
_SPREAD = 30
"""How many times larger than the others every second example of the trial is."""
_LARGE = 1e8
"""How many times the usual gradient the largest one of a lot is in the trial."""


class Manner(NamedTuple):
    """What a loss does beside computing. In either case it may be shown no more than one example at a time."""

    reads: bool = False
    """It reads numbers of a tensor to choose its way, which would be a whole lot's."""
    draws: bool = False
    """It draws random numbers, so that an example alone and in a lot cannot be compared."""


def refuse_mixing_loss(probe: Probe, loss: Loss, y: Inputs, *, examples: int) -> Manner:
    """Refuse a loss that fails on the model's outputs, or that depends on other examples' outputs or labels. Otherwise what else
    it does.

    Its number and its gradient for an example among others have to be those that it has alone, whatever the others are,
    and the same when they are asked for again. Of a loss that draws, which has the same draws at every call here, lots
    of one size are compared alone; what a lot's size does to it is out of the question where it is shown one example at
    a time.
    """
    n, choosing, drawing = max(examples, probe.runs * LOT), False, False
    x, fresh = probe.pool(_FEW, huge=_SPREAD), probe.fresh()
    with without_dropout(fresh.model):
        output = fresh.output(inputs.each(partial(_spread, usual=_FEW), x))
    rows = len(with_rows(flat(output), len(inputs.first(x))))
    output = _widened(output, rows, n, probe)
    counted = any(part.is_floating_point() for part in inputs.leaves(y))
    for whole in (False, True) if counted else (True,):
        labels = accepted(loss, output, probe, y, whole=whole)
        draws = _draws(loss, output, labels)
        pairs = itertools.chain(_pairs(loss, output, labels, n, draws), _unusual_pairs(loss, output, labels, n))
        if not all(same(*parts) for pair in pairs for parts in zip(*pair, strict=True)):
            wanted = (
                "a function whose number for an example depends on that example's output and label alone: no weights "
                "counted in the lot, no statistics over it, no ranking within it, nothing kept from call to call"
            )
            raise InvalidArgument("loss", "a loss that mixes examples", wanted)
        asked = own_loss(loss)
        before = code_of(asked)
        with Reads() as reads:
            asked(output, labels)
        if code_of(asked) != before:
            raise InvalidArgument(
                "loss", "a loss that one call has changed", f"one that keeps nothing from call to call: {NOTHING}"
            )
        choosing, drawing = choosing or reads.seen, drawing or draws
    return Manner(choosing, drawing)


def _draws(loss: Loss, output: object, labels: Inputs) -> bool:
    """Whether it takes a number from torch's generator."""
    one = inputs.first(labels)
    _answer(own_loss(loss), output, labels, torch.arange(min(2, len(one)), device=one.device))
    return drew(one.device, 0)


def _widened(output: Any, rows: int, n: int, probe: Probe) -> Any:
    """Outputs for n usual examples and the others, of those for a few: each usual one lies between two of them, so that a
    probability stays one. The model goes through no wide lot for it.
    """
    at = torch.arange(n)
    share = probe.uniform(n)
    one, other = (at % _FEW, (at + 2 * (1 + at // _FEW % (_FEW // 2 - 1))) % _FEW)

    def widened(part: Any) -> Any:
        if not isinstance(part, Tensor) or part.shape[:1] != (rows,):
            return part
        few, rest = part[:_FEW], part[_FEW:]
        first, second = few[one.to(part.device)], few[other.to(part.device)]
        if part.is_floating_point():
            weight = share.to(part).view(-1, *[1] * (part.dim() - 1))
            first = weight * first + (1 - weight) * second
        return torch.cat([first, rest])

    return pytree.tree_map(widened, output)


def _spread(x: Tensor, *, usual: int) -> Tensor:
    """Every second usual example is larger, so that losses of very different size are in one lot."""
    if x.is_floating_point():
        x[1:usual:2] *= _SPREAD
    return x


def _pairs(
    loss: Loss, output: object, labels: Inputs, n: int, draws: bool
) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """What the loss says of the same examples in two lots."""
    everyone = torch.arange(n, device=inputs.first(labels).device)
    base = _answer(own_loss(loss), output, labels, everyone)
    one_each(base[0], n)
    for extra in range(n, len(inputs.first(labels))):
        moved = torch.cat([everyone.new_tensor([extra]), everyone[1:]])
        asked = own_loss(loss)
        yield _at(base, everyone[1:]), _at(_answer(asked, output, labels, moved), everyone[1:])
        yield base, _answer(asked, output, labels, everyone)  # again, after another lot
    one, other = (half.to(everyone.device) for half in halves(n))
    half = everyone.clone()
    half[one] = torch.arange(n, len(inputs.first(labels)), device=everyone.device).repeat(n)[: len(one)]
    yield _at(base, other), _at(_answer(own_loss(loss), output, labels, half), other)
    # Of outputs none of which is spread, so that a limit above all of them is crossed by what moves alone.
    calm = everyone - everyone % 2
    moved = torch.where(half == everyone, calm, half)
    first, second = (_answer(own_loss(loss), output, labels, rows) for rows in (calm, moved))
    yield _at(first, other), _at(second, other)
    for place in (0, n - 1):  # a backward pass of the loss's own may hold all gradients to the largest, or to the last
        others = everyone[everyone != place]
        yield _at(base, others), _at(_answer(own_loss(loss), output, labels, everyone, large=place), others)
    if draws:
        return
    one_more = torch.cat([everyone.new_tensor([n]), everyone])
    yield base, _at(_answer(own_loss(loss), output, labels, one_more), everyone + 1)
    spread = torch.linspace(0, n - 1, min(n, _ALONE)).long().tolist()
    order = base[0].nan_to_num(0).argsort().tolist()
    # Twice and not once, for a loss may drop dimensions of size one; and so often that all of a lot are alike.
    for place, many in [*((place, 2) for place in dict.fromkeys([*spread, order[0], order[-1]])), (order[0], n)]:
        row = everyone.new_tensor([place])
        alone = _answer(own_loss(loss), output, labels, row.expand(many))
        yield [part.expand(many, *part.shape[1:]) for part in _at(base, row)], alone


def _unusual_pairs(loss: Loss, output: object, labels: Inputs, n: int) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """The same where every third example has outputs that are no numbers, or a label that is to be ignored: a loss may look at
    the others only then, to fill in what is missing or to weigh by what counts.

    On the CPU: a loss that takes the label for a place in memory fails there, and on a GPU takes the whole process with it.
    """
    output, labels = pytree.tree_map(lambda part: part.cpu() if isinstance(part, Tensor) else part, (output, labels))
    everyone, place = torch.arange(n), torch.arange(len(inputs.first(labels)))

    def holed(part: Any) -> Any:
        if not floating(part):
            return part
        return torch.where(((place % 3 == 1) & (place < n)).view(-1, *[1] * (part.dim() - 1)), torch.nan, part)

    unusual = [(pytree.tree_map(holed, output), labels)]

    def ignored(part: Tensor) -> Tensor:
        part = part.clone()
        if part.dtype in (torch.int16, torch.int32, torch.int64):
            part[: n - 1 : 3] = IGNORED
        return part

    if not all(part.is_floating_point() for part in inputs.leaves(labels)):
        unusual.append((output, inputs.each(ignored, labels)))
    for strange, given in unusual:
        try:
            moved = [torch.cat([everyone.new_tensor([extra]), everyone[1:]]) for extra in range(n, len(place))]
            base, *answers = (_answer(on_cpu(loss), strange, given, rows) for rows in (everyone, *moved))
        except Exception:
            continue  # a loss may well fail on these
        yield from ((_at(base, everyone[1:]), _at(answer, everyone[1:])) for answer in answers)


def _at(answer: list[Tensor], rows: Tensor) -> list[Tensor]:
    return [part[rows] for part in answer]


def _answer(loss: Loss, output: object, labels: Inputs, rows: Tensor, *, large: int | None = None) -> list[Tensor]:
    """What a loss says of every example: its number, and the gradients of all numbers for that example's outputs.

    large: the place of an example whose gradient comes back `_LARGE` times as large, as one with an unusual label may.
    """
    seed_draws(inputs.first(labels).device, 0)
    leaves, shape = pytree.tree_flatten(output)
    values = [v[rows].detach() if isinstance(v, Tensor) else v for v in leaves]
    wanted = [v.requires_grad_() for v in values if floating(v)]
    with torch.enable_grad():
        losses = loss(pytree.tree_unflatten(values, shape), inputs.rows(labels, rows))
    if not losses.requires_grad:
        return [losses]
    sizes = torch.ones_like(losses)
    if large is not None:
        sizes[large] = _LARGE
    found = slopes(losses, wanted, sizes)
    return [
        losses.detach(),
        *(torch.zeros_like(v) if one is None else one for v, one in zip(wanted, found, strict=True)),
    ]


def accepted(loss: Loss, output: object, probe: Probe, y: Inputs, *, whole: bool = False) -> Inputs:
    """Labels that the loss takes: of several classes if it can be, else zeros; floating ones numbers within 0 and 1.

    whole: floating ones too are classes. Several tensors of labels may count other classes than the output has, or two.
    """
    leaf, floats = main(output), all(part.is_floating_point() for part in inputs.leaves(y))
    several = 2 if floats or leaf.dim() == 1 else leaf.shape[1]
    counts = [2] if floats and not whole else dict.fromkeys([several, *([2] if inputs.several(y) else []), 1])
    tries = [probe.labels(y, classes=classes, examples=len(leaf), whole=whole) for classes in counts]
    for labels in tries:
        try:
            own_loss(loss)(output, labels)
        except Exception as error:
            trouble = error
        else:
            return labels
    shapes = [tuple(value.shape) for value in pytree.tree_leaves(output) if isinstance(value, Tensor)]
    labelled = " and ".join(f"shape {tuple(part.shape)}, {part.dtype}" for part in inputs.leaves(tries[0]))
    tried = f"tried with output of shape {shapes} and y of {labelled}"
    wanted = f"a function of (output, y) that gives one number an example; {tried}"
    raise InvalidArgument("loss", f"{type(trouble).__name__}: {trouble}", wanted) from trouble


def floating(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
