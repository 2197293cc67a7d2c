"""The page of a paper, made from its results: what was found, settings, a summary, then every claim beside our numbers.

Pages for practitioners have computed sentences: what a full-size result concludes stands between two marks.

    <!-- galli2024/honest -->
    ...
    <!-- /galli2024/honest -->

`honestdp papers document galli2024` writes the page of the paper and fills these places, so that what a page advises
follows the numbers.
"""

from __future__ import annotations

import os
import re
import string
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from honestdp.errors import HonestdpError
from honestdp_papers.claims import NUMBERS, OURS, RULE, SENTENCE, VERDICTS
from honestdp_papers.parts import replays, write_whole
from honestdp_papers.registry import Item, Paper, result_file
from honestdp_papers.replay import outcome
from honestdp_papers.results import kept_result

KINDS = (SENTENCE, NUMBERS, OURS)
Found = list[tuple[Item, dict[str, Any] | None]]
SUMMED = {
    "holds": "Hold",
    "holds in part": "Hold in part",
    "does not hold": "Do not hold",
    "cannot be told": "Cannot be told",
}


def page(paper: Paper, *, out: Path, beside: Path) -> str:
    """The page as markdown, with links to figures relative to `beside`, the page's file."""
    found: Found = [(item, kept_result(paper, item, out=out, quick=False)) for item in paper.items]
    if all(result is None for _, result in found):
        raise HonestdpError(
            f"no full-size result of {paper.name} is in {out}: honestdp papers run {paper.name}/NAME --anew makes them"
        )
    commands, replayed = _commands(found), replays(out / paper.name)
    lines = [
        f"# {paper.title}",
        "",
        f"{paper.citation}. Every number and verdict on this page comes from the results in `{_folder(out, paper)}`; "
        f"`honestdp papers document {paper.name}` writes the page. [How to run it](../README.md), whole or in small.",
        "",
        "Curves over test data and repeats evaluate the reproduction on public data. No budget covers them: a practitioner who "
        "looked at them would have to pay for them.",
        "",
        "## In short",
        "",
        *_in_short(found, replayed),
        "",
        paper.head,
        "## What the paper got right, and what not",
        "",
        RULE,
        "",
        *_shares(found, paper.chapters),
        "Sentences and printed numbers of the paper by their verdicts. One that is judged at several noises, by several criteria "
        "or by several readings counts once for each: a line with two links counts twice.",
        "",
        *_summary(found, paper.chapters),
        *_contents(found),
    ]
    for item, result in found:
        lines += ["", f"## {item.name}", "", item.about if item.about.endswith("?") else f"{item.about}."]
        if result is None:
            lines += ["", f"Not run in full size yet: `honestdp papers run {paper.name}/{item.name} --anew`."]
            continue
        figure = result_file(out, paper.name, item.name, False).with_suffix(".png")
        lines += _section(result, Path(os.path.relpath(figure, beside.parent)).as_posix(), commands)
    lines += _untrained(found)
    lines += _replays(paper, replayed)
    if commands:
        lines += ["", "## How the parts were made", ""]
        lines += [
            "Figures share parts, and the times above count a part in every figure that it is in. The commands that made them:",
            "",
            *(f"- **{letter}**: `{command}`" for command, letter in commands.items()),
        ]
    return "\n".join(lines) + "\n"


def _in_short(found: Found, replayed: dict[str, dict[str, Any]]) -> list[str]:
    """What was found: how many claims of the paper have which verdict, which sentences do not hold, and what follows."""
    results = [(item.name, result) for item, result in found if result is not None]
    claims = [(name, claim) for name, result in results for claim in result["claims"]]
    lines = []
    for kind, what in ((SENTENCE, "sentences of the paper"), (NUMBERS, "printed numbers")):
        own = [claim["verdict"] for _, claim in claims if claim.get("kind", SENTENCE) == kind]
        if own:
            said = ", ".join(f"{own.count(verdict)} {words.lower()}" for verdict, words in SUMMED.items())
            lines.append(f"- Of {len(own)} {what}: {said} ([which](#what-the-paper-got-right-and-what-not)).")
    if replayed:
        differ = sum(one["differs"] for one in replayed.values())
        equal = f"{len(replayed) - differ} of them equal, {differ} different" if differ else "all of them equal"
        lines.append(
            f"- {len(replayed)} of the kept trainings were made again by later code: {equal} ([how](#replays))."
        )
    lacking = {part for _, result in results for part in result["made"].get("missing", [])}
    if lacking:
        lines.append(f"- {len(lacking)} parts are not trained yet ([which](#what-is-not-trained-yet)).")
    failed: dict[str, list[str]] = {}
    for name, claim in claims:
        if claim.get("kind", SENTENCE) == SENTENCE and claim["verdict"] == "does not hold":
            failed.setdefault(claim["claim"], []).append(f"[{name}](#{name})")
    if failed:
        lines += ["- Sentences that do not hold:"]
        lines += [f"  - {claim} ({', '.join(links)})" for claim, links in failed.items()]
    for name, result in results:
        lines += [f"- {said} ([{name}](#{name}))" for said in result["numbers"].get("conclusions", [])[:1]]
    return ["Names are explained in [words](#words).", "", *lines]


def _folder(out: Path, paper: Paper) -> str:
    return (out / paper.name).as_posix()


def _commands(found: Found) -> dict[str, str]:
    """The commands that trained, each with a letter to name it by, or two."""
    each = {command: None for _, result in found if result for command in result["made"]["training by"]}
    letters = string.ascii_uppercase
    return dict(zip(each, [*letters, *(a + b for a in letters for b in letters)], strict=False))


def _summary(found: Found, chapters: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """The paper's sentences and printed numbers by chapter and verdict; claims of our own are in the sections."""
    results = {item.name: result for item, result in found if result is not None}
    lines = []
    for title, names in chapters:
        told = [(name, claim) for name in names if name in results for claim in results[name]["claims"]]
        papers = [(name, claim) for name, claim in told if claim.get("kind", SENTENCE) != OURS]
        if not papers:
            continue
        lines += [f"**{title}**", ""]
        for verdict, words in SUMMED.items():
            own = [(name, _named(claim)) for name, claim in papers if claim["verdict"] == verdict]
            places: dict[str, list[str]] = {}
            for name, claim in own:
                places.setdefault(claim, []).append(f"[{name}](#{name})")
            if own:
                lines += [f"- {words} ({len(own)} of {len(papers)}):"]
                lines += [f"  - {claim} ({', '.join(links)})" for claim, links in places.items()]
        lines.append("")
    return lines


def _named(claim: dict[str, Any]) -> str:
    return f"{'Printed numbers: ' if claim.get('kind') == NUMBERS else ''}{claim['claim']}"


def _shares(found: Found, chapters: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """How many of the paper's claims, and of ours, have which verdict, by chapter."""
    results = {item.name: result for item, result in found if result is not None}
    rows = []
    for title, names in chapters:
        claims = {"claims": [claim for name in names if name in results for claim in results[name]["claims"]]}
        if claims["claims"]:
            rows.append([title, *(_tally(claims, kind) for kind in KINDS)])
    header = ["", "sentences: hold / in part / not / cannot be told", "printed numbers", "ours"]
    return [*markdown_table(header, rows), ""] if rows else []


def _contents(found: Found) -> list[str]:
    """Every result, and how many of its claims have which verdict, by what kind of claim they are."""
    header = ["", "shows", "sentences: hold / in part / not / cannot be told", "printed numbers", "ours"]
    rows = [
        [f"[{item.name}](#{item.name})", item.about, *(_tally(result, kind) for kind in KINDS)]
        for item, result in found
    ]
    return markdown_table(header, rows)


def _tally(result: dict[str, Any] | None, kind: str) -> str:
    if result is None:
        return "not run yet"
    verdicts = [claim["verdict"] for claim in result["claims"] if claim.get("kind", SENTENCE) == kind]
    return " / ".join(str(verdicts.count(verdict)) for verdict in VERDICTS) if verdicts else ""


def _section(result: dict[str, Any], figure: str, commands: dict[str, str]) -> list[str]:
    who = {SENTENCE: "the paper, a sentence", "numbers": "the paper, numbers", "ours": "ours"}
    rows = [[who[c.get("kind", SENTENCE)], c["claim"], c["found"], c["verdict"]] for c in result["claims"]]
    lines = ["", *markdown_table(["whose", "claim", "found", "verdict"], rows)]
    if "figure" in result:
        lines += ["", f"![{result['about']}]({figure})"]
    for table in result["tables"]:
        lines += ["", f"{table['title']}:", "", *markdown_table(table["header"], table["rows"])]
    if result["notes"]:
        lines += ["", *(f"- {note}" for note in result["notes"])]
    return [*lines, "", _made(result["made"], commands)]


def _made(made: dict[str, Any], commands: dict[str, str]) -> str:
    how = f"`{made['command']}`"
    letters = [commands[command] for command in made["training by"] if command in commands]
    if letters:
        how += f", from parts made by {', '.join(letters)} ([commands](#how-the-parts-were-made))"
    seconds = made["seconds of training"] + made["seconds of the rest"]
    packages = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    said = f"Made by {how} on {', '.join(made['device'])} in {seconds:.0f} s ({packages}; {made['on']})."
    if made.get("missing"):
        said += f" Not trained: {_several(made['missing'])}."
    return said


def _several(names: Sequence[str], most: int = 6) -> str:
    """Names of parts; where there are many, how many there are of each beginning."""
    if len(names) <= most:
        return ", ".join(f"`{name}`" for name in names)
    beginnings = Counter("/".join(name.split("/")[:2]) for name in names)
    return f"{len(names)} parts, " + ", ".join(f"{count} of `{name}`" for name, count in beginnings.items())


def _untrained(found: Found) -> list[str]:
    """Every part that an item lacks, by their folders."""
    lacking = {name: None for _, result in found if result for name in result["made"].get("missing", [])}
    if not lacking:
        return []
    folders: dict[str, list[str]] = {}
    for name in lacking:
        folder, _, last = name.rpartition("/")
        folders.setdefault(folder, []).append(last)
    alike: dict[tuple[str, str], list[str]] = {}
    for folder, names in folders.items():
        alike.setdefault((folder.rpartition("/")[0], ", ".join(names)), []).append(f"`{folder}`")
    return [
        "",
        "## What is not trained yet",
        "",
        f"{len(lacking)} parts, for want of time on a GPU. What is above is made without them, and says so where it matters; "
        "`honestdp papers run --anew` trains what is missing.",
        "",
        *(f"- {', '.join(places)}: {names}" for (_, names), places in alike.items()),
    ]


def _replays(paper: Paper, replayed: dict[str, dict[str, Any]]) -> list[str]:
    """One part of each code path, and what came out when it was made again."""
    if not paper.replays:
        return []
    rows = []
    for one in paper.replays:
        found = replayed.get(one.part)
        said = "not yet: it takes a GPU" if one.gpu else "not yet"
        where = ("", "") if found is None else (found["made on"], found["replayed on"])
        rows.append([one.path, f"`{one.part}`", *where, said if found is None else outcome(found)])
    return [
        "",
        "## Replays",
        "",
        "The code has changed since the parts were trained. One part of each code path is made again by the code of a later day "
        f"and compared with the part that is kept (`honestdp papers replay {paper.name}`). On the same kind of device the draws "
        "are the same, and every number is compared, by its difference as a part of the larger one. A GPU draws other noise than "
        "a CPU; there only the means are compared, against the standard errors of the repeats.",
        "",
        *markdown_table(["code", "part", "trained on", "replayed on", "outcome"], rows),
    ]


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruled = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in ruled]


WIDTH = 120


def filled(text: str, paper: Paper, *, out: Path) -> str:
    """A page's text with the conclusions of the paper's results in their places."""
    for item in paper.items:
        name = f"{paper.name}/{item.name}"
        result = kept_result(paper, item, out=out, quick=False)
        said = result["numbers"].get("conclusions", []) if result is not None else []
        lines = [f"- {one}" for one in said] or [
            f"- Not trained in full size yet: `honestdp papers run {name} --anew`."
        ]
        inside = "".join(
            textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False) + "\n" for line in lines
        )
        text = placed(text, name, inside)
    return text


def placed(text: str, name: str, inside: str) -> str:
    """A page's text with whole lines in the place of that name, if it has one."""
    place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)", re.DOTALL)
    return place.sub(lambda found: found[1] + inside + found[2], text)


def fill(pages: Path, paper: Paper, *, out: Path) -> list[Path]:
    """Fill the places of every page of a folder; those that have changed."""
    changed = []
    for page in sorted(pages.glob("*.md")):
        before = page.read_text()
        after = filled(before, paper, out=out)
        if after != before:
            write_whole(page, after.encode())
            changed.append(page)
    return changed
