"""The federated figures of Koskela & Honkela 2020: how images are dealt out, what a part trains, and how claims are judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import honestdp
from honestdp.federated import AdaptiveClient
from honestdp.gradients.layout import layout_of
from honestdp.optimizers import ADADP, SGD, Adam, Rule
from honestdp_papers.claims import FAILS, HOLDS, UNTOLD
from honestdp_papers.koskela2020 import PAPER, federated, federation
from honestdp_papers.koskela2020.federation import FULL, QUICK, THIRD, part_name

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 120)).astype(np.int64)
SMALL = replace(QUICK, records=200, lot=10, steps=4, rounds=2, every=1)

FEDERATED = [item for item in PAPER.items if item.name.startswith("federated")]


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


MANY = np.random.default_rng(3)
POINTS = (MANY.normal(size=(1200, 8)) + 2 * np.eye(10)[LABELS][:, :8]).astype(np.float32)
RULES = {
    "SGD": [SGD(clip=1e9, lr=0.05)],
    "ADADP": [ADADP(clip=1e9, lr=lr, tau=0.05, accept=True) for lr in (1e-3, 0.1)],
    "Adam": [Adam(clip=1e9, lr=0.01)],
}
ONE_LOT = replace(
    SMALL, lot=200, steps=4, rounds=3, model=lambda: nn.Linear(8, 10).double(),
    images=lambda: (POINTS, LABELS, POINTS[:100], LABELS[:100]),
)  # fmt: skip
"""Lots of all records: a client that draws its own lots draws the same ones. In float64, in which a client that makes a
guarantee holds back next to nothing for rounding."""


def by_clients(rule: Rule) -> tuple[dict[str, Any], list[float | None]]:
    """The average after the rounds of honestdp's own clients, one by one, which are those that Flower runs; their step sizes."""
    model = federation.seeded(ONE_LOT.model, 0)
    run = honestdp.Run(records=200, lot=200, steps=4, noise=0)
    clients = [
        AdaptiveClient(model, (POINTS[some], LABELS[some]), run=run, rounds=3, optimizer=rule)
        for some in federation.shares(LABELS, ONE_LOT, 33, 0)
    ]
    weights: dict[str, Any] = {name: value.numpy() for name, value in model.state_dict().items()}
    for _ in range(3):
        replies = [client.fit(weights) for client in clients]
        weights = {name: np.mean([reply[name] for reply in replies], axis=0) for name in weights}
    return weights, [client.step_size for client in clients]


def test_from_the_same_lots_a_part_trains_what_clients_by_themselves_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds, averages, rules and what they remember, of every method; all federations of a part side by side."""
    ended: list[torch.Tensor] = []
    right = federation.Exam.measured
    monkeypatch.setattr(federation.Exam, "measured", lambda exam, rows: (ended.append(rows), right(exam, rows))[1])
    seen: list[float] = []
    monkeypatch.setattr(federation.Dealt, "lots", all_of_it)
    kept = federation.trained(ONE_LOT, RULES, level=33, repeats=2, device="cpu", tell=seen.append)
    rows = ended[-1].view(4, 2, -1)[:, 0]  # of the first repeat
    layout = layout_of(ONE_LOT.model())
    for place, rule in enumerate(rule for some in RULES.values() for rule in some):
        weights, sizes = by_clients(rule)
        for name, value in layout.views(rows[place : place + 1]).items():
            assert value[0].numpy() == pytest.approx(weights[name], abs=1e-8), (rule, name)
        if isinstance(rule, ADADP):
            assert kept["eta"][0, place - 1, :, -1] == pytest.approx(sizes, rel=1e-4)
    assert kept["right_ADADP"].shape == (2, 2, 3)
    assert seen[-1] == 1.0


def all_of_it(dealt: federation.Dealt, number: int, federations: int) -> torch.Tensor:
    every = np.stack([rows for clients in dealt._rows for rows in clients])
    return torch.from_numpy(every)[None].repeat(4, federations, 1)


def test_a_round_is_an_epoch_of_every_clients_own_images_in_a_new_order() -> None:
    rows = [federation.shares(LABELS, SMALL, 33, repeat) for repeat in range(2)]
    here = replace(SMALL, steps=20)
    dealt = federation.Dealt(rows, here, 33, torch.device("cpu"))
    first, second = (dealt.lots(number, 3) for number in range(2))
    assert first.shape == (20, 3 * 2 * 5, 10)
    for run in range(30):  # by federation, repeat and client
        own = rows[run % 10 // 5][run % 5]
        assert sorted(first[:, run].flatten().tolist()) == sorted(own)
    assert torch.equal(first[:, :10], first[:, 10:20])  # every method has the same lots
    assert not torch.equal(first, second)
    assert torch.equal(first, dealt.lots(0, 3))


def made_up(quick: bool, ends: dict[str, dict[int, float]], spread: float = 0.4) -> dict[str, Any]:
    """Parts whose accuracies rise to these, in per cent, with runs that differ by a little."""
    parts = {}
    for item in FEDERATED:
        for part in item.parts(quick):
            level = int(part.name.removeprefix("federated/").removesuffix("-Adam"))
            methods = federation.BY_ADAM if part.name.endswith("Adam") else federation.PLAIN
            parts[part.name] = {"tests": np.array(10000), "every": np.array(5)}
            for method in methods:
                parts[part.name] |= made_up_method(method, quick, ends[method][level], spread)
    return parts


def made_up_method(method: str, quick: bool, end: float, spread: float) -> dict[str, Any]:
    sizes, looks = len(federation.step_sizes(method, quick)), federation.world(quick).looks
    best = sizes - 1 if method == "ADADP" else 1
    below = (0.5 if method == "ADADP" else 6) * np.abs(np.arange(sizes) - best)
    last = end + spread * (np.arange(federation.repeats(quick)) - 1)[:, None] - below
    eta = np.ones((len(last), sizes, 5, looks)) * np.array([1, 1, 1, 1, 3.0])[:, None]
    right = (100 * last[..., None] * np.linspace(0.5, 1, looks)).astype(np.uint16)
    return {f"right_{method}": right} | ({"eta": eta} if method == "ADADP" else {})


AS_IN_THE_PAPER = {
    "ADADP": {0: 60, 33: 70, 67: 71, 100: 72},
    "SGD": {0: 35, 33: 60, 67: 68, 100: 72},
    "Adam": {THIRD: 40},
}


def verdicts(name: str, parts: dict[str, Any], quick: bool = False) -> list[str]:
    return [claim.verdict for claim in PAPER.item(name).finish(parts, quick).claims]


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


def test_the_adaptive_method_is_judged_from_its_usual_start_and_not_from_another() -> None:
    parts = made_up(False, AS_IN_THE_PAPER)
    assert federation.step_sizes("ADADP", False)[-1] == 0.1
    before = {name: verdicts(name, parts) for name in ("federated2a", "federated3a", "federated3b", "federated4")}
    for kept in parts.values():
        if "right_ADADP" in kept:
            kept["right_ADADP"][:, :-1] = 1000
    assert {name: verdicts(name, parts) for name in before} == before


def test_figure_2_is_made_without_the_share_that_it_can_do_without() -> None:
    parts = {name: kept for name, kept in made_up(False, AS_IN_THE_PAPER).items() if "67" not in name}
    assert federated.levels_in(parts, False) == (0, 33, 100)
    assert verdicts("federated2a", parts) == [HOLDS] * 3
    optional = {part.name for part in FEDERATED[0].parts(False) if part.optional}
    assert optional == {"federated/67"}


def test_the_full_size_is_cut_into_parts_that_every_figure_shares() -> None:
    every = {part.name: part for item in FEDERATED for part in item.parts(False)}
    assert sorted(every) == [f"federated/{name}" for name in ("0", "100", "33", "33-Adam", "67")]
    assert part_name(THIRD, "Adam") in every
    assert {part.name for part in FEDERATED[2].parts(False)} < set(every)


@pytest.mark.slow
def test_a_figure_is_drawn_of_each(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says in every title that it is not private: a figure is shown without the page beside it."""
    parts, name_axes = made_up(True, AS_IN_THE_PAPER), federated.named
    titles: list[str] = []

    def noted(axes: Any, title: str, *more: Any) -> None:
        titles.append(title)
        name_axes(axes, title, *more)

    monkeypatch.setattr(federated, "named", noted)
    for item in FEDERATED:
        outcome = item.finish(parts, True)
        assert "NOT PRIVATE" in " ".join(outcome.notes)
        assert outcome.draw is not None
        outcome.draw(tmp_path / f"{item.name}.png")
        assert (tmp_path / f"{item.name}.png").stat().st_size > 5000
        assert titles
        assert all("NOT PRIVATE" in title for title in titles)
        titles.clear()


def test_step_sizes_are_said_to_run_away_where_they_do() -> None:
    """The quick version said of step sizes that stay that their median is 0.041 after round 10 and 0.041 after the last."""
    parts = made_up(True, AS_IN_THE_PAPER)
    said = " ".join(PAPER.item("federated3a").finish(parts, True).notes)
    assert "nothing bounds the step size" not in said
    kept = parts[part_name(THIRD, "ADADP")]
    kept["eta"] = kept["eta"] * np.geomspace(0.1, 1e4, kept["eta"].shape[-1])
    said = " ".join(PAPER.item("federated3a").finish(parts, True).notes)
    assert "nothing bounds the step size: its median is 0.1 after round" in said
    assert "and 1e+04 after the last" in said


def test_the_head_of_the_page_has_the_settings_of_the_federations() -> None:
    (line,) = [line for line in PAPER.head.splitlines() if line.startswith("- Federated averaging")]
    assert "NOT PRIVATE" in line
    needed = ", ".join(str(level) for level in federation.LEVELS if level != federation.BESIDES)
    for said in (
        f"{FULL.clients} clients of {FULL.records} images",
        f"{needed} per cent of all images are dealt out at random ({federation.BESIDES} too where that part was trained)",
        f"{FULL.rounds} rounds",
        f"{FULL.steps} local steps",
        f"lots of {FULL.lot}",
        f"tau {federation.TAU:g} ",
        f"SGD at {', '.join(f'{size:.3g}' for size in federation.STEP_SIZES['SGD'])}",
    ):
        assert said in line
