"""Refuses models that need no trial to be ruled out: by the class of a module, by hooks, by parameters that share
memory.

Privacy rests on three facts about a model. An example's gradient depends on that example alone; a model that mixes
examples is refused, naming the module. Nothing but the optimizer writes to its parameters. And the norm that the clip sees
is the norm of the gradient that is summed; a layer rule that is wrong for a model, say because a weight is also used outside
its layer, would break that in silence. What cannot be read off the modules is tried out on random inputs and random weights
(probe.py): the first two in independence.py and loss_independence.py, the third in choice.py. Random, because a record must
not decide how the model is run.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from honestdp.checks import InvalidArgument


class RefusedModel(InvalidArgument):
    """A model that cannot be trained privately as it is; the message names the module and the way out."""

    def __init__(self, module: str, wanted: str) -> None:
        super().__init__("model", module, wanted)


def described(path: str, module: nn.Module) -> str:
    return f"{type(module).__name__} at {path!r}" if path else type(module).__name__


def refuse_by_name(model: nn.Module) -> None:
    """Refuse the modules that are known to let examples interact, or whose parameters or layers cannot be reached."""
    for path, module in model.named_modules():
        wanted = _reason(module)
        if wanted is not None:
            raise RefusedModel(described(path, module), wanted)
    _refuse_shared_memory(model)


def _refuse_shared_memory(model: nn.Module) -> None:
    """Refuse a trainable parameter whose memory another tensor of the model uses too.

    Every run has a copy of each parameter, so such a model would be trained as one whose tensors are apart. One tensor by
    several names (tied weights) is one parameter and stays so.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    spans = {name: _span(value) for name, value in tensors.items() if value.layout is torch.strided and value.numel()}
    for name, value in model.named_parameters():
        if not value.requires_grad or name not in spans:
            continue
        expanded = any(size > 1 and stride == 0 for size, stride in zip(value.shape, value.stride(), strict=True))
        others = (other for other, span in spans.items() if other != name and _overlap(spans[name], span))
        other = name if expanded else next(others, None)
        if other is not None:
            wanted = (
                f"one whose parameters have memory of their own, but {name!r} shares it with {other!r}: make a tensor of its"
                " own (.clone()) of each, or tie weights by giving one nn.Parameter two names"
            )
            raise RefusedModel(type(model).__name__, wanted)


_Span = tuple[int, int, int]


def _span(value: Tensor) -> _Span:
    """Which memory a tensor lies in, and from which byte to which."""
    first = int(value.storage_offset()) * value.element_size()
    reach = 1 + sum((size - 1) * int(stride) for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.untyped_storage().data_ptr(), first, first + reach * value.element_size()


def _overlap(one: _Span, other: _Span) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile has made the module, or changed its call. By its marks: to import the compiler takes seconds."""
    return type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None


def _computed_weight(module: nn.Module) -> str | None:
    """Why a layer whose weight is computed at every call is refused: it keeps something from call to call."""
    kinds = [kind for several in getattr(module, "parametrizations", {}).values() for kind in several]
    if module.training and any(isinstance(kind, nn.utils.parametrizations._SpectralNorm) for kind in kinds):
        return (
            "free of spectral_norm in training mode, which moves its estimate of the largest singular value at every forward"
            " pass, so that what is computed depends on how often it was asked: put the layer in eval(), which keeps the"
            " estimate, or take it off (honestdp.fix(model) does)"
        )
    hooks = [hook for hook in module._forward_pre_hooks.values() if type(hook).__module__ in _WEIGHT_HOOKS]
    if hooks:
        return (
            f"free of weights that a hook puts in the layer at every call ({type(hooks[0]).__name__}): use the same of"
            " torch.nn.utils.parametrizations, take it off (torch.nn.utils.remove_weight_norm, remove_spectral_norm), or make"
            " pruning permanent (torch.nn.utils.prune.remove)"
        )
    return None


_WEIGHT_HOOKS = {"torch.nn.utils.spectral_norm", "torch.nn.utils.weight_norm", "torch.nn.utils.prune"}


def _normalised(module: nn.modules.batchnorm._BatchNorm) -> str:
    """The ways out for a batch norm. A frozen one came with statistics that are worth more than what takes its place."""
    fixed = "put it in eval() to use its fixed statistics"
    other = "use GroupNorm (honestdp.fix(model) puts it there), LayerNorm or InstanceNorm in its place"
    frozen = module.running_mean is not None and not any(value.requires_grad for value in module.parameters())
    return f"{fixed}, as the layer is frozen, or {other}" if frozen else f"{other}, or {fixed}"


def _reason(module: nn.Module) -> str | None:
    """What the model must be in place of `module`; None where nothing is known against it."""
    if isinstance(module, nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():
        return "a model whose parameters exist: run it once on an input of the right shape before training"
    if any(value.is_meta for value in module.parameters(recurse=False)):
        return "a model whose parameters hold numbers: make it on a real device, not on 'meta'"
    if any(value._backward_hooks or value._post_accumulate_grad_hooks for value in module.parameters(recurse=False)):
        return "free of hooks on parameters: a gradient of one example never reaches them; change what the layer does"
    if is_compiled(module):
        return (
            "the module as it was before torch.compile (model._orig_mod, or honestdp.fix(model).model): the compiled graph is"
            " of one model, and here every run and every example has its own part in the layers"
        )
    if (computed := _computed_weight(module)) is not None:
        return computed
    if isinstance(module, torch.jit.ScriptModule):
        return "the Python module itself, not one scripted or traced by TorchScript, whose layers cannot be seen"
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return "the module within it (its attribute .module): honestdp itself spreads a population over the machine"
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
        return (
            "free of modules that mix the examples of a lot, since an example's gradient must depend on that example"
            f" alone: {_normalised(module)}"
        )
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.training and module.track_running_stats:
        return (
            "free of modules that carry statistics of the examples from step to step:"
            " use InstanceNorm with track_running_stats=False (honestdp.fix(model) does), or GroupNorm"
        )
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
        return (
            "free of modules that write to their own weights: with max_norm the forward pass renormalises the rows that a lot"
            " looks up, past clip and noise. Use max_norm=None and normalise what was looked up in the forward of your own"
            " module, such as F.normalize(rows, dim=-1)"
        )
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.scale_grad_by_freq:
        return (
            "free of gradients scaled by how often a row occurs in the lot, which depends on the other examples:"
            " use scale_grad_by_freq=False (honestdp.fix(model) does)"
        )
    return None
