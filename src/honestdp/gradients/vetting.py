"""What a model is asked before any record reaches it: does it mix examples, and do the layer rules hold for it?

Privacy rests on two facts about a model. An example's gradient depends on that example alone; a model that mixes
examples is refused, naming the module. And the norm that the clip sees is the norm of the gradient that is summed; a
layer rule that is wrong for a model, say because a weight is also used outside its layer, would break that in silence.
So both are tried out on random inputs and random weights (trial.py), once for a model and a shape of example: here the
first, by name and by trial; in plan.py the second. Random, because a record must not decide how the model is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from honestdp.checks import InvalidArgument
from honestdp.gradients.trial import Trial, flat
from honestdp.losses import one_each


class RefusedModel(InvalidArgument):
    """A model that cannot be trained privately as it is; the message names the module and the way out."""

    def __init__(self, module: str, wanted: str) -> None:
        super().__init__("model", module, wanted)


def _described(path: str, module: nn.Module) -> str:
    return f"{type(module).__name__} at {path!r}" if path else type(module).__name__


def refuse_by_name(model: nn.Module) -> None:
    """Refuse the modules that are known to let examples interact, or whose parameters or layers cannot be reached."""
    for path, module in model.named_modules():
        wanted = _reason(module)
        if wanted is not None:
            raise RefusedModel(_described(path, module), wanted)


def _reason(module: nn.Module) -> str | None:
    """What the model must be in place of `module`; None where nothing is known against it."""
    if isinstance(module, nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():
        return "a model whose parameters exist: run it once on an input of the right shape before training"
    if any(value.is_meta for value in module.parameters(recurse=False)):
        return "a model whose parameters hold numbers: make it on a real device, not on 'meta'"
    if any(value._backward_hooks or value._post_accumulate_grad_hooks for value in module.parameters(recurse=False)):
        return "free of hooks on parameters: a gradient of one example never reaches them; change what the layer does"
    if isinstance(module, torch.jit.ScriptModule):
        return "the Python module itself, not one scripted or traced by TorchScript, whose layers cannot be seen"
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return (
            "the module within it (its attribute .module): a population is spread over the machine by honestdp itself"
        )
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
        return (
            "free of modules that mix the examples of a lot, since an example's gradient must depend on that example"
            " alone: use GroupNorm, LayerNorm or InstanceNorm in its place, or put it in eval() to use fixed statistics"
        )
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.training and module.track_running_stats:
        return (
            "free of modules that carry statistics of the examples from step to step:"
            " use InstanceNorm with track_running_stats=False, or GroupNorm"
        )
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.scale_grad_by_freq:
        return (
            "free of gradients scaled by how often a row occurs in the lot, which depends on the other examples:"
            " use scale_grad_by_freq=False"
        )
    return None


def refuse_mixing(trial: Trial) -> None:
    """Refuse a model whose outputs for one example move when another example does, or that keeps what it saw.

    The other example is moved to another usual one, to a huge one, to zeros and to what is no number, among examples with
    and without holes: a model may look at the others only where something is unusual.
    """
    x = trial.x.flatten(0, 1)
    with _unchanged_buffers(trial.model):
        for usual in (True, False):
            try:
                _refuse_moving(trial, x if usual else _holed(x), usual=usual)
            except RefusedModel:
                raise
            except Exception:
                if usual:
                    raise  # a model may well fail on what is no number


def _holed(x: Tensor) -> Tensor:
    """Every third number missing."""
    if not x.is_floating_point():
        return x
    place = torch.arange(x.numel(), device=x.device).view(x.shape)
    return torch.where(place % 3 == 1, torch.nan, x)


def _moves(trial: Trial, *, usual: bool) -> Iterator[Tensor]:
    other = trial.other_example()
    yield other
    if other.is_floating_point():
        yield 1e4 * other
        yield torch.zeros_like(other)
        if not usual:
            yield torch.full_like(other, torch.nan)
            yield torch.full_like(other, torch.inf)


def _refuse_moving(trial: Trial, x: Tensor, *, usual: bool) -> None:
    before = _watched(trial, x.clone())
    for other in _moves(trial, usual=usual):
        moved = x.clone()
        moved[0] = other
        after = _watched(trial, moved)
        mixing = [path for path, values in before.items() if path in after and not _same(values[1:], after[path][1:])]
        # Within the model the first dimension may be another one; what counts is the output, the last of the list.
        if "" in mixing:
            raise RefusedModel(
                _described(mixing[0], trial.model.get_submodule(mixing[0])),
                "free of modules that mix examples: the output for one example changed when another example did. The first"
                " dimension belongs to the examples; attention and recurrent layers need batch_first=True, and statistics"
                " over the lot need GroupNorm or LayerNorm in their place",
            )


def _same(one: Tensor, other: Tensor) -> bool:
    scale = one.abs().nan_to_num(0, 0, 0).amax().item() if one.numel() else 0.0
    tolerance = 100 * torch.finfo(one.dtype).eps
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def _watched(trial: Trial, x: Tensor) -> dict[str, Tensor]:
    """The outputs of every module for `x` `[examples, ...]`, the innermost first, where they have a row an example."""
    seen: dict[str, Tensor] = {}

    def watch(path: str) -> RemovableHandle:
        def note(_module: nn.Module, _inputs: object, output: object) -> None:
            first = next((leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)), None)
            if first is not None and first.is_floating_point() and first.shape[:1] == x.shape[:1]:
                seen.setdefault(path, first.detach().clone())

        return trial.model.get_submodule(path).register_forward_hook(note)

    handles = [watch(path) for path, _ in trial.model.named_modules() if path]
    try:
        rows = flat(trial.output(x))
    finally:
        for handle in handles:
            handle.remove()
    if len(rows) != len(x):
        raise InvalidArgument(
            "model",
            f"an output of {len(rows)} rows for {len(x)} examples",
            "a module whose output has a row an example",
        )
    return seen | {"": rows}


@contextmanager
def _unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Put the buffers back as they were, and refuse a model that wrote what it saw into one."""
    before = {name: value.clone() for name, value in model.named_buffers()}
    yield
    for name, value in model.named_buffers():
        same = torch.equal(value, before[name])
        value.copy_(before[name])
        if not same and value.is_floating_point():
            path = name.rpartition(".")[0]
            raise RefusedModel(
                _described(path, model.get_submodule(path)),
                f"free of modules that keep a record of the examples: the forward pass wrote to the buffer {name!r};"
                " put the module in eval(), or take one without running statistics",
            )


def refuse_mixing_loss(trial: Trial, loss: Callable[[Any, Tensor], Tensor], y: Tensor) -> None:
    """Refuse a loss that fails on the model's outputs, or that depends on other examples' outputs or labels.

    Its value and its gradient for an example among others have to be those that it has by itself.
    """
    examples = trial.x.shape[:2].numel()
    for scale, whole in ((1, False), (30, True)):
        x = trial.x.flatten(0, 1)
        output = trial.output(x * scale if x.is_floating_point() else x)
        labels = _accepted(loss, output, trial, y, whole=whole or not y.is_floating_point())
        together = _told(loss, output, labels)
        one_each(together[0], examples)
        for place in range(examples):
            twice = [place, place]  # and not once: a loss may drop dimensions of size one
            alone = pytree.tree_map(lambda v, rows=twice: v[rows] if isinstance(v, Tensor) else v, output)
            apart = _told(loss, alone, labels[twice])
            if not all(_same(one[place], other[0]) for one, other in zip(together, apart, strict=True)):
                wanted = (
                    "a function whose number for an example depends on that example's output and label alone: no weights "
                    "counted in the lot, no statistics over it, no ranking within it"
                )
                raise InvalidArgument("loss", "a loss that mixes examples", wanted)


def _accepted(loss: Callable[[Any, Tensor], Tensor], output: object, trial: Trial, y: Tensor, *, whole: bool) -> Tensor:
    """Labels that the loss takes: of several classes if it can be, else zeros; or numbers within 0 and 1."""
    leaf = next(leaf for leaf in pytree.tree_leaves(output) if _floating(leaf))
    several = 2 if y.is_floating_point() or leaf.dim() == 1 else leaf.shape[1]
    tries = [trial.labels(y, classes=classes) for classes in ((several, 1) if whole else (None,))]
    for labels in tries:
        try:
            loss(output, labels)
        except Exception as error:
            trouble = error
        else:
            return labels
    shapes = [tuple(value.shape) for value in pytree.tree_leaves(output) if isinstance(value, Tensor)]
    raise InvalidArgument(
        "loss",
        f"{type(trouble).__name__}: {trouble}",
        "a function of (output, y) that gives one number an example;"
        f" tried with output of shape {shapes} and y of shape {tuple(tries[0].shape)}, {tries[0].dtype}",
    ) from trouble


def _told(loss: Callable[[Any, Tensor], Tensor], output: object, labels: Tensor) -> list[Tensor]:
    """What a loss says of every example: its number, and the gradients of all numbers for that example's outputs."""
    leaves, shape = pytree.tree_flatten(output)
    own = [v.detach().requires_grad_() if _floating(v) else v for v in leaves]
    inputs = [v for v in own if _floating(v)]
    with torch.enable_grad():
        losses = loss(pytree.tree_unflatten(own, shape), labels)
    if not losses.requires_grad:
        return [losses]
    ones = torch.ones_like(losses)
    found = torch.autograd.grad(losses, inputs, grad_outputs=ones, allow_unused=True, materialize_grads=True)
    return [losses.detach(), *found]


def _floating(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
