"""An option has the default and the help of the argument that it stands for, and every command has its result as JSON."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import pytest

from honestdp.search.request import SearchSpec
from honestdp.training.spec import TrainSpec
from tests.command_line import run

FIELDS = {each.name: each for spec in (TrainSpec, SearchSpec) for each in fields(spec)}
OF_ITS_OWN = {"space", "resume"}
"""Options in words of the command line alone, which have help of their own."""


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the command line's own libraries
        app, typer = importlib.import_module("honestdp.cli.main").app, importlib.import_module("typer")
        return dict(_leaves("honestdp", typer.main.get_command(app)))


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from _leaves(f"{name} {word}", inner)


def test_an_option_of_a_search_has_the_default_and_the_help_of_its_field(commands: dict[str, Any]) -> None:
    options = {each.name: each for each in commands["honestdp tune"].params if each.name in FIELDS}
    assert len(options) > 20
    for name, option in options.items():
        default = FIELDS[name].default
        assert (option.default or default) == default, name
        assert default is not MISSING
        assert name in OF_ITS_OWN or f"{{spec.{name}}}" in option.help, name


def test_a_text_that_was_changed_in_a_spec_is_the_help_of_the_option(tmp_path: Any) -> None:
    code, said, _ = run(tmp_path, "tune", "--help")
    words = " ".join(said.replace("│", " ").split())
    texts = {name: each.metadata["help"].split(" In Python ")[0] for name, each in FIELDS.items()}
    for name in ("lot", "coverage", "schedule", "metric", "prevalence", "note", "ledger", "records"):
        assert texts[name][1:] in words, name
    assert (code, "In Python" in words, "{" in words) == (0, False, False)


def test_every_command_has_its_result_as_json(commands: dict[str, Any]) -> None:
    for name, command in commands.items():
        if not command.hidden and not name.startswith("honestdp papers"):
            assert "as_json" in {each.name for each in command.params}, name
