"""The page of a paper, made from its results: the claims and our numbers side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from honestdp.checks import HonestdpError
from honestdp_papers.claims import RULE
from honestdp_papers.registry import Paper, result_file
from honestdp_papers.results import kept_result


def page(paper: Paper, *, out: Path, beside: Path) -> str:
    """The page as markdown, with links to figures relative to `beside`, the page's file."""
    found = [(item, kept_result(paper, item, out=out, quick=False)) for item in paper.items]
    if all(result is None for _, result in found):
        raise HonestdpError(
            f"no full-size result of {paper.name} is in {out}: honestdp papers run {paper.name}/NAME makes them"
        )
    lines = [
        f"# {paper.title}",
        "",
        f"{paper.citation}. Every number and verdict on this page comes from the results in `{_folder(out, paper)}`; "
        f"`honestdp papers document {paper.name}` writes the page.",
        "",
        "[How to run it](README.md), whole or in small. Figures share parts of the training (DPAdam's runs at sigma 4 are in "
        "figures 4 and 5 alike), so the times below count shared parts once for each figure.",
        "",
        RULE,
        "",
        "Curves over test data and repeats evaluate the reproduction on public data. No budget covers them: a practitioner who "
        "looked at them would have to pay for them.",
        "",
        "| | shows | claims that hold / in part / not |",
        "|---|---|---|",
    ]
    for item, result in found:
        lines.append(f"| [{item.name}](#{item.name}) | {item.about} | {_tally(result)} |")
    for item, result in found:
        lines += ["", f"## {item.name}", "", f"{item.about}."]
        if result is None:
            lines += ["", f"Not run in full size yet: `honestdp papers run {paper.name}/{item.name}`."]
            continue
        figure = result_file(out, paper.name, item.name, False).with_suffix(".png")
        lines += _section(result, Path(os.path.relpath(figure, beside.parent)).as_posix())
    return "\n".join(lines) + "\n"


def _folder(out: Path, paper: Paper) -> str:
    return (out / paper.name).as_posix()


def _tally(result: dict[str, Any] | None) -> str:
    if result is None:
        return "not run yet"
    verdicts = [claim["verdict"] for claim in result["claims"]]
    return " / ".join(str(verdicts.count(verdict)) for verdict in ("holds", "holds in part", "does not hold"))


def _section(result: dict[str, Any], figure: str) -> list[str]:
    lines = [
        "",
        *markdown_table(
            ["the paper's claim", "ours", "verdict"], [[c["claim"], c["found"], c["verdict"]] for c in result["claims"]]
        ),
    ]
    if "figure" in result:
        lines += ["", f"![{result['about']}]({figure})"]
    for table in result["tables"]:
        lines += ["", f"{table['title']}:", "", *markdown_table(table["header"], table["rows"])]
    if result["notes"]:
        lines += ["", *(f"- {note}" for note in result["notes"])]
    made = result["made"]
    how = f"`{made['command']}`"
    others = [command for command in made["training by"] if command != made["command"]]
    if others:
        how += ", trained by " + ", ".join(f"`{command}`" for command in others)
    seconds = made["seconds of training"] + made["seconds of the rest"]
    packages = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    lines += ["", f"Made by {how} on {', '.join(made['device'])} in {seconds:.0f} s ({packages}; {made['on']})."]
    return lines


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruled = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in ruled]
