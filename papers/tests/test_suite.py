"""The suite of `honestdp_papers.suite`: a seed's settings are the same ever after, and what is done is not done again."""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import honestdp_papers
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp_papers import run_device
from honestdp_papers.parts import DONE, state

FOLDER = Path(honestdp_papers.__file__).parent / "suite"
MODULES = ("settings", "models", "data", "work", "report", "__main__")
DIGESTS = {"A": "b2742d0266731062", "B": "d88592080147da86", "2027": "e574215519990dd0"}
WEIGHTS = 8_187_146  # of all models of seed A


@pytest.fixture(scope="module")
def suite() -> dict[str, ModuleType]:
    return {name: importlib.import_module(f"honestdp_papers.suite.{name}") for name in MODULES}


def digest(settings: list[Any]) -> str:
    told = json.dumps([each.identity for each in settings], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@pytest.mark.parametrize("seed", DIGESTS)
def test_the_settings_of_a_seed_are_the_same_ever_after(suite: dict[str, ModuleType], seed: str) -> None:
    settings = suite["settings"].settings
    assert digest(settings(seed, 48)) == DIGESTS[seed]
    assert settings(seed, 5) == settings(seed, 48)[:5]


def test_models_of_a_seed_have_the_weights_that_they_had(suite: dict[str, ModuleType]) -> None:
    made = (suite["models"].maker(each.data, each.net)() for each in drawn(suite, "A"))
    assert sum(weight.numel() for model in made for weight in model.parameters()) == WEIGHTS


def drawn(suite: dict[str, ModuleType], seed: str) -> list[Any]:
    found: list[Any] = suite["settings"].settings(seed, 48)
    return found


def test_every_block_has_all_families_and_every_lot_fits(suite: dict[str, ModuleType]) -> None:
    kinds = suite["settings"]
    for seed in ("A", "B", "2027"):
        every = drawn(suite, seed)
        for first in range(0, 48, 16):
            assert Counter(each.family for each in every[first : first + 16]) == Counter(kinds.BLOCK)
        assert all(4 * each.lot <= each.records <= max(kinds.SOURCES[each.data].records) for each in every)
    assert len(kinds.CANDIDATES) == len(set(kinds.CANDIDATES)) == 48


@pytest.mark.parametrize("net", ["dense", "strided", "pooled", "residual", "transformer"])
def test_every_kind_of_model_answers_with_a_number_a_class(suite: dict[str, ModuleType], net: str) -> None:
    kinds = suite["settings"]
    setting = next(each for each in drawn(suite, "A") if each.net.kind == net)
    source = kinds.SOURCES[setting.data]
    x = torch.ones(2, source.features)
    model = suite["models"].maker(setting.data, setting.net)()
    assert model(x.long() if net == "transformer" else x).shape == (2, source.classes)


def test_a_seed_takes_a_quarter_of_an_hour_and_more_runs_take_longer(suite: dict[str, ModuleType]) -> None:
    work = suite["work"]
    for seed in ("A", "B"):
        parts = [part for each in drawn(suite, seed) for part in work.parts_of(each, work.rules_of(["horizon"]))]
        assert 400 < sum(part.weight for part in parts) < 1000
    one = drawn(suite, "A")[0]
    seconds = suite["settings"].seconds
    assert 0 < seconds(one, 10, compiled=True) <= seconds(one, 10) < seconds(one, 100)


@pytest.fixture
def trained(suite: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Trainings that were asked for, none of which is made."""
    asked: list[tuple[str, int]] = []

    def instead(setting: Any, rules: Any, repeats: int, *, seed: int, device: str) -> dict[str, Any]:
        asked.append((setting.name, len(rules)))
        if "fails" in setting.seed and setting.number == 0:
            raise RuntimeError("CUDA error: it is lost" if "all" in setting.seed else "this one fails")
        right = np.arange(repeats * len(rules)).reshape(repeats, -1)
        return {"right": right, "tests": np.array(200), "largest": np.array(100)}

    monkeypatch.setattr(suite["work"], "trained", instead)
    return asked


@pytest.mark.slow
def test_what_is_done_is_not_done_again(
    suite: dict[str, ModuleType], trained: list[tuple[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = ["--settings", "2", "--out", str(tmp_path), "--device", "cpu"]
    main = suite["__main__"].main
    assert main([*same, "--seconds", "0"]) == 3
    assert trained == []
    assert main(same) == 0
    assert trained == [("A-000", 48), ("A-000", 1), ("A-001", 48), ("A-001", 1)]
    (tmp_path / "parts" / "A-001" / "horizon.npz").write_bytes(b"cut short")
    assert main([*same, "--rules", "horizon", "adam:clip=1.0"]) == 0
    assert trained[4:] == [("A-000", 1), ("A-001", 1), ("A-001", 1)]
    capsys.readouterr()
    assert main([*same, "--rules", "horizon", "adam:clip=1.0", "--json"]) == 0
    assert len(trained) == 7
    told = json.loads(capsys.readouterr().out)
    assert set(told["rules"]) == {"horizon", "adam:clip=1.0"}
    assert told["rules"]["horizon"]["all"]["settings"] == 2
    assert main([*same, "--list"]) == 0
    assert "0 s are left" in capsys.readouterr().out


def test_rules_beside_each_other_need_no_oracle(
    suite: dict[str, ModuleType], trained: list[tuple[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = ["--settings", "2", "--out", str(tmp_path), "--device", "cpu", "--beside", "--rules", "horizon"]
    main = suite["__main__"].main
    assert main(same) == 0
    assert trained == [("A-000", 1), ("A-001", 1)]
    capsys.readouterr()
    assert main([*same, "echo", "--report"]) == 0
    assert "A-000" not in capsys.readouterr().out  # in which one of them is not trained
    assert main([*same, "echo"]) == 0
    lines = capsys.readouterr().out
    assert "echo minus horizon" in lines
    assert "| mean | 2 settings |  | +0.00 |" in lines
    assert main([*same, "echo", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["setting"] for row in told] == ["A-000", "A-001"]
    assert set(told[0]["accuracies"]) == {"horizon", "echo"}


def test_a_setting_that_fails_does_not_stop_the_others(
    suite: dict[str, ModuleType], trained: list[tuple[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        suite["__main__"].main(["--seed", "fails", "--settings", "2", "--out", str(tmp_path), "--device", "cpu"]) == 1
    )
    assert [name for name, _ in trained] == ["fails-000", "fails-001", "fails-001"]
    assert "this one fails" in capsys.readouterr().err


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends where a GPU is lost: here by an exception."""

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(run_device.os, "_exit", end)


@pytest.mark.usefixtures("ended")
def test_a_setting_that_takes_the_device_with_it_comes_last_the_next_time(
    suite: dict[str, ModuleType], trained: list[tuple[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = ["--seed", "allfails", "--settings", "2", "--out", str(tmp_path), "--device", "cpu"]
    for _ in range(2):
        with pytest.raises(SystemExit):
            suite["__main__"].main(same)
    assert [name for name, _ in trained] == ["allfails-000", "allfails-001", "allfails-001", "allfails-000"]
    assert "the device is lost, in allfails-000" in capsys.readouterr().err


@pytest.mark.usefixtures("ended")
def test_a_setting_that_a_second_try_finishes_is_no_longer_one_that_failed(
    suite: dict[str, ModuleType], trained: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = ["--seed", "allfails", "--settings", "2", "--out", str(tmp_path), "--device", "cpu"]
    with pytest.raises(SystemExit):
        suite["__main__"].main(same)
    work = suite["work"]
    seldom = work.trained
    monkeypatch.setattr(
        work, "trained", lambda setting, *rest, **named: seldom(replace(setting, seed="A"), *rest, **named)
    )
    assert suite["__main__"].main(same) == 0
    assert not list(tmp_path.rglob("failed.txt"))


@pytest.mark.slow
def test_candidates_and_rules_are_trained_and_their_right_answers_counted(suite: dict[str, ModuleType]) -> None:
    kinds, work = suite["settings"], suite["work"]
    setting = replace(kinds.settings("A", 1, quick=True)[0], net=kinds.Net("dense"), noise=0.5, steps=20)
    found = work.trained(setting, [work.ORACLE[-1], work.ORACLE[0]], 2, seed=1, device="cpu")
    assert found["right"].shape == (2, 2)
    assert (found["right"][:, 0] > found["right"][:, 1]).all()  # the largest step against the smallest
    assert found["right"].max() <= found["tests"] == 360


def test_gaps_are_to_the_best_mean_and_fair_ones_to_a_choice_by_other_repeats(suite: dict[str, ModuleType]) -> None:
    report = suite["report"]
    accuracy = np.array([[80.0, 90.0, 70.0], [88.0, 82.0, 71.0]])
    assert report.left_out(accuracy) == pytest.approx((80 + 82) / 2)
    assert report.left_out(accuracy[:1]) is None


def test_packed_data_are_the_data(
    suite: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = suite["data"]
    sides = data.made("digits")
    (tmp_path / data.FOLDER).mkdir()
    np.savez_compressed(tmp_path / data.FOLDER / "digits.npz", **sides._asdict())
    monkeypatch.setenv("HONESTDP_DATA", str(tmp_path))
    monkeypatch.setattr(data, "made", None)
    for kept, side in zip(data._sides("digits"), sides, strict=True):
        assert kept.dtype == side.dtype
        assert (kept == side).all()


@pytest.mark.parametrize("called", ["no-such-rule", "sgd", "adam:clip", "adam:clip=", "adam:1.0", "adam:speed=1"])
def test_a_rule_that_is_none_is_refused(suite: dict[str, ModuleType], called: str) -> None:
    with pytest.raises(InvalidArgument):
        suite["work"].rules_of([called])


def test_the_suite_needs_torch_and_numpy_alone() -> None:
    for name in MODULES:
        for node in ast.parse((FOLDER / f"{name}.py").read_text()).body:
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in named:
                top = module.partition(".")[0]
                ours = top in {"torch", "numpy", "honestdp", "honestdp_papers"}
                assert ours or top in sys.stdlib_module_names, f"{name} imports {module}"


def test_what_is_kept_of_a_retired_rule_is_read_and_it_is_not_trained_again(suite: dict[str, ModuleType]) -> None:
    work, (setting, *_) = suite["work"], suite["settings"].settings("A", 1)
    part = work.rule_part(setting, *work.rules_of(["outlook"]))
    assert state(part, suite["__main__"].RESULTS / "parts") == DONE
    with pytest.raises(HonestdpError, match="retired"):
        part.work("cpu", lambda done: None)
