"""The catalogue of selections: the one list that planner, search, ledger, reports and command line go by.

To add a selection, write its class against `honestdp.selection.contract` and name it in `CLASSES`, or `register` it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from honestdp import checks
from honestdp.selection.compose import Compose
from honestdp.selection.contract import Options, Selection, Series
from honestdp.selection.liu_talwar import LiuTalwar
from honestdp.selection.random_stopping import RandomStopping
from honestdp.selection.winner import Winner

CLASSES: list[type[Selection]] = [Compose, Winner, LiuTalwar, RandomStopping]
"""In the order in which they are listed."""


@contextmanager
def registered(new: type[Selection]) -> Iterator[None]:
    """With one more selection in the catalogue."""
    register(new)
    try:
        yield
    finally:
        CLASSES.remove(new)


def register(new: type[Selection]) -> None:
    """Put a selection into the catalogue. Its kind and its names must be new, or files and users would mean two things."""
    taken = {name for known in CLASSES for name in (known.kind, *known.names)}
    for name in (new.kind, *new.names):
        if name in taken or name == "auto":
            raise checks.InvalidArgument("selection", name, "a name that no other selection has")
    CLASSES.append(new)


def names() -> tuple[str, ...]:
    """What users call the selections."""
    return tuple(name for known in CLASSES for name in known.names or (known.kind,))


def class_of(name: str) -> type[Selection]:
    """The class of the selection of this name."""
    checks.one_of(names(), selection=name)
    return next(known for known in CLASSES if name in (known.names or (known.kind,)))


def named(
    name: str,
    *,
    candidates: int = 1,
    runs: float | None = None,
    shape: float | str | None = None,
    accountant: str | None = None,
    identical: bool = False,
) -> Selection:
    """The selection of this name.

    candidates: the runs that are composed, or the grid that has one winner; 1/gamma for liu-talwar; the mean number of runs
        of random stopping unless `runs` says otherwise.
    shape: of random stopping's count: a number above -1 (0 logarithmic, 1 geometric) or "poisson"; geometric if left out.
    accountant: where the selection leaves a choice.
    identical: whether all candidates of `winner` have one law.
    """
    known = class_of(name)
    checks.whole(least=1, most=checks.MOST, candidates=candidates)
    if runs is not None:
        checks.positive(runs=runs)
    options = Options(candidates=candidates, runs=runs, shape=shape, accountant=accountant, identical=identical)
    return known.make(name, options)


def one_run(accountant: str = "pld") -> Selection:
    """No search at all: what one run costs by itself."""
    return Compose(candidates=1, accountant=accountant)


def read(written: Mapping[str, Any]) -> Selection:
    """The selection that `as_dict` wrote. A kind that is not in the catalogue is refused."""
    known = next((known for known in CLASSES if known.kind == written.get("kind")), None)
    if known is None:
        wanted = "one of " + ", ".join(known.kind for known in CLASSES)
        raise checks.InvalidArgument("kind", written.get("kind"), wanted)
    return known.from_dict(written)


def variants(*, candidates: int, coverage: float, mean_runs: float) -> list[tuple[str, Selection]]:
    """Every selection worth comparing, with its footing. With one candidate there is nothing to draw from."""
    return [
        variant
        for known in CLASSES
        for variant in known.variants(candidates=candidates, coverage=coverage, mean_runs=mean_runs)
        if candidates > 1 or known.each_once
    ]


def typical(*, candidates: int, coverage: float, like: Sequence[Selection]) -> list[Selection]:
    """Every method once. like: selections whose settings are taken, the first that fits."""
    return [one for known in CLASSES for one in known.typical(candidates=candidates, coverage=coverage, like=like)]


def series(*, coverage: float) -> list[Series]:
    """The lines of a chart of epsilon against candidates, for every selection."""
    return [line for known in CLASSES for line in known.series(coverage=coverage)]
