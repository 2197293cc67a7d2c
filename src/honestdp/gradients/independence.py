"""Whether a model's examples influence each other: tried on made-up inputs, before any record reaches the model.

The lots that are tried are as wide as those of the training, because a model may begin to mix examples at a certain width: an
expert that is full, statistics in groups of 32, a loss that keeps the 16 hardest. Every answer is given by a fresh copy of the
model, at its first call, in the mode that the model was given in and in eval() mode. For a lot of n examples
- one of them is moved: to another usual one, a huge one, zeros; no other output may change;
- another lot goes before it through the same copy; no output may change, or the model keeps what it saw;
- one example comes in before the others, all are alike, or an example is alone: its output has to be the same.
The last three compare lots of different sizes, whose numbers are rounded otherwise, so half of the digits have to agree, and
they are left out in a mode in which the model draws random numbers outside dropout layers, which are switched off here.

A trial proves nothing: what it cannot see is said in docs/training.md, and `strict` needs no trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs, passed_trials
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.probe import LOT, Probe, flat, without_dropout
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

    def __call__(self, rows: Tensor, *, after: Tensor | None = None, seed: int = 0) -> Tensor:
        """The outputs `[examples, size]` for these rows of the pool; after: a lot that goes before them."""
        fresh = self.probe.fresh(training=self.training)
        versions = versions_of(fresh.tensors)
        with without_dropout(fresh.model):
            if after is not None:
                fresh.output(inputs.rows(self.pool, after))
            outputs = flat(fresh.output(inputs.rows(self.pool, rows), seed=seed))
        _refuse_written(fresh, self.probe.before, versions)
        return with_rows(outputs, len(rows))

    def refusal(
        self,
        why: str,
        rows: Tensor,
        others: Tensor,
        at: slice = _ALL,
        others_at: slice = _ALL,
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
    passed_trials.once("mixing", lambda: _try_mixing(probe, examples), probe, examples=examples)


def _try_mixing(probe: Probe, examples: int) -> None:
    few = probe.runs * LOT
    trains = any(module.training for module in probe.model.modules())
    _refuse_unusual(Asked(probe, probe.pool(few), few, True))
    wide = max(few, examples)
    pool = probe.pool(wide)
    _refuse_mixing(Asked(probe, pool, wide, True))
    if trains:
        try:
            _refuse_unusual(Asked(probe, probe.pool(few), few, False))
            _refuse_mixing(Asked(probe, pool, wide, False))
        except (RefusedModel, torch.OutOfMemoryError, MemoryError):
            raise
        except Exception:  # a training does not run the model in eval() mode; where it fails, nothing leaves
            return


def refuse_mixing_in_eval(probe: Probe, *, examples: int) -> None:
    """The same for a model that is only run forward, in eval() mode."""
    passed_trials.once("mixing in eval", lambda: _try_mixing_in_eval(probe, examples), probe, examples=examples)


def _try_mixing_in_eval(probe: Probe, examples: int) -> None:
    few = 2 * LOT
    _refuse_unusual(Asked(probe, probe.pool(few), few, False))
    wide = max(few, examples)
    _refuse_mixing(Asked(probe, probe.pool(wide), wide, False))


def _refuse_mixing(ask: Asked) -> None:
    n, everyone = ask.usual, ask.everyone
    base = ask(everyone)
    for extra in ask.extras:
        _refuse_moving(ask, base, everyone, extra)
    _refuse_moving(ask, base, everyone, n + 1, first=False)
    moved = _with(everyone, 0, n)
    if not same(base, ask(everyone, after=moved)):
        why = "the output for a lot changed because another lot was seen before it; keep nothing from call to call"
        raise ask.refusal(why, everyone, everyone, after=moved)
    if not same(ask(everyone[:LOT]), ask(everyone[:LOT], seed=1)):
        return  # it draws random numbers, which are others in a lot of another size
    one_more = torch.cat([moved[:1], everyone])
    _refuse_size(ask, base, everyone, one_more, _ALL, slice(1, None))
    for place in sorted({0, n // 2, n - 1}):
        _refuse_size(ask, base, everyone, everyone[place, None], slice(place, place + 1), _ALL)
    _refuse_size(ask, base, everyone, everyone[-1:].expand(n), slice(n - 1, None), _ALL)


def _with(rows: Tensor, place: int, other: int) -> Tensor:
    moved = rows.clone()
    moved[place] = other
    return moved


def _refuse_moving(ask: Asked, base: Tensor, rows: Tensor, other: int, *, first: bool = True) -> None:
    """Refuse the model if outputs of the others change where the first or the last example becomes `other`, a row of the pool."""
    moved, rest = _with(rows, 0 if first else -1, other), slice(1, None) if first else slice(None, -1)
    if not same(base[rest], ask(moved)[rest]):
        if not same(base, ask(rows)):
            raise RefusedModel(described("", ask.probe.model), _OTHERWISE)
        why = f"the output for one example changed when another example did. {_FIRST_DIMENSION}"
        raise ask.refusal(why, rows, moved, rest, rest)


def _refuse_size(ask: Asked, base: Tensor, rows: Tensor, others: Tensor, at: slice, others_at: slice) -> None:
    """Refuse the model if outputs of `rows` at `at` are not those of another lot at `others_at`."""
    if not same(base[at], ask(others)[others_at], scale=base, digits=0.5):
        why = f"in a lot of {len(rows)} an example has an output {_SIZE}. {_FIRST_DIMENSION}"
        raise ask.refusal(why, rows, others, at, others_at)


def _refuse_unusual(ask: Asked) -> None:
    """Refuse a model that looks at the others only where something is unusual: numbers that are missing, infinite or huge,
    examples that are longer than the others, or masked as a whole.
    """
    for pool in unusual_pools(ask.probe.model, ask.pool, ask.usual):
        unusual = replace(ask, pool=pool)
        try:
            base = unusual(ask.everyone)
            for extra in unusual.extras:
                _refuse_moving(unusual, base, ask.everyone, extra)
        except RefusedModel:
            raise
        except Exception:
            continue  # a model may well fail on NaN


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
