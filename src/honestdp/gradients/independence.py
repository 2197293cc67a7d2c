"""Tries on made-up inputs whether a model's examples influence each other, before any record reaches the model.

The lots of the trial are as wide as those of the training, because a model may begin to mix examples at a certain width: an
expert that is full, statistics in groups of 32, a loss that keeps the 16 hardest. In a lot of n examples
- one half of the examples is moved, each to another usual one, to a huge one in either direction, or to zeros; the outputs of the
  other half may not change. A rank, a threshold, a quantile of the lot then changes whatever it is taken of, for the examples
  that are moved cross the whole range of it;
- then the other half is moved, in a second call of the same copy of the model; the outputs of the first half have to be those of
  a fresh copy, or the model mixes examples or keeps what it saw;
- an example comes in before the others and one half becomes alike, or an example is alone: the outputs have to be the same.
The last compares lots of different sizes, whose numbers are rounded otherwise, so half of the digits have to agree; it is
left out where the model draws random numbers outside dropout layers, which are switched off here.

A model in train() mode is tried in eval() mode too where anything in it reads `training`. A chain of torch's own layers is tried
with a few examples (`row_by_row`).

A trial proves nothing: docs/training.md says what it cannot see, and `strict` needs no trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.by_formula import hooked, in_order
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.probe import LOT, Probe, flat, reads_mode, without_dropout
from honestdp.gradients.unusual import unusual_pools
from honestdp.gradients.vetting import RefusedModel, described
from honestdp.gradients.write_guard import WAY_OUT, TensorSnapshot, versions_of

_FIRST_DIMENSION = (
    "The first dimension belongs to the examples; attention and recurrent layers need batch_first=True, and statistics over the "
    "lot need GroupNorm or LayerNorm in their place: honestdp.fix(model, x) puts them there"
)
_OTHERWISE = (
    "a function of its inputs and of torch's random numbers: the output for the same examples changed when they were asked for "
    "again. What draws by numpy, by Python's random or by a generator of its own, or keeps something outside of the module, is "
    "not taken: draw by honestdp.GaussianDraw, or by torch.randn"
)
Places = slice | Tensor
_ALL = slice(None)
_SIZE = "which is not the output it has in another lot. strict=True gives every example to the model by itself"


@dataclass(frozen=True)
class Asked:
    """A model in one mode, asked about some of a pool of made-up examples: by a fresh copy, at its first call."""

    probe: Probe
    pool: Inputs
    usual: int
    """How many of the pool are usual examples, its first ones."""
    training: bool

    @property
    def everyone(self) -> Tensor:
        """The rows of the usual examples."""
        return torch.arange(self.usual, device=inputs.first(self.pool).device)

    @property
    def extras(self) -> range:
        return range(self.usual, len(inputs.first(self.pool)))

    def __call__(self, *lots: Tensor, seed: int = 0) -> list[Tensor]:
        """The outputs `[examples, size]` for lots of these rows of the pool, one after another by one fresh copy of the model."""
        return [*self.one_by_one(lots, seed=seed)]

    def one_by_one(self, lots: Iterable[Tensor], *, seed: int = 0) -> Iterator[Tensor]:
        """The same as they are asked for."""
        fresh = self.probe.fresh(training=self.training)
        versions = versions_of(fresh.tensors)
        with without_dropout(fresh.model):
            for lot in lots:
                yield with_rows(flat(fresh.output(inputs.rows(self.pool, lot), seed=seed)), len(lot))
        _refuse_written(fresh, self.probe.before, versions)

    def refusal(
        self,
        why: str,
        rows: Tensor,
        others: Tensor,
        at: Places = _ALL,
        others_at: Places = _ALL,
        after: Tensor | None = None,
    ) -> RefusedModel:
        """It names the innermost module whose outputs for the same examples differ between two lots while its inputs do not."""
        first, second = self._watched(rows, None), self._watched(others, after)
        digits = 1.0 if len(rows) == len(others) else 0.5

        def differ(path: str, part: int) -> bool:
            a, b = first[path][part], second[path][part]
            return a is not None and b is not None and not same(a[at], b[others_at], digits=digits)

        path = next((path for path in first if path in second and differ(path, 1) and not differ(path, 0)), "")
        named = described(path, self.probe.model.get_submodule(path))
        return RefusedModel(named, f"free of modules that mix examples: {why}")

    def _watched(self, rows: Tensor, after: Tensor | None) -> dict[str, tuple[Tensor | None, Tensor | None]]:
        """The input and the output of every module, the innermost first, where they have a row an example."""
        fresh = self.probe.fresh(training=self.training)
        seen: dict[str, tuple[Tensor | None, Tensor | None]] = {}

        def rowed(values: object) -> Tensor | None:
            first = next((leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)), None)
            fits = first is not None and first.is_floating_point() and first.shape[:1] == rows.shape
            return first.detach().clone() if fits and first is not None else None

        def watch(path: str) -> None:
            fresh.model.get_submodule(path).register_forward_hook(
                lambda _module, inputs, output: seen.setdefault(path, (rowed(inputs), rowed(output))) and None
            )

        with without_dropout(fresh.model):
            if after is not None:
                fresh.output(inputs.rows(self.pool, after))
            for path, _ in self.probe.model.named_modules():
                watch(path)
            fresh.output(inputs.rows(self.pool, rows))
        return seen


def with_rows(rows: Tensor, examples: int) -> Tensor:
    if len(rows) != examples:
        value = f"an output of {len(rows)} rows for {examples} examples"
        raise InvalidArgument("model", value, "a module whose output has a row an example")
    return rows


def _refuse_written(probe: Probe, before: TensorSnapshot, versions: Mapping[str, int]) -> None:
    name = before.written(probe.tensors, versions)
    if name is None:
        return
    path = name.rpartition(".")[0]
    kind = "parameter" if name in dict(probe.model.named_parameters()) else "buffer"
    raise RefusedModel(
        described(path, probe.model.get_submodule(path)),
        f"free of modules that keep a record of the examples: the forward pass wrote to the {kind} {name!r}; {WAY_OUT}, or put "
        "the module in eval()",
    )


def refuse_mixing(probe: Probe, *, examples: int) -> None:
    """Refuse a model whose outputs for one example depend on another, in lots of up to so many examples, or that keeps what
    it saw.
    """
    _try_at_width(probe, examples, training=True)
    if not any(module.training for module in probe.model.modules()) or not reads_mode(probe):
        return
    try:
        _refuse_unusual(_few(probe, training=False))
        _refuse_mixing_once(_wide(probe, examples, training=False))
    except (RefusedModel, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception:  # a training does not run the model in eval() mode; where it fails, nothing leaves
        return


def refuse_mixing_in_eval(probe: Probe, *, examples: int) -> None:
    """The same for a model that is only run forward, in eval() mode."""
    _try_at_width(probe, examples, training=False)


def _try_at_width(probe: Probe, examples: int, *, training: bool) -> None:
    _refuse_unusual(_few(probe, training=training))
    odd = (
        _FEW + 1 + examples % 2
    )  # a few, and an odd number where the lot is even: in one of the two somebody is in the middle
    for width in (_FEW,) if row_by_row(probe.model) else (examples, odd):
        _refuse_mixing(_wide(probe, width, training=training))


def row_by_row(model: nn.Module) -> bool:
    """Whether a model is a chain of torch's own layers each of which computes a row of its output from that row of its input.

    What such a chain does to a row cannot depend on how many there are, so that it is tested with a few examples, which show
    that the first dimension belongs to them. The very classes, with nothing that is put in by hand.
    """
    return all(map(_is_row_by_row, in_order(model)))


def _is_row_by_row(layer: nn.Module) -> bool:
    first = {nn.Flatten: "start_dim", nn.Unflatten: "dim"}.get(type(layer))
    if type(layer) not in _ROW_BY_ROW or hooked(layer) or (first is not None and not _beyond(getattr(layer, first))):
        return False
    of_class = {id(function) for function in vars(functional).values()}
    return not any(callable(one) and id(one) not in of_class for one in vars(layer).values())


def _beyond(dimension: object) -> bool:
    """Whether it is a dimension behind the first."""
    return isinstance(dimension, int) and dimension >= 1


_ROW_BY_ROW = frozenset(
    {
        *(nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d),
        *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        *(nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.Flatten, nn.Unflatten, nn.Identity),
        *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
        *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d),
        *(
            nn.ReLU,
            nn.Tanh,
            nn.Sigmoid,
            nn.GELU,
            nn.SiLU,
            nn.ELU,
            nn.LeakyReLU,
            nn.PReLU,
            nn.Softplus,
            nn.Mish,
            nn.SELU,
        ),
        *(nn.Hardtanh, nn.ReLU6, nn.Hardswish, nn.LogSigmoid, nn.Dropout, nn.Upsample),
        *(nn.ZeroPad1d, nn.ZeroPad2d, nn.ConstantPad1d, nn.ConstantPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d),
    }
)


_FEW = 2 * LOT


def _few(probe: Probe, *, training: bool) -> Asked:
    return Asked(probe, probe.pool(_FEW), _FEW, training)


def _wide(probe: Probe, examples: int, *, training: bool) -> Asked:
    """Usual examples, then for each of them the one that it becomes, then one more."""
    n = max(_FEW, examples)
    return Asked(probe, probe.moving_pool(n), n, training)


def halves(n: int) -> tuple[Tensor, Tensor]:
    """The places of a lot in two halves, drawn alike for every lot of this size; the first place is in one, the last in the
    other.
    """
    between = torch.randperm(n - 2, generator=torch.Generator().manual_seed(n)) + 1
    half = len(between) // 2
    one, other = torch.cat([torch.tensor([0]), between[:half]]), torch.cat([between[half:], torch.tensor([n - 1])])
    return one.sort().values, other.sort().values


def _refuse_mixing(ask: Asked) -> None:
    n, everyone = ask.usual, ask.everyone
    one, other = (half.to(everyone.device) for half in halves(n))
    (base,) = ask(everyone)
    first, second = _moved(everyone, one), _moved(everyone, other)
    outputs, after = ask(first, second)
    if not same(base[other], outputs[other]):
        raise _mixed(ask, base, first, other)
    if not same(base[one], after[one]):
        if not same(base[one], ask(second)[0][one]):
            raise _mixed(ask, base, second, one)
        why = "the output for a lot changed because another lot was seen before it; keep nothing from call to call"
        raise ask.refusal(why, everyone, second, one, one, after=first)
    (drawn,), (again,) = ask(everyone[:LOT]), ask(everyone[:LOT], seed=1)
    if not same(drawn, again):
        return  # it draws random numbers, which are others in a lot of another size
    alike = everyone.clone()
    alike[other] = everyone[one[-1]]
    checks: list[tuple[Tensor, Places, Places]] = [(torch.cat([first[:1], alike]), one, one + 1)]
    checks += [(everyone[place, None], slice(place, place + 1), _ALL) for place in sorted({0, n // 2, n - 1})]
    checks += [(everyone[-1:].expand(_FEW), slice(n - 1, None), _ALL)]
    for (lot, at, others_at), found in zip(checks, ask(*(lot for lot, _, _ in checks)), strict=True):
        if not same(base[at], found[others_at], scale=base, digits=0.5):
            why = f"in a lot of {n} an example has an output {_SIZE}. {_FIRST_DIMENSION}"
            raise ask.refusal(why, everyone, lot, at, others_at)


def _refuse_mixing_once(ask: Asked) -> None:
    """With two wide lots: one half moved, by a fresh copy; then a few examples by the same copy, which may keep nothing."""
    everyone = ask.everyone
    one, other = (half.to(everyone.device) for half in halves(ask.usual))
    few, at = everyone[other[:LOT]], other[:LOT]
    (base,), moved = ask(everyone), _moved(everyone, one)
    outputs, again = ask(moved, few)
    if not same(base[other], outputs[other]):
        raise _mixed(ask, base, moved, other)
    (alone,) = ask(few)
    if not same(alone, again, scale=base):
        why = "the output for a lot changed because another lot was seen before it; keep nothing from call to call"
        raise ask.refusal(why, everyone, few, at, _ALL, after=moved)


def _moved(rows: Tensor, places: Tensor) -> Tensor:
    """The lot with the examples at these places moved; the pool of a wide trial has them behind its usual examples."""
    moved = rows.clone()
    moved[places] += len(rows)
    return moved


def _mixed(ask: Asked, base: Tensor, lot: Tensor, stay: Tensor) -> RefusedModel:
    """The refusal of a model whose outputs at `stay` are others in a lot where the rest is moved."""
    (again,) = ask(ask.everyone)
    if not same(base, again):
        return RefusedModel(described("", ask.probe.model), _OTHERWISE)
    why = f"the output for one example changed when another example did. {_FIRST_DIMENSION}"
    return ask.refusal(why, ask.everyone, lot, stay, stay)


def _refuse_unusual(ask: Asked) -> None:
    """Refuse a model that looks at the others only where something is unusual: numbers that are missing, infinite or huge,
    examples that are longer than the others, or masked as a whole.
    """
    one, other = (half.to(ask.everyone.device) for half in halves(ask.usual))
    for pool in unusual_pools(ask.probe.model, ask.pool, ask.usual):
        unusual = replace(ask, pool=pool)
        extras = torch.tensor(unusual.extras, device=one.device)
        together = [_becoming(unusual, one, some) for some in torch.split(extras, len(one))]
        try:
            _refuse_becoming(unusual, together, other)
        except RefusedModel:
            raise
        except Exception:  # a model may well fail on NaN, or on one of these alone
            for extra in torch.split(extras, 1):
                with suppress(_Fails):
                    _refuse_becoming(unusual, [_becoming(unusual, one, extra)], other)


class _Fails(Exception):
    """A model that fails on what is unusual."""


def _becoming(ask: Asked, places: Tensor, extras: Tensor) -> Tensor:
    """The lot in which the examples at `places` become these rows of the pool."""
    lot = ask.everyone.clone()
    lot[places] = extras.repeat(len(places))[: len(places)]
    return lot


def _refuse_becoming(ask: Asked, lots: list[Tensor], stay: Tensor) -> None:
    """Refuse the model if its outputs at `stay` change in one of these lots, given to one copy of it one after another."""
    try:
        base, *found = ask(ask.everyone, *lots)
    except RefusedModel:
        raise
    except Exception as trouble:
        raise _Fails from trouble
    for lot, outputs in zip(lots, found, strict=True):
        if not same(base[stay], outputs[stay]):
            raise _mixed(ask, base, lot, stay)


def same(first: Tensor, other: Tensor, *, digits: float = 1.0, scale: Tensor | None = None) -> bool:
    """Whether two tensors agree but for rounding, in all digits of the dtype or in a part of them."""
    if first.shape[1:] != other.shape[1:]:
        return False
    if not first.is_floating_point():
        return torch.equal(first.expand_as(other), other)
    largest = first if scale is None else scale
    size = largest.abs().nan_to_num(0, 0, 0).amax().item() if largest.numel() else 0.0
    eps = float(torch.finfo(first.dtype).eps)
    tolerance = 3 * eps**digits if digits < 1 else 100 * eps
    return torch.allclose(first.expand_as(other), other, rtol=tolerance, atol=tolerance * size, equal_nan=True)
