"""The catalogue of selections: the one list that planner, search, ledger, reports and command line go by.

To add a selection, write its class against `honestdp.selection.contract` and `register` it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from honestdp import checks
from honestdp.selection.compose import Compose
from honestdp.selection.contract import Selection
from honestdp.selection.liu_talwar import LiuTalwar
from honestdp.selection.random_stopping import RandomStopping
from honestdp.selection.winner import Winner

CATALOGUE: dict[str, type[Selection]] = {}
"""What users call each selection, in the order in which selections are listed."""


def register(new: type[Selection]) -> None:
    """Put a selection into the catalogue. Its kind and its names must be new, or files and users would mean two things."""
    taken = {"auto", *CATALOGUE, *(known.kind for known in CATALOGUE.values())}
    for name in (new.kind, *new.names):
        if name in taken:
            raise checks.InvalidArgument("selection", name, "a name that no other selection has")
    CATALOGUE.update(dict.fromkeys(new.names or (new.kind,), new))


for _known in (Compose, Winner, LiuTalwar, RandomStopping):
    register(_known)


def names() -> tuple[str, ...]:
    """What users call the selections."""
    return tuple(CATALOGUE)


def class_of(name: str) -> type[Selection]:
    """The class of the selection of this name."""
    checks.one_of(names(), selection=name)
    return CATALOGUE[name]


def classes() -> dict[type[Selection], list[str]]:
    """Every class once, with its names."""
    found: dict[type[Selection], list[str]] = {}
    for name, known in CATALOGUE.items():
        found.setdefault(known, []).append(name)
    return found


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
    if known.each_once and runs not in (None, candidates):
        raise checks.InvalidArgument("runs", runs, f"left out for {name}, which runs every candidate once")
    asked = {"shape": shape, "accountant": accountant, "identical": identical or None}
    settings = {setting: value for setting, value in asked.items() if value is not None}
    made = known.of(
        name, candidates if runs is None else runs, **{s: settings[s] for s in known.takes if s in settings}
    )
    for setting, value in settings.items():
        if setting not in known.takes and getattr(made, setting, None) != value:
            own = f"{made.accountant}, or " if setting == "accountant" else ""
            raise checks.InvalidArgument(setting, value, f"{own}left out for {name}")
    return made


def one_run(accountant: str = "pld") -> Selection:
    """No search at all: what one run costs by itself."""
    return Compose(candidates=1, accountant=accountant)


def read(written: Mapping[str, Any]) -> Selection:
    """The selection that `as_dict` wrote. A kind that is not in the catalogue is refused."""
    kinds = {known.kind: known for known in CATALOGUE.values()}
    if written.get("kind") not in kinds:
        raise checks.InvalidArgument("kind", written.get("kind"), "one of " + ", ".join(kinds))
    return kinds[written["kind"]].from_dict(written)
