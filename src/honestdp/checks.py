"""Checks of arguments and of the number of processes, and the two base errors `HonestdpError` and `InvalidArgument`. A check of
arguments takes keyword arguments, so that the error names the argument, its value and the way out."""

import inspect
import math
import operator
import os
from collections.abc import Callable
from functools import wraps
from numbers import Integral, Real
from typing import ParamSpec, TypeGuard, TypeVar

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


class HonestdpError(ValueError):
    """What a user can mend: its message is all that the command line prints."""


class InvalidArgument(HonestdpError):
    """An argument that no calculation or training can be made from. `argument` is its name."""

    def __init__(self, argument: str, value: object, wanted: str) -> None:
        self.argument = argument
        self.value = value
        self.wanted = wanted
        super().__init__(f"{argument} must be {wanted}, got {shown(value)}")


_LONGEST = 400
"""Letters of a value in a message."""


def shown(value: object) -> str:
    """The value as a message has it: by its name or its class where its repr has an address in it, or is a page.

    >>> shown([1, 2]), shown(object()), shown(math.sqrt)
    ('[1, 2]', 'object', 'sqrt')
    """
    text = repr(value)
    if isinstance(value, str) or not (text.startswith("<") or " at 0x" in text or "\n" in text or len(text) > _LONGEST):
        return text
    return str(getattr(value, "__qualname__", type(value).__qualname__))


_IN_A_RUN = "a number of the Run: run=honestdp.Run(records=, lot=, steps= or epochs=, noise=)"
_COMPUTE = "a setting of the machine: compute=honestdp.Compute(device=, workers=, progress=, checkpoint=)"
_BUDGET = "part of the budget: budget=honestdp.Budget(epsilon, delta)"
_CLIP = "clip= of the optimizer, such as honestdp.optimizers.SGD(lr=0.1, clip=1.0)"
_ELSEWHERE = {
    **dict.fromkeys(("records", "lot", "steps", "epochs", "noise"), _IN_A_RUN),
    **dict.fromkeys(("device", "workers", "num_workers", "progress", "checkpoint"), _COMPUTE),
    **dict.fromkeys(("epsilon", "target_epsilon", "target_delta"), _BUDGET),
    **dict.fromkeys(("clip", "max_grad_norm", "l2_norm_clip", "clipping_norm"), _CLIP),
    **dict.fromkeys(
        ("lr", "learning_rate", "momentum"), "a number of the optimizer, such as optimizer=SGD(lr=0.1, clip=1.0)"
    ),
    "batch_size": "lot=, the expected number of records in a step, a number of the Run",
    "sample_rate": "lot= of the Run, which is the rate times the number of records",
    "noise_multiplier": "noise= of the Run",
    "n_trials": "candidates=, the number of settings that are drawn from the space",
    "criterion": "loss=",
    "data_loader": "data, the second argument: the loader's dataset, since lots are drawn here",
}
"""Arguments under the names and in the places of other libraries, and what they are here."""


def hinted(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """The function, whose TypeError for an unknown argument says where that argument belongs."""
    known = inspect.signature(function).parameters.keys()

    @wraps(function)
    def called(*args: Parameters.args, **named: Parameters.kwargs) -> Returned:
        for name in named:
            if name not in known and name in _ELSEWHERE:
                called_by = function.__qualname__.removesuffix(".__init__")
                raise TypeError(f"{called_by}() has no argument {name!r}: it is {_ELSEWHERE[name]}")
        return function(*args, **named)

    return called


def is_number(value: object) -> TypeGuard[Real]:
    """Whether it is a real number of any library; a boolean is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _each(arguments: dict[str, object], wanted: str, holds: Callable[[float], bool]) -> None:
    for name, value in arguments.items():
        if not (is_number(value) and math.isfinite(value) and holds(float(value))):
            raise InvalidArgument(name, value, wanted)


def finite(**arguments: object) -> None:
    _each(arguments, "a finite number", lambda value: True)


def positive(**arguments: object) -> None:
    _each(arguments, "a finite number above 0", lambda value: value > 0)


def non_negative(**arguments: object) -> None:
    _each(arguments, "a finite number of at least 0", lambda value: value >= 0)


def probability(**arguments: object) -> None:
    _each(arguments, "strictly between 0 and 1", lambda value: 0 < value < 1)


MOST = 10**18  # records, steps, candidates and runs: more than any machine counts to, and few enough for every formula


def whole(*, least: int, most: int | None = None, **arguments: object) -> None:
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise InvalidArgument(name, value, f"a whole number of at least {least}")
        if most is not None and int(value) > most:
            raise InvalidArgument(name, value, f"a whole number of at most {most:.0e}")


def one_of(choices: tuple[str, ...], **arguments: object) -> None:
    for name, value in arguments.items():
        if value not in choices:
            raise InvalidArgument(name, value, "one of " + ", ".join(choices))


def seed(*, noise_seed: object) -> int:
    """A user's seed as a plain number."""
    wanted = "a whole number of 64 bits, or None"
    try:
        number = operator.index(noise_seed)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument("noise_seed", noise_seed, wanted) from None
    if isinstance(noise_seed, bool) or not -(1 << 63) <= number < 1 << 63:
        raise InvalidArgument("noise_seed", noise_seed, wanted)
    return number


def started_together() -> int:
    """How many processes torchrun has started, or torch.distributed was initialised with; 1 for a process by itself."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return int(dist.get_world_size())
    said = os.environ.get("WORLD_SIZE", "1")
    if not said.isdecimal() or int(said) < 1:
        raise InvalidArgument("WORLD_SIZE", said, "a whole number of processes, as torchrun sets it in the environment")
    return int(said)


def refuse_many(what: str, way_out: str) -> None:
    """For a question that has one answer and one charge: each process of torchrun would ask it, with noise of its own, and that
    is as many answers as there are processes, whether or not there is a ledger.
    """
    size = started_together()
    if size > 1:
        wanted = (
            f"1 for {what}: each process would ask by itself, get an answer of its own and be charged for it; {way_out}"
        )
        raise InvalidArgument("the number of processes started together", size, f"{wanted}. Nothing was charged")
