"""Checks of arguments. Each takes keyword arguments, so that the error names the argument, its value and the way out."""

import math
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


def _finite_number(name: str, value: object, wanted: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InvalidArgument(name, value, wanted)
    return float(value)


def finite(**arguments: object) -> None:
    for name, value in arguments.items():
        _finite_number(name, value, "a finite number")


def positive(**arguments: object) -> None:
    for name, value in arguments.items():
        wanted = "a finite number above 0"
        if _finite_number(name, value, wanted) <= 0:
            raise InvalidArgument(name, value, wanted)


def non_negative(**arguments: object) -> None:
    for name, value in arguments.items():
        wanted = "a finite number of at least 0"
        if _finite_number(name, value, wanted) < 0:
            raise InvalidArgument(name, value, wanted)


def probability(**arguments: object) -> None:
    """Strictly between 0 and 1."""
    for name, value in arguments.items():
        wanted = "strictly between 0 and 1"
        if not 0 < _finite_number(name, value, wanted) < 1:
            raise InvalidArgument(name, value, wanted)


def whole(*, least: int, **arguments: object) -> None:
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise InvalidArgument(name, value, f"a whole number of at least {least}")


def one_of(choices: tuple[str, ...], **arguments: object) -> None:
    for name, value in arguments.items():
        if value not in choices:
            raise InvalidArgument(name, value, "one of " + ", ".join(choices))
