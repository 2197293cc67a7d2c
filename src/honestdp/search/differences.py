"""In what a search that is asked for differs from the one in its folder, in the words of whoever asks."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

from honestdp.search.wording import TEXT

_LATER = {"selection", "candidates"}  # settings that earlier versions did not write
_COMPARED_ELSEWHERE = tuple(f"--{name}" for name in ("schema", "target"))
"""Options of a command: what is declared is in the digest of the table, whatever its file is called."""


def differences(written: Mapping[str, Any], settings: Mapping[str, Any], besides: tuple[str, ...] = ()) -> set[str]:
    """written: of `search.json`, without its key. besides: settings that are not compared. What a search spends is left out
    where its settings do not say it.
    """
    names = {*settings, *(written.keys() - {"spending"})} - (_LATER - written.keys()) - {TEXT, *besides}
    others = {name for name in names if written.get(name) != settings.get(name)}
    if "space" in others and [*written["space"]] != [*settings["space"]]:
        others.add(f"the optimizer ({', '.join(written['space'])} and not {', '.join(settings['space'])})")
    then, now = (str(each.get("reproduce", "")) for each in (written, settings))
    if "reproduce" in others:
        others.discard("reproduce")
        others |= set() if _meant(then) == _meant(now) else {f"the command, or reproduce ({then!r} and not {now!r})"}
    if "data" in others:
        others.discard("data")
        of_a_table = any("by the table" in str(each.get("data")) for each in (written, settings))
        others.add("data (what the schema declares)" if of_a_table else "data (shape or type of a record)")
    return others


def _meant(command: str) -> list[str] | str:
    """A command without what is compared by its content, each file in it by one spelling; a text of another kind as it is."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    if words[:2] != ["honestdp", "tune"]:
        return command
    there = [place for place, word in enumerate(words) if word in _COMPARED_ELSEWHERE]
    left_out = {*there, *(place + 1 for place in there)}
    kept = [word for place, word in enumerate(words) if place not in left_out]
    return [os.path.realpath(word) if os.path.exists(word) else word for word in kept]
