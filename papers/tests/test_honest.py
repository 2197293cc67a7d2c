"""`honest`: its searches are the product's, its prices are the product's, and its verdicts follow the numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from test_curves import linear, toy
from tests.search.closed_form_search import chosen
from tests.tiny_search import clouds
from tests.tiny_search import linear as small

from honestdp.boundary.data import PrivateData
from honestdp.boundary.metrics import Accuracy
from honestdp.boundary.scores import ScoreDoor
from honestdp.losses import cross_entropy
from honestdp.run import Run
from honestdp.search.design import Design
from honestdp.search.runs import Execution, Setting
from honestdp.search.secret import Secret, drawn
from honestdp.search.space import space_of
from honestdp.search.vault import Unkept
from honestdp_papers import honest_search
from honestdp_papers.claims import FAILS, HOLDS
from honestdp_papers.curves import Bench, Exam
from honestdp_papers.honest_search import Kept, Pool, Search, played, right_answers, trainings
from honestdp_papers.mohapatra2022 import honest, honest_training, setting
from honestdp_papers.mohapatra2022.honest import Case, Cell, stray
from honestdp_papers.mohapatra2022.honest_training import ADULT, MNIST, OPTIMIZERS, SELECTIONS, SINGLE, search_of
from honestdp_papers.parts import Arrays


def search(optimizer: str = "DPAdam", selection: str = "winner", epsilon: float = 1.0) -> Search:
    return search_of(MNIST, optimizer, selection, epsilon)


# ---- Prices


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_candidates_are_those_of_the_paper(optimizer: str) -> None:
    ours = [candidate.rule() for candidate in search(optimizer).candidates]
    assert sorted(map(repr, ours)) == sorted(map(repr, setting.grid(optimizer)))


def test_every_search_has_its_price_and_no_price_is_left_over() -> None:
    assert {one.key for one in honest_training.every_search()} == set(json.loads(honest_training.NOISES.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "one",
    [
        search("DPAdam", "compose"),
        search("DPMomentum", "compose", 3.0),
        search_of(ADULT, "DPAdam", "winner", 3.0),
        search("DPMomentum", "liu-talwar"),
        search_of(ADULT, "DPSGD", "papernot-steinke", 1.0),
        search("ADADP", "envelope", 3.0),
        search_of(ADULT, SINGLE, "compose", 1.0),
    ],
    ids=lambda one: one.key,
)
def test_kept_noises_are_what_the_product_calibrates_and_within_the_budget(one: Search) -> None:
    """The kept noises are of an earlier accountant. Its grid was coarser, so they are larger than the least by a part in 10^4,
    and its envelope of scores, of few outcomes, was cut less finely: theirs are larger by up to a tenth.
    """
    fresh, kept = one.calibrated(), one.kept()
    assert type(kept.selection) is type(fresh.selection)
    assert kept.selection.runs == pytest.approx(fresh.selection.runs, rel=1e-12)
    assert kept.runs[0].noise == pytest.approx(fresh.runs[0].noise, rel=1e-4)
    assert kept.runs[0].noise >= (1 - 1e-6) * fresh.runs[0].noise
    assert kept.choice is fresh.choice or kept.choice == pytest.approx(fresh.choice, rel=1e-4)
    if fresh.multiplier is not None:
        assert (1 - 1e-4) * fresh.multiplier <= kept.multiplier <= 1.1 * fresh.multiplier
    same = {name: getattr(fresh, name) for name in ("selection", "runs", "multiplier", "choice", "reason")}
    assert replace(kept, **same) == fresh
    assert one.run == kept.runs[0]
    assert 0.998 * one.budget.epsilon < kept.spending.epsilon(delta=1e-6) <= one.budget.epsilon


def test_a_search_declares_four_fifths_of_the_records_and_horizon_all() -> None:
    assert search().run.records == 48000
    assert search_of(MNIST, SINGLE, "compose", 1.0).run.records == 60000


# ---- Searches from a pool


def pool(right: list[int], repeats: int = 3, held: int = 12000) -> Kept:
    """Every training of a candidate has the same validation answers; `test` names the training."""
    shape = (repeats, len(right))
    return Kept(
        np.tile(right, (repeats, 1)), np.arange(repeats * len(right)).reshape(shape), np.ones(shape, bool), held
    )


def wins(design: Design, kept: Kept, candidate: int, count: int) -> int:
    """In how many of `count` searches a candidate wins."""
    found = [played(design, drawn(design, seed=seed), kept) for seed in range(count)]
    return sum(winner is not None and winner[1] == candidate for winner in found)


class FromPool(Execution):
    """The product's own search, but for the trainings, which are those of a pool."""

    def pooled(self, kept: Kept, tried: list[tuple[int, int]]) -> int | None:
        self._kept, self._tried = kept, tried
        return self.finish().best

    def _trained(self, number: int, batch: list[int]) -> list[torch.Tensor | None]:
        return [torch.tensor([1.0 if self._kept.finite[self._tried[run]] else math.nan]) for run in batch]

    def _score(self, run: int, weights: torch.Tensor) -> tuple[int, ...]:
        return tuple(self._kept.total(self._tried[run]) + z for z in self._secret.noises[run])


def product_winner(design: Design, secret: Secret, kept: Kept) -> tuple[int, int]:
    place = {candidate: number for number, candidate in enumerate(design.candidates)}
    tried = trainings(
        [place[one] for one in secret.candidates], len(kept.right), np.random.default_rng([secret.fixed, 2])
    )
    x, y = clouds(40)
    cpu = Setting(model=small, loss=None, schedule="constant", device=torch.device("cpu"), secure=False, workers=0)
    best = FromPool(design, secret, cpu, PrivateData((x, y)), records=len(x), store=Unkept()).pooled(kept, tried)
    assert best is not None
    return tried[best]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_played_search_has_the_winner_of_the_products_search(selection: str) -> None:
    design = search("DPSGD", selection).kept()
    rng = np.random.default_rng(0)
    right = rng.integers(9980, 10020, size=(3, 40))
    kept = Kept(right, right, rng.random((3, 40)) < 0.8, held=12000)
    found = []
    for seed in range(12):
        secret = drawn(design, seed=seed)
        found.append(played(design, secret, kept))
        assert found[-1] == product_winner(design, secret, kept)
    assert len(set(found)) > 1


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_best_candidate_wins_as_often_as_the_law_of_the_draws_has_it(selection: str) -> None:
    """Scores far apart: the best one wins if it is run. 5 standard deviations: a false alarm in 2 million."""
    count, design = 600, search("DPAdam", selection).kept()
    expected = design.selection.coverage(4)
    assert expected == pytest.approx(1.0 if selection in ("compose", "winner") else 0.9, abs=1e-6)
    found = wins(design, pool([2000, 9000, 4000, 6000]), 1, count)
    assert abs(found - count * expected) <= 5 * math.sqrt(count * expected * (1 - expected) + 1e-9)


def test_runs_without_noise_in_the_score_would_win_more_often() -> None:
    """One candidate 5 answers ahead of three: how often it wins by Gaussian noise. 5 standard deviations, 1 in 2 million."""
    design = search("DPAdam", "winner").kept()
    assert design.multiplier is not None
    ahead = 2 * 5 / design.multiplier
    chance, _ = integrate.quad(lambda z: stats.norm.pdf(z) * stats.norm.cdf(z + ahead) ** 3, -9, 9)
    assert 0.4 < chance < 0.8
    found = wins(design, pool([10000, 10000, 10005, 10000]), 2, 1500)
    assert abs(found - 1500 * chance) <= 5 * math.sqrt(1500 * chance * (1 - chance))


def test_a_composed_grid_is_chosen_from_by_a_noisy_maximum() -> None:
    """Geometric noise of scale 2/epsilon: the exact chance. 5 standard deviations, 1 in 2 million."""
    design = search("DPAdam", "compose").kept()
    assert design.choice is not None
    chance = chosen(np.array([0, 2 * 3, 0, 0]), 2 / design.choice)[1]
    assert 0.4 < chance < 0.8
    found = wins(design, pool([10000, 10003, 10000, 10000]), 1, 1500)
    assert abs(found - 1500 * chance) <= 5 * math.sqrt(1500 * chance * (1 - chance))


def test_a_search_takes_every_training_of_a_candidate_once_before_any_again() -> None:
    taken = trainings([1, 0, 1, 1, 1, 1, 1], 3, np.random.default_rng(0))
    own = [repeat for repeat, candidate in taken if candidate == 1]
    assert sorted(own[:3]) == [0, 1, 2]
    assert own[3:] == own[:3]
    orders = {tuple(r for r, _ in trainings([0] * 3, 3, np.random.default_rng(seed))) for seed in range(50)}
    assert len(orders) == 6


def test_runs_that_are_no_numbers_never_win_and_a_search_of_them_leaves_nothing() -> None:
    kept = pool([2000, 9000, 4000, 6000])
    kept.finite[:, 1] = False
    assert wins(search().kept(), kept, 3, 20) == 20
    kept.finite[:] = False
    for selection in ("winner", "compose"):
        design = search("DPAdam", selection).kept()
        assert right_answers(design, kept, [drawn(design, seed=0)]) == [0]


def test_a_kept_score_is_the_products() -> None:
    output, y = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 3
    right = int((output.argmax(1) == y).sum())
    kept = Kept(np.array([[right]]), np.zeros((1, 1)), np.ones((1, 1), bool), held=50)
    given = ScoreDoor(output, y, loss=cross_entropy, metric=Accuracy(), noise=[(0,)])
    assert kept.total((0, 0)) == given.score(0, torch.nn.Identity())[0]


# ---- Trainings


def test_sides_are_apart_and_every_search_trains_at_its_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[np.ndarray]] = {"trained": [], "asked": []}

    class Watched(Bench):
        def __init__(self, model: Any, data: Any, *place: Any, **how: Any) -> None:
            seen["trained"].append(data[0].numpy())
            super().__init__(model, data, *place, **how)

        def exam(self, x: torch.Tensor, y: torch.Tensor, *, error: bool = False) -> Exam:
            seen["asked"].append(x.numpy())
            return super().exam(x, y, error=error)

    monkeypatch.setattr(honest_search, "Bench", Watched)
    runs = [Run(records=320, lot=40, steps=100, noise=noise) for noise in (0.5, 2000.0)]
    candidates = space_of("sgd", {"lr": [1e-6, 1.0], "clip": 1.0}, lot=40, steps=100).candidates()
    found = honest_training.trained(
        linear, toy(), Pool(candidates, runs, 6, 0.2, seed=1), device="cpu", tell=lambda done: None
    )
    (trained,), (validation, test) = seen["trained"], seen["asked"]
    assert len(trained) + len(validation) == 400
    assert len(validation) == found["held"] != 80
    rows = {row.tobytes() for row in trained}
    assert not rows & {row.tobytes() for row in np.concatenate([validation, test])}
    assert {name: found[name].shape for name in ("validation", "test", "finite")} == dict.fromkeys(
        ("validation", "test", "finite"), (2, 6, 2)
    )
    assert (found["test"][0, :, 1] > 80).all()
    assert (found["validation"][0, :, 1] > 0.8 * found["held"]).all()
    assert (found["test"][1, :, 1] < 80).any(), "under so much noise nothing is learned for sure"
    assert (found["test"][0, :, 0] == found["test"][1, :, 0]).all(), "the same starts at every noise"
    assert len(set(found["test"][0, :, 0].tolist())) > 1, "starts of their own"


def test_horizon_trains_on_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(records=400, lot=40, steps=100, noise=0.5)
    candidates = space_of("horizon", None, lot=40, steps=100).candidates()
    found = honest_training.trained(
        linear, toy(), Pool(candidates, [run], 2, 0.0, seed=1), device="cpu", tell=lambda done: None
    )
    assert found["held"] == 0
    assert (found["test"] > 80).all()


# ---- The table


def case(level: dict[str, float], single: float, better: float = 0.0) -> Case:
    """better: by how much envelope lifts the large grids."""
    lift = {(name, "envelope"): better for name in honest.MANY}
    cells = {
        (name, selection): Cell([level[name] + lift.get((name, selection), 0.0)] * 20)
        for name in OPTIMIZERS
        for selection in SELECTIONS
    }
    return Case("Toy", 1.0, cells, Cell([single] * 20))


PAPER = {"DPSGD": 80.0, "DPMomentum": 79.0, "DPAdam": 85.0, "DPAdamWOSM": 86.0, "ADADP": 70.0}
REVERSED = {"DPSGD": 88.0, "DPMomentum": 89.0, "DPAdam": 85.0, "DPAdamWOSM": 86.0, "ADADP": 70.0}


def test_verdicts_follow_the_cells() -> None:
    found = honest.judgements([case(PAPER, 86.0, better=3.0)])
    assert [claim.verdict for claim in found] == [HOLDS, HOLDS, HOLDS]
    assert "+6.0 and 1 (compose)" in found[1].found
    assert "+3.0 and 1 (envelope)" in found[1].found
    assert [claim.verdict for claim in honest.judgements([case(REVERSED, 88.0)])] == [FAILS, FAILS, FAILS]


def test_a_search_far_below_its_cell_is_told_with_its_trainings() -> None:
    one = case(PAPER, 86.0)
    assert stray([one]) == []
    one.cells["DPSGD", "envelope"] = Cell([90.0] * 18 + [15.4, 84.9], (*[9] * 18, 1, 3))
    (note,) = stray([one])
    assert note.endswith(
        "DPSGD under envelope on Toy at epsilon 1: 15.4 % after a single training, 84.9 % after 3 trainings."
    )


def test_searches_are_drawn_as_before_whatever_their_dataset_is_called() -> None:
    """The committed table rests on these seeds."""
    assert [task.plain_title for task in honest_training.TASKS] == ["MNIST", "Adult"]


def test_the_conclusion_is_what_the_cells_say() -> None:
    alone = honest.conclusion([case(PAPER, 85.6)])
    assert "train Horizon once: 85.6 %" in alone
    assert "DPAdamWOSM under compose (4 trainings), gives 86.0 %" in alone
    searched = honest.conclusion([case(PAPER, 85.4, better=20.0)])
    assert "search by DPSGD under envelope (351 trainings in the mean): 100.0 %" in searched
    assert "Horizon's single run gives 85.4 %" in searched
    assert "79.0 % composed and 99.0 % under envelope" in searched


def made_up(quick: bool) -> dict[str, Arrays]:
    """Parts in which the test answers of candidate c are 5000 + 10c and its validation answers rise with c."""
    made: dict[str, Arrays] = {}
    for part in honest_training.parts(quick):
        shape = (len(part.identity["runs"]), part.identity["repeats"], len(part.identity["candidates"]))
        number = np.broadcast_to(np.arange(shape[2]), shape)
        made[part.name] = {
            "validation": (1000 + 100 * number).astype(np.uint16),
            "test": (5000 + 10 * number).astype(np.uint16),
            "finite": np.ones(shape, bool),
            "held": np.array(7000),
            "tests": np.array(10000),
        }
    return made


@pytest.mark.slow
def test_the_table_holds_the_winners_test_accuracy_of_every_search(tmp_path: Path) -> None:
    found = honest.honest(made_up(True), True)
    table = found.tables[0]
    by_name = {row[1]: row[2:] for row in table.rows}
    assert by_name["DPAdam, 4"][:2] == ["50.3 (50.3 to 50.3)"] * 2
    assert by_name["DPMomentum, 280"][1] == "77.9 (77.9 to 77.9)"
    assert by_name[SINGLE] == [*[""] * 5, "50.0 (50.0 to 50.0)"]
    assert len(found.numbers["accuracies"]["Adult (104), LR, epsilon 1"]["DPAdam, envelope"]) == 20
    runs = {row[1]: row[3:] for row in found.tables[1].rows}
    assert runs[280] == ["280", "280", "2511", "2511", "2511"]
    noises = {row[1]: row[3:] for row in found.tables[2].rows}
    assert noises[4][0] == search_of(ADULT, "DPAdam", "compose", 1.0).run.noise
    assert found.claims[-1].verdict == HOLDS
    assert found.notes[0].startswith("Conclusion at epsilon 1, delta 1e-06: ")
    assert "Left out" not in found.notes[1]
    assert "Quick version: epsilon 1 alone" in found.notes[1]
    assert "MNIST with TLNN" in found.notes[1]
    assert "covered by no budget" in found.notes[2]
    assert found.draw is not None
    found.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10000


def test_a_search_over_its_budget_is_told() -> None:
    design = search("DPAdam", "compose").kept()
    louder = replace(design, runs=tuple(run.with_noise(run.noise * 0.9) for run in design.runs))
    spent = {"a": louder.spending.epsilon(delta=1e-6)}
    assert honest._within_budget({"a": louder}, spent).verdict == FAILS


def test_the_full_table_has_twenty_searches_of_three_cases_at_two_epsilons() -> None:
    assert honest_search.SEARCHES == 20
    parts = honest_training.parts(False)
    assert len(parts) == 18
    assert sum(part.weight for part in parts) < 250
    assert len({part.identity["seeds"][0] for part in parts}) == 18
    assert {len(part.identity["searches"]) for part in parts} == {2, 10}


def test_the_error_of_a_cell_counts_winners_and_not_searches() -> None:
    alone = Cell([80.0, 80.4])
    many, one = Cell([70.0, 71.0, 72.0, 73.0]), Cell([70.0] * 4)
    case = Case("", 1.0, {}, alone)
    assert case.error(many) == pytest.approx(many.deviation / 2)
    assert case.error(one) == pytest.approx(alone.deviation), "four searches with one winner are one training"
    assert case.gap(many, one).error == pytest.approx(math.hypot(case.error(many), case.error(one)))
