"""Clients side by side: each gets what it would get alone, from its own records, draws and settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import honestdp
from honestdp.boundary.noise import NoNoise
from honestdp.boundary.seed import Seed
from honestdp.federated import Federation
from honestdp.federated.client import Rounds
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
    assert [one.step_size for one in federation.clients] == pytest.approx(sizes, rel=1e-9)
    assert len(set(sizes)) > 1
    return together, weights


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_clients_trained_as_one_population_end_where_they_end_one_by_one(noise: float) -> None:
    together, alone = both(noise)
    for name in together:
        np.testing.assert_allclose(together[name], alone[name], rtol=0, atol=1e-9)
        assert np.abs(together[name] - start()[name]).max() > 1e-2  # they went somewhere


def rounds_of(records: dict[int, Any], noise: float = 1.0) -> torch.Tensor:
    """The weights of three clients after a round, each by itself."""
    each = [client(place, noise=noise, data=records.get(place)) for place in range(3)]
    rounds = Rounds(each)
    seeds = [Seed.fixed(place) for place in range(3)]
    return rounds.make(torch.cat([one.row(start()) for one in each]), seeds, number=0)


def test_a_client_reads_its_own_records_and_no_others() -> None:
    x, y = records_of(9)
    before, after = rounds_of({}), rounds_of({1: (x, y)})
    changed = [not torch.equal(*pair) for pair in zip(before, after, strict=True)]
    assert changed == [False, True, False]


def test_every_client_has_the_noise_that_it_declared() -> None:
    """From one step over records whose gradients are nothing: what leaves is the noise, sigma C / L of each client's own."""
    blank = (np.zeros((RECORDS, 10), np.float32), np.full(RECORDS, 2))
    run = honestdp.Run(records=RECORDS, lot=6, steps=1, noise=1.0)
    wide = torch.nn.Linear(10, 3)
    noises, clips = (1.0, 3.0), (0.5, 2.0)
    each = [
        honestdp.federated.AdaptiveClient(
            wide, blank, run=run.with_noise(noise), rounds=1, optimizer=honestdp.optimizers.SGD(lr=1.0, clip=clip),
            loss=lambda output, y: 0 * output.sum(1),
        )
        for noise, clip in zip(noises, clips, strict=True)
    ]  # fmt: skip
    rounds = Rounds(each)
    ended = rounds.make(torch.zeros(2, rounds.layout.width), [Seed.fixed(1), Seed.fixed(2)], number=0)
    for row, noise, clip in zip(ended, noises, clips, strict=True):
        # 33 normal numbers: their deviation is within 40 % of the true one but for 2 in 1000.
        assert float(row.std()) == pytest.approx(noise * clip / 6, rel=0.4)


def test_without_noise_none_is_drawn_and_no_other_run_goes_without() -> None:
    NoNoise(torch.zeros(3))
    with pytest.raises(RuntimeError, match="has none"):
        NoNoise(torch.tensor([0.0, 1e-6]))
    assert not torch.equal(rounds_of({}, noise=0.0), rounds_of({}, noise=1e-3))


def test_a_client_has_its_noise_beside_one_that_has_none() -> None:
    each = [client(0, noise=0.0, noise_seed=0), client(1, noise=1.0, noise_seed=1)]
    Federation(each).round(start())
    alone = client(1, noise=1.0, noise_seed=1)
    alone.fit(start())
    for name, value in alone.state().items():
        torch.testing.assert_close(each[1].state()[name], value, rtol=0, atol=1e-9)


def test_clients_with_other_sizes_form_a_population_of_their_own() -> None:
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


@pytest.mark.parametrize("way", ["secure", "strict"])
def test_no_client_is_trained_the_way_of_another_that_promised_less(way: str) -> None:
    """Noise of a cryptographic generator, and examples each under a map of their own, are what a client has promised."""
    each = [client(0), client(1, **{way: True}), client(2)]
    assert Federation(each)._places == [[0, 2], [1]]


def test_clients_that_do_not_belong_together_are_refused() -> None:
    other = honestdp.federated.AdaptiveClient(
        torch.nn.Linear(10, 3), records_of(0), run=client().run, rounds=3, delta=1e-4
    )
    with pytest.raises(honestdp.errors.InvalidArgument, match="one model"):
        Federation([client(), other])


class Centred(torch.nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.register_buffer("by", torch.tensor(by))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.by


def with_body(*, seed: int = 0, slope: float = 0.1, centre: float = 0.0, evaluated: bool = False) -> Any:
    """A client whose model has a frozen body, a buffer and a setting."""
    torch.manual_seed(seed)
    parts = torch.nn.Linear(10, 10).requires_grad_(False), torch.nn.LeakyReLU(slope), torch.nn.Dropout(0.5)
    body = torch.nn.Sequential(Centred(centre), *parts).train(not evaluated)
    run = honestdp.Run(records=RECORDS, lot=6, steps=8, noise=1.0)
    model = torch.nn.Sequential(body, torch.nn.Linear(10, 3))
    return honestdp.federated.AdaptiveClient(model, records_of(0), run=run, rounds=1, delta=1e-4)


@pytest.mark.parametrize("other", [{"seed": 1}, {"slope": 0.2}, {"centre": 1.0}, {"evaluated": True}])
def test_a_client_with_another_body_is_not_trained_as_the_first_one_s(other: dict[str, Any]) -> None:
    """One model is trained for all: what of it no server sends has to be one too."""
    Federation([with_body(), with_body()])
    with pytest.raises(honestdp.errors.InvalidArgument, match="the same frozen weights"):
        Federation([with_body(), with_body(**other)])


class Listed:
    """Records behind a Dataset."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        x, y = records_of(1)
        return x[index], y[index]


def unready(how: str) -> Any:
    """A client whose second round is refused, by what is known without a record."""
    x, y = records_of(1)
    if how == "rounds":
        return client(1, rounds=1)
    return client(1, data=Listed() if how == "a Dataset" else (x[:59], y[:59]))


@pytest.mark.parametrize("how", ["rounds", "a Dataset", "fewer records"])
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
