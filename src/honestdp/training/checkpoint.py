"""Checkpoints: a training that is stopped at any moment goes on bit for bit.

One safetensors file, replaced atomically (written beside, flushed to the disk, renamed), readable by its owner alone:
it holds the training's seed and the generators' states, from which the noise can be recomputed, so it is as secret as the
records and must not leave. Since the seed is in it, also the parts of the training that have not begun will draw the same
numbers in whoever resumes it: two copies of a file end in the same weights.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.files import replace_file
from honestdp.identity import differing
from honestdp.identity.values import identity
from honestdp.optimizers import Rule
from honestdp.training.population import Snapshot


class Place(Protocol):
    """Where one checkpoint is kept."""

    def read(self) -> bytes | None:
        """What was written last, None where nothing was."""

    def write(self, content: bytes) -> None:
        """Durably, and whole or not at all."""


@dataclass(frozen=True)
class File:
    """A checkpoint in a file of its own."""

    path: Path

    def read(self) -> bytes | None:
        return self.path.read_bytes() if self.path.exists() else None

    def write(self, content: bytes) -> None:
        replace_file(self.path, content)

    def __str__(self) -> str:
        return str(self.path)


@dataclass
class Progress:
    """How far a training is.

    identity: what the training is, so that a checkpoint of another one is refused.
    seed: of the whole training.
    chunks: which runs were trained together, in order. finished: the weights `[runs, d]` of the chunks that are done.
    current: the chunk under way, if it has begun.
    stopped: the step at which whoever looked at a single run ended it. watched: somebody looked.
    initial: weights `[runs, d]` of those that have not begun: with other ones, the same noise would betray the difference.
    charge: its key in the ledger, the dataset there, and the tokens of the last resume; None where nothing was charged.
    """

    identity: dict[str, Any]
    seed: Seed
    chunks: list[list[int]]
    finished: list[Tensor] = field(default_factory=list)
    current: Snapshot | None = None
    stopped: int | None = None
    watched: bool = False
    charge: dict[str, str] | None = None
    initial: Tensor | None = None

    def made(self, steps: int) -> int:
        """Run-steps that are done, of runs of so many steps."""
        under_way = 0 if self.current is None else self.current.step * len(self.chunks[len(self.finished)])
        return under_way + steps * sum(map(len, self.chunks[: len(self.finished)]))


def packed(tensors: dict[str, Tensor], about: dict[str, Any]) -> bytes:
    """Tensors and what is said of them, as a safetensors file."""
    from safetensors.torch import save as serialise

    own = {name: value.detach().contiguous().cpu().clone() for name, value in tensors.items()}
    return serialise(own, {"honestdp": json.dumps(about)})


def unpacked(content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `packed` packed. Raises whatever kind of error a damaged content leads to."""
    from safetensors.torch import load as deserialise

    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    about = json.loads(header["__metadata__"]["honestdp"])
    # Copies: a product may round otherwise where a tensor does not begin at an address like a fresh one's.
    return {name: value.clone() for name, value in deserialise(content).items()}, about


def save(place: Place, progress: Progress) -> None:
    tensors = {f"finished.{i}": weights for i, weights in enumerate(progress.finished)}
    about: dict[str, Any] = {
        "identity": progress.identity,
        "seed": progress.seed.key.hex(),
        "chunks": progress.chunks,
        "finished": len(progress.finished),
        "stopped": progress.stopped,
        "watched": progress.watched,
    }
    if progress.initial is not None and len(progress.finished) + (progress.current is not None) < len(progress.chunks):
        tensors["initial"] = progress.initial
    if progress.charge is not None:
        about["charge"] = progress.charge
    if progress.current is not None:
        tensors["params"] = progress.current.params
        tensors |= {f"state.{name}": value for name, value in progress.current.state.items()}
        tensors |= {f"generator.{i}": value for i, value in enumerate(progress.current.generators)}
        about |= {"step": progress.current.step, "generators": len(progress.current.generators)}
    place.write(packed(tensors, about))


def load(content: bytes, place: str, identity: dict[str, Any], device: torch.device) -> Progress | None:
    """The progress in the content of a checkpoint, None before its first step, an error where it is of another training."""
    try:
        tensors, about = unpacked(content)
        if "identity" not in about and about["charge"]:
            return None  # it was charged, if at all, and no more
        known = {"ranks": 1} | dict(about["identity"])
        seed = Seed(bytes.fromhex(about["seed"]), identity["noise_seed"] is not None)
    except Exception as trouble:
        raise _unreadable(place, trouble) from trouble
    if known["ranks"] != identity["ranks"]:
        wanted = (
            f"resumed by {known['ranks']} rank{'s' * (known['ranks'] > 1)}, as it was begun: by another number it would draw "
            "other lots and noise, a second training for one price; several ranks may share a machine"
        )
        raise InvalidArgument("checkpoint", f"{place} and {identity['ranks']}", wanted)
    others = differing(_flat(known), _flat(json.loads(json.dumps(identity))))
    if others:
        wanted = f"of the same training; the file differs in {', '.join(sorted(others))}"
        raise InvalidArgument("checkpoint", place, wanted)
    progress = Progress(identity, seed, about["chunks"])
    progress.stopped, progress.watched = about.get("stopped"), about.get("watched", False)
    progress.charge = about.get("charge")
    progress.initial = tensors["initial"].to(device) if "initial" in tensors else None
    progress.finished = [tensors[f"finished.{i}"].to(device) for i in range(about["finished"])]
    if "step" in about:
        state = {name[6:]: value.to(device) for name, value in tensors.items() if name.startswith("state.")}
        generators = [tensors[f"generator.{i}"] for i in range(about["generators"])]
        progress.current = Snapshot(about["step"], tensors["params"].to(device), state, generators)
    return progress


def code_of_rules(rules: Sequence[Rule]) -> dict[str, str]:
    """Digests of the code of the optimizers, with the numbers in their tensors."""
    holding = [rule for rule in rules if any(isinstance(value, Tensor) for value in vars(rule).values())]
    return identity(*{type(rule): 0 for rule in rules}, *holding, values=True).named("the optimizers' code")


def begin(place: Place, charge: dict[str, str]) -> None:
    """The checkpoint of a training that is about to be charged."""
    place.write(packed({}, {"charge": charge}))


def charge_of(place: Place) -> dict[str, str] | None:
    """What a checkpoint keeps of its training's charge, empty for one that was not charged; None where there is no checkpoint.
    Whether it is of this training is for `load`.
    """
    content = place.read()
    if content is None:
        return None
    try:
        return {str(name): str(value) for name, value in (unpacked(content)[1].get("charge") or {}).items()}
    except Exception as trouble:
        raise _unreadable(str(place), trouble) from trouble


def _unreadable(place: str, trouble: Exception) -> InvalidArgument:
    wanted = "a checkpoint written by this training, or a path where none is yet"
    return InvalidArgument("checkpoint", place, f"{wanted} ({trouble})")


def _flat(identity: dict[str, Any]) -> dict[str, Any]:
    """An identity with the digests of the code beside the rest, so that a difference names whose code it is."""
    return {**identity, "code": None, **identity["code"]}
