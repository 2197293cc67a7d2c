"""Per-example gradients of any model: copies of model and loss are tested once for a shape of example, then used every step.

`Prepared` holds the copies, `per_example` is one call of it. `vet_forward` tests a model that only scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.gradients import bookkeeping, inputs, materialised
from honestdp.gradients.bookkeeping import BookKeeping, Input
from honestdp.gradients.branching import Reads
from honestdp.gradients.choice import Choice, choose, one_at_a_time
from honestdp.gradients.forms import Params, PerExample
from honestdp.gradients.independence import refuse_mixing, refuse_mixing_in_eval
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.layers.implicit import members
from honestdp.gradients.loss_independence import Manner, accepted, refuse_mixing_loss
from honestdp.gradients.outputs import own_loss
from honestdp.gradients.precision import products
from honestdp.gradients.probe import LOT, Probe, copied, flat
from honestdp.gradients.strict import try_mapped, try_mapped_loss, unmapped
from honestdp.gradients.vetting import refuse_by_name
from honestdp.identity.values import identity
from honestdp.kernels.checked import by_tensor_operations
from honestdp.losses import Loss

MEMORY = 2**30


def code_of(model: nn.Module, loss: object) -> dict[str, str]:
    """Digests of their code, by whose it is, with the numbers in tensors of the user's own, but for the model's weights and
    buffers.
    """
    saved = [value for value in model.state_dict(keep_vars=True).values() if isinstance(value, Tensor)]
    own = identity(model, values=True, besides=saved).named("the model's code")
    return own | identity(loss, values=True).named("the loss's code")


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

    Every call tests model and loss on synthetic inputs first, in a few passes forward over as many examples as it has. For
    many calls make a `Prepared` once.

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
    """`per_example` for a model and a loss that stay as they are.

    It holds copies of both, and nothing reads the given ones again. The copies are tested on synthetic inputs once for
    each shape of example, and again before more examples at once than they were tested with.

    strict: each example goes through model and loss under a map of its own; they are not tested, but refused where
        torch.func cannot map them.
    device: of the copy of the model; the given model's own by default.

    To be called within `torch.no_grad()`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        *,
        memory: int = MEMORY,
        strict: bool = False,
        device: torch.device | None = None,
    ) -> None:
        checks.whole(least=1, memory=memory)
        refuse_by_name(model)  # before it is copied: a copy has lost the hooks of its parameters, and shared memory
        self.model, self.loss, self.strict = copied(model).to(device), own_loss(loss), strict
        self.code = code_of(self.model, self.loss)  # before either is called: it may count its calls
        self._memory = memory
        self._choices: dict[tuple[object, bool], Choice] = {}
        self._widest: dict[object, tuple[int, Manner]] = {}

    def vet(self, params: Params, x: Inputs, y: Inputs, *, examples: int) -> Choice:
        """The engine for such examples, once model and loss have been tested with so many at once, over all runs.

        params, x, y: as for a call; but for the parameters' names only shapes, dtypes and the device are read.
        """
        examples = max(examples, 2 * LOT)  # no trial has fewer, so that small lots are not tried one after the other
        # A single run goes its own way through some layers, so that it is tried by itself.
        one = inputs.first(y)
        shape = (inputs.kinds(x), inputs.kinds(y), one.device)
        choice, (widest, manner) = self._choices.get((shape, len(one) == 1)), self._widest.get(shape, (0, Manner()))
        if choice is not None and (examples <= widest or self.strict):
            return choice
        trainable = {name: value for name, value in self.model.named_parameters() if value.requires_grad}
        _check(trainable, params, x, y)
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            wanted = "per_example must be called once with this model, loss and shape before a graph is captured"
            raise RuntimeError(wanted)
        generators = torch.random.fork_rng(devices=inputs.gpus(y))
        with products("highest", one.device), by_tensor_operations(), generators:
            probe = Probe(self.model, params, x)
            if examples > widest and not self.strict:
                refuse_mixing(probe, examples=examples)
                found = refuse_mixing_loss(probe, self.loss, y, examples=examples)
                known = Manner(manner.reads or found.reads, manner.draws or found.draws)
                if known != manner:  # engines that were chosen before show such a loss several examples at a time
                    self._choices = {key: engine for key, engine in self._choices.items() if key[0] != shape}
                    choice, manner = None, known
                self._widest[shape] = examples, manner
            if choice is None:
                choice = _that_draws(choose(probe, strict=self.strict), probe, strict=self.strict)
                if self.strict:
                    try_mapped_loss(probe, self.loss, y)
                elif manner.reads:
                    # A loss that reads numbers to choose its way is shown one example at a time: it would choose for a whole lot.
                    choice = replace(choice, layers=None, mapped=materialised.WAYS[-1])
                elif manner.draws:
                    choice = _that_draws(one_at_a_time(probe), probe, strict=False, loss=self.loss, y=y)
                self._choices[shape, len(one) == 1] = choice
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
                return bookkeeping.per_example(self.model, self.loss, choice.layers, params, known, y, shares)
        batch = materialised.Batch(self.model, self.loss, params, x, y, choice.mapped, self.strict, shares)
        return materialised.per_example(batch, bytes_per_example=choice.bytes_per_example, memory=self._memory)


def vet_forward(model: nn.Module, loss: Loss, x: Inputs, y: Inputs, *, examples: int, strict: bool = False) -> int:
    """Test a model in eval() mode, and its loss, as they are used to score records; how many may go through it at once.

    x, y: two synthetic examples, of which shapes, dtypes and the device are read. examples: how many are to go at once. That
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
