"""The choice of engine for a model: by its layers, then by a comparison with plain autograd.

Book-keeping needs a rule for every layer that owns a trainable parameter, and a model that uses those parameters
nowhere else. The first is read off the modules. The second cannot be read off anything, so it is tried: on random
inputs and weights, norms and sums have to come out as plain autograd gives them, one example at a time. That is also
how a layer rule, ours or a user's, is held to its word before any record is summed by it.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from honestdp.checks import InvalidArgument
from honestdp.gradients import bookkeeping, materialised, rules
from honestdp.gradients.bookkeeping import Input, Layers
from honestdp.gradients.branching import Reads
from honestdp.gradients.by_formula import links
from honestdp.gradients.forms import Dense, PerExample, joint_norms
from honestdp.gradients.probe import LOT, Probe, flat, project, without_dropout
from honestdp.gradients.rules import Composite, Ruled, Unruled
from honestdp.gradients.strict import unmapped
from honestdp.gradients.vetting import RefusedModel
from honestdp.logs import logger

log = logger("honestdp.gradients")


@dataclass(frozen=True)
class Choice:
    """The engine of a model. layers: the layers and their rules, or None for the materialised engine.

    bytes_per_example: of that engine, in one run. mapped: how it maps the model, one of materialised.WAYS.
    bytes_kept: what book-keeping keeps of one example until its gradients are summed, by estimate.
    """

    layers: Layers | None
    bytes_per_example: int
    mapped: str = materialised.WAYS[0]
    bytes_kept: int = 0


def ruled_layers(model: nn.Module, trainable: frozenset[str]) -> Layers:
    """Every layer that owns a parameter of `trainable`, with its rule; `Unruled` says which layer stands in the way."""
    names_of: dict[int, list[str]] = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        names_of.setdefault(id(value), []).append(name)
    tied = next((names for names in names_of.values() if len(names) > 1), None)
    if tied is not None:
        raise Unruled(f"parameters are tied: one tensor has several names, {tied[0]!r} and {tied[1]!r}", _UNTIED)
    ruled = []
    for path, layer in model.named_modules():
        names = {name: f"{path}.{name}" if path else name for name in layer._parameters}
        trained = {name: full for name, full in names.items() if full in trainable}
        rule = rules.find(layer)
        # A layer whose forward reads the parameters of its parts itself has to be written out for their sake.
        below = isinstance(rule, Composite) and any(value.requires_grad for value in layer.parameters())
        if not trained and not below:
            continue
        if rule is None:
            own = f", which its own {', '.join(map(repr, trained))} would need" if _holds_layers(layer) else ""
            raise Unruled(f"{type(layer).__name__} at {path!r} has no layer rule{own}", _way_out(layer))
        frozen = tuple(name for name in names if name not in trained and layer._parameters[name] is not None)
        ruled.append(Ruled(path, weakref.ref(layer), rule, trained, frozen))
    return Layers(tuple(ruled), links(model, ruled))


_UNTIED = "give each layer a parameter of its own (for a language model of transformers, tie_word_embeddings=False)"


def _way_out(layer: nn.Module) -> str:
    """What would give a layer without a rule one."""
    if torch.nn.utils.parametrize.is_parametrized(layer):
        return "take the parametrisation off (torch.nn.utils.parametrize.remove_parametrizations)"
    if isinstance(layer, nn.RNNCellBase):
        return f"use {type(layer).__name__.removesuffix('Cell')} in place of the cell and its loop"
    if (parent := next((kind for kind in type(layer).__mro__[1:] if rules.has_rule(kind)), None)) is not None:
        return f"use {parent.__name__} itself, or write a rule for {type(layer).__name__} (honestdp.gradients.rule)"
    if rules.has_rule(type(layer)):
        return f"another setting of {type(layer).__name__} has one, for which see docs/gradients.md"
    if _holds_layers(layer):
        table = "a table of positions, or a token that is added, into nn.Embedding, looked up by torch.arange(n)[None]"
        return f"put what it owns into layers: {table}"
    return "put its parameters in layers that have one, or write a rule for it (honestdp.gradients.rule)"


def _holds_layers(layer: nn.Module) -> bool:
    below = (value for child in layer.children() for value in child.parameters())
    return next(below, None) is not None and not torch.nn.utils.parametrize.is_parametrized(layer)


def choose(probe: Probe, *, strict: bool) -> Choice:
    """The engine of a model. strict: every example under a map of its own, or an error that says why that cannot be."""
    if strict:
        probe = probe.fresh()  # a copy will do: the choice will name none of its layers
    with without_dropout(probe.model):
        expected = Expected.of(probe)
        if strict:
            return _materialised(probe, expected, ways=materialised.MAPPED)
        try:
            return _book_keeping(probe, expected, ruled_layers(probe.model, frozenset(probe.params)))
        except Unruled as reason:
            name = type(probe.model).__name__
            log.warning("%s: per-example gradients are materialised, since %s. Faster: %s", name, reason, reason.way)
        return _materialised(probe, expected, ways=materialised.WAYS)


def one_at_a_time(probe: Probe) -> Choice:
    """The materialised engine, whatever the layers: for a loss that is to be shown one example at a time."""
    with without_dropout(probe.model):
        return _materialised(probe, Expected.of(probe), ways=materialised.WAYS)


@dataclass(frozen=True)
class Expected:
    """What plain autograd gives for a probe whose loss is `project(output, cotangents)`."""

    cotangents: Tensor
    """`[runs, lot, size]`: random, so that every output of the model has its part in the comparison."""
    gradients: Mapping[str, Tensor]
    """name -> `[runs, lot, ...]`."""
    norms: Tensor
    """`[runs, lot]`."""
    bytes_kept: int
    """By autograd, of one example."""
    bytes_per_example: int
    comparable: bool
    """Whether the model gives the same finite gradients whenever it is run."""

    @staticmethod
    def of(probe: Probe) -> Expected:
        x = probe.examples
        output = flat(probe.output(x))
        again = flat(probe.output(x, seed=1))
        cotangents = probe.normal(probe.runs, LOT, output.shape[1])
        gradients = probe.reference(cotangents)
        norms = joint_norms(Dense(value) for value in gradients.values())
        comparable = _same(output, again) and not probe.draws() and bool(torch.isfinite(norms).all())
        gradient_bytes = sum(value[0].nbytes for value in probe.params.values())
        kept = probe.bytes_kept()
        # Twice: a weighted sum copies what it silences.
        return Expected(cotangents, gradients, norms, kept, kept + 2 * gradient_bytes, comparable)

    def uneven(self, probe: Probe) -> Iterator[Expected]:
        """The same of examples whose losses are of very different sizes: each example's is once the largest.

        So different that gradients are still finite. Where no such sizes are found, rules cannot be checked.
        """
        for place in range(LOT):
            for power in UNEVEN:
                sizes = torch.logspace(power, -power, LOT, dtype=self.cotangents.dtype, device=self.cotangents.device)
                cotangents = self.cotangents * sizes.roll(place)[:, None]
                gradients = probe.reference(cotangents)
                norms = joint_norms(Dense(value) for value in gradients.values())
                if torch.isfinite(norms).all():
                    yield replace(self, cotangents=cotangents, gradients=gradients, norms=norms)
                    break
            else:
                raise Unruled(
                    "its gradients are so large that rules cannot be checked", "divide its outputs or its loss"
                )


def _same(output: Tensor, again: Tensor) -> bool:
    """Whether two outputs are the same numbers, to half the digits of their dtype: a GPU may add them up in another order each
    time, as it does for transposed convolutions.
    """
    if not output.is_floating_point():
        return torch.equal(output, again)
    most = _tolerance(output) * output.abs().max() if output.numel() else 0.0
    return bool(((output - again).abs() <= most).all())


def _tolerance(like: Tensor) -> float:
    return float(3 * torch.finfo(like.dtype).eps ** 0.5)


def _book_keeping(probe: Probe, expected: Expected, layers: Layers) -> Choice:
    with Reads() as reads:
        probe.output(probe.examples)
    if reads.seen:
        why = "it reads numbers to choose its way, which must not be those of a whole lot"
        raise Unruled(why, "choose by torch.where(condition, this, that), without if, .item() or a mask as an index")
    if not expected.comparable:
        why = "it draws random numbers outside dropout layers, or is not finite, so rules cannot be checked"
        raise Unruled(why, "draw by nn.Dropout alone, and keep the outputs for standard normal inputs finite")
    try:
        agrees = _rules_agree(probe, expected, layers, larger=LARGER)
        if agrees:
            # Terms that are alike may cancel, and norms are then taken larger than they are, by any factor.
            alike = probe.alike()
            agrees = _rules_agree(alike, Expected.of(alike), layers, larger=math.inf)
        if agrees and layers.chain is None:
            # What a backward pass of the model's own does to one example's gradient may follow from another's, or the largest.
            agrees = all(_rules_agree(probe, each, layers, larger=LARGER) for each in expected.uneven(probe))
    except (Unruled, InvalidArgument):
        raise
    except Exception as error:  # a user's rule may do anything
        raise Unruled(f"a layer rule failed with {type(error).__name__}: {error}") from error
    if not agrees:
        why = "its parameters are used outside their layers, a layer rule does not hold, or its own backward pass mixes examples"
        raise Unruled(why, "call the layers themselves (self.layer(x), not F.linear(x, self.layer.weight))")
    # What a layer saw stays until the sum, and so does the gradient of what it gave.
    return Choice(layers, expected.bytes_per_example, bytes_kept=2 * expected.bytes_kept)


def _rules_agree(probe: Probe, expected: Expected, layers: Layers, *, larger: float) -> bool:
    """Whether book-keeping gives what is expected, with norms at most so many times larger."""
    if not expected.comparable:
        return True  # only where examples that are alike give NaN; the usual ones have agreed
    # The norms of the input are passed on as in a step, where a chain goes by them.
    x = probe.x
    known = Input(x)
    if isinstance(x, Tensor) and x.is_floating_point():
        known = Input(x, norms=torch.linalg.vector_norm(x[..., None].flatten(2), dim=2))
    result = bookkeeping.per_example(probe.model, project, layers, probe.params, known, expected.cotangents)
    return _agrees(result, expected, probe, larger=larger)


def _materialised(probe: Probe, expected: Expected, *, ways: tuple[str, ...]) -> Choice:
    """The fastest of the ways to map the model that works: over runs and examples at once, over examples, or not at all."""
    for mapped in ways:
        batch = materialised.Batch(probe.model, project, probe.params, probe.x, expected.cotangents, mapped)
        try:
            result = materialised.Materialised(batch, LOT)
        except RuntimeError as trouble:
            if mapped == materialised.WAYS[-1]:
                raise
            if mapped == ways[-1]:
                raise unmapped(probe.model, trouble) from trouble
            continue
        if expected.comparable and not _agrees(result, expected, probe):
            wanted = "a module whose gradient under torch.func is the gradient of the example alone"
            raise RefusedModel(type(probe.model).__name__, wanted)
        if mapped != materialised.WAYS[0]:
            log.warning("%s: torch.func cannot map all of it, so %s, which is slow", type(probe.model).__name__, mapped)
        break
    return Choice(None, expected.bytes_per_example, mapped)


UNEVEN = (4, 2, 1)
"""By which powers of ten losses of the last trial lie above and below the usual: the first with which all is finite."""
LARGER = 1.25
"""How many times the norm of autograd a norm may be: larger costs utility, smaller would cost privacy."""


def _agrees(result: PerExample, expected: Expected, probe: Probe, *, larger: float = LARGER) -> bool:
    """Whether norms and a weighted sum are those of plain autograd, to half the digits of the dtype."""
    weights = probe.normal(probe.runs, LOT)
    total = result.weighted_sum(weights)
    tolerance = _tolerance(expected.norms)
    largest = (expected.norms * weights.abs()).sum(1)
    # A norm may come out larger where an example's part is a sum of terms (forms.py); too small, it would break the clip.
    slack = 1e-12 * expected.norms.max().clamp(max=1)
    low, high = (1 - tolerance) * expected.norms - slack, larger * (expected.norms + 1e-12)
    if not ((low <= result.norms) & (result.norms <= high)).all():
        return False
    for name, value in expected.gradients.items():
        wrong = total[name].clone()
        Dense(value).add_weighted_sum([wrong], -weights, counted=None)
        if not (wrong.reshape(probe.runs, -1).abs().amax(1) <= tolerance * largest).all():
            return False
    return True
