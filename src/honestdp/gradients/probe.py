"""A trial: random inputs and parameters of the shapes of the real ones, to find out how a model behaves."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from honestdp.checks import InvalidArgument
from honestdp.gradients.untouched import Kept, tensors_of

LOT = 3
_SEED = 20240917


class Trial:
    """Three random examples for each of at most two runs, and random parameters.

    params: name -> `[runs, ...]` and x: `[runs, lot, ...]`, of which only shapes, dtypes and device are read.
    """

    def __init__(self, model: nn.Module, params: Mapping[str, Tensor], x: Tensor) -> None:
        self.model = model
        self.runs = min(2, len(x))
        self._generator = torch.Generator().manual_seed(_SEED)
        self._like = next(iter(params.values()))
        self.params = {name: self._parameter(value) for name, value in params.items()}
        self._x = self._inputs(x, (self.runs, LOT, *x.shape[2:]))

    @property
    def x(self) -> Tensor:
        """`[runs, lot, ...]`, a copy for every use: a model may write into its input."""
        return self._x.clone()

    def alike(self) -> Trial:
        """The same with examples whose positions are nearly alike and positive, as those of real records often are.

        Gradients of several uses of one layer are then nearly parallel, where random ones of many dimensions are nearly at
        right angles, so that a norm in which they were not added would hardly differ.
        """
        other, x = copy.copy(self), self._x
        if x.is_floating_point():
            once = x[(slice(None), slice(None), *[slice(0, 1)] * (x.dim() - 3))].abs()
            other._x = once * (1 + 0.1 * self.normal(*x.shape).to(x.dtype))
        else:
            other._x = x[(slice(None), slice(None), *[slice(0, 1)] * (x.dim() - 2))].expand(x.shape).clone()
        return other

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers of the dtype of the parameters."""
        return torch.randn(shape, generator=self._generator, dtype=torch.float64).to(self._like)

    def _parameter(self, value: Tensor) -> Tensor:
        """Weights of the size of a usual start; biases and gains around one half, so that none is near zero."""
        shape = (self.runs, *value.shape[1:])
        if value.dim() <= 2:
            return self.normal(*shape).tanh() * 0.4 + 0.6
        return self.normal(*shape) / math.sqrt(max(1, value[0, 0].numel()))

    def _inputs(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        if x.is_floating_point():
            return self.normal(*shape).to(x.dtype)
        tables = [m.num_embeddings for m in self.model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
        drawn = torch.randint(0, min(tables, default=2), shape, generator=self._generator)
        return drawn.to(dtype=x.dtype, device=x.device)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that the model reads, by name."""
        return {**tensors_of(self.model), **self.params}

    @cached_property
    def kept(self) -> Kept:
        return Kept(self.tensors)

    def fresh(self, *, training: bool = True) -> Trial:
        """The same with a copy of the model that has never been run, in the mode it was given in or in eval() mode."""
        other, read = copy.copy(self), dict(self.model.named_parameters())
        # Parameters that are put in at every call need no copy.
        shared = {id(read[name]): read[name] for name in self.params}
        try:
            other.model = copy.deepcopy(self.model, shared)
        except RuntimeError as trouble:
            wanted = f"a module that copy.deepcopy can copy, so that it can be tried at its first call ({trouble})"
            raise InvalidArgument("model", type(self.model).__name__, wanted) from trouble
        if not training:
            other.model.eval()
        return other

    def pool(self, examples: int, *, huge: float = 1e4) -> Tensor:
        """`[examples + 3, ...]`: so many usual examples, then another one, a huge one and zeros."""
        shape = (examples + 3, *self._x.shape[2:])
        if self._x.is_floating_point():
            made = torch.randn(shape, generator=self._generator).to(self._x)
            made[examples + 1] *= huge
        else:
            made = self._inputs(self._x, shape)
        made[examples + 2] = 0
        return made

    def labels(self, y: Tensor, *, classes: int | None, examples: int) -> Tensor:
        """Labels of the shape of `y`: counted through the classes, so that neighbours differ, or numbers within 0 and 1."""
        shape = (examples, *y.shape[2:])
        if classes is not None:
            counted = torch.arange(math.prod(shape)).view(shape) % max(1, classes)
            return counted.to(y)
        return torch.rand(shape, generator=self._generator).to(y)

    def output(self, x: Tensor, *, seed: int = 0) -> object:
        """What the model makes of `x` `[examples, ...]` with the parameters of the first run."""
        torch.default_generator.manual_seed(seed)
        if x.is_cuda:
            with torch.cuda.device(x.device):
                torch.cuda.manual_seed(seed)
        with torch.no_grad():
            return functional_call(self.model, {name: value[0] for name, value in self.params.items()}, (x,))

    def bytes_kept(self) -> int:
        """How many bytes autograd keeps for the backward pass of one example."""
        own = {name: value[0].detach().requires_grad_() for name, value in self.params.items()}
        with torch.enable_grad(), _counted() as kept:
            functional_call(self.model, own, (self.x[0, :1],))
        return sum(kept.values())

    def reference(self, cotangents: Tensor) -> dict[str, Tensor]:
        """The gradients `[runs, lot, ...]` of `project` by plain autograd, one example at a time."""
        rows: dict[str, list[Tensor]] = {name: [] for name in self.params}
        for run in range(self.runs):
            own = {name: value[run].detach().requires_grad_() for name, value in self.params.items()}
            for example in range(LOT):
                with torch.enable_grad():
                    output = functional_call(self.model, own, (self.x[run, example : example + 1],))
                    loss = project(output, cotangents[run, example : example + 1]).sum()
                found = torch.autograd.grad(loss, list(own.values()), allow_unused=True, materialize_grads=True)
                for name, gradient in zip(own, found, strict=True):
                    rows[name].append(gradient.to_dense() if gradient.is_sparse else gradient)
        stacked = {name: torch.stack(values) for name, values in rows.items()}
        return {name: values.view(self.runs, LOT, *values.shape[1:]) for name, values in stacked.items()}


@contextmanager
def _counted() -> Iterator[dict[int, int]]:
    """The bytes of every tensor that autograd keeps, by its address."""
    kept: dict[int, int] = {}

    def pack(value: Tensor) -> Tensor:
        if not isinstance(value, nn.Parameter) and not value.is_leaf:
            kept[value.data_ptr()] = value.nbytes
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        yield kept


def flat(output: object) -> Tensor:
    """Every floating tensor of a model's output, side by side: `[examples, size]`."""
    leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    if not leaves or any(leaf.dim() == 0 for leaf in leaves):
        shapes = [tuple(leaf.shape) for leaf in leaves]
        raise InvalidArgument("model", f"outputs of shape {shapes}", "a module whose output has a row an example")
    return torch.cat([leaf.flatten(1) if leaf.dim() > 1 else leaf.unsqueeze(1) for leaf in leaves], 1)


def project(output: object, cotangents: Tensor) -> Tensor:
    """A loss that gives the model's outputs the gradients `cotangents` `[examples, size]`; one number an example."""
    return (flat(output) * cotangents).sum(1)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Dropout layers off: two ways to the same gradient can only be compared where nothing is drawn."""
    active = [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd) and m.training]
    for module in active:
        module.training = False
    try:
        yield
    finally:
        for module in active:
            module.training = True


_OUT = {
    "numpy",
    "tolist",
    "__array__",
    "__dlpack__",
    "untyped_storage",
    "storage",
    "data_ptr",
    "__contains__",
    "__format__",
}
_INDEXED = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default}
_NUMBER, _SHAPE = torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operations whose result is a number of Python's, or has a shape, that depends on what a tensor holds."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen = (
            self.seen or _NUMBER in func.tags or (_SHAPE in func.tags and (func not in _INDEXED or _masked(args)))
        )
        return func(*args, **(kwargs or {}))


def _masked(args: Any) -> bool:
    """Whether an indexing takes what a mask of True and False says."""
    return any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1])


class Reads(TorchFunctionMode):
    """Notes whether numbers of a tensor decided something in Python: a branch, a shape, what is computed elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self._operations, self._out = _Operations(), False  # type: ignore[no-untyped-call]

    @property
    def seen(self) -> bool:
        return self._out or self._operations.seen

    def __enter__(self) -> Reads:
        self._operations.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *trouble: Any) -> None:
        super().__exit__(*trouble)  # type: ignore[no-untyped-call]
        self._operations.__exit__(*trouble)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._out = self._out or getattr(func, "__name__", "") in _OUT
        return func(*args, **(kwargs or {}))
