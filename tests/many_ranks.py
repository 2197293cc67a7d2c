"""Programs on several ranks, as torchrun starts them: each in a process of its own, forked, with gloo between them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.forked_python import Forked

ROOT = Path(__file__).parent.parent


def started(folder: Path, code: str, size: int, *words: str) -> list[Forked]:
    """The processes, the first of which is rank 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    about = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    return [
        Forked(folder, code, *words, environment=os.environ | about | {"RANK": str(rank)}, path=ROOT)
        for rank in range(size)
    ]


def on_ranks(folder: Path, code: str, size: int, *words: str) -> list[tuple[int, str, str]]:
    """(exit code, standard output, standard error) of each rank, once all have ended."""
    every = started(folder, code, size, *words)
    said = [process.communicate(timeout=120) for process in every]
    return [(process.returncode or 0, *one) for process, one in zip(every, said, strict=True)]
