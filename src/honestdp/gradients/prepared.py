"""Per-example gradients of any model in one call: model and loss are vetted once for a shape of example, then used every step.

`per_example` is that call, `Prepared` the same for a model and a loss that stay. `vet_forward` vets a model that only scores.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import replace
from types import MethodType

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.gradients import bookkeeping, inputs, materialised
from honestdp.gradients.bookkeeping import BookKeeping, Input
from honestdp.gradients.branching import Reads
from honestdp.gradients.by_formula import hooked
from honestdp.gradients.choice import Choice, choose, one_at_a_time
from honestdp.gradients.forms import Params, PerExample
from honestdp.gradients.independence import refuse_mixing, refuse_mixing_in_eval
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.layers.implicit import members
from honestdp.gradients.loss_independence import accepted, refuse_mixing_loss
from honestdp.gradients.precision import products
from honestdp.gradients.probe import LOT, Probe, flat
from honestdp.gradients.strict import try_mapped, try_mapped_loss, unmapped
from honestdp.gradients.vetting import refuse_by_name
from honestdp.kernels.checked import by_tensor_operations
from honestdp.losses import Loss

MEMORY = 2**30


def per_example(
    model: nn.Module,
    loss: Loss,
    params: Mapping[str, Tensor],
    x: Inputs,
    y: Inputs,
    *,
    memory: int = MEMORY,
    finite_input: bool = False,
    input_norms: Tensor | None = None,
    strict: bool = False,
) -> PerExample:
    """The per-example gradients of a population: models of one architecture, each run with its own weights and lot.

    model: the architecture; its frozen parameters and its buffers are shared by all runs.
    loss: called as `loss(output, y)` on examples of all runs in one batch, the first dimension the examples; gives one
        number an example.
    params: name -> `[runs, ...]`, for every parameter of the model with requires_grad.
    x: `[runs, lot, ...]`, or a tuple (`model(*x)`) or a dict (`model(**x)`) of such tensors.
    y: `[runs, lot, ...]`, or a tuple or a dict of such tensors, as the loss takes them. Neither x nor y is to be changed in place
        until the result has been used.
    finite_input: a promise that x holds finite numbers only, which spares a pass over it.
    input_norms: `[runs, lot]`, the norm of every example's x where the caller knows it, which spares another.
    memory: bytes that the materialised engine may take; more examples than fit are taken in chunks.
    strict: each example under a map of its own, so that none can depend on another; see `mapped_outputs`.

    The first call for a model and a shape of example, and every call with more examples than before, tries the model out on
    random inputs (a dozen passes forward over as many examples as the call has). Make it before a CUDA graph is captured.

    Returns the two verbs, `norms` and `weighted_sum`.
    Raises RefusedModel for a model whose examples interact or that cannot be trained privately as it is, InvalidArgument for a
    loss that mixes examples and for shapes that do not fit.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> def loss(output, y):
    ...     return ((output[:, 0] - y) ** 2) / 2
    >>> weights = {"weight": torch.zeros(1, 1, 2)}  # one run
    >>> x, y = torch.tensor([[[3.0, 4.0], [0.6, 0.8]]]), torch.ones(1, 2)
    >>> result = per_example(model, loss, weights, x, y)
    >>> result.norms
    tensor([[5., 1.]])
    >>> result.weighted_sum((1 / result.norms).clamp(max=1))["weight"]  # clipped at 1
    tensor([[[-1.2000, -1.6000]]])
    """
    prepared = Prepared(model, loss, memory=memory, strict=strict)
    with torch.no_grad():
        return prepared(params, x, y, finite_input=finite_input, input_norms=input_norms)


class Prepared:
    """`per_example` for a model and a loss that stay as they are: they are looked at once for each shape of example, and
    again, on made-up inputs, before more examples at once than they have been tried with.

    strict: each example goes through model and loss under a map of its own; they are not tried, but refused where
        torch.func cannot map them.

    To be called within `torch.no_grad()`.
    """

    def __init__(self, model: nn.Module, loss: Loss, *, memory: int = MEMORY, strict: bool = False) -> None:
        checks.whole(least=1, memory=memory)
        self._model, self._loss, self._memory, self._strict = model, loss, memory, strict
        self._choices: dict[object, tuple[Choice, int]] = {}

    def vet(self, params: Params, x: Inputs, y: Inputs, *, examples: int) -> Choice:
        """The engine for such examples, once model and loss have been tried with so many at once, over all runs.

        params, x, y: as for a call; but for the parameters' names only shapes, dtypes and the device are read.
        """
        examples = max(examples, 2 * LOT)  # no trial has fewer, so that small lots are not tried one after the other
        # A single run goes its own way through some layers, so that it is tried by itself.
        one = inputs.first(y)
        shape = (inputs.kinds(x), inputs.kinds(y), one.device, len(one) == 1)
        choice, widest = self._choices.get(shape, (None, 0))
        if choice is None or examples > widest:
            trainable = {name: value for name, value in self._model.named_parameters() if value.requires_grad}
            if any(is_lazy(value) for value in trainable.values()):
                refuse_by_name(self._model)
            _check(trainable, params, x, y)
            known = _known(self._model, tuple(trainable), params, x, self._strict)
            choice = known.vet(self._loss, y, examples=examples)
            self._choices[shape] = choice, examples
        return choice

    def __call__(
        self,
        params: Params,
        x: Inputs,
        y: Inputs,
        *,
        finite_input: bool = False,
        input_norms: Tensor | None = None,
        shares: Tensor | None = None,
        present: Tensor | None = None,
    ) -> PerExample:
        """present: `[runs, lot]`, 0 for examples that are to get weight 0, of which then nothing need be right; all unless told.
        shares: `[runs, lot, rows]` where records have several rows: x and y are then rows, `[runs, lot * rows, ...]`, record
        by record, and the gradients are those of sum_r share_r loss(row r) for each record.
        """
        runs, lot = inputs.first(y).shape[:2]
        if shares is not None and (runs, lot) != (shares.shape[0], shares.shape[1] * shares.shape[2]):
            raise InvalidArgument("shares", tuple(shares.shape), "of shape [runs, lot, rows], a share for every row")
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            _check_lots(x, y)
        choice = self.vet(params, x, y, examples=runs * lot)
        if lot == 0:
            none = (runs, 0)
            return BookKeeping(next(iter(params.values())).new_zeros(none), {}, params)
        if choice.layers is not None:
            known = Input(x, finite=finite_input, norms=input_norms)
            with members(present if shares is None else None):
                return bookkeeping.per_example(self._model, self._loss, choice.layers, params, known, y, shares)
        batch = materialised.Batch(self._model, self._loss, params, x, y, choice.mapped, self._strict, shares)
        return materialised.per_example(batch, bytes_per_example=choice.bytes_per_example, memory=self._memory)


def vet_forward(model: nn.Module, loss: Loss, x: Inputs, y: Inputs, *, examples: int, strict: bool = False) -> int:
    """Try a model in eval() mode, and its loss, as they are used to score records; how many may go through it at once.

    x, y: two made-up examples, of which shapes, dtypes and the device are read. examples: how many are to go at once. That
    is also the answer, or 1 for a model that reads numbers to choose its way, for it would choose for all of them together, and
    for one that draws random numbers, which cannot be compared between lots of different sizes.
    strict: only whether each example can be mapped, for which see `mapped_outputs`.
    Raises RefusedModel and InvalidArgument as `per_example`.

    >>> model = nn.Linear(4, 2).eval()
    >>> vet_forward(model, nn.CrossEntropyLoss(reduction="none"), torch.zeros(2, 4), torch.zeros(2).long(), examples=100)
    100
    """
    refuse_by_name(model)
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    with torch.no_grad(), products("highest", inputs.first(y).device), torch.random.fork_rng(devices=inputs.gpus(y)):
        probe = Probe(model, params, inputs.alone(x)).fresh(training=False)
        if strict:
            try_mapped(probe.model, inputs.rows(probe.x, 0))
            return examples
        refuse_mixing_in_eval(probe, examples=examples)
        refuse_mixing_loss(probe, loss, inputs.alone(y), examples=examples)
        with Reads() as reads:
            probe.output(probe.examples)
        return 1 if reads.seen or probe.draws() else examples


class _Known:
    """What has been found out about a model for one shape of example."""

    def __init__(self, model: nn.Module, params: Params, x: Inputs, *, strict: bool) -> None:
        self.choice: Choice | None = None
        self._model, self._strict = weakref.ref(model), strict
        # Shapes alone are needed for later trials: views of one number each.
        self._params = {name: value.new_empty(1).expand(value.shape) for name, value in params.items()}
        self._x: Inputs = inputs.each(lambda leaf: leaf.new_empty(1).expand(leaf.shape), x)
        self._widest = 0
        self._losses: dict[object, int] = {}
        self._choosing: set[object] = set()
        self._drawing: dict[object, Choice] = {}

    def vet(self, loss: Loss, y: Inputs, *, examples: int) -> Choice:
        """The engine, once model and loss have been tried with so many examples at once."""
        same = _identity(loss)
        model_is_known = self.choice is not None and (self._strict or examples <= self._widest)
        if not model_is_known or same not in self._losses or (not self._strict and examples > self._losses[same]):
            self._try(loss, same, y, examples, model_is_known)
            self._losses[same] = examples
        assert self.choice is not None
        if same not in self._choosing:
            return self._drawing.get(same, self.choice)
        # A loss that reads numbers to choose its way is shown one example at a time: it would choose for a whole lot.
        return replace(self.choice, layers=None, mapped=materialised.WAYS[-1])

    def _try(self, loss: Loss, same: object, y: Inputs, examples: int, model_is_known: bool) -> None:
        model = self._model()
        assert model is not None
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            wanted = "per_example must be called once with this model, loss and shape before a graph is captured"
            raise RuntimeError(wanted)
        generators = torch.random.fork_rng(devices=inputs.gpus(y))
        with products("highest", inputs.first(y).device), by_tensor_operations(), generators:
            probe = Probe(model, self._params, self._x)
            if not model_is_known:
                self._vet_model(probe, examples)
            if self._strict:
                try_mapped_loss(probe, loss, y)
                return
            manner = refuse_mixing_loss(probe, loss, y, examples=examples)
            if manner.reads:
                self._choosing.add(same)
            elif manner.draws and same not in self._drawing:
                self._drawing[same] = _that_draws(one_at_a_time(probe), probe, strict=False, loss=loss, y=y)

    def _vet_model(self, probe: Probe, examples: int) -> None:
        refuse_by_name(probe.model)
        if not self._strict:
            refuse_mixing(probe, examples=examples)
        if self.choice is None:
            self.choice = _that_draws(choose(probe, strict=self._strict), probe, strict=self._strict)
        self._widest = examples


def _that_draws(
    choice: Choice, probe: Probe, *, strict: bool, loss: Loss | None = None, y: Inputs | None = None
) -> Choice:
    """The choice, which was made without dropout, tried with it: torch.func may fail to map what a model draws, or its loss.

    y: labels that the loss takes have this shape and kind.
    """
    if choice.layers is not None or choice.mapped == materialised.WAYS[-1]:
        return choice
    fresh = probe.fresh()
    labels: Inputs = torch.zeros(probe.runs, LOT, device=inputs.first(probe.x).device)
    if loss is not None and y is not None:
        labels = accepted(loss, fresh.output(probe.examples), probe, y)
        labels = inputs.each(lambda part: part.view(probe.runs, LOT, *part.shape[1:]), labels)
    loss = loss or (lambda output, y: flat(output).sum(1))
    try:
        materialised.Batch(fresh.model, loss, fresh.params, fresh.x, labels, choice.mapped).gradients(0, LOT)
    except RuntimeError as trouble:
        if strict:
            raise unmapped(probe.model, trouble) from trouble
        return replace(choice, mapped=materialised.WAYS[-1])
    return choice


def _identity(loss: Loss) -> object:
    """What stays equal for as long as the loss lives; a bound method is a new object each time it is named."""
    if isinstance(loss, MethodType):
        return weakref.ref(loss.__self__), loss.__func__
    return weakref.ref(loss)


_KNOWN: weakref.WeakKeyDictionary[nn.Module, dict[object, _Known]] = weakref.WeakKeyDictionary()


def _known(model: nn.Module, trainable: tuple[str, ...], params: Params, x: Inputs, strict: bool) -> _Known:
    modules = tuple((weakref.ref(module), module.training, hooked(module)) for module in model.modules())
    dtype = next(iter(params.values())).dtype
    one = inputs.first(x)
    key = (modules, trainable, inputs.kinds(x), dtype, one.device, len(one) == 1, strict)
    known = _KNOWN.setdefault(model, {})
    if key not in known:
        known[key] = _Known(model, params, x, strict=strict)
    return known[key]


def _check(trainable: Params, params: Params, x: Inputs, y: Inputs) -> None:
    if not trainable:
        wanted = "a module with at least one parameter that requires grad"
        raise InvalidArgument("model", "one with zero trainable parameters", wanted)
    if params.keys() != trainable.keys():
        wanted = f"named as the trainable parameters of the model, {sorted(trainable)}"
        raise InvalidArgument("params", sorted(params), wanted)
    _check_lots(x, y)
    for name, value in params.items():
        shape = (len(inputs.first(y)), *trainable[name].shape)
        if value.shape != shape:
            raise InvalidArgument(f"params[{name!r}]", tuple(value.shape), f"of shape {shape}: [runs, ...]")
        if value.dtype not in (torch.float32, torch.float64):
            wanted = (
                "float32 or float64, since clipping needs their digits: model.float(), and torch.autocast within forward for "
                "bfloat16; frozen parts may stay in bfloat16"
            )
            raise InvalidArgument(f"the model's trainable {name!r}", value.dtype, wanted)


def _check_lots(x: Inputs, y: Inputs) -> None:
    shapes = [tuple(leaf.shape) for parts in (x, y) for leaf in inputs.leaves(parts)]
    if any(len(shape) < 2 or shape[:2] != shapes[-1][:2] for shape in shapes):
        wanted = "of shape [runs, lot, ...], all with the same runs and lot"
        raise InvalidArgument("x and y", tuple(shapes), wanted)
