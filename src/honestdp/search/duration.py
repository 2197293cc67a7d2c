"""How long a search takes on average, by some steps on made-up records: from public numbers, whatever its secret draws are."""

from __future__ import annotations

import numpy as np

from honestdp.boundary.data import Shapes
from honestdp.boundary.seed import lent
from honestdp.logs import silence
from honestdp.search.design import Design
from honestdp.search.planning import made_up_job
from honestdp.search.runs import BATCH, Setting
from honestdp.search.space import Arguments, Candidate
from honestdp.training.chunks import seconds_per_step

_DRAWS = 64  # of a random search, to weigh how long its runs take
_AT_A_GLANCE = {"cuda": 16}  # runs that are timed together where a glance is enough; one elsewhere


def expected(made: Design, setting: Setting, shapes: Shapes | None) -> tuple[float | None, int | None]:
    """(seconds of all runs, bytes of those that are trained together), expected; None where no shape of a record is known."""
    if shapes is None:
        return None, None
    generator = np.random.default_rng(0)
    some = made.candidates or [made.space.draw(generator) for _ in range(_DRAWS)]
    return _timed(made, setting, shapes, [*some], at_once=None)


def at_a_glance(made: Design, setting: Setting, shapes: Shapes | None) -> float | None:
    """Seconds of all runs, roughly, by a few steps of a few runs of one candidate: for a word while the search goes on."""
    if shapes is None:
        return None
    some = made.candidates[:1] or [made.space.draw(np.random.default_rng(0))]
    with silence(), lent():
        return _timed(made, setting, shapes, [*some], at_once=_AT_A_GLANCE.get(setting.device.type, 1))[0]


def _timed(
    made: Design, setting: Setting, shapes: Shapes, some: list[Candidate], *, at_once: int | None
) -> tuple[float, int]:
    """at_once: how many runs are timed together; by default as many as would be trained together."""
    groups: dict[tuple[float, Arguments], list[Candidate]] = {}
    for one in some:
        groups.setdefault((one.lot, one.model), []).append(one)
    seconds, memory = 0.0, 0
    for group in groups.values():
        runs = made.selection.runs * len(group) / len(some)
        job = made_up_job(group[0], 0, made, setting, shapes.made_up())
        most = max(1, min(BATCH, round(runs)))
        size = job.most_together(most) if at_once is None else min(at_once, most)
        steps = sum(one.steps for one in group) / len(group)
        seconds += runs * steps * seconds_per_step(job.rehearsal(size), size)
        memory = max(memory, size * job.intake.bytes_per_run(job.runs[0]))
    return seconds / (
        1 if setting.cluster is None else min(setting.cluster.slots, max(1.0, made.selection.runs))
    ), memory
