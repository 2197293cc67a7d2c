"""Which engine a model goes to: found by its layers, then by trial against plain autograd.

Book-keeping needs a rule for every layer that owns a trainable parameter, and a model that uses those parameters
nowhere else. The first is read off the modules. The second cannot be read off anything, so it is tried: on random
inputs and weights, norms and sums have to come out as plain autograd gives them, one example at a time.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from honestdp.checks import InvalidArgument
from honestdp.gradients import bookkeeping, materialised, rules
from honestdp.gradients.bookkeeping import BookKeeping, Input, Layers
from honestdp.gradients.chain import links
from honestdp.gradients.mapped import unmapped
from honestdp.gradients.materialised import Materialised
from honestdp.gradients.pieces import Dense, joined
from honestdp.gradients.probe import LOT, Reads, Trial, flat, project, without_dropout
from honestdp.gradients.ruled import Ruled
from honestdp.gradients.rules import Unruled
from honestdp.gradients.vetting import RefusedModel
from honestdp.logs import logger

log = logger("honestdp.gradients")


@dataclass(frozen=True)
class Plan:
    """layers: the layers and their rules, or None for the materialised engine.

    bytes_per_example: of that engine, in one run. mapped: how it maps the model, one of materialised.WAYS.
    """

    layers: Layers | None
    bytes_per_example: int
    mapped: str = materialised.WAYS[0]


def ruled_layers(model: nn.Module, trainable: frozenset[str]) -> Layers:
    """Every layer that owns a parameter of `trainable`, with its rule; `Unruled` says which layer stands in the way."""
    every = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    if len(every) != sum(1 for _ in model.parameters()):
        raise Unruled("parameters are tied: one tensor has several names")
    found = []
    for path, layer in model.named_modules():
        own = {name: f"{path}.{name}" if path else name for name in layer._parameters}
        ours = {name: full for name, full in own.items() if full in trainable}
        if not ours:
            continue
        rule = rules.find(layer)
        if rule is None:
            raise Unruled(f"{type(layer).__name__} at {path!r} has no layer rule")
        frozen = tuple(name for name in own if name not in ours and layer._parameters[name] is not None)
        found.append(Ruled(path, weakref.ref(layer), rule, ours, frozen))
    return Layers(tuple(found), links(model, found))


def make(trial: Trial, *, strict: bool) -> Plan:
    """The engine of a model. strict: every example under a map of its own, or an error that says why that cannot be."""
    if strict:
        trial = trial.fresh()  # no plan holds on to its layers
    with without_dropout(trial.model):
        expected = Expected.of(trial)
        if strict:
            return _materialised(trial, expected, ways=materialised.MAPPED)
        try:
            return _book_keeping(trial, expected, ruled_layers(trial.model, frozenset(trial.params)))
        except Unruled as reason:
            log.warning("%s: per-example gradients are materialised, since %s", type(trial.model).__name__, reason)
        return _materialised(trial, expected, ways=materialised.WAYS)


@dataclass(frozen=True)
class Expected:
    """What plain autograd gives for a trial whose loss is `project(output, cotangents)`."""

    cotangents: Tensor
    gradients: Mapping[str, Tensor]
    norms: Tensor
    bytes_per_example: int
    comparable: bool
    """Whether the model gives the same finite gradients whenever it is run."""

    @staticmethod
    def of(trial: Trial) -> Expected:
        x = trial.x.flatten(0, 1)
        output = flat(trial.output(x))
        again = flat(trial.output(x, seed=1))
        cotangents = trial.normal(trial.runs, LOT, output.shape[1])
        gradients = trial.reference(cotangents)
        norms = joined(Dense(value) for value in gradients.values())
        comparable = torch.allclose(output, again) and bool(torch.isfinite(norms).all())
        made = sum(value[0].nbytes for value in trial.params.values())
        return Expected(cotangents, gradients, norms, trial.bytes_kept() + 2 * made, comparable)


def _book_keeping(trial: Trial, expected: Expected, layers: Layers) -> Plan:
    with Reads() as reads:
        trial.output(trial.x.flatten(0, 1))
    if reads.seen:
        raise Unruled("it reads numbers to choose its way, which must not be those of a whole lot")
    if not expected.comparable:
        raise Unruled("it draws random numbers outside dropout layers, or is not finite, so rules cannot be checked")
    try:
        agrees = _kept_right(trial, expected, layers, larger=LARGER)
        if agrees:
            # Terms that are alike may cancel, and norms are then taken larger than they are.
            alike = trial.alike()
            agrees = _kept_right(alike, Expected.of(alike), layers, larger=math.inf)
    except (Unruled, InvalidArgument):
        raise
    except Exception as error:  # a user's rule may do anything
        raise Unruled(f"a layer rule failed with {type(error).__name__}: {error}") from error
    if not agrees:
        raise Unruled("its parameters are used outside their layers, or a layer rule does not hold for it")
    return Plan(layers, expected.bytes_per_example)


def _kept_right(trial: Trial, expected: Expected, layers: Layers, *, larger: float) -> bool:
    """Whether book-keeping gives what is expected, with norms at most so many times larger."""
    if not expected.comparable:
        return True  # only where examples that are alike give what is no number; the usual ones have agreed
    # The norms of the input are told, so that a model which changes its input unseen does not agree.
    x = trial.x
    given = Input(x, norms=torch.linalg.vector_norm(x.flatten(2), dim=2) if x.is_floating_point() else None)
    result = bookkeeping.per_example(trial.model, project, layers, trial.params, given, expected.cotangents)
    return _agrees(result, expected, trial, larger=larger)


def _materialised(trial: Trial, expected: Expected, *, ways: tuple[str, ...]) -> Plan:
    """The fastest of the ways to map the model that works: over runs and examples at once, over examples, or not at all."""
    needed = expected.bytes_per_example
    for mapped in ways:
        batch = materialised.Batch(trial.model, project, trial.params, trial.x, expected.cotangents, mapped)
        try:
            result = materialised.Materialised(batch, LOT)
        except RuntimeError as trouble:
            if mapped == materialised.WAYS[-1]:
                raise
            if mapped == ways[-1]:
                raise unmapped(trial.model, trouble) from trouble
            continue
        if expected.comparable and not _agrees(result, expected, trial):
            wanted = "a module whose gradient under torch.func is the gradient of the example alone"
            raise RefusedModel(type(trial.model).__name__, wanted)
        if mapped != materialised.WAYS[0]:
            log.warning("%s: torch.func cannot map all of it, so %s, which is slow", type(trial.model).__name__, mapped)
        break
    return Plan(None, needed, mapped)


LARGER = 1.25


def _agrees(result: BookKeeping | Materialised, expected: Expected, trial: Trial, *, larger: float = LARGER) -> bool:
    """Whether norms and a weighted sum are those of plain autograd, to half the digits of the dtype."""
    weights = trial.normal(trial.runs, LOT)
    total = result.weighted_sum(weights)
    tolerance = 3 * torch.finfo(expected.norms.dtype).eps ** 0.5
    largest = (expected.norms * weights.abs()).sum(1)
    # A norm may come out larger where an example's part is a sum of terms (`pieces`); too small, it would break the clip.
    low, high = (1 - tolerance) * expected.norms - 1e-12, larger * (expected.norms + 1e-12)
    if not ((low <= result.norms) & (result.norms <= high)).all():
        return False
    for name, value in expected.gradients.items():
        wrong = total[name].clone()
        Dense(value).add_weighted_sum([wrong], -weights, counted=None)
        if not (wrong.reshape(trial.runs, -1).abs().amax(1) <= tolerance * largest).all():
            return False
    return True
