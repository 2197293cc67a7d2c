"""Long work stops and goes on anywhere: a part is there whole or not at all, and is never done twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from honestdp.checks import HonestdpError
from honestdp_papers import parts as parts_module
from honestdp_papers.parts import (
    Arrays,
    Part,
    Tell,
    expected,
    file_of,
    is_done,
    keep_replays,
    make_all,
    read,
    replays,
    state,
)


class Work:
    def __init__(self, fail: str = "") -> None:
        self.fail = fail
        self.done: list[str] = []

    def part(self, name: str, size: int = 3) -> Part:
        def work(device: str, tell: Tell) -> Arrays:
            tell(0.5)
            if name == self.fail:
                raise KeyboardInterrupt
            self.done.append(name)
            return {"values": np.arange(size)}

        return Part(name, {"size": size, "grid": (0.1, 0.2)}, 1.0, work)


def test_work_goes_on_where_it_stopped(tmp_path: Path) -> None:
    work = Work(fail="b/two")
    parts = [work.part(name) for name in ("a/one", "b/two", "c")]
    with pytest.raises(KeyboardInterrupt):
        make_all(parts, tmp_path, "cpu")
    assert work.done == ["a/one"]
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["one.npz"]
    work.fail = ""
    assert make_all(parts, tmp_path, "cpu")
    assert work.done == ["a/one", "b/two", "c"]
    arrays, about = read(parts[1], tmp_path)
    assert arrays["values"].tolist() == [0, 1, 2]
    assert about["device"].startswith("CPU")
    assert set(about["versions"]) == {"honestdp", "python", "torch", "numpy"}
    assert make_all(parts, tmp_path, "cpu")
    assert len(work.done) == 3


def test_a_part_of_other_settings_or_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    work = Work()
    make_all([work.part("a")], tmp_path, "cpu")
    assert is_done(work.part("a"), tmp_path)
    assert not is_done(work.part("a", size=4), tmp_path)
    file = file_of(work.part("a"), tmp_path)
    whole = file.read_bytes()
    flipped = [
        bytes([*whole[:i], whole[i] ^ 1, *whole[i + 1 :]]) for i in range(40, len(whole) - 200, len(whole) // 20)
    ]
    for damaged in (*flipped, whole[: len(whole) // 2], b"", whole[100:]):
        file.write_bytes(damaged)
        # A bit that neither the identity nor an array depends on, such as a time, may be any.
        assert not is_done(work.part("a"), tmp_path) or read(work.part("a"), tmp_path)
    make_all([work.part("a")], tmp_path, "cpu")
    assert work.done == ["a", "a"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    make_all([work.part("a")], tmp_path, "cpu")

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(parts_module.os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        make_all([work.part("a", size=4)], tmp_path, "cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    assert is_done(work.part("a"), tmp_path)


def test_a_part_whose_replay_differed_is_stale_until_it_is_made_anew(tmp_path: Path) -> None:
    work, folder = Work(), tmp_path / "parts"
    parts = [work.part("a"), work.part("b")]
    make_all(parts, folder, "cpu")
    keep_replays(tmp_path, {"a": {"differs": True}, "b": {"differs": False}})
    assert [state(part, folder) for part in parts] == ["stale", "done"]
    assert make_all(parts, folder, "cpu", keep_stale=True)
    assert work.done == ["a", "b"]
    assert make_all(parts, folder, "cpu")
    assert work.done == ["a", "b", "a"]
    assert replays(tmp_path) == {"b": {"differs": False}}
    assert is_done(parts[0], folder)


def test_no_part_is_begun_after_the_time_is_up(tmp_path: Path) -> None:
    work = Work()
    assert not make_all([work.part(name) for name in "abc"], tmp_path, "cpu", seconds=-1)
    assert work.done == []


def test_a_part_that_would_not_be_over_in_time_is_left_out_and_a_smaller_one_is_made(tmp_path: Path) -> None:
    work = Work()
    parts = [replace(work.part(name), weight=weight) for name, weight in (("a", 5.0), ("b", 500.0), ("c", 6.0))]
    assert not make_all(parts, tmp_path, "cpu", within=100)
    assert work.done == ["a", "c"]
    assert make_all(parts, tmp_path, "cpu", within=600)
    assert work.done == ["a", "c", "b"]


def test_how_long_a_part_takes_is_told_by_those_before_it() -> None:
    assert expected(10.0, spent=0.0, done=0.0) > 10.0  # the first compiles
    assert expected(10.0, spent=70.0, done=50.0) == 10.0
    assert expected(10.0, spent=120.0, done=50.0) == 20.0
    assert expected(10.0, spent=30.0, done=50.0) == 10.0  # a few quicker parts promise nothing
    assert expected(10.0, spent=80.0, done=100.0) == pytest.approx(6.6)  # many do, but for a tenth
    assert expected(10.0, spent=117.0, done=100.0) == 10.0
    assert expected(10.0, spent=30.0, done=100.0) == 5.0


def test_a_part_that_is_refused_keeps_no_other_from_being_made(tmp_path: Path) -> None:
    work, told = Work(), []

    def refused(device: str, tell: Tell) -> Arrays:
        raise HonestdpError("model must be another")

    parts = [work.part("a"), replace(work.part("b"), work=refused), work.part("c")]
    assert not make_all(parts, tmp_path, "cpu", refused=lambda name, error: told.append((name, str(error))))
    assert work.done == ["a", "c"]
    assert told == [("b", "model must be another")]
    assert not file_of(parts[1], tmp_path).exists()
    with pytest.raises(HonestdpError):
        make_all(parts, tmp_path, "cpu")


def test_progress_counts_the_work_that_is_left(tmp_path: Path) -> None:
    work, told = Work(), []
    make_all([work.part("a")], tmp_path, "cpu")
    make_all(
        [work.part(n) for n in "abc"], tmp_path, "cpu", tell=lambda name, done, total: told.append((name, done, total))
    )
    assert told == [("b", 0.0, 2.0), ("b", 0.5, 2.0), ("c", 1.0, 2.0), ("c", 1.5, 2.0)]


def test_a_command_is_told_without_paths_of_this_machine() -> None:
    told = parts_module.as_seen(
        ["/opt/x/honestdp/papers/run_device.py", "mohapatra2022/figure4", "--out", "/tmp/o", "--device", "cuda"]
    )
    assert told == "python -m honestdp_papers.run_device mohapatra2022/figure4 --out papers/results --device cuda"
    assert parts_module.as_seen(["/x/honestdp/__main__.py", "papers", "run", "a/b", "--out=/tmp/o", "--quick"]) == (
        "python -m honestdp papers run a/b --out=papers/results --quick"
    )
    assert parts_module.as_seen(["/x/run_device.py", "a", "--only", "*mnist*"]).endswith("a --only '*mnist*'")
    assert parts_module.as_seen(["/usr/bin/honestdp", "papers", "run", "a/b"]) == "honestdp papers run a/b"
