"""The guide: every link and anchor leads somewhere, its site builds strictly from this repository alone, and its code is true.

Links are followed as the plain view of the repository has them (anchors as GitHub makes them), and a second time by mkdocs.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import logging
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import honestdp

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")),
    ROOT / "papers" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "papers" / "docs").rglob("*.md")),
]


def place_of(page: Path) -> str:
    """A page's place in the site."""
    inside = page.relative_to(ROOT).as_posix()
    return re.sub("^docs/", "", re.sub("^papers/docs/", "papers/", inside))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# ---- Links


def prose(text: str) -> str:
    """A page without its code."""
    without = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]+`", "", without)


def links(text: str) -> list[str]:
    return re.findall(r"\]\(\s*([^)\s]+)\s*\)", prose(text))


def anchors(text: str) -> set[str]:
    """What GitHub calls the headings of a page: lower case, no punctuation, a hyphen for each space, -1 for a second one."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#{1,6} +(.+?)(?: +#+)?$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        names.add(slug if slug not in found else f"{slug}-{found[slug]}")
        found[slug] = found.get(slug, 0) + 1
    return names


def dead(page: Path, text: str) -> Iterator[str]:
    """Links of a page that lead nowhere, or out of the repository."""
    for link in links(text):
        if re.match(r"(https?|mailto):", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        there = target.exists() and target.is_relative_to(ROOT)
        if there and anchor:
            there = anchor in anchors(text if target == page else target.read_text(encoding="utf-8"))
        if not there:
            yield link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_and_anchor_of_a_page_leads_somewhere(page: Path) -> None:
    assert list(dead(page, page.read_text(encoding="utf-8"))) == []


def test_dead_links_and_anchors_are_found() -> None:
    text = "# A b\n## A b\n[1](#a-b-1) [2](#a-c) [3](docs/nowhere.md) [4](docs/tables.md#nowhere) `[5](no.md)` [6](../x.md)"
    assert list(dead(ROOT / "README.md", text)) == ["#a-c", "docs/nowhere.md", "docs/tables.md#nowhere", "../x.md"]


def test_every_page_can_be_reached_from_the_readme_and_is_in_the_navigation() -> None:
    reached = {ROOT / "README.md"}
    todo = list(reached)
    while todo:
        page = todo.pop()
        for link in links(page.read_text(encoding="utf-8")):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file() and target not in reached:
                reached.add(target)
                todo.append(target)
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    for page in PAGES[4:]:
        assert page in reached, page
        assert f": {place_of(page)}\n" in navigation, page


def lost_scripts(text: str) -> set[str]:
    """Scripts of benchmarks/ that a page names and that are not there, unless the page names a commit that has them."""
    named = set(re.findall(r"benchmarks/\w+\.(?:py|sh)", text))
    return {
        each for each in named if not (ROOT / each).exists() and not re.search(r"of\s+commit\s+[0-9a-f]{7}\b", text)
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_script_of_the_benchmarks_that_a_page_names_is_there(page: Path) -> None:
    assert lost_scripts(page.read_text(encoding="utf-8")) == set()


def test_a_script_that_is_gone_is_found() -> None:
    gone = "by `python benchmarks/gone.py` and benchmarks/engine.py"
    assert lost_scripts(gone) == {"benchmarks/gone.py"}
    assert lost_scripts(f"{gone}, of commit 698a7b2") == set()


def test_the_changelog_is_short_and_every_advisory_names_a_commit_that_has_its_fix() -> None:
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 40
    text = (ROOT / "docs" / "advisories.md").read_text(encoding="utf-8")
    commits = set(re.findall(r"\b(?=\w*\d)[0-9a-f]{7}\b", text))
    assert len(commits) > 30
    for commit in commits if shutil.which("git") else ():
        known = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True)
        asked = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]  # a copy without its history knows none of them
        assert known.returncode or subprocess.run(asked, cwd=ROOT, capture_output=True).returncode == 0, commit


# ---- The site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not --quiet, which would hide from --strict what it counts."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_strictly_and_has_every_page(site: Path) -> None:
    for page in PAGES[4:]:
        built = Path(place_of(page)).with_suffix(".html")
        assert (site / (built.parent / "index.html" if built.stem == "README" else built)).is_file(), page


def test_the_site_fetches_nothing(site: Path) -> None:
    """Links that a reader may click on are free to lead out; what a browser loads by itself is here."""
    loaded = re.compile(r"<(?:(?:script|img|iframe|source)\b[^>]*?\bsrc|link\b[^>]*?\bhref)=[\"']?([^\"'> ]+)")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        sources = loaded.findall(page.read_text(encoding="utf-8"))
        assert len(sources) > 3
        assert [source for source in sources if re.match(r"(https?:)?//", source)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet


def test_lists_are_lists_in_the_site(site: Path) -> None:
    """The repository's view needs no blank line before a list and two spaces for one within; mkdocs is given what it needs."""
    for page in site.rglob("*.html"):
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(encoding="utf-8"), flags=re.S)
        assert not re.search(r"<p>[^<]*\n[-*] ", text), page


# ---- Code


def blocks(page: Path) -> list[tuple[int, str]]:
    """The Python of a page, each block with the line it begins at."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)
    return [(text[: match.start(1)].count("\n"), match[1]) for match in found]


def compiled(page: Path, line: int, code: str) -> Any:
    """A block with the lines of its page, so that an error names them."""
    tree = ast.parse(code, filename=name_of(page))
    return ast.increment_lineno(tree, line)


def imported(tree: ast.AST) -> dict[str, Any]:
    """The names that a block imports from honestdp, with what they stand for; a name that is not there is an error."""
    found: dict[str, Any] = {"honestdp": importlib.import_module("honestdp")}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "honestdp":
            home = importlib.import_module(node.module or "")
            for alias in node.names:
                if not hasattr(home, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
                found[alias.asname or alias.name] = getattr(home, alias.name)
    return found


def resolved(node: ast.expr, known: dict[str, Any]) -> Any:
    """What a dotted name of honestdp stands for; None for any other expression."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    home = resolved(node.value, known) if isinstance(node, ast.Attribute) else None
    return getattr(home, node.attr) if inspect.ismodule(home) or inspect.isclass(home) else None  # type: ignore[attr-defined]


def check_calls(tree: ast.AST, known: dict[str, Any]) -> int:
    """Every call of something of honestdp passes arguments that it has. How many were looked at."""
    calls = 0
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or (called := resolved(node.func, known)) is None or not callable(called):
            continue
        parameters = inspect.signature(called).parameters.values()
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            unknown = {word.arg for word in node.keywords if word.arg} - {each.name for each in parameters}
            assert not unknown, f"line {node.lineno}: {ast.unparse(node.func)} has no argument {sorted(unknown)}"
        calls += 1
    return calls


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_the_code_of_a_page_compiles_and_calls_what_is_there(page: Path) -> None:
    known: dict[str, Any] = {}
    for line, code in blocks(page):
        tree = compiled(page, line, code)
        known |= imported(tree)
        check_calls(tree, known)


def test_code_that_calls_what_is_not_there_is_found() -> None:
    tree = ast.parse("import honestdp\nhonestdp.train(model, data, epsilons=1)")
    with pytest.raises(AssertionError, match=r"line 2: honestdp.train has no argument .'epsilons'"):
        check_calls(tree, imported(tree))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        check_calls(ast.parse("honestdp.trian(model)"), imported(tree))
    with pytest.raises(ImportError):
        imported(ast.parse("from honestdp.optimizers import NoSuchRule"))


RUN = ["quickstart.md", "choosing.md", "coming-from-opacus.md", "federated.md"]
"""Pages whose blocks are run one after another, as somebody who copies them would. The others have names of the reader's own."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Opacus, beside which one page shows our code
@pytest.mark.parametrize("name", RUN)
def test_the_code_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / name
    names: dict[str, Any] = {"__name__": "__main__"}
    assert blocks(page)
    for line, code in blocks(page):
        exec(compile(compiled(page, line, code), name_of(page), "exec"), names)


# ---- Numbers


def test_what_epsilon_means_is_computed_from_its_definition() -> None:
    """The table and the three epsilons of the page on choosing."""
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) % \|$", text, flags=re.M)
    assert len(rows) == 7
    for epsilon, right, suspicion in rows:
        odds = math.exp(float(epsilon))
        assert float(right) == pytest.approx(100 * odds / (1 + odds), abs=0.051)
        assert float(suspicion) == pytest.approx(100 * odds / (99 + odds), abs=0.051)
    run = honestdp.Run(records=20_000, lot=200, steps=2000, noise=2.0)
    said = re.search(r"epsilon is ([\d.]+) at 1e-5, ([\d.]+)\s+at 1e-6 and ([\d.]+) at 1e-8", text)
    assert said
    for delta, number in zip((1e-5, 1e-6, 1e-8), said.groups(), strict=True):
        assert float(number) == pytest.approx(honestdp.epsilon(run, delta=delta), abs=0.006)
