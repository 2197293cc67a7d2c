"""All random draws of a search, made before a record is read and kept secret.

How many runs there are, which candidates they try, how the records are split, what noise the scores get: none of it depends on a
record, and none of it may be known to whoever sees the winner.

All of it follows from one seed of 256 bits, with one exception: the scores' noise is drawn by an exact sampler that cannot
be seeded, and is kept beside the seed. So is what a machine decides and other machines would decide otherwise: how many runs are
trained together. That is the plan of the search. It is on the disk before the charge and is never changed, so that a
search that was killed goes on with the same draws, and two copies of its folder say the same thing: the same noise on the same
function of the same records. Different draws in two copies would be two answers for the price of one; the same noise
on different functions would betray their difference.

It is encrypted in a folder of its owner alone while the search lasts, and is erased at the end (`vault`). Whoever has read it
knows the number of runs and can subtract all noise: the guarantee is then lost, that of a single run as well.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

import numpy as np

from honestdp.boundary.data import Coins, coins
from honestdp.boundary.score_noise import choice_noise, score_noise
from honestdp.boundary.seed import Seed
from honestdp.checks import HonestdpError
from honestdp.search.design import Design
from honestdp.search.space import Arguments, Candidate

PLAN = "plan"
CHOICE = 1
"""The purpose of the generator of a fixed seed that draws the noise of the private choice among composed runs."""


@dataclass(frozen=True)
class Secret:
    """The draws of one search, and its plan.

    candidates: what each run tries, in the order of the runs. noise: of each run's score. ties: breaks equal scores.
    choice: noise of the private choice among composed runs, one number a run; empty for other selections.
    starts: seeds of the initial weights, which depend on nothing. split: seed of the coins. seed: of everything else.
    fixed: a user's number behind it. memory: bytes that were free for the runs when the search began; None where that
    was not recorded. together: how many runs of
    each group are trained together at most, where that was measured. code: of all that runs (`identity`).
    """

    candidates: tuple[Candidate, ...]
    noise: tuple[int, ...]
    ties: tuple[float, ...]
    starts: tuple[int, ...]
    split: int
    seed: Seed
    fixed: int | None = None
    choice: tuple[int, ...] = ()
    memory: int | None = None
    together: tuple[int, ...] = ()
    code: dict[str, str] = field(default_factory=dict)

    def held_out(self, records: int, fraction: float) -> Coins:
        """For each record whether the coin puts it on the validation side."""
        return coins(records, fraction=fraction, seed=self.split)

    def rank(self, run: int, noisy: float) -> tuple[float, float]:
        """The winner is the run of the highest rank: by its noisy score, and by chance among equals."""
        return noisy, self.ties[run]

    def generator(self, purpose: int) -> np.random.Generator | None:
        """A generator of a user's fixed seed, or None, which is the operating system's randomness."""
        return None if self.fixed is None else np.random.default_rng([self.fixed, purpose])

    @property
    def noises(self) -> list[tuple[int, ...]]:
        """The noise of each run's score; before it that of the choice, where one is made among runs that all leave."""
        return list(zip(self.choice, self.noise, strict=True)) if self.choice else [(z,) for z in self.noise]

    def groups(self) -> list[list[int]]:
        """The runs that may be trained together, of one (lot, steps, model) each, in order."""
        groups: dict[tuple[float, int, Arguments], list[int]] = {}
        for run, candidate in enumerate(self.candidates):
            groups.setdefault((candidate.lot, candidate.steps, candidate.model), []).append(run)
        return list(groups.values())


def _generator(seed: Seed) -> np.random.Generator:
    """With a pool of as many bits as the seed has: numpy's usual one has 128."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed.number(256), pool_size=8)))


def drawn(design: Design, *, seed: int | None) -> Secret:
    """Draw everything. seed: a user's, whose result is NOT PRIVATE; None takes the operating system's randomness."""
    root = Seed.fresh() if seed is None else Seed.fixed(seed)
    # The committed tables of the papers were drawn from users' numbers as they are.
    generator = _generator(root.child("draws")) if seed is None else np.random.default_rng(seed)
    numbers = design.selection.draws(generator, design.count)
    candidates = [design.candidates[i] if design.candidates else design.space.draw(generator) for i in numbers]
    count, metric, noise, choice = len(candidates), design.metric, list[int](), list[int]()
    if metric is not None and design.multiplier is not None:
        source = None if seed is None else generator
        noise = score_noise(count, multiplier=design.multiplier, sensitivity=metric.sensitivity, generator=source)
    if metric is not None and design.choice is not None:
        source = None if seed is None else np.random.default_rng([seed, CHOICE])
        choice = choice_noise(count, epsilon=design.choice, sensitivity=metric.sensitivity, generator=source)
    return Secret(
        candidates=tuple(candidates),
        noise=tuple(noise),
        ties=tuple(generator.random(count).tolist()),
        starts=tuple(int(i) for i in generator.integers(2**62, size=count)),
        split=int.from_bytes(generator.bytes(16), "big"),
        seed=root,
        fixed=seed,
        choice=tuple(choice),
    )


def written(secret: Secret) -> bytes:
    return json.dumps(asdict(secret) | {"seed": secret.seed.key.hex()}).encode()


def read(content: bytes | None) -> Secret:
    """The plan that was written, or an error: it is there, or the search never began."""
    try:
        fields = json.loads(content or b"")
        for name in ("noise", "ties", "starts", "choice", "together"):
            fields[name] = tuple(fields[name])
        for candidate in fields["candidates"]:
            for name in ("numbers", "model"):
                candidate[name] = tuple(map(tuple, candidate[name]))
        fields["candidates"] = tuple(Candidate(**candidate) for candidate in fields["candidates"])
        seed = Seed(bytes.fromhex(fields.pop("seed")), fields["fixed"] is not None)
        return Secret(seed=seed, **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as trouble:
        why = f"the plan of this search cannot be read ({type(trouble).__name__})"
        raise HonestdpError(f"{why}: it cannot go on; what it was charged stays charged") from trouble
