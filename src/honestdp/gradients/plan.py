"""Which engine a model goes to: found by its layers, then by trial against plain autograd.

Book-keeping needs a rule for every layer that owns a trainable parameter, and a model that uses those parameters
nowhere else. The first is read off the modules. The second cannot be read off anything, so it is tried: on random
inputs and weights, norms and sums have to come out as plain autograd gives them, one example at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from honestdp.gradients import bookkeeping, materialised, rules
from honestdp.gradients.bookkeeping import Ruled
from honestdp.gradients.rules import Unruled
from honestdp.gradients.trial import LOT, Trial, flat, project, without_dropout
from honestdp.gradients.vetting import RefusedModel, refuse_by_name, refuse_mixing

log = logging.getLogger("honestdp.gradients")


@dataclass(frozen=True)
class Plan:
    """`layers`: the layers and their rules, or None for the materialised engine. `bytes_per_example`: in one run."""

    layers: tuple[Ruled, ...] | None
    bytes_per_example: int


def ruled_layers(model: nn.Module, trainable: frozenset[str]) -> tuple[Ruled, ...]:
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
        found.append(Ruled(path, layer, rule, ours, frozen))
    return tuple(found)


def make(model: nn.Module, params: Mapping[str, Tensor], x: Tensor) -> Plan:
    """Vet the model and choose its engine. Reads only the shapes, dtypes and device of `params` and `x`."""
    refuse_by_name(model)
    devices = [x.device] if x.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        trial = Trial(model, params, x)
        refuse_mixing(trial)
        try:
            layers = ruled_layers(model, frozenset(params))
        except Unruled as reason:
            layers, why = None, str(reason)
        return _tried(trial, layers, why if layers is None else "")


def _tried(trial: Trial, layers: tuple[Ruled, ...] | None, why: str) -> Plan:
    """The plan that gives the gradients of plain autograd on the trial."""
    with without_dropout(trial.model):
        x = trial.x.flatten(0, 1)
        first = flat(trial.output(x))
        cotangents = trial.normal(trial.runs, LOT, first.shape[1])
        random = not torch.allclose(first, flat(trial.output(x, seed=1)), equal_nan=True)
        expected, kept = trial.reference(cotangents)
        gradient_bytes = sum(value[0].nbytes for value in trial.params.values()) 
        needed = kept + 2 * gradient_bytes
        if random and layers is not None:
            layers, why = None, "it draws random numbers outside dropout layers, so its layer rules cannot be checked"
        if layers is not None:
            try:
                result = bookkeeping.per_example(trial.model, project, list(layers), trial.params, trial.x, cotangents)
                if _agrees(result, expected, trial):
                    return Plan(layers, needed)
                why = "parameters are used outside their layers, or a layer rule does not hold for it"
            except Unruled as reason:
                why = str(reason)
        log.warning("%s: per-example gradients are materialised, since %s", type(trial.model).__name__, why)
        made = materialised.per_example(
            trial.model, project, trial.params, trial.x, cotangents, bytes_per_example=needed, memory=2**62
        )
        if not random and not _agrees(made, expected, trial):
            raise RefusedModel(
                type(trial.model).__name__,
                "a module whose gradient for an example can be found with torch.func.vmap;"
                " for this one it differs from the gradient of the example alone",
            )
        return Plan(None, needed)


def _agrees(result: bookkeeping.BookKeeping | materialised.Materialised, expected: Mapping[str, Tensor], trial: Trial) -> bool:
    """Whether norms and a weighted sum agree with the per-example gradients `expected` `[runs, lot, ...]`."""
    weights = trial.normal(trial.runs, LOT)
    total = result.weighted_sum(weights)
    norms = torch.stack([value.flatten(2).square().sum(-1) for value in expected.values()]).sum(0).sqrt()
    tolerance = torch.finfo(norms.dtype).eps ** 0.5 * 3
    scale = (norms * weights.abs()).sum(1)
    if not torch.isfinite(norms).all() or not torch.allclose(result.norms, norms, rtol=tolerance, atol=0):
        return False
    for name, value in expected.items():
        wrong = total[name] - (value * weights.reshape(*weights.shape, *[1] * (value.dim() - 2))).sum(1)
        if not (wrong.flatten(1).abs().amax(1) <= tolerance * scale).all():
            return False
    return True
