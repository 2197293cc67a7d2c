"""How a training or a search is computed: where, with how many processes, what is shown, and where progress is kept.

Nothing here changes a guarantee. What does (`noise_seed`, `secure`, `strict`) is an argument of `train` and `tune` themselves.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from honestdp import checks
from honestdp.checks import InvalidArgument

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Compute:
    """How something is computed, for `train`, `train_population` and `tune`.

    device: "cpu", "cuda", ... or a torch.device; by default a GPU if there is one.
    workers: processes that decode a Dataset; 0 decodes in this one.
    progress: show that work goes on: a bar or a spinner on a terminal, elsewhere a line on standard error now and then.
    checkpoint: a file to keep the progress of a training in and to resume it from. It is secret, since the noise can be
        recomputed from it. A search has none: its folder, `out`, keeps its progress.
    checkpoint_seconds: how long may pass between two writings of the checkpoint.
    ranks: how many processes train one model together, each on its share of the records. By default all that torchrun has
        started, or that torch.distributed was initialised with; one where there is neither. A number must be theirs; 1 trains in
        this process alone, by itself, whoever else was started. A search is not shared out so.

    Raises InvalidArgument for workers or seconds below 0 or ranks below 1. A device that torch does not have here, or a
    checkpoint whose folder is missing, is refused when the work begins.

    >>> from honestdp import Compute
    >>> Compute(device="cpu", workers=0)
    Compute(device='cpu', workers=0, progress=False, checkpoint=None, checkpoint_seconds=30.0, ranks=None)
    """

    device: str | torch.device | None = None
    workers: int = 2
    progress: bool = False
    checkpoint: str | Path | None = None
    checkpoint_seconds: float = 30.0
    ranks: int | None = None

    def __post_init__(self) -> None:
        checks.whole(least=0, workers=self.workers)
        checks.non_negative(checkpoint_seconds=self.checkpoint_seconds)
        if self.ranks is not None:
            checks.whole(least=1, ranks=self.ranks)

    def place(self) -> torch.device:
        """The device, which is there and has a number."""
        import torch

        device = self.device
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            place = torch.device(device)
            torch.empty(0, device=place)
        except (RuntimeError, AssertionError) as trouble:  # the latter from a build of torch without that device
            wanted = "cpu, or a device that torch has here"
            raise InvalidArgument("device", str(device), wanted) from trouble
        if place.type == "cuda" and place.index is None:
            return torch.device("cuda", torch.cuda.current_device())
        return place


def checked(compute: Compute | None) -> Compute:
    """The default for None. Refuses what is not a Compute, and a checkpoint that could not be written."""
    compute = Compute() if compute is None else compute
    if not isinstance(compute, Compute):
        raise InvalidArgument("compute", compute, 'a honestdp.Compute, such as Compute(device="cuda")')
    path = None if compute.checkpoint is None else Path(compute.checkpoint)
    writes = compute.ranks == 1 or os.environ.get("RANK", "0") == "0"  # the first of several processes writes for all
    if path is not None and writes and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise InvalidArgument("checkpoint", str(path), "a file in a folder that exists")
    return compute
