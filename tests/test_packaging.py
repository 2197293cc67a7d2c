"""What an installation brings: the packages of src with their data, nothing else, and every module that they import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.built_wheel import entry_points_of, files_of, wheel_of

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FILES = [path for path in SRC.rglob("*") if path.is_file() and not {"__pycache__"} & set(path.parts)]
FILES = [path for path in FILES if not any(part.endswith(".egg-info") for part in path.parts)]
OTHER_NAMES = {
    "sklearn": "scikit-learn",
    "absl": "absl-py",
    "PIL": "pillow",
}  # modules that are not called as what is installed
# The extra "secure", what torch brings for a GPU, and what a user's model is made of: imported where they are used.
OPTIONAL = {"grpc", "psycopg", "ray", "flwr", "randomgen", "triton", "transformers"}


def test_the_wheel_is_made_of_the_packages_in_src_and_of_no_test_and_no_result() -> None:
    settings = PROJECT["tool"]["setuptools"]
    assert settings["packages"] == {"find": {"where": ["src"]}}
    assert settings.keys() == {"packages", "package-data"}
    assert {path.relative_to(SRC).parts[0] for path in FILES} == {"honestdp"}
    assert not {part for path in FILES for part in path.relative_to(SRC).parts} & {"tests", "results", "benchmarks"}
    assert not [path for path in FILES if path.name.startswith(("test_", "conftest"))]


def test_every_file_of_the_packages_is_in_the_wheel() -> None:
    """A folder without __init__.py is no package to setuptools, and other files need to be named."""
    for path in FILES:
        package, inner = path.relative_to(SRC).parts[0], path.relative_to(SRC / path.relative_to(SRC).parts[0])
        if path.suffix == ".py":
            folders = [folder for folder in path.parents if SRC in folder.parents]
            assert all((folder / "__init__.py").exists() for folder in folders), path
        else:
            patterns = PROJECT["tool"]["setuptools"]["package-data"][package]
            assert any(inner.match(pattern) for pattern in patterns), path


def imported(path: Path) -> set[str]:
    """The packages that a file imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module or "")
    return {name.partition(".")[0] for name in found}


@pytest.mark.slow
def test_whatever_is_imported_is_installed_because_we_say_so_and_not_by_luck() -> None:
    """What a dependency happens to bring today it may leave out tomorrow, as typer did with click."""
    declared = {re.split(r"[<>=]", line)[0] for line in PROJECT["project"]["dependencies"]}
    known = sys.stdlib_module_names | {"honestdp"} | OPTIONAL
    for path in SRC.rglob("*.py"):
        names = {OTHER_NAMES.get(name, name.replace("_", "-")) for name in imported(path) - known}
        assert names <= declared, path


@pytest.mark.slow
def test_the_wheel_knows_nothing_of_the_papers(tmp_path: Path) -> None:
    wheel = wheel_of(ROOT, tmp_path)
    packages = {name.partition("/")[0] for name in files_of(wheel) if ".dist-info/" not in name}
    assert packages == {"honestdp"}
    assert "papers" not in entry_points_of(wheel)


@pytest.mark.slow
def test_without_the_papers_the_command_says_in_one_line_what_to_install() -> None:
    alone = "from importlib import metadata; metadata.entry_points = lambda **_: (); from honestdp.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", alone, "papers", "list", "--json"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "honestdp: error: papers is not installed: in a checkout of honestdp, run pip install -e papers\n"
    )


def test_no_interpreter_is_left_out_that_the_makefile_takes() -> None:
    versions = re.findall(r"python(3\.\d+)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert {"3.11", "3.12", "3.13"} <= set(versions)
    assert PROJECT["project"]["requires-python"] == ">=3.11"


def installs(target: str) -> list[str]:
    """What make would give to pip for a target, in a checkout without an environment."""
    command = ["make", "--dry-run", "--always-make", target]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = [line for line in said.splitlines() if "pip install" in line]
    assert all(" -c constraints.txt " in line for line in lines)
    return [line.partition(" -e ")[2] for line in lines]


def test_the_demo_installs_the_library_alone_and_the_tests_the_rest_on_top() -> None:
    assert installs("demo") == ["."]
    assert installs("test")[:2] == [".", "'.[dev,bench]' -e papers"]
