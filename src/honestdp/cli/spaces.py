"""Spaces and lists of numbers as words of a command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from honestdp import checks

DEFAULT = "the default"
"""Stands for the optimizer where none is asked for: which it is follows from the data."""


def spaces_of(texts: list[str] | None, optimizers: list[str] | None) -> dict[str, Any] | None:
    """What is to be searched, by optimizer. optimizers: those asked for."""
    optimizers = optimizers or [DEFAULT]
    if not texts:
        return None
    spaces: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = re.fullmatch(r"(?:([\w-]+)\.)?(\w+)=(.+)", text)
        if match is None:
            raise checks.InvalidArgument("space", text, "NAME=VALUES, such as clip=0.1,0.2 or sgd.lr=log:0.001:1")
        optimizer, name, values = match.groups()
        if optimizer is not None and optimizer not in optimizers:
            raise checks.InvalidArgument("space", text, f"for one of the optimizers asked for: {', '.join(optimizers)}")
        for each in [optimizer] if optimizer else optimizers:
            if name in spaces.setdefault(each, {}):
                raise checks.InvalidArgument("space", text, f"{name} once, with all its values: {name}=A,B,C")
            spaces[each][name] = _values(text, values)
    return spaces


def _values(text: str, values: str) -> Any:
    from honestdp.search.space import LogUniform, Uniform

    try:
        law = re.fullmatch(r"(log|uniform):([^:]+):([^:]+)", values)
        if law is not None:
            return {"log": LogUniform, "uniform": Uniform}[law[1]](float(law[2]), float(law[3]))
        return [_value(one) for one in values.split(",")]
    except (ValueError, OverflowError) as trouble:
        laws = "log:LOW:HIGH or uniform:LOW:HIGH with LOW below HIGH"
        wanted = f"NAME=VALUES with finite numbers: a list 0.1,0.2 or {laws}"
        raise checks.InvalidArgument("space", text, wanted) from trouble


def _value(text: str) -> Any:
    words = {"auto": "auto", "true": True, "false": False, "half": "half", "full": "full"}
    if (word := text.strip().lower()) in words:
        return words[word]
    number = float(text)
    return int(number) if number == int(number) and "." not in text and "e" not in text.lower() else number


def by_class(argument: str, text: str | None, classes: Sequence[object]) -> list[float] | str | None:
    """A number for each class, as no=0.9,yes=0.1 or in the order of the classes; or the word balanced."""
    if text is None or text == "balanced":
        return text
    named = [part.rpartition("=") for part in text.split(",")]
    labels = [str(label) for label in classes]
    wanted = f"a number for each class, such as {','.join(f'{label}=0.5' for label in labels[:3])}"
    try:
        numbers = {name.strip() or place: float(number) for place, (name, _, number) in enumerate(named)}
    except ValueError as trouble:
        raise checks.InvalidArgument(argument, text, wanted) from trouble
    if set(numbers) <= set(range(len(named))):
        return list(numbers.values())
    if len(named) != len(labels) or set(numbers) != set(labels):
        raise checks.InvalidArgument(argument, text, wanted)
    return [numbers[label] for label in labels]
