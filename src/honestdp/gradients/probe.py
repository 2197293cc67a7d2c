"""Probes of a model: made-up inputs, labels and parameters of the shapes of the real ones, to find out how it behaves.

Made up, because a record must not decide how a model is run, and because a probe may be made before anything is charged.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.draws import GaussianDraw
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.write_guard import TensorSnapshot, tensors_of

LOT = 3
_SEED = 20240917
_HUGE = 1e4
"""How many times a usual example a huge one is."""


def made_up_inputs(model: nn.Module, like: Inputs, size: tuple[int, ...], generator: torch.Generator) -> Inputs:
    """Inputs for the model like these, of which as many first dimensions as `size` has are of these sizes instead.

    Floating ones are standard normal; whole ones are numbers of rows that every table of the model has, or 0 and 1; of several
    inputs masks are 0 and 1, not all of them 0 for one example, and lengths from 1 on.
    """
    made: Inputs = inputs.like(like, [draw(leaf, size, generator) for leaf, draw in _draws(model, like, len(size))])
    return made


def _draws(model: nn.Module, like: Inputs, dimensions: int) -> Iterator[tuple[Tensor, _Draw]]:
    """How each of the inputs is made up."""
    tables = [m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
    every = inputs.leaves(like)
    longest = min((leaf.shape[dimensions] for leaf in every if leaf.dim() > dimensions), default=2)
    for leaf, role in zip(every, inputs.roles(model, like), strict=True):
        count = {inputs.NUMBER: min(tables, default=2), inputs.MASK: 2, inputs.LENGTH: max(1, longest)}[role]
        yield leaf, _Draw(role, count)


@dataclass(frozen=True)
class _Draw:
    """Made-up values of an input of one role; whole ones are `count` different numbers, from 0 on, lengths from 1 on."""

    role: str
    count: int

    def __call__(self, like: Tensor, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
        shape = (*size, *like.shape[len(size) :])
        if like.is_floating_point():
            return torch.randn(shape, generator=generator).to(like)
        lowest = 1 if self.role == inputs.LENGTH else 0
        drawn = torch.randint(lowest, lowest + self.count, shape, generator=generator).to(like)
        return self._not_empty(drawn, len(size))

    def others(self, values: Tensor, dimensions: int = 0) -> Tensor:
        """For every number another one, where there is another. The first dimensions are examples."""
        if values.is_floating_point():
            return values + 1
        if self.role == inputs.LENGTH:
            return values % self.count + 1
        moved = (values.long() + 1) % self.count
        return self._not_empty(moved.to(values.dtype), dimensions)

    def _not_empty(self, values: Tensor, dimensions: int) -> Tensor:
        """A mask of several places has a 1 in its first one, if it has none elsewhere. The first dimensions are examples."""
        if self.role != inputs.MASK or math.prod(values.shape[dimensions:]) < 2:
            return values
        flat = values.reshape(*values.shape[:dimensions], -1).clone()
        flat[..., 0] = torch.where((flat == 0).all(-1), 1, flat[..., 0].long()).to(flat.dtype)
        return flat.view(values.shape)


def made_up_labels(like: Tensor, shape: tuple[int, ...], generator: torch.Generator, *, classes: int | None) -> Tensor:
    """Labels of this shape and of the dtype and device of `like`: counted through the classes, so that neighbours differ.

    Without `classes`, numbers within 0 and 1.
    """
    if classes is None:
        return torch.rand(shape, generator=generator).to(like)
    return (torch.arange(math.prod(shape)).view(shape) % max(1, classes)).to(like)


class Probe:
    """Three random examples for each of at most two runs, and random parameters.

    params: name -> `[runs, ...]` and x: `[runs, lot, ...]`, of which only shapes, dtypes and device are read.
    """

    def __init__(self, model: nn.Module, params: Mapping[str, Tensor], x: Inputs) -> None:
        self.model = model
        self.runs = min(2, len(inputs.first(x)))
        self._generator = torch.Generator().manual_seed(_SEED)
        self._like = next(iter(params.values()))
        self.params = {name: self._parameter(value) for name, value in params.items()}
        self._x = made_up_inputs(model, x, (self.runs, LOT), self._generator)

    @property
    def x(self) -> Inputs:
        """`[runs, lot, ...]`, a copy for every use: a model may write into its input."""
        copied: Inputs = inputs.each(torch.clone, self._x)
        return copied

    @property
    def examples(self) -> Inputs:
        """The same as `[runs * lot, ...]`."""
        return inputs.flat_runs(self.x)

    def alike(self) -> Probe:
        """The same with examples whose positions are nearly alike and positive, as those of real records often are.

        Gradients of several uses of one layer are then nearly parallel, where random ones of many dimensions are nearly at
        right angles, so that a norm in which they were not added would hardly differ.
        """
        other, roles = copy.copy(self), inputs.roles(self.model, self._x)
        made = [self._alike(leaf, role) for leaf, role in zip(inputs.leaves(self._x), roles, strict=True)]
        other._x = inputs.like(self._x, made)
        return other

    def _alike(self, x: Tensor, role: str) -> Tensor:
        if x.is_floating_point():
            once = x[(slice(None), slice(None), *[slice(0, 1)] * (x.dim() - 3))].abs()
            return once * (1 + 0.1 * self.normal(*x.shape).to(x.dtype))
        if role == inputs.MASK:
            return torch.ones_like(x)
        return x[(slice(None), slice(None), *[slice(0, 1)] * (x.dim() - 2))].expand(x.shape).clone()

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers of the dtype of the parameters."""
        return torch.randn(shape, generator=self._generator, dtype=torch.float64).to(self._like)

    def uniform(self, count: int) -> Tensor:
        """Numbers within 0 and 1."""
        return torch.rand(count, generator=self._generator, dtype=torch.float64)

    def _parameter(self, value: Tensor) -> Tensor:
        """Weights of the size of a usual start; biases and gains around one half, so that none is near zero."""
        shape = (self.runs, *value.shape[1:])
        if value.dim() <= 2:
            return self.normal(*shape).tanh() * 0.4 + 0.6
        return self.normal(*shape) / math.sqrt(max(1, value[0, 0].numel()))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that the model reads, by name."""
        return {**tensors_of(self.model), **self.params}

    @cached_property
    def before(self) -> TensorSnapshot:
        return TensorSnapshot(self.tensors)

    def fresh(self, *, training: bool = True) -> Probe:
        """The same with a copy of the model that has never been run, in the mode it was given in or in eval() mode."""
        other, read = copy.copy(self), dict(self.model.named_parameters())
        # Parameters that are put in at every call need no copy.
        other.model = copied(self.model, [read[name] for name in self.params])
        if not training:
            other.model.eval()
        return other

    def pool(self, examples: int, *, huge: float = _HUGE) -> Inputs:
        """`[examples + 3 or more, ...]`: so many usual examples, then another one, a huge one and a blank one.

        Each of the first two of these differs from the first and the last usual one in every input of whole numbers. Of several
        inputs, examples follow that differ from the first usual one in one input each.
        """
        one = inputs.each(lambda leaf: leaf[0], self._x)
        pool = made_up_inputs(self.model, one, (examples + 3,), self._generator)
        for leaf, (_, draw) in zip(inputs.leaves(pool), _draws(self.model, one, 1), strict=True):
            if leaf.is_floating_point():
                leaf[examples + 1] *= huge
            else:
                leaf[examples], leaf[examples + 1] = draw.others(leaf[0]), draw.others(leaf[examples - 1])
            leaf[examples + 2] = 0 if draw.role == inputs.NUMBER else 1
        if not inputs.several(pool):
            return pool
        return inputs.joined([pool, *self._moved_in_one(pool, examples)])

    def moving_pool(self, examples: int) -> Inputs:
        """`[2 * examples + 3, ...]`: so many usual examples, then for each of them the one that it becomes, then one more, a huge
        one and a blank one.

        In turn examples become another usual one, a huge one, a huge one in the other direction and a blank one; of several
        inputs also one that differs in one input alone. Whole numbers that change are others at every place.
        """
        one = inputs.each(lambda leaf: leaf[0], self._x)
        several = len(inputs.leaves(one)) if inputs.several(one) else 0
        order = torch.randperm(examples, generator=self._generator)
        parts = []
        for place, (leaf, (_, draw)) in enumerate(
            zip(inputs.leaves(self.pool(examples)), _draws(self.model, one, 1), strict=True)
        ):
            usual, rest = leaf[:examples], leaf[examples : examples + 3]
            kind = (order % (4 + several)).view(-1, *[1] * (leaf.dim() - 1)).to(leaf.device)
            if leaf.is_floating_point():
                other = draw(leaf, (examples,), self._generator)
                other = torch.where(kind == 1, other * _HUGE, torch.where(kind == 2, other * -_HUGE, other))
                blank = torch.zeros_like(usual)
            else:
                other = draw.others(usual, 1)
                blank = torch.full_like(usual, 0 if draw.role == inputs.NUMBER else 1)
            moved = torch.where(kind == 3, blank, other)
            stays = (kind >= 4) & (kind != 4 + place)
            parts.append(torch.cat([usual, torch.where(stays, usual, moved), rest]))
        made: Inputs = inputs.like(one, parts)
        return made

    def _moved_in_one(self, pool: Inputs, other: int) -> Iterator[Inputs]:
        """The first example of the pool, with one of its inputs at a time that of another example."""
        leaves = inputs.leaves(pool)
        for place in range(len(leaves)):
            at = [other if place == index else 0 for index in range(len(leaves))]
            yield inputs.like(pool, [leaf[row, None] for leaf, row in zip(leaves, at, strict=True)])

    def labels(self, y: Inputs, *, classes: int, examples: int, whole: bool = True) -> Inputs:
        """Labels `[examples, ...]` of the shapes of `y` `[runs, lot, ...]`; see `made_up_labels`. whole: floating ones too."""

        def made(part: Tensor) -> Tensor:
            counted = classes if whole or not part.is_floating_point() else None
            return made_up_labels(part, (examples, *part.shape[2:]), self._generator, classes=counted)

        labels: Inputs = inputs.each(made, y)
        return labels

    def output(self, x: Inputs, *, seed: int = 0) -> object:
        """What the model makes of `x` `[examples, ...]` with the parameters of the first run."""
        seed_draws(inputs.first(x).device, seed)
        with torch.no_grad():
            return inputs.call_with(self.model, {name: value[0] for name, value in self.params.items()}, x)

    def draws(self) -> bool:
        """Whether the model draws, with dropout as it is now."""
        self.output(self.examples)
        return drew(inputs.first(self.x).device, 0)

    def bytes_kept(self) -> int:
        """How many bytes autograd keeps for the backward pass of one example, besides the parameters, which all share."""
        params = {name: value[0].detach().requires_grad_() for name, value in self.params.items()}
        shared = {value.untyped_storage().data_ptr() for value in params.values()}
        saved: dict[int, int] = {}  # bytes by address

        def pack(value: Tensor) -> Tensor:
            if not value.is_leaf and value.untyped_storage().data_ptr() not in shared:
                saved[value.data_ptr()] = value.nbytes
            return value

        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
            inputs.call_with(self.model, params, inputs.each(lambda leaf: leaf[0, :1], self.x))
        return sum(saved.values())

    def reference(self, cotangents: Tensor) -> dict[str, Tensor]:
        """The gradients `[runs, lot, ...]` of `project` by plain autograd, one example at a time."""
        rows: dict[str, list[Tensor]] = {name: [] for name in self.params}
        for run in range(self.runs):
            params = {name: value[run].detach().requires_grad_() for name, value in self.params.items()}
            for example in range(LOT):
                with torch.enable_grad():
                    alone = inputs.rows(self.x, (run, slice(example, example + 1)))
                    output = inputs.call_with(self.model, params, alone)
                    loss = project(output, cotangents[run, example : example + 1]).sum()
                gradients = torch.autograd.grad(loss, list(params.values()), allow_unused=True, materialize_grads=True)
                for name, gradient in zip(params, gradients, strict=True):
                    rows[name].append(gradient.to_dense() if gradient.is_sparse else gradient)
        stacked = {name: torch.stack(values) for name, values in rows.items()}
        return {name: values.view(self.runs, LOT, *values.shape[1:]) for name, values in stacked.items()}


def copied(model: nn.Module, shared: Iterable[Tensor] = ()) -> nn.Module:
    """A copy of a model, but for tensors that it shares with it."""
    try:
        return copy.deepcopy(model, {id(value): value for value in shared})
    except RuntimeError as trouble:
        wanted = f"a module that copy.deepcopy can copy, so that it can be tested at its first call ({trouble})"
        raise InvalidArgument("model", type(model).__name__, wanted) from trouble


def seed_draws(device: torch.device, seed: int) -> None:
    """Seed what a model or a loss draws there; within `torch.random.fork_rng`."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def drew(device: torch.device, seed: int) -> bool:
    """Whether a number was drawn from torch's generators since `seed_draws`, whatever became of it: one that seldom matters would
    not be seen in what is computed.
    """
    after = [torch.default_generator.get_state()]
    after += [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    seed_draws(device, seed)
    before = [torch.default_generator.get_state()]
    before += [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return not all(torch.equal(*states) for states in zip(before, after, strict=True))


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


def reads_mode(probe: Probe) -> bool:
    """Whether anything but torch's own dropout reads `training` where it is True: only then is eval() another model."""
    fresh, read = probe.fresh(), set[int]()

    def training(module: nn.Module) -> bool:
        read.add(id(module))
        mode: bool = vars(module)["training"]
        return mode

    def switch(module: nn.Module, mode: bool) -> None:
        vars(module)["training"] = mode

    own = any("training" in vars(kind) for module in fresh.model.modules() for kind in type(module).__mro__)
    with without_dropout(fresh.model):
        marked = {id(module) for module in fresh.model.modules() if vars(module)["training"] and not _drops(module)}
        nn.Module.training = property(training, switch)  # type: ignore[assignment]
        try:
            fresh.output(fresh.examples)
        finally:
            del nn.Module.training
    return own or bool(read & marked)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Dropout off, in layers of its own and within attention and recurrent layers, and `GaussianDraw` too: two ways to the same
    gradient can only be compared where nothing is drawn.
    """
    before = [(module, name, value) for module in model.modules() for name, value in _dropouts(module)]
    for module, name, value in before:
        setattr(module, name, type(value)(0))
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _drops(module: nn.Module) -> bool:
    """Whether it is a layer of torch's that reads its mode for dropout alone."""
    kinds = nn.modules.dropout._DropoutNd | nn.RNNBase
    return type(module).__module__.startswith("torch.nn.") and isinstance(module, kinds)


def _dropouts(module: nn.Module) -> list[tuple[str, bool | float]]:
    """What says how much is dropped: attributes of the classes that are known to drop the numbers of each example by itself.

    The very classes: one of somebody's own that derives from them may do anything with its draw, and stays switched on, to be
    tried as what it is.
    """
    home = type(module).__module__
    torchs_own = home.startswith("torch.nn.")
    if torchs_own and isinstance(module, nn.modules.dropout._DropoutNd):
        # Attention that is written out may read the rate of a layer that it does not call.
        return [("training", module.training), ("p", module.p)]
    if type(module) is GaussianDraw:
        return [("drawn", module.drawn)]
    if torchs_own and isinstance(module, nn.MultiheadAttention | nn.RNNBase):
        return [("dropout", module.dropout)]
    if not home.startswith("transformers."):
        return []
    return [(name, value) for name, value in vars(module).items() if "dropout" in name and isinstance(value, float)]
