"""How many runs of a search are trained together: measured once before the charge, and kept in its plan.

A population draws its noise as one stream, so that which runs are in it decides what each of them draws. A choice by speed made
anew in every copy of a folder would make the copies differ. It is measured on made-up records in the shape of the true
ones, where that shape is known without a record (arrays and tensors); a Dataset's is not, and the number follows from the
memory that was free when the search began.

On a cluster populations are smaller where that keeps every node at work. Their size is then in the plan like everything else, so
that the search may well be resumed on one machine. A fixed seed takes no notice of a cluster: it gives one result everywhere.

What a machine does out of memory, to split a population, is the one thing that no plan foresees: the halves are named by their
runs and draw anew (`Job`), and a copy on a smaller machine then ends otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from honestdp.boundary.data import PrivateData
from honestdp.search.design import Design
from honestdp.search.runs import BATCH, Setting
from honestdp.search.secret import Secret
from honestdp.search.space import Candidate
from honestdp.training.chunks import free_memory, largest_chunk, worth_measuring
from honestdp.training.loop import Job
from honestdp.training.spec import Compute
from honestdp.training.train import assemble

SHARES = 2  # populations of a group for each slot of a cluster, so that none waits long for the last


def planned(drawn: Secret, design: Design, setting: Setting, data: PrivateData) -> Secret:
    """The draws with the plan of this machine. No record is read."""
    memory, shapes, cluster, groups = free_memory(setting.device), data.shapes, setting.cluster, drawn.groups()
    if drawn.seed.is_fixed:  # it gives the same on every machine with enough memory
        return replace(drawn, memory=memory)
    if cluster is not None and setting.kind == "cpu" and cluster.memory is not None:
        memory = min(memory, cluster.memory)
    together: tuple[int, ...] = ()
    if shapes is not None:
        blanks = shapes.made_up()
        together = tuple(_together(drawn, group, design, setting, blanks, memory) for group in groups)
    if cluster is not None:
        shares = (-(-len(group) // (SHARES * cluster.slots)) for group in groups)
        sizes = together or (0,) * len(groups)
        together = tuple(min(share, size or share) for share, size in zip(shares, sizes, strict=True))
    return replace(drawn, memory=memory, together=together)


def _together(
    drawn: Secret, group: list[int], design: Design, setting: Setting, blanks: PrivateData, memory: int
) -> int:
    """The most runs of a group to train together; 0 where no measurement is worth its time, and memory alone decides."""
    first, runs = drawn.candidates[group[0]], min(len(group), BATCH)
    measured = worth_measuring(runs, first.steps)
    if not measured and setting.cluster is None:
        return 0
    job = made_up_job(first, drawn.starts[group[0]], design, setting, blanks)
    quickest = job.most_together(runs) if measured else runs
    return min(quickest, largest_chunk(job.intake.bytes_per_run(job.runs[0]), memory))


def made_up_job(candidate: Candidate, start: int, design: Design, setting: Setting, blanks: PrivateData) -> Job:
    """The job of one run over made-up records, to be timed. start: of its weights."""
    return assemble(
        setting.module(candidate, start),
        blanks,
        run=design.run_of(candidate),
        optimizers=[candidate.rule()],
        spec=setting.spec(Compute(device=setting.device, workers=0)),
        by_coin=True,
    )
