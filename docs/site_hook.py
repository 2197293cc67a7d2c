"""What makes these pages a site: files outside docs/ that they link to come with it, and lists are written as mkdocs reads them.

The pages are written for the plain view of the repository, with links such as `../examples/table.py`. In the site, what is
outside docs/ lies under repository/, at the path it has here; CONTRIBUTING.md and CHANGELOG.md are pages.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "papers/README.md")
PAPERS = "papers/docs/"
"""Pages of the papers' own distribution: in the site they lie in papers/."""
LINK = re.compile(r"(\]\()([^)#\s]*)((?:#[^)\s]*)?\))")
ITEM = re.compile(r"( *)([-*]|\d+\.) ")


def place(path: str) -> str:
    """Where a file of the repository is in the site, by its path from the root."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PAGES:
        return path
    if path.startswith(PAPERS) and path.endswith(".md"):
        return f"papers/{path.removeprefix(PAPERS)}"
    return "index.md" if path == "README.md" else f"repository/{path}"


def linked(text: str, home: str) -> set[str]:
    """The files of the repository, outside docs/, that a page at `home` links to."""
    found = {posixpath.normpath(posixpath.join(posixpath.dirname(home), name)) for _, name, _ in LINK.findall(text)}
    return {path for path in found if not path.startswith(("docs/", "http")) and (ROOT / path).is_file()}


def moved(text: str, home: str) -> str:
    """A page with its links turned to where files are in the site."""
    here = posixpath.dirname(place(home))

    def turn(match: re.Match[str]) -> str:
        before, name, after = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), name))
        if not name or "://" in name or not (ROOT / path).is_file():
            return match[0]
        return before + posixpath.relpath(place(path), here or ".") + after

    return LINK.sub(turn, text)


def listed(text: str) -> str:
    """Lists with a blank line before them, and those within lists four spaces in, as Python-Markdown needs them."""
    lines: list[str] = []
    code = False
    for line in text.split("\n"):
        code ^= line.lstrip().startswith("```")
        item = None if code else ITEM.match(line)
        if item and lines and lines[-1].strip() and not lines[-1].startswith(" ") and not ITEM.match(lines[-1]):
            lines.append("")
        lines.append("    " + line.lstrip() if item and 0 < len(item[1]) < 4 else line)
    return "\n".join(lines)


def on_files(files: Files, *, config: Any) -> Files:
    outside: set[str] = set()
    for file in list(files):
        if file.is_documentation_page():
            outside |= linked(file.content_string, f"docs/{file.src_uri}")
    pages = [*PAGES, *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / PAPERS).rglob("*.md")))]
    for path in pages:
        outside |= linked((ROOT / path).read_text(encoding="utf-8"), path)
        files.append(File.generated(config, place(path), abs_src_path=os.fspath(ROOT / path)))
    for path in sorted(outside - {"README.md", *pages}):
        files.append(File.generated(config, place(path), abs_src_path=os.fspath(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    return listed(moved(markdown, Path(page.file.abs_src_path).relative_to(ROOT).as_posix()))
