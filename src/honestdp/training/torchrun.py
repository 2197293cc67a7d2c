"""Joining the processes that torchrun started, so that `train` is one training on all of them and not one on each.

Each process calls `train` with the same arguments and all records. What they must have in common is compared before anything is
charged; the weights they begin with, the secret seed and the checkpoint are those of rank 0, which alone pays, writes and shows.
Without this each process would make a training of its own on all records, with a charge of its own: so that it is asked for by
starting them together, and to train by itself is what has to be said (`Compute(ranks=1)`).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from torch import nn

from honestdp import __version__
from honestdp.boundary.data import PrivateData
from honestdp.boundary.ranks import ALONE, Joined, RankLost, Ranks
from honestdp.checks import InvalidArgument, started_together
from honestdp.gradients.prepared import code_of
from honestdp.logs import logger
from honestdp.optimizers import Rule
from honestdp.run import Run
from honestdp.training.checkpoint import code_of_rules
from honestdp.training.spec import Compute, TrainSpec

_log = logger(__name__)
_JOINING = timedelta(minutes=10)  # until all ranks have come
_TALK = timedelta(minutes=60)  # for what one rank does and the others wait for, such as an evaluation
_SUMS = timedelta(minutes=10)  # for a step; who is dead is noticed at once, and who is cut off after so long
_VARIABLES = ("RANK", "MASTER_ADDR", "MASTER_PORT")


def refuse_ranks(compute: Compute, what: str) -> None:
    """For what is not shared out over the processes of torchrun: each would do it all, and pay for it."""
    size = 1 if compute.ranks == 1 else max(compute.ranks or 1, started_together())
    if size > 1:
        wanted = (
            f"1 for {what}: torchrun's processes share the records of one training, and here each would do it all by itself and "
            "be charged for it. Start it once, without torchrun; Compute(cluster=...) spreads a search over machines. "
            "Compute(ranks=1) does it in this process alone"
        )
        raise InvalidArgument("ranks", size, wanted)


@contextmanager
def joined(compute: Compute) -> Iterator[tuple[Ranks, Compute]]:
    """The ranks to train with, and the compute with this rank's device. An error within ends the talk, so that others hear."""
    ranks, compute = _join(compute)
    try:
        yield ranks, compute
    finally:
        if isinstance(ranks, Joined):
            ranks.close()


def _join(compute: Compute) -> tuple[Ranks, Compute]:
    if compute.ranks == 1:
        return ALONE, compute
    size = started_together()
    if compute.ranks not in (None, size):
        how = "torchrun starts a program in several processes"
        raise InvalidArgument(
            "ranks", compute.ranks, f"{size}, as many processes as were started together, or 1; {how}"
        )
    if size == 1:
        return ALONE, compute
    missing = [] if _initialised() else [name for name in _VARIABLES if name not in os.environ]
    if missing:
        wanted = f"set where WORLD_SIZE is {size}: torchrun sets them; or say Compute(ranks=1) to train in this process by itself"
        raise InvalidArgument(" and ".join(missing), None, wanted)
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        raise InvalidArgument("ranks", size, "1 with this build of torch, which has no torch.distributed with gloo")
    device = _device(compute)
    return _met(device, size), replace(compute, device=device)


def _met(device: torch.device, size: int) -> Joined:
    """Once all ranks have come: with groups of our own, whose end nobody else waits for."""
    import torch.distributed as dist

    _log.info("waiting for all %d ranks to call train", size)
    try:
        if not dist.is_initialized():
            dist.init_process_group("gloo", timeout=_JOINING)
            atexit.register(_leave)
        talk = dist.new_group(backend="gloo", timeout=_TALK)
        where: list[Any] = [None] * size
        dist.all_gather_object(where, (socket.gethostname(), str(device)), group=talk)
        on_device = device.type == "cuda" and dist.is_nccl_available() and len(set(where)) == size
        sums = dist.new_group(backend="nccl" if on_device else "gloo", timeout=_SUMS)
    except (RuntimeError, ValueError) as trouble:
        why = " ".join(str(trouble).split())
        every = f"all {size} processes have to call train, or each with Compute(ranks=1) where they train by themselves"
        raise RankLost(f"the ranks did not come together: {every} ({why})") from trouble
    return Joined(talk, sums, on_device=on_device)


def _initialised() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _leave() -> None:
    with suppress(Exception):
        torch.distributed.destroy_process_group()


def _device(compute: Compute) -> torch.device:
    """Of GPUs without a number, that of this rank on its machine."""
    device = torch.device(compute.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        local = int(os.environ.get("LOCAL_RANK", "0"))
        device = torch.device("cuda", local % torch.cuda.device_count())
    return replace(compute, device=device).place()


def begin_alike(ranks: Ranks, modules: Sequence[nn.Module]) -> None:
    """All begin with the weights and buffers of rank 0, as whoever makes a model in each process would not otherwise."""
    if ranks.size == 1:
        return
    shapes = [{name: list(value.shape) for name, value in module.state_dict().items()} for module in modules]
    ranks.agree({"the model's parameters": shapes})
    states = ranks.first(lambda: [{n: v.detach().cpu() for n, v in m.state_dict().items()} for m in modules])
    for module, state in zip(modules, states, strict=True):
        module.load_state_dict(state)


def compare(
    ranks: Ranks,
    data: PrivateData,
    modules: Sequence[nn.Module],
    runs: Sequence[Run],
    rules: Sequence[Rule],
    *,
    spec: TrainSpec,
    factors: Sequence[float],
    device: str,
) -> None:
    """Refuse on all ranks, before anything is charged or read, calls that differ. factors: of the step size in each step."""
    if ranks.size == 1:
        return
    if runs[0].records < ranks.size:
        raise InvalidArgument("ranks", ranks.size, f"at most {runs[0].records}, the number of records")
    shapes = data.shapes
    ranks.agree(
        {
            "the version of honestdp": __version__,
            "the version of torch": torch.__version__,
            "run": list(runs),
            "optimizers": list(rules),
            "the number of records in data": len(data) if data.exact else "",
            "the shapes of data": "" if shapes is None else shapes.words,
            "schedule": hashlib.sha256(repr(factors).encode()).hexdigest()[:16],
            "augment": data.augment,
            **code_of(modules[0], spec.weighted_loss),
            **code_of_rules(rules),
            "noise_seed": spec.noise_seed,
            "secure": spec.secure,
            "strict": spec.strict,
            "device": device,
        }
    )


def note_of(ranks: Ranks) -> tuple[str, ...]:
    """For the statement."""
    if ranks.size == 1:
        return ()
    return (
        f"trained by {ranks.size} processes, each on its share of the records: what they send each other is taken to be seen by "
        "nobody, for sums travel with only a share of the noise",
    )
