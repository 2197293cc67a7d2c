"""docs/design.md says what is there: every rule has tests that exist, and the auditor's list is the one of today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.auditors_list import PACKAGE, PARTS, table

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "design.md"
RULES = dict(re.findall(r"^\| (\d+)\. .* \| (.*) \|$", PAGE.read_text(), flags=re.M))


def test_every_rule_has_its_tests() -> None:
    assert list(RULES) == [str(number) for number in range(1, 22)]


@pytest.mark.parametrize("rule", RULES)
def test_the_tests_of_a_rule_exist(rule: str) -> None:
    names = re.findall(r"`([^`]*)`", RULES[rule])
    assert names
    for name in names:
        file, _, test = name.partition("::")
        text = (TESTS / file).read_text()
        assert re.search(rf"^def {test.removesuffix('*') or 'test_'}", text, flags=re.M), name


def test_the_auditors_list_is_that_of_today() -> None:
    assert table() in PAGE.read_text(), "put what `python -m tests.auditors_list` prints into docs/design.md"


def test_every_file_of_the_boundary_is_on_the_auditors_list() -> None:
    listed = {name for files in PARTS.values() for name in files}
    there = {f"boundary/{path.name}" for path in (PACKAGE / "boundary").glob("*.py")} - {"boundary/__init__.py"}
    assert there <= listed


def test_every_file_that_the_page_names_exists() -> None:
    text = PAGE.read_text()
    for name in re.findall(r"`((?:\w+/)+\w+\.py)`", text):
        assert (PACKAGE / name).exists() or (TESTS / name).exists() or (TESTS.parent / name).exists(), name
