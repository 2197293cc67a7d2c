"""Builds the wheel of a distribution of this repository, from a copy of its sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE")


def wheel_of(project: Path, folder: Path) -> Path:
    copy = folder / "project"
    copy.mkdir()
    for name in SOURCES:
        if (project / name).is_dir():
            shutil.copytree(project / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif (project / name).is_file():
            shutil.copy(project / name, copy / name)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(copy),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def files_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        return opened.namelist()


def entry_points_of(wheel: Path) -> str:
    (name,) = (each for each in files_of(wheel) if each.endswith("entry_points.txt"))
    with zipfile.ZipFile(wheel) as opened:
        return opened.read(name).decode()
