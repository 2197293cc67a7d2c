"""`AdaptiveClient`: one client of a federated averaging, which finds its own step size and keeps its own guarantee.

Federated averaging (McMahan et al. 2017) with the client update of Koskela & Honkela 2020, supplement, Algorithm 1: the client
gets weights, makes its local steps by ADADP and gives its weights back. Here every local step is a release of honestdp's
mechanism: at noise 0 this is the paper's algorithm, which is NOT PRIVATE; with noise each record of the client is protected
against the server and everybody else. What decides the guarantee (records, lot, steps, noise, clip, rounds) is the client's own:
no message changes it, and a round that was begun counts, whatever becomes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from honestdp import checks
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.boundary.noise import noise_source
from honestdp.boundary.query import Constants
from honestdp.boundary.seed import Seed, lent, seed_all
from honestdp.boundary.vetted import Vetted, vet
from honestdp.budget import Budget, Statement, prepared
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.federated.promise import Bill, bill_of, books_of, epsilon_of, in_a_line, promise
from honestdp.gradients.layout import Layout, layout_of
from honestdp.losses import Loss
from honestdp.optimizers import ADADP, Rule, State
from honestdp.optimizers.rule import rule_of, stack_rules
from honestdp.run import Run
from honestdp.training.population import Population, own_copy
from honestdp.training.spec import Compute, check_rules, checked, try_rule
from honestdp.training.torchrun import refuse_ranks

if TYPE_CHECKING:
    from honestdp.ledger import Balance, Ledger


Weights = Mapping[str, Any]
"""Arrays or tensors by their names in the model's `state_dict`."""


class RoundsOver(HonestdpError):
    """A client was asked for another round after all that it declared."""


class RoundFailed(HonestdpError):
    """A round of a client failed after records were read, and counts. Its words say nothing of them; its cause does, to their
    owner.
    """


class AdaptiveClient:
    """One client of a federated averaging, with the guarantee of its own records.

    model: the module that is trained; its weights are replaced by those that each round brings.
    data: the client's records, as `honestdp.train` takes them.
    run: the public constants of one round: the client's own number of records, its lot, the local steps of a round, the noise.
    rounds: how many rounds it takes part in at most. All of them are in its epsilon, and it refuses more.
    optimizer: by default ADADP with rejected steps and tolerance 1, as in the paper, which sets its step size by itself and keeps
        it from round to round. Its clip is the client's own.
    delta: of the guarantee. budget: calculates the noise so that all rounds together meet it; the run then has noise=0.
    loss, strict, secure, noise_seed, preprocessing: as for `honestdp.train`.
    ledger, dataset, note: charge each round to this dataset's budget before a record of it is read.
    compute: device and workers; see `honestdp.Compute`.

    Raises InvalidArgument for what nothing can be trained with, before a record is read.

    >>> import torch, honestdp
    >>> from honestdp.federated import AdaptiveClient
    >>> x, y = honestdp.load_dataset("digits").train
    >>> run = honestdp.Run(records=len(x), lot=64, steps=10, noise=2.0)
    >>> client = AdaptiveClient(torch.nn.Linear(64, 10), (x, y), run=run, rounds=5, delta=1e-5)
    >>> weights = client.fit(torch.nn.Linear(64, 10).state_dict())
    >>> sorted(weights), client.made, round(client.epsilon, 1)
    (['bias', 'weight'], 1, 0.7)
    """

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        *,
        run: Run,
        rounds: int,
        optimizer: str | Rule | type[Rule] | None = None,
        delta: float | None = None,
        budget: Budget | None = None,
        loss: Loss | None = None,
        ledger: str | Path | Ledger | None = None,
        dataset: str | None = None,
        note: str = "",
        noise_seed: int | None = None,
        secure: bool = False,
        strict: bool = False,
        preprocessing: str | None = None,
        compute: Compute | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InvalidArgument("model", type(model).__name__, "a torch.nn.Module")
        if not isinstance(run, Run):
            raise InvalidArgument("run", run, "a honestdp.Run: the constants of one round")
        checks.whole(least=1, most=checks.MOST, rounds=rounds)
        if delta is not None:
            checks.probability(delta=delta)
        self.model, self.rounds = own_copy(model), rounds
        self.run, self.delta = _calibrated(run, rounds, budget, delta)
        self.rule = ADADP(clip=1.0, tau=1.0, accept=True) if optimizer is None else rule_of(optimizer)
        _check_whole_iterations(self.rule, self.run)
        check_rules([self.rule], [self.run], "constant")
        self.compute, self.loss, self.secure, self.strict = checked(compute), loss, secure, strict
        refuse_ranks(self.compute, "a client of a federation")
        self.layout = layout_of(self.model)
        self._preprocessing = prepared(preprocessing)
        self._fixed = None if noise_seed is None else Seed.fixed(checks.seed(noise_seed=noise_seed))
        self._books = books_of(ledger, dataset, note, noise_seed)
        private = PrivateData(data)
        if private.unit.person:
            raise InvalidArgument("data", "people of several rows", "single rows: a client's record is a row")
        if private.known is not None:
            wanted = (
                "arrays: (table.encode(rows), table.encode_target(rows)); what was learnt privately for it is an epsilon to be "
                "added to this client's, and words for preprocessing="
            )
            raise InvalidArgument("data", "rows of a table", wanted)
        self.data = private
        self.made = 0
        self.vetted: Vetted | None = None
        self._tried = False
        self.balance: Balance | None = None
        self._rounds: Rounds | None = None
        self._remembered: dict[str, Tensor] = {}

    def __str__(self) -> str:
        seeded = self._fixed is not None
        return in_a_line(self.run, rounds=self.rounds, made=self.made, delta=self.delta, seeded=seeded)

    @property
    def epsilon(self) -> float:
        """Of all rounds that it may make together, at its delta; infinite without noise."""
        return epsilon_of(self.run, self.rounds, self.delta)

    @property
    def statement(self) -> Statement:
        """What this client is promised, in words and numbers."""
        return promise(
            self.run,
            rounds=self.rounds,
            made=self.made,
            delta=self.delta,
            strict=self.strict,
            seeded=self._fixed is not None,
            preprocessing=self._preprocessing,
            balance=self.balance,
            unit=self.data.unit,
            asks=self.rule.asks,
        )

    @property
    def step_size(self) -> float | None:
        """That the rule has found by its releases, where it finds one."""
        found = self.state().get("eta")
        return None if found is None else float(found[0])

    def fit(self, weights: Weights) -> dict[str, np.ndarray[Any, Any]]:
        """One round: the server's weights by name in, this client's out.

        Frozen parameters and buffers stay as the client has them; what comes of them goes back as it came.
        Raises RoundsOver after the last round, InvalidArgument for weights that do not fit, and errors of the ledger, each before
        a record is read; RoundFailed for whatever fails afterwards.
        """
        row = self.row(weights)
        self.check_round()
        return self.named(self.make(row, self.charge_round()), weights)

    def make(self, row: Tensor, seed: Seed) -> Tensor:
        """The round that was charged last: weights `[1, d]` to `[d]`. Labels are read for the first."""
        try:
            if self._rounds is None:
                self._rounds = Rounds(self)
            after = self._rounds.make(row, seed, number=self.made - 1)
        except Exception as trouble:
            raise RoundFailed(
                f"round {self.made} failed after records were read; it counts, and what was charged for it stays charged. "
                "The cause is for the owner of the records alone"
            ) from trouble
        self._remembered = self._rounds.state
        return after[0].cpu()

    def state(self) -> dict[str, Tensor]:
        """What the rule remembers between rounds: functions of releases. With `made`, all that another process needs to go on."""
        return dict(self._remembered)

    def resume(self, made: int, state: Mapping[str, Any]) -> None:
        """Go on after so many rounds, with what `state` gave then."""
        checks.whole(least=self.made, most=self.rounds, made=made)
        self.made = made
        self._remembered = {name: torch.as_tensor(value) for name, value in state.items()}
        self._rounds = None

    def row(self, weights: Weights) -> Tensor:
        """`[1, d]`, checked: what the server sends is any number of any shape until then."""
        parameter = next(p for p in self.model.parameters() if p.requires_grad)
        return row_of(weights, self.layout, parameter.dtype)

    def named(self, row: Tensor, sent: Weights) -> dict[str, np.ndarray[Any, Any]]:
        """A row `[d]` of weights in the names and the order in which weights were sent."""
        views = self.layout.views(row[None])
        mine = {name: value[0].cpu().numpy().copy() for name, value in views.items()}
        return {name: mine[name] if name in mine else np.asarray(sent[name]) for name in sent}

    def check_round(self) -> None:
        """Whatever refuses the next round without a record and without a charge."""
        if self.made >= self.rounds:
            raise RoundsOver(
                f"all {self.rounds} rounds that this client declared are made and in its epsilon; another would not be. For "
                "more, declare more rounds before the first"
            )
        held, declared = len(self.data), self.run.records
        if held != declared:  # in every round: another process may have made those before
            wanted = f"{held}, as many as the data has: pass exactly so many records as the run declares"
            raise InvalidArgument("records", declared, wanted)
        if not self._tried:  # whoever made the rounds before: a client may be made anew for every round
            self._try()

    def bill(self) -> Bill | None:
        """What a round costs, and whose books pay; None where none do."""
        return None if self._books is None else bill_of(self._books, self.run, self.data.unit.person)

    def charge_round(self) -> Seed:
        """Count and charge the next round, and give the seed of everything random in it, which no other round has."""
        if (bill := self.bill()) is not None:
            self.balance = bill.pay(self.made + 1)
        self.made += 1
        return Seed.fresh() if self._fixed is None else self._fixed.child("round", self.made)

    def _try(self) -> None:
        """What can fail without a record fails here. Of a Dataset no shape is known before a record of it is read."""
        run, device, data = self.run, self.compute.place(), self.data
        noise_source(device, Seed.fresh(), secure=self.secure)
        if (shapes := data.shapes) is not None:
            size: dict[str, Any] = {"records": run.records, "lot": run.lot, "strict": self.strict}
            self.vetted = vet(own_copy(self.model), shapes, loss=self.loss, device=device, **size)
        try_rule(self.rule, run, self.layout if self.vetted is None else self.vetted.layout)
        self._tried = True


def _calibrated(run: Run, rounds: int, budget: Budget | None, delta: float | None) -> tuple[Run, float | None]:
    if budget is None:
        return run, delta
    if not isinstance(budget, Budget):
        raise InvalidArgument("budget", budget, "a honestdp.Budget(epsilon, delta)")
    if run.noise != 0:
        raise InvalidArgument("run.noise", run.noise, "0 when a budget is given: the noise is then calculated from it")
    if delta not in (None, budget.delta):
        raise InvalidArgument("delta", delta, f"left out, or the budget's own, {budget.delta}")
    from honestdp.accounting.calibration import least_noise  # here: the engine alone needs torch and numpy only
    from honestdp.selection import Compose

    whole = least_noise(
        budget, records=run.records, lot=run.lot, steps=run.steps * rounds, selection=Compose(candidates=1)
    )
    return run.with_noise(whole.noise), budget.delta


def _check_whole_iterations(rule: Rule, run: Run) -> None:
    if isinstance(rule, ADADP) and run.steps % 2:
        wanted = "even for ADADP: an iteration takes two steps, and a round ends between iterations"
        raise InvalidArgument("run.steps", run.steps, wanted)


class Rounds:
    """The rounds of a client, which are steps of one declared run.

    Releases, weights and public constants are handled here; the records are behind `Intake`. Labels are read for it, so that it
    is made when the first round is paid for.
    """

    def __init__(self, client: AdaptiveClient) -> None:
        run, device, self.steps = client.run, client.compute.place(), client.run.steps
        self._intake = take_in(
            client.vetted or own_copy(client.model),
            client.data,
            records=run.records,
            loss=client.loss,
            device=device,
            workers=client.compute.workers,
            lot=run.lot,
            strict=client.strict,
        )
        self.layout, self._inside = client.layout, self._intake.layout
        dtype, steps = self._intake.dtype, run.steps * client.rounds
        noise = torch.tensor([run.noise], dtype=dtype, device=device)
        factors = torch.ones(steps, dtype=dtype, device=device)
        constants = Constants(run.records, run.lot, steps, noise, self._inside, factors)
        self._mechanism = self._intake.mechanism(constants, seed=Seed.fresh(), secure=client.secure)
        rule = stack_rules([client.rule], dtype=dtype, device=device)
        start = torch.zeros(1, self._inside.width, dtype=dtype, device=device)
        self._population = Population(self._mechanism, rule, start)
        if remembered := client.state():
            self._population.state = {
                name: remembered[name].to(value.device, value.dtype) for name, value in self.state.items()
            }

    @property
    def state(self) -> State:
        """The rule's memory between two rounds: functions of releases."""
        return self._population.state

    def make(self, weights: Tensor, seed: Seed, *, number: int) -> Tensor:
        """Round `number`, counted from 0, from these weights `[1, d]`: the weights after it, on the device.

        The mechanism makes no step beyond those of all rounds. All that the round draws follows from its seed.
        """
        population, end = self._population, (number + 1) * self.steps
        self._mechanism.begin(seed, made=number * self.steps)
        population.params = _laid_out(weights.to(population.params), self.layout, self._inside)
        population.step = number * self.steps
        with lent(), self._intake.decoding():
            seed_all(seed.child("model").number(63))
            while population.step < end:
                population.block(end - population.step)
        return _laid_out(population.weights(), self._inside, self.layout)


def _laid_out(rows: Tensor, given: Layout, wanted: Layout) -> Tensor:
    """Rows of weights `[runs, ...]` in another layout of the same parameters: that of a GPU has gaps."""
    if given.width == wanted.width:
        return rows
    moved = rows.new_zeros(len(rows), wanted.width)
    values = given.views(rows)
    for name, view in wanted.views(moved).items():
        view.copy_(values[name])
    return moved


def row_of(weights: Weights, layout: Layout, dtype: torch.dtype) -> Tensor:
    """`[1, d]`, checked: what comes is any number of any shape until then. Errors name `weights`, and nothing of a client."""
    row = torch.zeros(1, layout.width, dtype=dtype)
    for name, view in layout.views(row).items():
        if name not in weights:
            raise InvalidArgument("weights", sorted(weights), f"named as the model's own: {name!r} is missing")
        value = _real(name, weights[name])
        if value.shape != view[0].shape:
            raise InvalidArgument(f"weights[{name!r}]", list(value.shape), f"of shape {list(view[0].shape)}")
        view[0] = value
        if not bool(torch.isfinite(view).all()):  # as they are here: what float64 holds may be too large for float32
            raise InvalidArgument(f"weights[{name!r}]", "numbers that are not finite", "finite numbers alone")
    return row


def _real(name: str, sent: Any) -> Tensor:
    try:
        value = torch.as_tensor(sent)
    except (TypeError, ValueError, RuntimeError) as trouble:
        raise InvalidArgument(f"weights[{name!r}]", type(sent).__name__, "an array or a tensor of numbers") from trouble
    if value.is_complex():
        raise InvalidArgument(f"weights[{name!r}]", "complex numbers", "real numbers alone")
    return value
