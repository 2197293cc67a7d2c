"""What a model gives: a tensor, or tuples, dicts and dataclasses of tensors, each with a row an example.

Whatever else is in an output (a number, a cache) belongs to no example and may hold something of all of them: where outputs are
cut into examples it becomes None.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs
from honestdp.losses import Labels, Loss, Taken, cross_entropy, default_loss, prediction, squared_error
from honestdp.losses.class_weights import ClassWeighted, base_of

Rebuild = Callable[[list[Tensor]], Any]
WANTED = "a tensor of one row per example, or a tuple, a dict or a Hugging Face output of such tensors"


def tensors_in(output: object) -> tuple[list[Tensor], Rebuild]:
    """The tensors of an output, and how others in their place become one, with None for all else."""
    leaves, shape = pytree.tree_flatten(output)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def rebuild(tensors: list[Tensor]) -> Any:
        values: list[Any] = [None] * len(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        return pytree.tree_unflatten(values, shape)

    return [leaves[place] for place in places], rebuild


def each_tensor(function: Callable[[Tensor], Tensor], output: object) -> Any:
    """The output with a function of each of its tensors in its place."""
    if isinstance(output, Tensor):
        return function(output)
    tensors, rebuild = tensors_in(output)
    return rebuild([function(tensor) for tensor in tensors])


def with_rows(output: Any, examples: int) -> Any:
    """The output of a model, once it is sure that each of its tensors has a row an example; all else in it is None."""
    if isinstance(output, Tensor):
        if output.dim() == 0 or len(output) != examples:
            raise InvalidArgument("the model's output", list(output.shape), f"{WANTED}, {examples} here")
        return output
    tensors, rebuild = tensors_in(output)
    if not tensors:
        wanted = f"{WANTED}; a dataclass of your own is one once torch.export.register_dataclass knows it"
        raise InvalidArgument("the model's output", type(output).__name__, wanted)
    for tensor in tensors:
        if tensor.dim() == 0 or len(tensor) != examples:
            shape = f"a {type(output).__name__} with a tensor of shape {list(tensor.shape)}"
            raise InvalidArgument("the model's output", shape, f"{WANTED}, {examples} here")
    return rebuild(tensors)


def own_loss(loss: Loss) -> Loss:
    """A copy of a loss that is an object, so that the user's own is left as it is; a function has none."""
    try:
        return copy.deepcopy(loss)
    except Exception:  # of something that has no copies, such as a lock or an open file
        return loss


def on_cpu(loss: Loss) -> Loss:
    own = own_loss(loss)
    return own.cpu() if isinstance(own, nn.Module) else own


def main(output: Any) -> Tensor:
    """The prediction of an output, or where it has none the first of its floating tensors."""
    try:
        return prediction(output)
    except InvalidArgument:
        return next(tensor for tensor in tensors_in(output)[0] if tensor.is_floating_point())


def row(output: Any, place: int | slice) -> Any:
    """One example's part of an output, or that of some."""
    return each_tensor(lambda tensor: tensor[place], output)


def joined(outputs: list[Any]) -> Any:
    """Outputs of one lot after the other, as one."""
    if isinstance(outputs[0], Tensor):
        return torch.cat(outputs)
    rebuild = tensors_in(outputs[0])[1]
    return rebuild([torch.cat(parts) for parts in zip(*(tensors_in(one)[0] for one in outputs), strict=True)])


@torch.no_grad()
def check_output(model: nn.Module, loss: Loss, x: Inputs, y: Inputs, *, declared: int | None = None) -> Taken:
    """Try model and loss on two made-up examples. Returns the labels that the loss takes, for each tensor of labels.

    x `[2, ...]`, y `[2, ...]` are made up in the records' shapes: no record is needed to find a wrong shape. declared: how many
    classes there are, where that is declared.
    """
    examples = len(inputs.first(y))
    output = with_rows(inputs.call(model, x), examples)
    classes = None
    if base_of(loss) in (cross_entropy, squared_error) and not isinstance(y, Tensor):
        default_loss(y)  # refuses it
    if base_of(loss) is cross_entropy:
        assert isinstance(y, Tensor)
        scores = prediction(output)
        if scores.dim() != y.dim() + 1 or scores.shape[2:] != y.shape[1:]:
            shape = tuple(y.shape[1:])
            wanted = f"[examples, classes, ...] with the dimensions of the labels, {shape}, after the classes"
            if scores.dim() == y.dim() == 2:
                way = "y[:, 0]" if shape == (1,) else "y.argmax(1), where they are one-hot"
                wanted += f"; a class is one whole number a record: from labels of shape [n, {shape[0]}] take {way}"
            raise InvalidArgument("the model's output shape", tuple(scores.shape), wanted)
        classes = scores.shape[1]
        if declared is not None and classes != declared:
            wanted = f"{declared}, one for each declared class: of a table, torch.nn.Linear(table.width, table.outputs)"
            raise InvalidArgument("the model's outputs", classes, wanted)
        if isinstance(loss, ClassWeighted) and len(loss.weights) != classes:
            wanted = f"of {classes} classes, as many as the model has outputs"
            raise InvalidArgument("class_weights", list(loss.weights), wanted)
        if classes == 1:
            wanted = (
                "one for each class, since whole-number labels are classes: two for yes and no. One output can say nothing with "
                "cross-entropy; it is a logit for floating labels 0 and 1 and loss=torch.nn.BCEWithLogitsLoss(reduction='none')"
            )
            raise InvalidArgument("the model's outputs", 1, wanted)
    leaves = [leaf.detach().requires_grad_(leaf.is_floating_point()) for leaf in tensors_in(output)[0]]
    with torch.enable_grad():  # a loss may write to what it gets, which no leaf allows
        losses = _asked(loss, tensors_in(output)[1]([leaf.clone() for leaf in leaves]), y)
    refuse_trainable(loss, losses, leaves, model)
    if losses.shape != (examples,):
        way = (
            "take reduction='none', since a mean over the lot would mix the records"
            if losses.dim() == 0
            else "squeeze(1) outputs and labels of one number each; of pixels take .flatten(1).mean(1) of the losses"
        )
        wanted = f"one number per example, shape [examples], {examples} here: {way}"
        raise InvalidArgument("the loss's shape", tuple(losses.shape), wanted)
    if (
        declared is not None and classes is None and isinstance(y, Tensor) and not y.is_cuda
    ):  # on a GPU a label out of range ends the whole process
        _check_last(loss, output, y, declared)
    return tuple(_taken(loss, output, y, place) for place in range(len(inputs.leaves(y))))


IGNORED = -100
"""The label that torch's losses leave out."""


def _taken(loss: Loss, output: Any, y: Inputs, place: int) -> Labels | None:
    """The labels that a loss takes at a place of y, found on made-up outputs: all below a number of outputs on which it fails.

    On the CPU: on a GPU a label that is out of range ends the whole process. One label an example that honestdp's own
    cross-entropy does not count has no part in its formula either, so it is not taken there. Of several tensors of labels each
    may count the classes of any of the outputs.
    """
    labels = [part.cpu() for part in inputs.leaves(y)]
    own, output, one = on_cpu(loss), each_tensor(lambda part: part.cpu(), output), labels[place]
    scores = [main(output)] if isinstance(y, Tensor) else tensors_in(output)[0]
    counts = {part.shape[1] for part in scores if part.dim() == one.dim() + 1}

    def takes(label: int) -> bool:
        others = [*labels[:place], torch.full_like(one, label), *labels[place + 1 :]]
        try:
            own(output, inputs.like(y, others))
        except (RuntimeError, IndexError, ValueError, AssertionError, KeyError):
            return False
        return True

    classes = next((count for count in sorted(counts) if takes(count - 1) and not takes(count)), None)
    if classes is None or one.is_floating_point():
        return None
    by_formula = base_of(loss) is cross_entropy and one.dim() == 1
    return Labels(classes, () if by_formula else tuple(label for label in (IGNORED, -1) if takes(label)))


def _check_last(loss: Loss, output: Any, y: Tensor, declared: int) -> None:
    """That a user's own loss takes the last of the declared classes as it takes the first."""
    try:
        loss(output, torch.full_like(y, declared - 1))
    except (RuntimeError, IndexError, ValueError) as trouble:
        wanted = (
            f"one that takes the labels 0 to {declared - 1} of the {declared} declared classes with this model, whose output has "
            f"the shape {tuple(prediction(output).shape[1:])} ({' '.join(str(trouble).split())})"
        )
        raise InvalidArgument("loss", getattr(loss, "__name__", type(loss).__name__), wanted) from trouble


def _asked(loss: Loss, output: Any, y: Inputs) -> Tensor:
    try:
        return loss(output, y)
    except (TypeError, AttributeError) as trouble:
        if isinstance(output, Tensor):
            raise
        wanted = (
            f"a function of the model's whole output, a {type(output).__name__} here, and the labels, such as "
            f"loss=lambda output, y: torch.nn.functional.cross_entropy(output.logits, y, reduction='none') ({trouble})"
        )
        raise InvalidArgument("loss", getattr(loss, "__name__", type(loss).__name__), wanted) from trouble


def refuse_trainable(loss: Callable[..., Any], losses: Tensor, outputs: list[Tensor], model: nn.Module) -> None:
    """Refuse a loss whose numbers depend on a leaf that requires a gradient and is not one of the model's outputs.

    A training updates the parameters of `model=` alone. A class matrix in a loss module, a penalty on weights that the loss
    closes over, or learnt weights of several tasks get a gradient from plain autograd and none here, without any sign of it.
    So the graph of the losses of made-up outputs is walked, before the charge: each of its leaves has to be one of the
    outputs.

    Args:
        loss: The function or module that gave `losses`.
        losses: with their graph.
        outputs: leaves of that graph.
        model: whose parameters are named as such, itself or a copy of it.

    Raises:
        InvalidArgument: naming the leaf and the way out.

    >>> output, m = torch.zeros(2, 3, requires_grad=True), nn.Linear(4, 3, bias=False)
    >>> def penalised(output, y):
    ...     return output.square().sum(1) + m.weight.square().sum()
    >>> refuse_trainable(penalised, penalised(output, None), [output], m)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    honestdp.checks.InvalidArgument: loss must be free of weights to train, ... got 'a loss with `weight` [3, 4] of the model'
    """
    known = {id(leaf) for leaf in outputs}
    leaf = next((one for one in _leaves(losses) if id(one) not in known), None)
    if leaf is None:
        return
    wanted = (
        "free of weights to train, which this training would leave as they are: put them into the model's forward, take "
        "weight_decay= of the optimizer for an L2 penalty, or freeze them (requires_grad_(False), or .detach()) if they are "
        "constants"
    )
    raise InvalidArgument("loss", f"a loss with {_named(leaf, loss, model)}", wanted)


def _leaves(losses: Tensor) -> Iterator[Tensor]:
    """The leaves of the graph of `losses` that require a gradient."""
    if losses.requires_grad and losses.grad_fn is None:
        yield losses
    met, ahead = set[Any](), [losses.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in met:
            continue
        met.add(node)
        if isinstance(leaf := getattr(node, "variable", None), Tensor):
            yield leaf
        ahead += [before for before, _ in node.next_functions]


def _named(leaf: Tensor, loss: object, model: nn.Module) -> str:
    """A weight for people: by its name in the model or in a loss that is a module, with its shape."""
    shape = list(leaf.shape)
    for name, value in model.named_parameters():
        copied = value.shape == leaf.shape and torch.equal(value.detach().cpu(), leaf.detach().cpu())
        if value is leaf or (copied and bool((leaf != leaf.flatten()[0]).any())):
            return f"`{name}` {shape} of the model"
    own = loss.named_parameters() if isinstance(loss, nn.Module) else ()
    name = next((f"`{name}`" for name, one in own if one is leaf), "a weight")
    return f"{name} {shape}"
