"""The examples run, in this process, and keep to their budgets."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
ELSEWHERE = {"variational.py": "training/test_variational.py", "layer_rule.py": "gradients/test_prepared.py"}
"""Examples that the tests of their subject run."""
BY_ITSELF = {"federated.py"}
"""`make federated` runs it, with processes of Flower's; its parts are tested in tests/federated."""


def ran(name: str, **arguments: Any) -> Any:
    return runpy.run_path(str(EXAMPLES / name))["main"](**arguments)


def test_a_table_is_trained_on_charged_saved_and_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The made-up rule is so strong that the noise of epsilon 2 does not hide it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    saved = ran("table.py", steps=200)
    assert saved.statement.epsilon <= 2
    said = capsys.readouterr().out
    assert "new rows: ['no' 'yes']" in said
    assert "held-out accuracy: score" in said


@pytest.mark.parametrize("name", ["images.py", "text.py"])
def test_an_example_runs_within_its_budget(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = ran(name, steps=20)
    assert 7 < result.epsilon <= 8
    assert "accuracy on" in capsys.readouterr().out


def test_every_example_is_run_by_some_test_and_told_of_in_the_guide() -> None:
    here = Path(__file__).read_text()
    told = (EXAMPLES.parent / "docs" / "quickstart.md").read_text()
    for path in EXAMPLES.glob("*.py"):
        home = ELSEWHERE.get(path.name)
        text = here if home is None else (Path(__file__).parent / home).read_text()
        assert f'"{path.name}"' in text, path
        assert f"../examples/{path.name}" in told, path
    assert {path.name for path in EXAMPLES.glob("*.py")} >= BY_ITSELF | set(ELSEWHERE)
