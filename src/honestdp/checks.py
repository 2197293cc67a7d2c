"""Checks of arguments and of the number of processes, and the two base errors `HonestdpError` and `InvalidArgument`. A check of
arguments takes keyword arguments, so that the error names the argument, its value and the way out."""

import math
import operator
import os
from collections.abc import Callable
from numbers import Integral, Real


class HonestdpError(ValueError):
    """What a user can mend: its message is all that the command line prints."""


class InvalidArgument(HonestdpError):
    """An argument that no calculation or training can be made from. `argument` is its name."""

    def __init__(self, argument: str, value: object, wanted: str) -> None:
        self.argument = argument
        self.value = value
        self.wanted = wanted
        super().__init__(f"{argument} must be {wanted}, got {value!r}")


def _each(arguments: dict[str, object], wanted: str, holds: Callable[[float], bool]) -> None:
    for name, value in arguments.items():
        if isinstance(value, bool) or not (isinstance(value, Real) and math.isfinite(value) and holds(float(value))):
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
