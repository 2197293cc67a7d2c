"""Times some steps of a search's runs on synthetic records: for its plan, for a word on how long it takes, and for a dry run.

*The plan* says how many runs are trained together. A population draws its noise as one stream, so that which runs are in it
decides what each of them draws. A choice by speed made anew in every copy of a folder would make the copies differ: it is
measured once before the charge. The number for a Dataset, whose shapes are not known before a record is read, follows from the
memory that was free when the search began.

On a cluster populations are smaller where that keeps every node at work. Their size is then in the plan like everything else, so
that the search may well be resumed on one machine. A fixed seed takes no notice of a cluster: it gives one result everywhere.

What a machine does out of memory, to split a population, is the one thing that no plan foresees: the halves are named by their
runs and draw anew (`Job`), and a copy on a smaller machine then ends otherwise.

*How long a search takes* on average follows from public numbers, whatever its secret draws are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from honestdp.boundary.data import Shapes
from honestdp.boundary.seed import lent
from honestdp.logs import silence
from honestdp.search.design import Design
from honestdp.search.runs import BATCH, Setting, Tested
from honestdp.search.secret import Secret
from honestdp.search.space import Arguments, Candidate
from honestdp.training.chunks import free_memory, largest_chunk, seconds_per_step, worth_measuring
from honestdp.training.loop import Job
from honestdp.training.spec import Compute
from honestdp.training.train import assemble

SHARES = 2  # populations of a group for each slot of a cluster, so that none waits long for the last
_DRAWS = 64  # of a random search, to weigh how long its runs take
_AT_A_GLANCE = {"cuda": 16}  # runs that are timed together where a glance is enough; one elsewhere


def planned(drawn: Secret, design: Design, setting: Setting, shapes: Shapes | None, tested: Tested) -> Secret:
    """The draws with the plan of this machine. No record is read."""
    memory, cluster, groups = free_memory(setting.device), setting.cluster, drawn.groups()
    if drawn.seed.is_fixed:  # it gives the same on every machine with enough memory
        return replace(drawn, memory=memory)
    if cluster is not None and setting.kind == "cpu" and cluster.memory is not None:
        memory = min(memory, cluster.memory)
    together: tuple[int, ...] = ()
    if shapes is not None:
        together = tuple(_together(drawn, group, design, setting, shapes, tested, memory) for group in groups)
    if cluster is not None:
        shares = (-(-len(group) // (SHARES * cluster.slots)) for group in groups)
        sizes = together or (0,) * len(groups)
        together = tuple(min(share, size or share) for share, size in zip(shares, sizes, strict=True))
    return replace(drawn, memory=memory, together=together)


def _together(
    drawn: Secret, group: list[int], design: Design, setting: Setting, shapes: Shapes, tested: Tested, memory: int
) -> int:
    """The most runs of a group to train together; 0 where no measurement is worth its time, and memory alone decides."""
    first, runs = drawn.candidates[group[0]], min(len(group), BATCH)
    measured = worth_measuring(runs, first.steps)
    if not measured and setting.cluster is None:
        return 0
    job = _made_up_job(first, drawn.starts[group[0]], design, setting, shapes, tested)
    quickest = job.most_together(runs) if measured else runs
    return min(quickest, largest_chunk(job.intake.bytes_per_run(job.runs[0]), memory))


def _made_up_job(
    candidate: Candidate, start: int, design: Design, setting: Setting, shapes: Shapes, tested: Tested
) -> Job:
    """The job of one run over synthetic records, to be timed. start: of its weights."""
    return assemble(
        setting.module(candidate, start),
        shapes.made_up(),
        run=design.run_of(candidate),
        optimizers=[candidate.rule()],
        spec=setting.spec(Compute(device=setting.device, workers=0)),
        vetted=tested.get(candidate.model),
    )


def expected(
    made: Design, setting: Setting, shapes: Shapes | None, tested: Tested, *, at_a_glance: bool = False
) -> tuple[float | None, int | None]:
    """(seconds of all runs, bytes of those that are trained together), expected; None where no shape of a record is known.

    at_a_glance: by a few steps of a few runs of one candidate, for a word while the search goes on.
    """
    if shapes is None:
        return None, None
    generator = np.random.default_rng(0)
    some = made.candidates or [made.space.draw(generator) for _ in range(1 if at_a_glance else _DRAWS)]
    groups: dict[tuple[float, Arguments], list[Candidate]] = {}
    for one in some[:1] if at_a_glance else some:
        groups.setdefault((one.lot, one.model), []).append(one)
    seconds, memory, count = 0.0, 0, sum(map(len, groups.values()))
    with silence(), lent():
        for group in groups.values():
            runs = made.selection.runs * len(group) / count
            job = _made_up_job(group[0], 0, made, setting, shapes, tested)
            most = max(1, min(BATCH, round(runs)))
            size = min(_AT_A_GLANCE.get(setting.device.type, 1), most) if at_a_glance else job.most_together(most)
            steps = sum(one.steps for one in group) / len(group)
            seconds += runs * steps * seconds_per_step(job.rehearsal(size), size)
            memory = max(memory, size * job.intake.bytes_per_run(job.runs[0]))
    slots = 1 if setting.cluster is None else min(setting.cluster.slots, max(1.0, made.selection.runs))
    return seconds / slots, memory
