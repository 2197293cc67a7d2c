"""The federated figures of Koskela & Honkela 2020: how images are dealt out, what a part trains, and how claims are judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from honestdp.federated import AdaptiveClient
from honestdp.optimizers import ADADP
from honestdp_papers.claims import FAILS, HOLDS, UNTOLD
from honestdp_papers.koskela2020 import FEDERATED, federated, federation
from honestdp_papers.koskela2020.federation import FULL, QUICK, THIRD, part_name

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 120)).astype(np.int64)
SMALL = replace(QUICK, records=200, lot=10, steps=4, rounds=2, every=1)


@pytest.mark.parametrize("level", [0, 33, 100])
def test_every_client_has_its_two_classes_but_for_what_is_dealt_out_at_random(level: int) -> None:
    rows = federation.shares(LABELS, SMALL, level, seed=1)
    assert len(np.unique(np.concatenate(rows))) == 5 * 200  # nobody's images are another's
    own = [np.isin(LABELS[some], pair).mean() for some, pair in zip(rows, SMALL.pairs, strict=True)]
    expected = 1 - level / 100 + level / 100 / 5
    assert own == pytest.approx([expected] * 5, abs=0.12)
    if level == 0:
        assert own == [1.0] * 5


def test_the_network_has_about_a_million_weights_and_the_pairs_are_those_of_the_text() -> None:
    assert sum(value.numel() for value in FULL.model().parameters()) == pytest.approx(1.1e6, rel=0.01)
    assert FULL.model()(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    names = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    said = {frozenset(names[k] for k in pair) for pair in FULL.pairs}
    assert said == {
        frozenset(p) for p in (("car", "truck"), ("plane", "ship"), ("cat", "dog"), ("bird", "frog"), ("deer", "horse"))
    }


def test_a_part_trains_what_clients_by_themselves_train() -> None:
    """Two first step sizes, as one population; and the second of them client by client, averaged by hand."""
    drawn = np.random.default_rng(3)
    x = (drawn.normal(size=(1200, 8)) + 2 * np.eye(10)[LABELS][:, :8]).astype(np.float32)
    here = replace(SMALL, model=lambda: nn.Linear(8, 10), images=lambda: (x, LABELS, x[:100], LABELS[:100]))
    rules = [ADADP(clip=1e9, lr=lr, tau=1.0, accept=True) for lr in (1e-3, 0.1)]
    seen: list[Any] = []
    kept = federation.trained(here, rules, level=33, seed=5, repeat=1, device="cpu", tell=seen.append)
    rows = federation.shares(LABELS, here, 33, 5)
    model = federation.seeded(here.model, 1)
    clients = [
        AdaptiveClient(model, (x[some], LABELS[some]), run=here.run, rounds=here.rounds, optimizer=rules[1])
        for some in rows
    ]
    weights: dict[str, Any] = {name: value.numpy() for name, value in model.state_dict().items()}
    secret = federation.Seed.fixed(5)
    for number in range(here.rounds):
        replies = []
        for place, client in enumerate(clients):
            client.begin_round()
            after = client.opened().make(client.row(weights), [secret.child("round", number, place)], number=number)
            replies.append(client.named(after[0], weights))
        weights = {name: np.mean([reply[name] for reply in replies], axis=0) for name in weights}
    answers = x[:100] @ weights["weight"].T + weights["bias"]
    assert abs(int(kept["right"][1, -1]) - int((answers.argmax(1) == LABELS[:100]).sum())) <= 1
    found = [float(client.opened().state["eta"][0]) for client in clients]
    assert kept["eta"][1, :, -1] == pytest.approx(found, rel=1e-4)
    assert seen[-1] == 1.0


def made_up(quick: bool, ends: dict[str, dict[int, float]], spread: float = 0.4) -> dict[str, Any]:
    """Parts whose accuracies rise to these, in per cent, with runs that differ by a little."""
    parts = {}
    for item in FEDERATED:
        for part in item.parts(quick):
            method, level, repeat = part.name.removeprefix("federated/").split("-")
            sizes = len(federation.step_sizes(method, quick))
            end = ends[method][int(level)] + spread * (int(repeat) - 1)
            best = sizes - 1 if method == "ADADP" else 1
            last = np.array([end - (0.5 if method == "ADADP" else 6) * abs(place - best) for place in range(sizes)])
            rising = last[:, None] * np.linspace(0.5, 1, federation.world(quick).looks)
            eta = np.ones((sizes, 5, rising.shape[1])) * np.array([1, 1, 1, 1, 3.0])[:, None]
            parts[part.name] = {
                "right": (rising * 100).astype(np.uint16), "eta": eta, "tests": np.array(10000), "every": np.array(5)
            }  # fmt: skip
    return parts


AS_IN_THE_PAPER = {
    "ADADP": {0: 60, 33: 70, 67: 71, 100: 72},
    "SGD": {0: 35, 33: 60, 67: 68, 100: 72},
    "Adam": {THIRD: 40},
}


def verdicts(name: str, parts: dict[str, Any], quick: bool = False) -> list[str]:
    return [claim.verdict for claim in getattr(federated, name)(parts, quick).claims]


def test_what_the_paper_says_holds_of_numbers_that_are_as_it_says() -> None:
    parts = made_up(False, AS_IN_THE_PAPER)
    for item in FEDERATED:
        assert set(verdicts(item.name, parts)) == {HOLDS}, item.name


def test_it_does_not_hold_of_numbers_that_are_the_other_way() -> None:
    other = {**AS_IN_THE_PAPER, "SGD": {0: 71, 33: 73, 67: 74, 100: 73}, "Adam": {THIRD: 69}}
    parts = made_up(False, other)
    assert verdicts("federated2a", parts) == [FAILS] * 3
    assert verdicts("federated3a", parts)[0] == verdicts("federated3b", parts)[0] == FAILS
    assert verdicts("federated4", parts) == [FAILS]


def test_differences_within_their_errors_cannot_be_told() -> None:
    close = {**AS_IN_THE_PAPER, "SGD": {0: 59.9, 33: 69.9, 67: 70.9, 100: 72}}
    parts = made_up(False, close, spread=2.0)
    assert verdicts("federated3a", parts)[0] == verdicts("federated3b", parts)[0] == UNTOLD


def test_figure_2_is_made_without_the_share_that_it_can_do_without() -> None:
    parts = {name: kept for name, kept in made_up(False, AS_IN_THE_PAPER).items() if "-67-" not in name}
    assert federated.levels_in(parts, False) == (0, 33, 100)
    assert verdicts("federated2a", parts) == [HOLDS] * 3
    optional = {part.name for part in FEDERATED[0].parts(False) if part.optional}
    assert optional == {part_name(method, 67, repeat) for method in ("ADADP", "SGD") for repeat in range(3)}


def test_the_full_size_is_cut_into_parts_that_every_figure_shares() -> None:
    every = {part.name: part for item in FEDERATED for part in item.parts(False)}
    assert len(every) == 3 * (4 * 2 + 1)
    assert all(part.weight < 9 * 60 / 2 for part in every.values())
    assert part_name("Adam", THIRD, 2) in every
    assert {part.name for part in FEDERATED[2].parts(False)} < set(every)


def test_a_figure_is_drawn_of_each(tmp_path: Any) -> None:
    parts = made_up(True, AS_IN_THE_PAPER)
    for item in FEDERATED:
        outcome = item.finish(parts, True)
        assert "NOT PRIVATE" in " ".join(outcome.notes)
        assert outcome.draw is not None
        outcome.draw(tmp_path / f"{item.name}.png")
        assert (tmp_path / f"{item.name}.png").stat().st_size > 5000
