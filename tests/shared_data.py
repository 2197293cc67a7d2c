"""Where the real datasets are on this machine, if they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("HONESTDP_DATA", ROOT.parent / "shared" / "data"))

needs_files = pytest.mark.skipif(
    not (FOLDER / "mnist").is_dir(), reason=f"DATASETS NOT FOUND in {FOLDER}: set HONESTDP_DATA to test their loaders"
)
