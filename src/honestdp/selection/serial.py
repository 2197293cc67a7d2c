"""Selections as plain dictionaries, exactly, and back. What is not known is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from honestdp import checks
from honestdp.selection.compose import Compose
from honestdp.selection.counts import Binomial, Count, Poisson, TruncatedNegativeBinomial
from honestdp.selection.liu_talwar import LiuTalwar
from honestdp.selection.random_stopping import RandomStopping
from honestdp.selection.winner import Winner

PLAIN = {"compose": Compose, "winner": Winner, "liu-talwar": LiuTalwar}
LAWS = {"truncated-negative-binomial": TruncatedNegativeBinomial, "poisson": Poisson, "binomial": Binomial}
RANDOM_STOPPING = "random-stopping"


def write_selection(selection: object) -> dict[str, Any]:
    """The selection for JSON."""
    if isinstance(selection, RandomStopping):
        return {"kind": RANDOM_STOPPING, "bound": selection.bound, "count": _write("law", LAWS, selection.count)}
    return _write("kind", PLAIN, selection)


def read_selection(written: Mapping[str, Any]) -> Compose | Winner | LiuTalwar | RandomStopping:
    """The selection that was written."""
    if written.get("kind") == RANDOM_STOPPING:
        if set(written) != {"kind", "bound", "count"}:
            raise checks.InvalidArgument("selection", sorted(written), "made of kind, bound and count")
        count: Count = _read("law", LAWS, written["count"])
        return RandomStopping(count=count, bound=written["bound"])
    selection: Compose | Winner | LiuTalwar = _read("kind", PLAIN, written)
    return selection


def _write(label: str, classes: Mapping[str, type], value: Any) -> dict[str, Any]:
    name = next((name for name, known in classes.items() if type(value) is known), None)
    if name is None:
        raise checks.InvalidArgument("selection", value, "one that honestdp knows: " + ", ".join(classes))
    return {label: name, **asdict(value)}


def _read(label: str, classes: Mapping[str, type], written: Mapping[str, Any]) -> Any:
    known = classes.get(str(written.get(label)))
    if known is None:
        raise checks.InvalidArgument(label, written.get(label), "one of " + ", ".join(classes))
    names = {field.name for field in fields(known)}
    if set(written) != {label, *names}:
        raise checks.InvalidArgument(label, sorted(written), "made of " + ", ".join(sorted(names)))
    return known(**{name: written[name] for name in names})
