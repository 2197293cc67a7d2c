"""Checkpoints: a training that is stopped at any moment goes on bit for bit.

One safetensors file, replaced atomically (written beside, flushed to the disk, renamed), readable by its owner alone:
it holds the generators' states, from which the noise can be recomputed, so it is as secret as the records and must not
leave.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from honestdp.checks import InvalidArgument
from honestdp.files import replace_file
from honestdp.population import Snapshot


@dataclass
class Progress:
    """How far a training is.

    identity: what the training is, so that a checkpoint of another one is refused.
    chunks: which runs were trained together, in order. finished: the weights `[runs, d]` of the chunks that are done.
    current: the chunk under way, if it has begun.
    """

    identity: dict[str, Any]
    chunks: list[list[int]]
    finished: list[Tensor] = field(default_factory=list)
    current: Snapshot | None = None


def save(path: Path, progress: Progress) -> None:
    from safetensors.torch import save as serialise

    tensors = {f"finished.{i}": weights for i, weights in enumerate(progress.finished)}
    about: dict[str, Any] = {
        "identity": progress.identity,
        "chunks": progress.chunks,
        "finished": len(progress.finished),
    }
    if progress.current is not None:
        tensors["params"] = progress.current.params
        tensors |= {f"state.{name}": value for name, value in progress.current.state.items()}
        tensors |= {f"generator.{i}": value for i, value in enumerate(progress.current.generators)}
        about |= {"step": progress.current.step, "generators": len(progress.current.generators)}
    own = {name: value.detach().contiguous().cpu().clone() for name, value in tensors.items()}
    replace_file(path, serialise(own, {"honestdp": json.dumps(about)}))


def load(path: Path, identity: dict[str, Any], device: torch.device) -> Progress | None:
    """The progress kept at `path`, None where there is none, an error where it is of another training."""
    from safetensors import safe_open

    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["honestdp"])
            # Copies: a product may round otherwise where a tensor does not begin at an address like a fresh one's.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
        known = dict(about["identity"])
    except Exception as trouble:
        wanted = "a checkpoint written by this training, or a path where none is yet"
        raise InvalidArgument("checkpoint", str(path), f"{wanted} ({trouble})") from trouble
    differing = sorted(key for key in identity if known.get(key) != json.loads(json.dumps(identity[key])))
    if differing:
        wanted = f"of the same training; the file differs in {', '.join(differing)}"
        raise InvalidArgument("checkpoint", str(path), wanted)
    progress = Progress(identity, about["chunks"])
    progress.finished = [tensors[f"finished.{i}"].to(device) for i in range(about["finished"])]
    if "step" in about:
        state = {name[6:]: value.to(device) for name, value in tensors.items() if name.startswith("state.")}
        generators = [tensors[f"generator.{i}"] for i in range(about["generators"])]
        progress.current = Snapshot(about["step"], tensors["params"].to(device), state, generators)
    return progress
