"""`Mechanism`, the door of training: weights and state go in with a rule, weights and state come out.

The one verb is `Mechanism.steps`: some steps of a population, each the Poisson-sampled Gaussian of `release`. What comes out
is computed from releases alone, since the rule sees nothing else. How many steps a call makes follows from public constants.
They run one by one, or on a GPU eight at a time as one captured graph (`capture`); both ways make the same releases.

The lots of a block of steps are drawn before its steps, for they do not depend on the weights, and the host knows how long
each is: steps whose lots fit the captured shape are replayed, the rare others run one by one, in as many pieces as their lots
need. No lot is cut to a shape.

Several processes may make the steps together (`ranks`), each with its share of the records: its lots are drawn from these, at the
rate of the whole. They make the same steps in the same order, one by one, for how many there are in a block is public.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from honestdp.augment import Augmentation, varied
from honestdp.boundary.capture import UNROLL, Captured, NotCapturable
from honestdp.boundary.noise import noise_source, torch_generator
from honestdp.boundary.query import Constants, Query, Release, State, Steps
from honestdp.boundary.ranks import ALONE, Ranks
from honestdp.boundary.records import Examples, Records
from honestdp.boundary.release import at_a_time, release, width_of
from honestdp.boundary.sampling import Lots, PendingLots, block_steps
from honestdp.boundary.seed import Seed
from honestdp.boundary.vetted import Vetted
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs


class Mechanism:
    """The records, lots and noise of one population."""

    def __init__(
        self,
        vetted: Vetted,
        records: Records,
        constants: Constants,
        *,
        seed: Seed,
        secure: bool = False,
        pause: int | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """pause: calls of `steps` end at every multiple of so many steps, for whoever looks at the weights there.
        A record with a label that the loss does not take contributes zero, and nobody learns that there is one.
        ranks: with whom the steps are made; `records` are this one's share, and `seed` and `constants` are those of the whole.
        """
        self._ranks, self._secure = ranks, secure
        device = constants.noise.device
        self.constants = constants.copy()  # what a rule is shown; it may write to it, and no noise becomes less
        self._declared = constants.copy()
        self._records, self._vetted = records, vetted
        self._runs = len(constants.noise)
        self._rate = constants.lot / constants.records
        self._made = 0
        self._pending: PendingLots | None = None
        self._begun: tuple[Lots, int] | None = None
        self._captured: Captured | None = None
        self._capturable = device.type == "cuda" and records.resident and vetted.capturable
        self._capturable &= ranks.size == 1  # a graph cannot wait for other processes
        self._block = block_steps(records=constants.records, rate=self._rate, runs=self._runs)
        if pause is not None:
            # A GPU replays steps in groups and has the room for all lots of a pause; elsewhere a divisor of it is taken.
            self._block = pause if device.type == "cuda" else _largest_divisor(pause, self._block)
        x, y = records.blank(vetted.model)
        records_in_all, lot = constants.records, constants.lot
        self._width = width_of(x, runs=self._runs, records=records_in_all, lot=lot, rows=vetted.rows)
        kept = vetted.cover(x, y, runs=self._runs, width=self._width).bytes_kept * vetted.rows
        self._at_a_time = at_a_time(self._width, self._runs, kept, device)
        self.begin(seed)

    def begin(self, seed: Seed, *, made: int = 0) -> None:
        """Draw lots, noise and variants from this seed alone from here on, after so many steps.

        A round of federated training begins so: its steps start at weights of the server, which may depend on every earlier
        release. Adaptive composition covers that, since a record's part is clipped at any weights. All rounds are steps of one
        declared run, and no more steps than that are made.
        """
        if self._begun is not None or self._pending is not None or made < self._made:
            raise RuntimeError("a round begins after all steps of the round before")
        seed, device = self._ranks.seed_of(seed), self._declared.noise.device
        self._made = made
        self._noise = noise_source(device, seed.child("noise"), secure=self._secure)
        self._choice = torch_generator(device, seed.child("lots"))
        self._decoding = seed.child("decoding")
        augment, width = self._records.augment, self._width * self._vetted.rows
        self._variants: Variants | None = None
        if augment is not None:
            self._variants = Variants(augment, device, seed.child("augmentation"), width=width)
        self._captured = None  # a graph holds the generators that it was captured with

    @torch.no_grad()
    def steps(
        self, rule: Steps, params: Tensor, state: State, *, left: int, most: int | None = None
    ) -> tuple[int, Tensor, State]:
        """Make the next steps of a population, at most `left`: how many, and the weights and the state after them.

        params: `[runs, d]`. What is returned is nobody else's: no later call writes to it.
        most: return within a block, for whoever looks at the weights: after so many steps, on a GPU at the end of their
            group of eight, whether its lots fit the captured shape or not, for that is secret. The next call goes on
            with the lots that were drawn, so that looking changes no draw: the same noise on other lots would betray
            the difference between them.
        """
        if self._begun is None:
            self._begin(left)
        assert self._begun is not None
        (lots, first), self._begun = self._begun, None  # what fails in the middle is not made again
        # A rule may write to what it is given; what the caller holds is what a checkpoint resumes these very lots and noise from.
        params, state = params.clone(), {name: value.clone() for name, value in state.items()}
        count = len(lots.longest)
        last = count if most is None else first + most
        last = min(count, -(-last // UNROLL) * UNROLL if self._capturable else last)
        with self._vetted.untouched.same_loss():
            for at in range(first, last, UNROLL):
                group = range(at, min(at + UNROLL, last))
                if self._fits(lots, group) and self._capture(rule, params, state):
                    params, state = self._replayed(params, state, lots, at)
                else:
                    for step in group:
                        params, state = self._eager(rule, params, state, lots, step)
        self._begun = None if last == count else (lots, last)
        if self._captured is not None:  # some of these may be its buffers
            params, state = params.clone(), {name: value.clone() for name, value in state.items()}
        self.settle(wait=False)
        return last - first, params, state

    @property
    def between_blocks(self) -> bool:
        """No lots are drawn of which some steps are still to be made: `random_state` can be taken."""
        return self._begun is None

    def settle(self, *, wait: bool = True) -> None:
        """An error if anything but the optimizer has written to the model; see `Untouched.settle`."""
        self._vetted.untouched.settle(wait=wait)

    def random_state(self) -> list[Tensor]:
        """The generators, such that `restore` followed by `steps` draws the pending lots again. Secret."""
        if self._begun is not None:
            raise RuntimeError("the state of a block that is not over cannot be taken")
        before = self._choice.get_state() if self._pending is None else self._pending.before
        device = self._declared.noise.device
        # torch's own generator serves a model's dropout and nothing of privacy.
        shared = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
        varied = [] if self._variants is None else self._variants.state()
        return self._ranks.gathered([before, shared, *varied, *self._noise.state()])

    def check_alike(self, params: Tensor) -> None:
        """An error where another rank has other weights."""
        self._ranks.check_alike(params)

    def restore(self, random_state: list[Tensor], *, step: int) -> None:
        """Go on from where `random_state` was taken, after so many steps."""
        self._made, random_state = step, self._ranks.own(random_state)
        self._pending = self._begun = self._captured = None
        self._choice.set_state(random_state[0])
        device = self._declared.noise.device
        if device.type == "cuda":
            torch.cuda.set_rng_state(random_state[1], device)
        else:
            torch.set_rng_state(random_state[1])
        if self._variants is not None:
            self._variants.restore(random_state[2:3])
        self._noise.restore(random_state[2 if self._variants is None else 3 :])

    def _begin(self, left: int) -> None:
        """The lots of the next block of at most `left` steps; those of the block after it are begun."""
        if self._pending is None:
            self._start(min(self._block, left))
        lots = self._lots()
        count = len(lots.longest)
        if count > left or self._made + count > self._declared.steps:
            raise RuntimeError("more steps than were asked for, or than are accounted")
        self._made += count
        if count < left:
            self._start(min(self._block, left - count))  # while a GPU makes these steps
        self._begun = lots, 0

    def _start(self, steps: int) -> None:
        """Begin drawing the lots of the coming steps."""
        # Every record that is there has its chance, L/N with the declared N; how many there are sets nothing else.
        records, rate = len(self._records), self._rate
        self._pending = PendingLots(self._choice, records=records, rate=rate, steps=steps, runs=self._runs)

    def _lots(self) -> Lots:
        """The lots that were begun."""
        assert self._pending is not None
        pending, self._pending = self._pending, None
        lots = pending.finish()
        if not self._records.resident:
            # Named by the state from which these lots were drawn, which no other block has and a resumed one has again.
            name = hashlib.sha256(pending.before.cpu().numpy().tobytes()).hexdigest()
            pieces = [indices for step in range(len(lots.longest)) for indices, _ in self._pieces(lots, step)]
            self._records.expect(pieces, self._decoding.child(name))
        return lots

    def _pieces(self, lots: Lots, step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices and presence of a step's lot, no wider than the width at a time. None for a step of empty lots."""
        for first in range(0, lots.longest[step], self._width):
            last = min(first + self._width, lots.longest[step])
            yield lots.part(step, first, last)

    def _eager(self, rule: Steps, params: Tensor, state: State, lots: Lots, step: int) -> tuple[Tensor, State]:
        """One step of a block, its lots whole however large they are."""
        pieces = (self._examples(indices, present) for indices, present in self._pieces(lots, step))
        return self._step(rule, params, state, pieces)

    def _step(self, rule: Steps, params: Tensor, state: State, lot: Iterable[Examples]) -> tuple[Tensor, State]:
        query = rule.query(state, self.constants)
        return rule.update(params, state, self._release(lot, params, query), self.constants)

    def _examples(self, indices: Tensor, present: Tensor) -> Examples:
        x, y, norms, shares = self._records.fetch(indices)
        parts = inputs.leaves(y)
        for place, taken in enumerate(self._vetted.labels):
            if taken is None:
                continue
            parts[place], right = taken.fitted(parts[place])
            right = right.flatten(2).all(2) if right.dim() > 2 else right
            if shares is None:
                present = present * right
            else:
                shares = shares * right.view(shares.shape)
        y = inputs.like(y, parts)
        if self._variants is not None:
            return Examples(self._variants.of(x), y, present, shares=shares)
        return Examples(x, y, present, finite=self._records.finite, norms=norms, shares=shares)

    def _release(self, lot: Iterable[Examples], params: Tensor, query: Query) -> Release:
        return release(
            lot,
            params,
            query,
            vetted=self._vetted,
            constants=self._declared,
            noise=self._noise,
            width=self._width,
            at_a_time=self._at_a_time,
            ranks=self._ranks,
        )

    def _fits(self, lots: Lots, group: range) -> bool:
        longest = lots.longest[group.start : group.stop]
        return self._capturable and len(longest) == UNROLL and max(longest) <= self._width

    def _capture(self, rule: Steps, params: Tensor, state: State) -> bool:
        """Whether there is a graph of `UNROLL` steps of this rule. There is none for a model that needs the host in a step."""
        if self._captured is None or self._captured.rule is not rule:

            def one(params: Tensor, state: State, indices: Tensor, present: Tensor) -> tuple[Tensor, State]:
                return self._step(rule, params, state, [self._examples(indices, present)])

            generators = (*self._noise.generators, *(() if self._variants is None else self._variants.generators))
            try:
                self._captured = Captured(one, rule, params, state, width=self._width, generators=generators)
            except NotCapturable:
                self._capturable = False  # by what the model is, which is public
        return self._capturable

    def _replayed(self, params: Tensor, state: State, lots: Lots, first: int) -> tuple[Tensor, State]:
        """`UNROLL` steps of a block at once. What is returned are the graph's own buffers."""
        assert self._captured is not None
        block = slice(first, first + UNROLL)
        return self._captured.replay(params, state, lots.indices[block], lots.counts[block])


class Variants:
    """Draws and makes the variants of one population's lots, from a generator of their own.

    How many numbers are drawn in a step follows from the width of a lot's pieces, never from a record.
    """

    def __init__(self, augment: Augmentation, device: torch.device, seed: Seed, *, width: int) -> None:
        """width: of the pieces of a lot. As many numbers are drawn for a shorter one, so that steps that are captured, which have
        one shape alone, read the same variants as those that are not."""
        self._augment, self._width = augment, width
        self._generator = torch_generator(device, seed)

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        return (self._generator,)

    def of(self, x: Inputs) -> Inputs:
        """The variants of a piece of a lot, x `[runs, examples, ...]`."""
        runs, examples = inputs.first(x).shape[:2]
        shape = (runs, self._width, self._augment.draws)
        u = torch.rand(shape, generator=self._generator, device=self._generator.device)[:, :examples]
        return varied(self._augment, x, u)

    def state(self) -> list[Tensor]:
        return [self._generator.get_state()]

    def restore(self, state: list[Tensor]) -> None:
        self._generator.set_state(state[0])


def _largest_divisor(of: int, most: int) -> int:
    return max(size for size in range(1, min(most, of) + 1) if of % size == 0)
