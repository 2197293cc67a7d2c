"""How a training or a search is computed: where, with how many processes, what is shown, and where progress is kept.

Nothing here changes a guarantee. What does (`noise_seed`, `secure`, `strict`) is an argument of `train` and `tune` themselves.
"""

from __future__ import annotations

import os
import re
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
    cluster: for a search alone: the Ray cluster on whose nodes its runs are trained, as "auto" (the one that this machine is in),
        "HOST:PORT" or "ray://HOST:PORT". A device is then the kind that every node trains on, "cpu" or "cuda".

    Raises InvalidArgument for workers or seconds below 0, ranks below 1, or an address that is none. A device that torch does not
    have here, or a checkpoint whose folder is missing, is refused when the work begins; so is a cluster that does not answer.

    >>> from honestdp import Compute
    >>> Compute(device="cpu", workers=0)
    Compute(device='cpu', workers=0, progress=False, checkpoint=None, checkpoint_seconds=30.0, ranks=None, cluster=None)
    """

    device: str | torch.device | None = None
    workers: int = 2
    progress: bool = False
    checkpoint: str | Path | None = None
    checkpoint_seconds: float = 30.0
    ranks: int | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.cluster is not None and not _is_address(self.cluster):
            raise InvalidArgument(
                "cluster", self.cluster, 'the address of a Ray cluster: "auto", HOST:PORT or ray://HOST:PORT'
            )
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
        if self.cluster is not None and self.kind() == "cuda" and not torch.cuda.is_available():
            device = "cpu"  # the nodes have what this machine, which only rehearses, has not
        try:
            place = torch.device(device)
            torch.empty(0, device=place)
        except (RuntimeError, AssertionError) as trouble:  # the latter from a build of torch without that device
            wanted = "cpu, or a device that torch has here"
            raise InvalidArgument("device", str(device), wanted) from trouble
        if place.type == "cuda" and place.index is None:
            return torch.device("cuda", torch.cuda.current_device())
        return place

    def kind(self) -> str:
        """Of the device, on this machine or on the nodes of the cluster: "cpu", "cuda", ..."""
        import torch

        if self.device is None:
            return "cuda" if torch.cuda.is_available() else "cpu"
        try:
            return torch.device(self.device).type
        except RuntimeError as trouble:
            raise InvalidArgument("device", str(self.device), "cpu, or a device that torch has here") from trouble


def _is_address(cluster: object) -> bool:
    if not isinstance(cluster, str):
        return False
    return cluster == "auto" or re.fullmatch(r"(ray://)?([^\s:/]+|\[[0-9a-fA-F:]+\]):\d{1,5}", cluster) is not None


def checked(compute: Compute | None, *, search: bool = False) -> Compute:
    """The default for None. Refuses what is not a Compute, a checkpoint that could not be written, and a cluster for anything but
    a search.
    """
    compute = Compute() if compute is None else compute
    if not isinstance(compute, Compute):
        raise InvalidArgument("compute", compute, 'a honestdp.Compute, such as Compute(device="cuda")')
    if compute.cluster is not None and not search:
        wanted = "left out for a training: the runs of a search, which is what tune makes, are spread over a cluster"
        raise InvalidArgument("cluster", compute.cluster, wanted)
    path = None if compute.checkpoint is None else Path(compute.checkpoint)
    writes = compute.ranks == 1 or os.environ.get("RANK", "0") == "0"  # the first of several processes writes for all
    if path is not None and writes and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise InvalidArgument("checkpoint", str(path), "a file in a folder that exists")
    return compute
