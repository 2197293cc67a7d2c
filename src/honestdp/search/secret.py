"""The secret side of a search: every random number of it, drawn before the first run and before a record is read.

How many runs there are, which candidates they try, how the records are split, what noise the scores get: none of it depends on a
record, and none of it may be known to whoever sees the winner. It is kept in a folder of its owner alone while the search
lasts, so that a search that was killed goes on with the same draws, and is erased at the end. Whoever has read it knows the
number of runs and can subtract the scores' noise: the guarantee of the search is then lost, that of a single run as well
(the trainings' generators are beside it).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from honestdp.checks import HonestdpError
from honestdp.data.split import Coins, coins
from honestdp.files import replace_file
from honestdp.scores import choice_noise, score_noise
from honestdp.search.design import Design
from honestdp.space import Candidate

FOLDER, ERASED = ".secret", ".secret-erased"
STATE = "state.json"
CHOICE = 1
"""The purpose of the generator of a fixed seed that draws the noise of the private choice among composed runs."""


@dataclass(frozen=True)
class Secret:
    """The draws of one search.

    candidates: what each run tries, in the order of the runs. noise: of each run's score. ties: breaks equal scores.
    choice: noise of the private choice among composed runs, one number a run; empty for other selections.
    starts: seeds of the initial weights, which depend on nothing. split: seed of the coins.
    """

    candidates: tuple[Candidate, ...]
    noise: tuple[int, ...]
    ties: tuple[float, ...]
    starts: tuple[int, ...]
    split: int
    seed: int | None
    choice: tuple[int, ...] = ()

    def held_out(self, records: int, fraction: float) -> Coins:
        """For each record whether the coin puts it on the validation side."""
        return coins(records, fraction=fraction, seed=self.split)

    def rank(self, run: int, noisy: float) -> tuple[float, float]:
        """The winner is the run of the highest rank: by its noisy score, and by chance among equals."""
        return noisy, self.ties[run]

    def generator(self, purpose: int) -> np.random.Generator | None:
        """A generator of a user's fixed seed, or None, which is the operating system's randomness."""
        return None if self.seed is None else np.random.default_rng([self.seed, purpose])


def drawn(design: Design, *, seed: int | None) -> Secret:
    """Draw everything. seed: a user's, whose result is NOT PRIVATE; None takes the operating system's randomness."""
    generator = np.random.default_rng(secrets.randbits(256) if seed is None else seed)
    numbers = design.selection.draws(generator, design.count)
    candidates = [design.candidates[i] if design.candidates else design.space.draw(generator) for i in numbers]
    noise: list[int] = []
    if design.metric is not None and design.multiplier is not None:
        noise = score_noise(
            len(candidates),
            multiplier=design.multiplier,
            sensitivity=design.metric.sensitivity,
            generator=None if seed is None else generator,
        )
    choice: list[int] = []
    if design.metric is not None and design.choice is not None:
        choice = choice_noise(
            len(candidates),
            epsilon=design.choice,
            sensitivity=design.metric.sensitivity,
            generator=None if seed is None else np.random.default_rng([seed, CHOICE]),
        )
    return Secret(
        candidates=tuple(candidates),
        noise=tuple(noise),
        ties=tuple(generator.random(len(candidates)).tolist()),
        starts=tuple(int(i) for i in generator.integers(2**62, size=len(candidates))),
        split=int.from_bytes(generator.bytes(16), "big"),
        seed=seed,
        choice=tuple(choice),
    )


def save(folder: Path, secret: Secret) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    replace_file(folder / STATE, json.dumps(asdict(secret)).encode())


def load(folder: Path) -> Secret:
    try:
        kept = json.loads((folder / STATE).read_text())
        candidates = tuple(
            Candidate(
                one["optimizer"], tuple((n, v) for n, v in one["numbers"]), one["lot"], one["steps"], one["width"]
            )
            for one in kept.pop("candidates")
        )
        lists = {name: tuple(kept[name]) for name in ("noise", "ties", "starts", "choice")}
        return Secret(candidates=candidates, split=kept["split"], seed=kept["seed"], **lists)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as trouble:
        raise HonestdpError(
            f"the secret state in {folder} cannot be read ({type(trouble).__name__}): this search cannot go on; what it was "
            f"charged stays charged"
        ) from trouble


def erase(folder: Path) -> None:
    """Overwrite and remove what was secret. On disks that copy behind one's back this is the best that a program can do.

    It is renamed first, so that a search killed in here is not taken for one that can go on; the next call ends the work.
    """
    doomed = folder.with_name(ERASED)
    _wipe(doomed)
    if folder.exists():
        folder.rename(doomed)
        _wipe(doomed)


def _wipe(folder: Path) -> None:
    if not folder.exists():
        return
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("r+b") as file:
                file.write(b"\0" * path.stat().st_size)
                file.flush()
                os.fsync(file.fileno())
    shutil.rmtree(folder)
