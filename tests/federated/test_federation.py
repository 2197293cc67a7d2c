"""Clients of one process: each ends where it ends alone, and none pays for a round that another refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import honestdp
from honestdp.federated import Federation
from tests.federated.small import RECORDS, client, records_of, start


def both(noise: float, rounds: int = 3, clients: int = 4) -> tuple[dict[str, Any], dict[str, Any]]:
    """The averages of a federation, and of the same clients one by one; what each client remembers is compared here."""
    federation = Federation([client(place, noise=noise, noise_seed=place) for place in range(clients)])
    together = federation.train(rounds)
    each = [client(place, noise=noise, noise_seed=place) for place in range(clients)]
    weights = start()
    for _ in range(rounds):
        replies = [one.fit(weights) for one in each]
        weights = {name: np.mean([reply[name] for reply in replies], axis=0) for name in weights}
    sizes = [one.step_size for one in each]
    assert [one.step_size for one in federation.clients] == sizes
    assert len(set(sizes)) > 1
    return together, weights


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_clients_of_a_federation_end_where_they_end_by_themselves(noise: float) -> None:
    together, alone = both(noise)
    for name in together:
        np.testing.assert_allclose(together[name], alone[name], rtol=0, atol=1e-9)
        assert np.abs(together[name] - start()[name]).max() > 1e-2  # they went somewhere


def test_a_client_reads_its_own_records_and_no_others() -> None:
    def states(records: dict[int, Any]) -> list[dict[str, torch.Tensor]]:
        each = [client(place, data=records.get(place), noise_seed=place) for place in range(3)]
        Federation(each).round(start())
        return [one.state() for one in each]

    pairs = zip(states({}), states({1: records_of(9)}), strict=True)
    changed = [any(not torch.equal(one[name], other[name]) for name in one) for one, other in pairs]
    assert changed == [False, True, False]


@pytest.mark.parametrize(("noise", "clip"), [(1.0, 0.5), (3.0, 2.0)])
def test_a_client_has_the_noise_that_it_declared(noise: float, clip: float) -> None:
    """From one step over records whose gradients are nothing: what leaves is the noise, sigma C / L."""
    blank = (np.zeros((RECORDS, 10), np.float32), np.full(RECORDS, 2))
    run = honestdp.Run(records=RECORDS, lot=6, steps=1, noise=noise)
    wide, rule = torch.nn.Linear(10, 3), honestdp.optimizers.SGD(lr=1.0, clip=clip)
    one = honestdp.federated.AdaptiveClient(
        wide, blank, run=run, rounds=1, optimizer=rule, loss=lambda output, y: 0 * output.sum(1), noise_seed=1
    )
    zeros = {name: np.zeros(value.shape, np.float32) for name, value in wide.state_dict().items()}
    moved = np.concatenate([value.ravel() for value in one.fit(zeros).values()])
    # 33 normal numbers: their deviation is within 40 % of the true one but for 2 in 1000.
    assert float(moved.std()) == pytest.approx(noise * clip / 6, rel=0.4)


def test_the_average_is_weighted_by_the_declared_numbers_of_records() -> None:
    small = records_of(5, 30)
    run = honestdp.Run(records=30, lot=6, steps=8, noise=1.0)
    other = honestdp.federated.AdaptiveClient(client().model, small, run=run, rounds=2, delta=1e-4, noise_seed=5)
    alone = honestdp.federated.AdaptiveClient(client().model, small, run=run, rounds=2, delta=1e-4, noise_seed=5)
    together = Federation([client(0, noise_seed=0), other]).train(1)
    first = client(0, noise_seed=0).fit(start())
    second = alone.fit(start())
    for name in together:  # weighted by the declared numbers of records, 60 and 30
        np.testing.assert_allclose(together[name], (2 * first[name] + second[name]) / 3, rtol=0, atol=1e-9)
    assert other.epsilon > client(0).epsilon


def test_clients_that_do_not_belong_together_are_refused() -> None:
    other = honestdp.federated.AdaptiveClient(
        torch.nn.Linear(10, 3), records_of(0), run=client().run, rounds=3, delta=1e-4
    )
    with pytest.raises(honestdp.errors.InvalidArgument, match="one model"):
        Federation([client(), other])


def unready(how: str) -> Any:
    """A client whose second round is refused, by what is known without a record."""
    x, y = records_of(1)
    if how == "rounds":
        return client(1, rounds=1)
    return client(1, data=(x[:59], y[:59]))


@pytest.mark.parametrize("how", ["rounds", "fewer records"])
def test_no_client_pays_for_a_round_that_another_refuses(how: str, tmp_path: Any) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clinic", honestdp.Budget(100.0, 1e-4))
    payer, other = client(0, ledger=ledger, dataset="clinic"), unready(how)
    federation, rounds = Federation([payer, other]), 1 if how == "rounds" else 0
    for _ in range(rounds):
        federation.round(start())
    with pytest.raises(honestdp.errors.HonestdpError) as refused:
        federation.round(start())
    assert not isinstance(refused.value, honestdp.errors.RoundFailed)
    assert (payer.made, other.made, ledger.balance("clinic").charges) == (rounds, rounds, rounds)


@pytest.mark.parametrize("how", ["a budget of its own", "no budget", "one budget for both", "no noise"])
def test_no_client_pays_for_a_round_that_the_ledger_of_another_refuses(how: str, tmp_path: Any) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    one = honestdp.epsilon(client(0).run, delta=1e-4)
    ledger.set_budget("clinic", honestdp.Budget(1.05 * one if how == "one budget for both" else 100.0, 1e-4))
    if how == "a budget of its own":
        ledger.set_budget("other", honestdp.Budget(0.01, 1e-4))
    dataset = "clinic" if how in ("one budget for both", "no noise") else "other"
    noise = 0.0 if how == "no noise" else 1.0
    each = [client(0, ledger=ledger, dataset="clinic"), client(1, noise=noise, ledger=ledger, dataset=dataset)]
    with pytest.raises(honestdp.errors.HonestdpError):
        Federation(each).round(start())
    assert [each[0].made, each[1].made, ledger.balance("clinic").charges] == [0, 0, 0]


def test_clients_of_one_dataset_pay_each_for_its_own_round(tmp_path: Any) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clinic", honestdp.Budget(100.0, 1e-4))
    each = [client(place, ledger=ledger, dataset="clinic") for place in range(2)]
    Federation(each).round(start())
    assert [one.balance.charges for one in each if one.balance is not None] == [1, 2]


def test_a_label_that_is_no_class_contributes_nothing_to_a_round() -> None:
    def averages(label: int) -> dict[str, Any]:
        x, y = records_of(1)
        y = y.copy()
        y[7] = label
        each = [client(0, noise_seed=0), client(1, data=(x, y), noise_seed=1)]
        found = Federation(each).round(start())
        assert [one.made for one in each] == [1, 1]
        return found

    right, wrong, other = averages(0), averages(77), averages(-5)
    assert any(np.abs(right[name] - wrong[name]).max() > 0 for name in right)
    for name in wrong:
        np.testing.assert_array_equal(wrong[name], other[name])
