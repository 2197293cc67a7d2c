"""A command blames an option that it has, or says in words what is wrong; never an option that it does not have."""

from __future__ import annotations

import ast
import importlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import honestdp
from honestdp.checks import InvalidArgument
from honestdp.optimizers import BY_NAME
from tests.command_line import run

SRC = Path(honestdp.__file__).parents[1]


def arguments_of_the_library() -> set[str]:
    """Every name that an InvalidArgument of the source gives, written out or as the keyword of a check, and the rules' own."""
    names = {field.name for rule in BY_NAME.values() for field in fields(rule)}
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == "InvalidArgument" and node.args and isinstance(node.args[0], ast.Constant):
                names.add(node.args[0].value)
            if called in ("finite", "positive", "non_negative", "probability", "whole", "one_of"):
                names |= {keyword.arg for keyword in node.keywords if keyword.arg not in (None, "least", "most")}
    return names


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the command line's own libraries
        app, typer = importlib.import_module("honestdp.cli.main").app, importlib.import_module("typer")
        return dict(leaves("honestdp", typer.main.get_command(app)))


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from leaves(f"{name} {word}", inner)


def test_every_argument_that_the_library_may_refuse_is_blamed_on_an_option_that_the_command_has(
    commands: dict[str, Any],
) -> None:
    terminal, typer = (importlib.import_module(name) for name in ("honestdp.cli.terminal", "typer"))
    names = arguments_of_the_library()
    assert {"noise", "lr", "out", "records", "space", "workers", "metric"} <= names
    assert len(commands) > 10
    for command in commands.values():
        assert isinstance(command, terminal.Command)
        options = {parameter.opts[0] for parameter in command.params if parameter.param_type_name == "option"}
        by_name = {parameter.name: parameter for parameter in command.params}
        with typer.Context(command) as context:
            for name in names:
                blamed = command._blamed(InvalidArgument(name, 0, "another"), context)
                assert blamed in options or not blamed.startswith("-")
                if name in by_name and by_name[name].param_type_name == "option":
                    assert blamed == by_name[name].opts[0]


SMALL = ("--records", "9", "--lot", "1", "--steps", "1", "--delta", "1e-5")
TUNE = ("tune", "digits", "--epsilon", "1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*TUNE, "--optimizer", "sgd", "--space", "lr=-1", "--space", "clip=1"), "lr must be a finite number above 0; got -1"),
        ((*TUNE, "--optimizer", "sgd", "--space", "lr=1"), "--space must be one with values for clip of sgd too"),
        ((*TUNE, "--max-runs", "0", "--optimizer", "adam"), "--max-runs must be a finite number of at least 1"),
        ((*TUNE, "--device", "abacus"), "--device must be cpu, or a device"),
        ((*TUNE, "--out", "held"), "search.json cannot be read .KeyError.: this search cannot go on"),
        (("tune", "digits"), "--epsilon must be given: the budget of the whole search, such as --epsilon 3$"),
        ((*TUNE, "--again", "--out", "new"), "--again must be left out with out"),
        (("tune", "--resume", "empty"), "--resume must be the folder of a search that was begun"),
        (("plan", *SMALL, "--candidates", "2"), "one of --epsilon and --noise must be given: .*; got neither"),
        (("ledger", "show", "--dataset", "nobody"), "nobody has no budget in ledger.db: set it once with `honestdp ledger"),
    ],
)  # fmt: skip
def test_what_a_command_says_names_its_own_options(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "search.json").write_text("{}")
    code, out, error = run(tmp_path, *words)
    assert (code, out) == (2, "")
    assert re.search(said, error)
    assert error.count("\n") == 1
    assert "--lr" not in error
