"""Papers, and their figures and tables by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from honestdp.errors import HonestdpError
from honestdp_papers.claims import Outcome
from honestdp_papers.parts import Finished, Part

PAPERS = ("mohapatra2022", "koskela2020", "galli2024")


@dataclass(frozen=True)
class Item:
    """A figure, table or theorem.

    about: what it shows, in a line. parts: its long work, quick or in full; none where everything is quick.
    finish: numbers, claims and the figure from the parts; `quick` says which parts they are.
    """

    name: str
    about: str
    finish: Callable[[Finished, bool], Outcome]
    parts: Callable[[bool], Sequence[Part]] = lambda quick: ()


@dataclass(frozen=True)
class Replay:
    """A cheap part that `honestdp papers replay` makes again.

    item: one that the part belongs to. path: the code that the part stands for, in words. repeats: the axis of the independent
    repeats in the part's arrays. gpu: whether it takes a GPU.
    """

    item: str
    part: str
    path: str
    repeats: int = 0
    gpu: bool = False


@dataclass(frozen=True)
class Paper:
    """A paper. chapters: its contributions, and the names of the items that judge each."""

    name: str
    title: str
    citation: str
    items: tuple[Item, ...]
    chapters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    replays: tuple[Replay, ...] = ()

    @property
    def head(self) -> str:
        """Settings and words, which stand at the head of the page: `head.md` of the paper's package."""
        file = Path(__file__).parent / self.name / "head.md"
        return file.read_text() if file.is_file() else ""

    def item(self, name: str) -> Item:
        for item in self.items:
            if item.name == name:
                return item
        known = ", ".join(f"{self.name}/{item.name}" for item in self.items)
        raise HonestdpError(f"PAPER/NAME must be one of {known}; got {self.name}/{name}")


def item(
    package: str, name: str, about: str, module: str, finish: str = "", *, parts: str = "", **settings: object
) -> Item:
    """An item whose functions are in a module of a paper's package, imported when they are called: `finish` may need more
    than a bare GPU machine has.

    finish: the function that finishes it; if left out, that of the item's name. parts: the function that lists its parts, or
    `module.function` where these are in another module; none if left out. settings: given to both of them.
    """

    def finished(kept: Finished, quick: bool) -> Outcome:
        found: Outcome = _function(package, module, finish or name.replace("-", "_"))(kept, quick, **settings)
        return found

    def listed(quick: bool) -> Sequence[Part]:
        place, _, function = parts.rpartition(".")
        found: Sequence[Part] = _function(package, place or module, function)(quick, **settings) if parts else ()
        return found

    return Item(name, about, finished, listed)


def _function(package: str, module: str, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(importlib.import_module(f"{package}.{module}"), name)
    return function


def paper(name: str) -> Paper:
    if name not in PAPERS:
        raise HonestdpError(f"PAPER must be a paper's name ({', '.join(PAPERS)}); got {name}")
    found: Paper = importlib.import_module(f"honestdp_papers.{name}").PAPER
    return found


def lookup(name: str) -> tuple[Paper, list[Item]]:
    """`paper/item`, or `paper` for all of its items."""
    first, of_one, second = name.partition("/")
    found = paper(first)
    return found, [found.item(second)] if of_one else list(found.items)


def parts_folder(out: Path, paper: str, quick: bool) -> Path:
    return out / paper / ("parts-quick" if quick else "parts")


def result_file(out: Path, paper: str, item: str, quick: bool) -> Path:
    return out / paper / f"{item}{'-quick' if quick else ''}.json"
