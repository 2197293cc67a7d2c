"""The front door: every name is there after a bare import, light, documented, and with an example that runs."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import itertools
import os
import pkgutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import honestdp
from honestdp import errors

ROOT = Path(honestdp.__file__).parent
HEAVY = ("torch", "scipy", "dp_accounting", "matplotlib", "sklearn", "opendp")


def fresh(code: str) -> str:
    """What a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_every_name_is_an_attribute_whatever_was_touched_before() -> None:
    """Forwards and backwards in fresh processes, and after modules of the same or a similar name were imported."""
    names = honestdp.__all__
    others = (
        "import honestdp.search.tune, honestdp.training.train, honestdp.planner.comparison, honestdp.selection.cost\n"
    )
    for first, order in (("", names), (others, names[::-1])):
        code = f"{first}import honestdp\nfor name in {order!r}: getattr(honestdp, name)\n"
        code += (
            "print(honestdp.plan.__name__, honestdp.tune.__name__, honestdp.errors.__name__, honestdp.train.__name__)"
        )
        assert fresh(code) == "plan tune honestdp.errors train"


def test_every_name_says_where_it_is_from_and_no_other_is_there() -> None:
    assert names_of(honestdp) == sorted(honestdp.__all__)
    with pytest.raises(AttributeError, match="no attribute 'planer'"):
        honestdp.planer  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'Overbudget'"):
        errors.Overbudget  # noqa: B018


def names_of(module: object) -> list[str]:
    return sorted(name for name in dir(module) if not name.startswith("_"))


@pytest.mark.parametrize("code", ["import honestdp", "import honestdp.errors", "import honestdp.cli.main"])
def test_an_import_brings_nothing_heavy(code: str) -> None:
    assert fresh(f"import sys\n{code}\nprint(sorted(set({HEAVY!r}) & set(sys.modules)))") == "[]"


def test_the_help_brings_nothing_heavy_either() -> None:
    code = "import sys\nsys.argv = ['honestdp', '--help']\nfrom honestdp.cli.main import main\n"
    code += f"try: main()\nexcept SystemExit: print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    assert fresh(code).endswith("[]")


# ---- Errors


IN_TRITON = (
    "fused",
    "convolution",
    "gradients",
    "normalisation",
    "slopes",
    "taps",
    "blocks",
    "hidden",
    "products",
    "phases",
    "grams",
)
"""Kernels that need not be importable: Triton is not everywhere."""


def test_every_public_error_and_warning_can_be_caught_from_one_module() -> None:
    """The classes of the whole package that a caller may meet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = [
            importlib.import_module(found.name)
            for found in pkgutil.walk_packages([str(ROOT)], "honestdp.")
            if not found.name.endswith(("__main__", *(f"kernels.{name}" for name in IN_TRITON)))
        ]
    bases = (errors.HonestdpError, KeyboardInterrupt, Warning)
    classes = {
        kind
        for module in modules
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, bases) and kind.__module__.startswith("honestdp.")
        if not kind.__name__.startswith("_")
    }
    assert len(classes) > 25
    assert {kind.__name__ for kind in classes} <= set(errors.__all__)
    for kind in classes:
        assert getattr(errors, kind.__name__) is kind
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), BaseException)
        assert inspect.getdoc(getattr(errors, name))


# ---- Docstrings


def documented(name: str) -> tuple[object, str]:
    value = getattr(honestdp, name)
    return value, inspect.getdoc(value) or ""


@pytest.mark.slow
@pytest.mark.parametrize("name", honestdp.__all__)
def test_the_example_of_every_exported_name_runs(name: str) -> None:
    value, text = documented(name)
    home = value if inspect.ismodule(value) else sys.modules[value.__module__]  # type: ignore[attr-defined]
    examples = doctest.DocTestParser().get_doctest(text, {**vars(home)}, name, getattr(home, "__file__", None), 0)
    assert examples.examples, f"honestdp.{name} has no example"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(examples, out=said.append)
    assert not runner.failures, "".join(said)


@pytest.mark.parametrize("name", [name for name in honestdp.__all__ if not inspect.ismodule(getattr(honestdp, name))])
def test_every_argument_of_an_exported_name_is_named_in_its_docstring(name: str) -> None:
    """Besides its errors and, for a function, what it returns; arguments of `train` may be said to be those of another."""
    value, text = documented(name)
    assert "Raises" in text or "InvalidArgument" in text or not inspect.isfunction(value)
    if not inspect.isfunction(value):
        return
    assert "Returns" in text
    if name == "train":
        text += documented("train_population")[1]
    missing = [argument for argument in inspect.signature(value).parameters if f"{argument}" not in text]
    assert not missing


# ---- Words


def strings(path: Path) -> list[tuple[int, str]]:
    tree = ast.parse(path.read_text())
    return [(n.lineno, n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def flags_in(text: str) -> list[str]:
    return [word for word in text.split() if word.strip("`'\"(),.:;").startswith("--") and word.strip("-`'\"(),.:;")]


@pytest.mark.slow
def test_no_text_of_the_library_has_a_flag_of_the_command_line() -> None:
    assert flags_in("pass --resume, or `--out DIR`") == ["--resume,", "`--out"]
    found = [
        (path.relative_to(ROOT).as_posix(), line, flags)
        for path in sorted(ROOT.rglob("*.py"))
        if "cli" not in path.relative_to(ROOT).parts
        for line, text in strings(path)
        if (flags := flags_in(text))
    ]
    assert found == []


def test_examples_of_the_front_door_are_not_all_one() -> None:
    texts = [documented(name)[1] for name in honestdp.__all__]
    assert all(first != second for first, second in itertools.combinations(texts, 2))
