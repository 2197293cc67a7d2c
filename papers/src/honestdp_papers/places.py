"""Computed sentences in pages for practitioners: between two marks of a page stands what a full-size result concludes.

    <!-- galli2024/honest -->
    ...
    <!-- /galli2024/honest -->

`honestdp papers document galli2024` writes the page of the paper and fills these places, so that what a page advises follows the
numbers.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from honestdp_papers.parts import write_whole
from honestdp_papers.registry import Paper
from honestdp_papers.results import kept_result

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
