"""A client's rounds: what it counts, refuses and promises, and what leaves it."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
from typing import Any

import numpy as np
import pytest
import torch

import honestdp
from honestdp.boundary.query import InputNorm
from honestdp.boundary.seed import Seed
from honestdp.federated import AdaptiveClient, RoundFailed, RoundsOver
from honestdp.federated.client import Rounds
from honestdp.ledger.refusals import BudgetExceeded, NotPrivate
from honestdp.optimizers import SGD, Echo
from honestdp.plain_words import rounded_up
from tests.federated.small import RECORDS, client, model, records_of, start


def test_all_rounds_are_one_composition_of_all_local_steps() -> None:
    one = client(rounds=25)
    whole = honestdp.Run(records=RECORDS, lot=6, steps=8 * 25, noise=one.run.noise)
    assert one.epsilon == honestdp.epsilon(whole, delta=1e-4)
    assert one.statement.epsilon == one.epsilon > client(rounds=1).epsilon


def test_a_client_that_is_printed_says_what_it_is_promised_and_reads_nothing() -> None:
    one = client(rounds=25)
    shown = rounded_up(one.epsilon)
    assert float(shown) >= one.epsilon
    assert str(one) == f"AdaptiveClient: 0 of 25 rounds made, epsilon {shown} at delta 0.0001 for all of them"
    unprotected = AdaptiveClient(model(), records_of(0), run=one.run.with_noise(0), rounds=2)
    assert str(unprotected) == "AdaptiveClient: 0 of 2 rounds made, NOT PRIVATE: without noise"
    seeded = client(rounds=2, noise_seed=3)
    assert str(seeded).endswith("rounds made, NOT PRIVATE: noise_seed was fixed")


def test_a_budget_is_met_by_all_rounds_together_and_not_by_one() -> None:
    run = honestdp.Run(records=RECORDS, lot=6, steps=8, noise=0)
    one = AdaptiveClient(model(), records_of(0), run=run, rounds=10, budget=honestdp.Budget(2.0, 1e-4))
    assert 1.9 < one.epsilon <= 2.0
    assert one.delta == 1e-4


def rounds_of(one: AdaptiveClient) -> Rounds:
    assert one._rounds is not None
    return one._rounds


def test_the_rounds_that_were_declared_are_made_and_no_more() -> None:
    one = client(rounds=2)
    weights = one.fit(one.fit(start()))
    with pytest.raises(RoundsOver, match="all 2 rounds"):
        one.fit(weights)
    assert one.made == 2
    with pytest.raises(RuntimeError, match="than are accounted"):  # nor does the mechanism, whoever counts
        rounds_of(one).make(one.row(weights), Seed.fresh(), number=2)


def test_steps_that_were_made_stay_made_whoever_counts_the_rounds() -> None:
    one = client(rounds=2)
    weights = one.fit(start())
    with pytest.raises(RuntimeError, match="after all steps of the round before"):
        rounds_of(one).make(one.row(weights), Seed.fresh(), number=0)


def test_a_round_that_is_asked_for_again_counts_again_and_draws_anew() -> None:
    one = client(rounds=2, optimizer=SGD(lr=0.1, clip=1.0))
    first, again = one.fit(start()), one.fit(start())
    assert one.made == 2
    assert not np.array_equal(first["0.weight"], again["0.weight"])


def test_a_fixed_seed_gives_every_round_other_draws_and_the_same_ones_again() -> None:
    one, same = (client(rounds=2, noise_seed=3, optimizer=SGD(lr=0.1, clip=1.0)) for _ in range(2))
    first, second = one.fit(start()), one.fit(start())
    assert not np.array_equal(first["0.weight"], second["0.weight"])
    assert np.array_equal(first["0.weight"], same.fit(start())["0.weight"])


def test_a_client_goes_on_in_another_process_with_the_step_size_it_found() -> None:
    whole, first, second = (client(noise_seed=3) for _ in range(3))
    weights = whole.fit(start())
    expected = whole.fit(weights)
    first.fit(start())
    second.resume(first.made, first.state())
    after = second.fit(weights)
    assert all(np.array_equal(after[name], expected[name]) for name in after)
    assert second.step_size == whole.step_size != 0.1
    for made in (1, 4):  # it made two of three
        with pytest.raises(honestdp.errors.InvalidArgument, match="made"):
            second.resume(made, first.state())


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e30])
def test_a_record_moves_what_leaves_by_no_more_than_its_clip_whatever_the_server_sends(scale: float) -> None:
    """One step over all records without noise; with the record as without it."""
    x, y = records_of(0)
    bad = x.copy()
    bad[0] *= 1e6
    sent = {name: value * scale for name, value in start().items()}
    run = honestdp.Run(records=RECORDS, lot=RECORDS, steps=1, noise=0)
    moved = []
    for inputs in (x, bad):
        one = AdaptiveClient(model(), (inputs, y), run=run, rounds=1, optimizer=SGD(lr=1.0, clip=0.5))
        row = one.row(sent).double()
        moved.append(one.row(one.fit(sent)).double() - row)
    # Replacing a record is removing one and adding one; weights of 1e30 hold no such step at all.
    assert float((moved[0] - moved[1]).norm()) <= 2 * 0.5 / RECORDS * (1 + 1e-3) + 1e-15 * scale


@pytest.mark.parametrize("spoilt", ["nan", "too large", "complex", "words", "shape", "name"])
def test_weights_that_do_not_fit_are_refused_and_cost_nothing(spoilt: str) -> None:
    one, sent = client(), start()
    if spoilt == "nan":
        sent["0.bias"] = sent["0.bias"] * np.float32(np.nan)
    elif spoilt == "too large":  # finite in float64, and not in the precision of the model
        one = AdaptiveClient(model().float(), records_of(0), run=one.run, rounds=3, delta=1e-4)
        sent["0.bias"] = np.full(4, 1e300)
    elif spoilt == "complex":
        sent["0.bias"] = sent["0.bias"] * 1j
    elif spoilt == "words":
        sent["0.bias"] = np.array(["a", "b", "c", "d"])
    elif spoilt == "shape":
        sent["0.bias"] = np.zeros(5, np.float32)
    else:
        del sent["0.bias"]
    with pytest.raises(honestdp.errors.InvalidArgument, match="weights"):
        one.fit(sent)
    assert one.made == 0


def test_noise_0_is_said_to_be_not_private() -> None:
    """As in the paper, whose federated part has no noise."""
    one = client(noise=0.0)
    assert one.epsilon == float("inf")
    assert str(one.statement).startswith("NOT PRIVATE: noise 0")
    assert str(client(noise_seed=1).statement).startswith("NOT PRIVATE: noise_seed was fixed")
    assert not client().statement.not_private


def test_the_statement_says_what_a_client_is_promised() -> None:
    stated = client(rounds=3, preprocessing="none").statement
    assert "against the server, the other clients" in str(stated.protects)
    assert "weights after each of its rounds" in stated.leaves
    assert "the records of the other clients" in stated.uncovered
    assert "whoever has records at several clients pays all of these numbers" in stated.uncovered
    assert "search" not in str(stated)
    assert "all steps of its 3 rounds composed, 8 local steps each" in stated.how
    assert any("no ledger" in note for note in stated.notes)
    assert honestdp.Statement.from_dict(stated.as_dict()) == stated


def test_the_statement_says_whether_independence_is_by_construction() -> None:
    for strict in (True, False):
        said = [one for one in client(strict=strict).statement.assumptions if one.startswith("strict: each example")]
        assert bool(said) == strict


def test_the_statement_says_what_else_its_steps_release() -> None:
    said = "releases the mean logarithm of the norms of its lot's inputs"
    assert any(said in note for note in client(optimizer="echo").statement.notes)
    assert not any(said in note for note in client().statement.notes)


@dataclasses.dataclass(frozen=True)
class Sizing(Echo):
    """Asks for the size of records with so little noise that nothing is left for the gradient."""

    def query(self, state: Any, constants: Any) -> Any:
        asked = super().query(state, constants)
        return asked if asked.second is None else dataclasses.replace(asked, second=InputNorm(asked.second.noise / 8))


def test_a_rule_that_asks_too_much_of_sizes_is_refused_before_a_round_counts() -> None:
    one = client(optimizer=Sizing())
    with pytest.raises(honestdp.errors.InvalidArgument, match=r"second\.noise"):
        one.fit(start())
    assert one.made == 0


def test_a_large_epsilon_is_said() -> None:
    said = "guarantees next to nothing"
    assert any(said in note for note in client(noise=0.2).statement.notes)
    assert not any(said in note for note in client(noise=10.0).statement.notes)


def test_a_statement_needs_a_delta() -> None:
    with pytest.raises(honestdp.errors.InvalidArgument, match="delta"):
        _ = client(delta=None).statement


def test_adadp_ends_its_rounds_between_iterations() -> None:
    run = honestdp.Run(records=RECORDS, lot=6, steps=7, noise=1.0)
    with pytest.raises(honestdp.errors.InvalidArgument, match="even for ADADP"):
        AdaptiveClient(model(), records_of(0), run=run, rounds=2)


@pytest.mark.parametrize("home", ["client", "federation"])
def test_the_examples_run(home: str) -> None:
    ran = doctest.testmod(importlib.import_module(f"honestdp.federated.{home}"))
    assert ran.attempted
    assert not ran.failed


# ---- The ledger


class Crying:
    """Records that say whether one of them was read."""

    def __init__(self) -> None:
        self.read = 0
        self.x, self.y = (torch.from_numpy(part) for part in records_of(0))

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.read += 1
        return self.x[index], self.y[index]


def test_every_round_is_charged_before_a_record_of_it_is_read_and_all_of_them_compose(tmp_path: Any) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    run = dataclasses.replace(client().run)
    two = honestdp.epsilon(run.with_steps(2 * run.steps), delta=1e-4)
    ledger.set_budget("clinic", honestdp.Budget(two * 1.01, 1e-4))
    one = client(rounds=5, ledger=ledger, dataset="clinic")
    weights = one.fit(one.fit(start()))
    assert one.balance is not None
    assert one.balance.charges == 2
    assert one.balance.spent == pytest.approx(two, rel=0.01)
    assert "charged to clinic" in " ".join(one.statement.notes)
    with pytest.raises(BudgetExceeded):
        one.fit(weights)
    assert one.made == 2


def test_a_round_that_the_ledger_refuses_reads_no_record(tmp_path: Any) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clinic", honestdp.Budget(0.01, 1e-4))
    records = Crying()
    one = client(data=records, ledger=ledger, dataset="clinic", compute=honestdp.Compute(workers=0))
    with pytest.raises(BudgetExceeded):
        one.fit(start())
    assert (records.read, one.made) == (0, 0)


def test_a_client_without_noise_cannot_be_charged(tmp_path: Any) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clinic", honestdp.Budget(1.0, 1e-4))
    with pytest.raises(NotPrivate):
        client(noise=0.0, ledger=ledger, dataset="clinic").fit(start())


# ---- Failures after records were read


class Failing(Crying):
    def __getitem__(self, index: int) -> tuple[Any, Any]:
        raise RuntimeError("record 12345 cannot be decoded")


def test_a_round_that_fails_counts_and_its_words_say_nothing_of_records() -> None:
    one = client(data=Failing(), compute=honestdp.Compute(workers=0))
    with pytest.raises(RoundFailed) as caught:
        one.fit(start())
    assert "12345" not in str(caught.value)
    assert one.made == 1


def test_what_can_fail_without_a_record_fails_before_the_round_counts() -> None:
    x, y = records_of(0)
    other = client(data=(x[:, :5], y))
    with pytest.raises(honestdp.errors.InvalidArgument, match="takes"):
        other.fit(start())
    assert other.made == 0
    few = client(data=(x[:50], y[:50]))
    with pytest.raises(honestdp.errors.InvalidArgument, match="records"):
        few.fit(start())
    assert few.made == 0
    later = client(data=(x[:50], y[:50]))  # made anew by another process, after a round
    later.resume(1, {})
    with pytest.raises(honestdp.errors.InvalidArgument, match="records"):
        later.fit(start())
    assert later.made == 1


def test_a_model_is_tested_before_the_charge_in_whatever_round_a_client_is_made(tmp_path: Any) -> None:
    """Flower makes a client anew for each message."""
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clinic", honestdp.Budget(10.0, 1e-4))
    x, y = records_of(0)
    one = client(data=(x[:, :5], y), ledger=ledger, dataset="clinic")
    one.resume(1, {})
    with pytest.raises(honestdp.errors.InvalidArgument, match="takes"):
        one.fit(start())
    assert one.made == 1
    assert not ledger.charges("clinic")


def test_a_client_tests_its_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[AdaptiveClient] = []
    honest = AdaptiveClient._try
    monkeypatch.setattr(AdaptiveClient, "_try", lambda self: (tried.append(self), honest(self)))
    one = client(rounds=3)
    one.resume(1, {})
    one.fit(one.fit(start()))
    assert tried == [one]


def test_rows_of_a_table_are_refused_whose_learning_a_client_would_not_state() -> None:
    table = honestdp.Table({"a": honestdp.Range(0, 1), "t": honestdp.Flag()}, "t", spent=1.0)
    with pytest.raises(honestdp.errors.InvalidArgument, match="rows of a table"):
        client(data=table.data({"a": [0.5] * 60, "t": [True] * 60}))


def test_people_of_several_rows_are_refused_whom_a_client_s_steps_would_not_protect() -> None:
    """The local steps and the statement know rows: a person with three of them would be promised what one row is."""
    people = honestdp.by_person(records_of(0), np.arange(RECORDS) // 3, rows=3)
    with pytest.raises(honestdp.errors.InvalidArgument, match="people of several rows") as refused:
        client(data=people)
    assert "a client's record is a row" in str(refused.value)


def test_a_promise_names_the_accountant_that_its_number_comes_from() -> None:
    assert client().statement.accountant == "pld"
    with pytest.warns(honestdp.accounting.FallBack):
        said = client(noise=0.02).statement
    assert said.accountant == "rdp"
    assert "this is a Renyi bound" in said.notes[0]
