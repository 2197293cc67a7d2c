"""The check of every GPU kernel: compared with tensor operations once for each key, and not used where it differs.

The noise of every release and the norms that records are clipped by go through kernels. A compiler makes a kernel of its own for
every shape, width, dtype, precision, layout and alignment, and a fault of its may be in one of them alone: an assembler lost the
padding of one convolution's way back (honestdp.kernels.hidden). So before a kernel is used it runs on a few synthetic inputs
that lie in memory as the true ones do, and so do tensor operations. Where the two differ by more than rounding can, or the kernel
does not run, tensor operations do its work from then on, and a warning says so. A check reads no record and draws nothing.

The key of a kernel is the description of its synthetic inputs: whatever a compiler makes another kernel for is in it, so that
nothing but a check of its own lets a kernel be used. The size of a lot is in it as far as a kernel depends on it.

Small whole numbers come first: TensorFloat-32 and float32 hold their products and the sums of these without rounding, whatever
the order. So a kernel gives them to the last bit, or it reads, multiplies or adds up something else than it should: no tolerance
hides a wrong number among thousands of right ones, and no rounding looks like a fault, however much of a sum cancels. Then come
numbers with all digits. There the error of a sum of products is at most a factor, by the digits of the precision, times the sum
of their absolute values, which the same operation gives of absolute values.

The trial of a model takes tensor operations (`by_tensor_operations`), and a training compiles no kernel that its steps do not
use. The trial establishes that the layers, linked as they are, give autograd's gradients if each operation gives what it is to
give. That a kernel gives it is found here. A graph is captured after a rehearsal of the same steps, in which everything was asked
for once (honestdp.boundary.capture); a kernel that was not checked by then is not in it, and a warning says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from honestdp.kernels.tensors import EXACT, EXACT_NORMS, NORMS, PLAIN, STAND_IN, Shape, powers
from honestdp.logs import logger

Call = tuple[list[Any], dict[str, Any]]
"""The arguments of an operation, in order and by name."""
Bound = tuple["Tensor | None", "Tensor | None", "Tensor | float"]
"""An output of a kernel, that of its reference, and by how much the two may differ."""
Inputs = Callable[[bool], Call]
"""Makes the synthetic call: of whole numbers, or of numbers with all digits."""
Tolerance = Callable[[bool, Call, list[Any], list[Any]], Iterable[Bound]]
"""Pairs the outputs that are compared, from whether the numbers are whole, the call, and what kernel and reference made of it."""
_VERDICTS: dict[object, bool] = {}
_LATE: set[object] = set()
_BY_TENSORS: ContextVar[bool] = ContextVar("by_tensor_operations", default=False)


@contextmanager
def by_tensor_operations() -> Iterator[None]:
    """Within, tensor operations do what kernels of layers would, so that none is compiled."""
    token = _BY_TENSORS.set(True)
    try:
        yield
    finally:
        _BY_TENSORS.reset(token)


def checked(
    kernel: Callable[..., Any],
    reference: Callable[..., Any],
    key: object,
    tolerance: Tolerance,
    *,
    inputs: Inputs,
    device: torch.device,
    name: str,
) -> bool:
    """Whether `kernel` gives the numbers of `reference`, compared at the first call with this key.

    A kernel that cannot be compared now is not used now, and is compared when it can be.

    Args:
        kernel, reference: The same operation by a kernel and by tensor operations.
        key: Describes all that a compiler makes another kernel for.
        tolerance: Pairs their outputs, and says how far apart they may be.
        inputs: Makes the synthetic arguments.
        device: The device of the kernel.
        name: The name of the kernel in warnings.
    """
    known = (kernel, device, key)
    if known not in _VERDICTS and _can_wait(device):
        _VERDICTS[known] = _agrees(kernel, reference, tolerance, inputs, device, name)
    elif known not in _VERDICTS and known not in _LATE:
        _LATE.add(known)
        _warn(name, "was not checked before a graph was captured", device)
    return _VERDICTS.get(known, False)


@torch.no_grad()
def _agrees(
    kernel: Callable[..., Any],
    reference: Callable[..., Any],
    tolerance: Tolerance,
    inputs: Inputs,
    device: torch.device,
    name: str,
) -> bool:
    try:
        for whole in (True, False):
            with _compiled():
                made = _outputs(kernel, inputs(whole))
            call = inputs(whole)
            for one, other, most in tolerance(whole, call, made, _outputs(reference, call)):
                off = _beyond(one, other, most)
                if off != 0:
                    _warn(name, f"is off from tensor operations by {off:.1e}", device)
                    return False
    except torch.OutOfMemoryError:
        raise
    except Exception as trouble:  # the compiler's, of synthetic inputs: what a step needs is there without it
        _warn(name, f"does not run ({type(trouble).__name__})", device)
        return False
    return True


def _outputs(operation: Callable[..., Any], call: Call) -> list[Any]:
    values, how = call
    made = operation(*values, **how)
    if made is None:  # written to the last argument
        return [values[-1]]
    return list(made) if isinstance(made, tuple) else [made]


def _beyond(made: Tensor | None, right: Tensor | None, most: Tensor | float) -> float:
    """How far a number that is off by more than `most`, or is NaN, is off at the furthest: a share of the largest; else 0."""
    if made is None or right is None or made.shape != right.shape:
        return 0.0 if made is right else math.inf
    apart = (made.double() - right.double()).abs()
    wrong = ~(apart <= most)
    if not bool(wrong.any()):
        return 0.0
    furthest = float(torch.where(wrong, apart, 0).max() / right.double().abs().max().clamp_min(1e-30))
    return furthest if furthest > 0 else math.inf


def _warn(name: str, what: str, device: torch.device) -> None:
    logger("honestdp.kernels").warning("%s %s on %s: tensor operations do it, slower", name, what, device)


def _can_wait(device: torch.device) -> bool:
    """Whether a number can be read from the device now: not while a graph is captured, nor while waiting is an error."""
    waiting_is_an_error = 2
    return device.type != "cuda" or not (
        torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode() == waiting_is_an_error
    )


_LONG = 3.0
"""Seconds of compiling after which a warning says so."""
_spent = 0.0
"""Seconds of first calls of kernels in this process; infinite after the warning."""


@contextmanager
def _compiled() -> Iterator[None]:
    """Warns once where compiling takes long: nearly all of a first call's time is that."""
    global _spent
    began = monotonic()
    yield
    _spent += monotonic() - began
    if _LONG < _spent < math.inf:
        _spent = math.inf
        said = "compiling kernels for this GPU, which may take half a minute; they are kept for the next run"
        logger("honestdp.kernels").warning(said)


_WHOLE = 3
"""The largest synthetic whole number: what is added up of them is far below 2^24, but for squares."""


def numbers(device: torch.device, size: tuple[int, ...], salt: int, *, whole: bool) -> Tensor:
    """The same ones each time, without a pattern: whole from -3 to 3, or between -1 and 1. salt: others for each."""
    place = torch.arange(torch.Size(size).numel(), dtype=torch.int64, device=device) + (salt << 26)
    mixed = place.add(1).mul(2654435761).bitwise_and(0xFFFFFFFF)
    mixed = mixed.bitwise_xor(mixed >> 15).mul(2246822519).bitwise_and(0xFFFFFFFF)
    mixed = mixed.bitwise_xor(mixed >> 13).view(size)
    return (mixed % (2 * _WHOLE + 1) - _WHOLE).double() if whole else mixed.double() / 2**31 - 1


class Like(NamedTuple):
    """A synthetic tensor that lies in memory as a given one does."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...] | None
    """None for contiguous, which gates and kernels make of all that has not four dimensions."""
    beside: int
    """Numbers by which it begins beside a place that a kernel may read by whole lines."""

    @staticmethod
    def of(value: Tensor, size: tuple[int, ...]) -> Like:
        """Like `value`, with fewer runs and examples."""
        stride = value.stride() if value.dim() == 4 else None
        return Like(value.dtype, size, stride, value.data_ptr() % 16 // value.element_size())

    def made(self, device: torch.device, salt: int, *, whole: bool) -> Tensor:
        stride = torch.empty(self.size, device="meta").stride() if self.stride is None else self.stride
        room = 1 + sum((count - 1) * step for count, step in zip(self.size, stride, strict=True)) + self.beside
        apart = 0 not in stride  # else one number stands for several
        made = numbers(device, self.size if apart else (room,), salt, whole=whole and self.dtype.is_floating_point)
        made = (made if self.dtype.is_floating_point else made * 120 + 120).to(self.dtype)
        lying = (made.new_empty(room) if apart else made).as_strided(self.size, stride, self.beside)
        return lying.copy_(made) if apart else lying


def _precision() -> str:
    return torch.get_float32_matmul_precision()


class Checked:
    """Kernels behind their check: each operation, called by its name, by its kernel or by the tensor operations."""

    exact: ClassVar[Any]
    stand_in: ClassVar[Any]

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._called, name)

    def _called(self, name: str, *values: Any, **how: Any) -> Any:
        way = self._kernels if self._agrees(name, values, how) else self.stand_in
        return getattr(way, name)(*values, **how)

    def _agrees(self, name: str, values: Sequence[Any], how: Mapping[str, Any]) -> bool:
        likes = self._likes(name, values, how)
        key = (name, *likes[0], *sorted(likes[1].items()), _precision())
        device = values[0].device

        def inputs(whole: bool) -> Call:
            made = [
                each.made(device, salt, whole=whole) if isinstance(each, Like) else each
                for salt, each in enumerate((*likes[0], *likes[1].values()))
            ]
            call = made[: len(values)], dict(zip(likes[1], made[len(values) :], strict=True))
            return self._filled(name, call, whole)

        kernel, reference = getattr(self._kernels, name), getattr(self.exact, name)
        said = f"{name} of {_shape(values) or 'tensors'} ({_precision()})"
        tolerance = partial(self._tolerance, name)
        return checked(kernel, reference, key, tolerance, inputs=inputs, device=device, name=said)

    def _likes(self, name: str, values: Sequence[Any], how: Mapping[str, Any]) -> Call:
        """The arguments of a synthetic call, a `Like` for every tensor."""
        raise NotImplementedError

    def _filled(self, name: str, call: Call, whole: bool) -> Call:
        """The call, with the values in place that synthetic numbers do not have by themselves."""
        return call

    def _tolerance(self, name: str, whole: bool, call: Call, made: list[Any], right: list[Any]) -> Iterable[Bound]:
        raise NotImplementedError


def _shape(values: Sequence[Any]) -> Shape | None:
    return next((each for each in values if isinstance(each, Shape)), None)


_ROUNDED = 2.0**-21
"""The share of a number that a rounding or two in float32 may change."""
_ADDED = 2.0**-14
"""The share of a sum of squares that adding it up in float32, in another order, may change: of millions of numbers too."""
_BLOCKS = 4096
"""More numbers than a program holds at a time."""
_DEVIATIONS = (0.3, 1e-3)
_CELL = 1.5 * 2.0**52
"""A float64 of this size times a power of two has that power for its last digit: a cell of the grid of noise."""


def few(count: int, most: int = 16) -> int:
    """A smaller count for which a compiler makes the same kernel: one alone and multiples of 16 have kernels of their own."""
    return count if count <= most else most + count % 16


class CheckedPasses(Checked):
    """The small kernels (honestdp.kernels.fused). They go by addresses, so every argument is made contiguous here."""

    exact = stand_in = PLAIN

    def _called(self, name: str, *values: Any, **how: Any) -> Any:
        lying = [value.contiguous() if isinstance(value, Tensor) else value for value in values]
        return super()._called(name, *lying, **how)

    def _likes(self, name: str, values: Sequence[Any], how: Mapping[str, Any]) -> Call:
        sizes: list[tuple[int, ...]] = []
        if name == "gather":
            sizes = [(5, few(values[0].shape[1], _BLOCKS)), (5,), (4,)]
        elif name == "noisy":
            sizes = [(2, few(values[0].shape[1], _BLOCKS))] * 2 + [(2,)]
        elif name == "differs":
            sizes = [(few(values[0].numel()),)] * 2 + [()]
        else:
            examples = few(values[0].shape[0] * values[0].shape[1])
            sizes = [(1, examples, *value.shape[2:]) for value in values]
        likes = [Like.of(value, size) for value, size in zip(values, sizes, strict=False)]
        return [*likes, *values[len(likes) :]], dict(how)

    def _filled(self, name: str, call: Call, whole: bool) -> Call:
        values, how = call
        if name == "gather":
            values[2].copy_(torch.tensor([4, 0, 3, 3]))
        elif name == "noisy":
            values[2].copy_(torch.tensor(_DEVIATIONS))
        elif name == "differs":  # in the first number, then in the last alone
            values[1].copy_(values[0])
            values[1][0 if whole else -1] += 1
            values[2].fill_(False)
        elif name == "outer_square_norms":
            values[1].abs_()  # norms are not below 0
        else:  # the second time one example has weight 0, and it leaves nothing, whatever it is
            values[1].abs_().add_(1)
            if not whole:
                values[1][0, -1], values[0][0, -1] = 0, math.nan
        return values, how

    def _tolerance(self, name: str, whole: bool, call: Call, made: list[Any], right: list[Any]) -> Iterable[Bound]:
        if name == "differs":
            (one, _, flag), _ = call
            same = torch.zeros_like(flag)
            self._kernels.differs(one, one.clone(), same)
            return [(made[0], right[0], 0.0), (same, torch.zeros_like(same), 0.0)]
        if name == "noisy":
            cells = powers(call[0][2]) * call[1]["shift"] / _CELL
            # The product and the sum may be rounded once and not twice: one cell of the grid apart, but on the grid.
            off_grid = (made[0].double() / cells).frac()
            return [(made[0], right[0], cells + _ROUNDED * right[0].abs()), (off_grid, torch.zeros_like(off_grid), 0.0)]
        shares = {"gather": (_ROUNDED, 0.0, _ADDED), "outer_square_norms": (_ADDED,)}.get(name, (_ROUNDED,))
        return [(*each, by * each[1].abs()) for each, by in zip(zip(made, right, strict=True), shares, strict=True)]


_LOT = 3
"""Synthetic examples of a run. Where members are counted all are, and in the second call one fewer of the first run."""
_SUMMED = 40
"""The same for the sum of gradients that were kept, which takes a few at a time and reads ahead."""
_EXACT = float(1 << 24)
"""Whole numbers below it are float32 numbers."""
_SQUARES = 2.0**-18
"""Of a sum of squares, none of which cancel, the share that adding them up in float32 may change: some 64 roundings."""
_PRODUCTS = {"highest": 2.0**-18, "high": 2.0**-9 + 2.0**-20}
"""Of a product the share that its factors' digits may change it by. TensorFloat-32 drops all but 10 binary digits of each factor;
"highest" are three such products of parts, without that of the two remainders."""
_SUM = 2.0**-22
"""The same of one addition to a sum of products in float32, which tensor cores round towards zero."""
_NORMS = 2.0**-14
"""Of the largest number that a kernel of norms gives, how far any may be off."""


class _OfLayers(Checked):
    """Kernels of layers, for the examples of all runs one after the other."""

    roles: ClassVar[dict[str, tuple[str, ...]]]
    """What the first dimensions of an operation's tensors count: "examples" of all runs, "runs", or runs and "lots"."""

    def _agrees(self, name: str, values: Sequence[Any], how: Mapping[str, Any]) -> bool:
        return not _BY_TENSORS.get() and super()._agrees(name, values, how)

    def _likes(self, name: str, values: Sequence[Any], how: Mapping[str, Any]) -> Call:
        roles = dict(enumerate(self.roles[name])) | {"counts": "runs"}
        every: dict[Any, Any] = {**dict(enumerate(values)), **how}
        counted = [len(each) for at, each in every.items() if isinstance(each, Tensor) and roles[at] != "examples"]
        runs = min(2, how.get("runs") or next(iter(counted), 1))
        lot = _SUMMED if name == "sum_rows" else _LOT
        for at, value in every.items():
            if isinstance(value, Tensor):
                ways = {"examples": (runs * lot, *value.shape[1:]), "runs": (runs, *value.shape[1:])}
                every[at] = Like.of(value, ways.get(roles[at], (runs, lot, *value.shape[2:])))
        if "runs" in every:
            every["runs"] = runs
        return [every[at] for at in range(len(values))], {at: every[at] for at in how}


class CheckedNorms(_OfLayers):
    """The kernels of norms of groups (honestdp.kernels.normalisation)."""

    exact, stand_in = EXACT_NORMS, NORMS
    roles: ClassVar = {
        "forward": ("examples", "runs", "runs"),
        "back": ("examples", "examples", "runs", "examples", "examples"),
    }

    def takes(self, x: Tensor, groups: int) -> bool:
        return bool(self._kernels.takes(x, groups))

    def _tolerance(self, name: str, whole: bool, call: Call, made: list[Any], right: list[Any]) -> Iterable[Bound]:
        return [(one, other, _NORMS * other.abs().max()) for one, other in zip(made, right, strict=True)]


class CheckedConvolutions(_OfLayers):
    """The kernels of convolutions (honestdp.kernels.convolution).

    A norm and the sum must be of the same numbers: a gradient whose terms cancel in TensorFloat-32 does not in all digits, and so
    the norm of the one bounds nothing of the other. So gradients that tensor operations have measured are kept for the sum, and
    those that a kernel has measured they sum with its norm at most.
    """

    exact, stand_in = EXACT, STAND_IN
    roles: ClassVar = {
        "forward": ("examples", "runs", "runs"),
        "back": ("examples", "examples", "runs"),
        "unpool": ("examples", "examples"),
        "square_norms": ("examples", "examples", "examples"),
        "sum_rows": ("lots", "lots"),
        "weighted_sum": ("examples", "examples", "examples", "lots"),
    }

    def square_norms(self, *values: Any, **how: Any) -> Any:
        """By tensor operations the gradients are kept, asked for or not."""
        if self._agrees("square_norms", values, how):
            return self._kernels.square_norms(*values, **how)
        return STAND_IN.square_norms(*values, **how | {"keep": True})

    def weighted_sum(self, *values: Any, squares: Tensor | None = None, **how: Any) -> Any:
        if self._agrees("weighted_sum", values, how):
            return self._kernels.weighted_sum(*values, **how)
        return STAND_IN.weighted_sum(*values, squares=squares, **how)

    def _filled(self, name: str, call: Call, whole: bool) -> Call:
        values, how = call
        shape = _shape(values)
        for value in values:
            if shape is not None and isinstance(value, Tensor) and value.dtype == torch.uint8:
                value.remainder_(shape.pool**2)
        if name == "sum_rows" and whole:  # an example without weight may hold NaN
            values[0].masked_fill_((values[1] == 0)[..., None], math.nan)
        if how.get("counts") is not None:
            how["counts"].fill_(_LOT)[0] -= int(not whole)
        return values, how

    def _tolerance(self, name: str, whole: bool, call: Call, made: list[Any], right: list[Any]) -> Iterable[Bound]:
        values, how = call
        shape, by = _shape(values), 0.0
        absolute: list[Any] = [None] * len(right)
        if not whole:
            by = share(name, shape, _precision(), how.get("dtype"))
            large = [each.abs() if isinstance(each, Tensor) else each for each in values]
            absolute = _outputs(getattr(EXACT, name), (large, how))
        if name == "forward" and right[1] is not None and made[1] is not None:
            # Which of a pool's positions: one of which the number is the largest, but for the rounding of both.
            assert shape is not None
            x, weight, bias, _ = values
            best = picked(EXACT.forward(x, weight, bias, shape._replace(pool=1))[0], made[1], shape)
            made, right = [made[0], best.relu() if how.get("relu") else best], [right[0], right[0]]
            absolute[1] = None if whole else 2 * absolute[0]
        for at, (one, other, size) in enumerate(zip(made, right, absolute, strict=True)):
            most: Tensor | float = 0.0 if size is None else by * size.double()
            if name == "square_norms" and at == 0:
                most = of_squares(other, size, by)
            yield _counted(one, other, how.get("counts")), other, most


def _counted(made: Tensor, right: Tensor, counts: Tensor | None) -> Tensor:
    """What was made, but what is right where it is of an example that is not counted: that may be anything."""
    if counts is None or made is None or right is None or made.shape != right.shape:
        return made
    wanted = (torch.arange(_LOT, device=counts.device) < counts[:, None]).flatten()
    rows = (len(wanted), -1)
    return torch.where(wanted[:, None], made.reshape(rows), right.reshape(rows).to(made.dtype)).view(made.shape)


def picked(before: Tensor, chosen: Tensor, shape: Shape) -> Tensor:
    """Of an output before its pool the numbers at the chosen positions."""
    side, (height, width) = shape.pool, shape.pooled
    part = chosen.long()
    rows = torch.arange(height, device=part.device)[:, None] * side + part // side
    index = rows * shape.out_width + torch.arange(width, device=part.device) * side + part % side
    return before.flatten(2).gather(2, index.flatten(2)).view(chosen.shape)


def share(name: str, shape: Shape | None, precision: str, dtype: torch.dtype | None) -> float:
    """The most that numbers with all digits may be off, as a share of the sum of the products' absolute values.

    name: of the operation; precision: as torch names it; dtype: in which `sum_rows` adds up.
    """
    if shape is None or name == "unpool":  # nothing is multiplied
        return 0.0
    if name == "sum_rows":
        return 2.0**-45 if dtype == torch.float64 else 2.0**-20
    holes = shape.kernel[0] * shape.kernel[1]
    terms = {"forward": holes * shape.channels + 1, "back": holes * shape.rows + 1}
    added = terms.get(name, shape.out_height * shape.out_width) * _SUM
    return _PRODUCTS.get(precision, _PRODUCTS["high"]) + added


def of_squares(right: Tensor, absolute: Tensor | None, by: float) -> Tensor:
    """How far the squared norms `right` may be off, by Cauchy and Schwarz.

    absolute: the same of absolute values; None where every number is a whole one. by: how far off the numbers may be of which
    these are norms, as a share of those of absolute values.
    """
    right = right.double()
    if absolute is None:
        return torch.where(right < _EXACT, 0, _SQUARES * right)
    spread = absolute.double()
    return 2 * by * (right * spread).sqrt() + by * by * spread + _SQUARES * right
