"""`benchmarks/records.py`: what is trained together, what is kept, and what a time limit holds back."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from dp_accounting import ComposedDpEvent

from honestdp import Run
from honestdp.accounting import epsilon


@pytest.fixture(scope="module")
def records() -> Iterator[ModuleType]:
    path, before = Path(__file__).resolve().parent.parent / "benchmarks" / "records.py", list(sys.path)
    spec = importlib.util.spec_from_file_location("records", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["records"] = importlib.util.module_from_spec(spec)  # its dataclasses look for it there
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    for name in ("records", "records_page", "scattering", "centring"):
        sys.modules.pop(name, None)


def cells(name: str, way: str, epsilons: tuple[float, ...], seeds: int) -> list[tuple[Any, ...]]:
    return [(name, "linear", way, epsilon, seed) for epsilon in epsilons for seed in range(seeds)]


def test_seeds_of_one_cell_are_one_population_and_epsilons_join_where_lot_and_steps_agree(records: ModuleType) -> None:
    several = records.batches(cells("mnist", "untuned", (3.0, 0.5), 5))
    assert [len(batch.cells) for batch in several] == [5, 5]
    joined = records.batches(cells("digits", "untuned", (3.0, 2.0), 2))
    assert [len(batch.cells) for batch in joined] == [4]
    assert (joined[0].lot, joined[0].steps) == records.shape_of("digits", 3.0)[1:]
    assert [len(batch.cells) for batch in records.batches(cells("digits", "search", (3.0, 2.0), 2))] == [1, 1, 1, 1]


def test_every_run_of_a_population_has_the_noise_of_its_own_epsilon(
    records: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(records.honestdp, "train_population", lambda *_, **named: given.update(named))
    (batch,) = records.batches(cells("digits", "untuned", (3.0, 0.5), 2))
    records.untuned(lambda: torch.nn.Linear(2, 2), (torch.zeros(1), torch.zeros(1)), batch, "cpu")
    noises = [run.noise for run in given["run"]]
    assert noises == [records.run_of("digits", cell[3]).noise for cell in batch.cells]
    assert noises[0] == noises[1] < noises[2] == noises[3]


@pytest.mark.parametrize("way", ["untuned", "untuned, long"])
def test_the_prepared_noises_meet_their_budgets_with_todays_lots_and_steps(records: ModuleType, way: str) -> None:
    prepared = records.json.loads(records.NOISES.read_text())
    for name in ("mnist", "cifar10"):
        count, lot, steps = records.shape_of(name, 3.0, way)
        noise = prepared.get(f"{count} {lot:g} {steps} 3 1e-05")
        assert noise is not None, "the rule has changed: python benchmarks/records.py --prepare"
        event = Run(records=count, lot=lot, steps=steps, noise=noise).event
        assert 2.98 < epsilon(event, delta=1e-5) <= 3


def test_a_long_run_keeps_99_percent_of_the_signal_and_trains_with_the_optimizer_it_names(records: ModuleType) -> None:
    count, lot, steps = records.shape_of("mnist", 3.0, "untuned outlook, long")
    kept = [
        records.share(records.honestdp.Budget(3.0, 1e-5), records=count, lot=lot - less, steps=steps)
        for less in (0, 100)
    ]
    assert kept[1] < 0.99 <= kept[0]
    assert records.optimizer_of("untuned outlook, long") == records.optimizer_of("untuned outlook") == "outlook"
    assert records.optimizer_of("untuned, long") == records.optimizer_of("untuned") == "horizon"


def test_ways_are_words_of_the_table_and_others_are_refused(records: ModuleType) -> None:
    for way in (
        "untuned",
        "untuned outlook, long, centred, mirrored",
        "search, long",
        "search, centred, mirrored, scaled",
    ):
        assert records.way_of(way) == way
    for way in (
        "tuned",
        "untuned nobody",
        "untuned, mirrored, long",
        "untuned, short",
        "untuned,long",
    ):
        with pytest.raises(ValueError, match=r"tuned|search"):
            records.way_of(way)


def test_a_mean_and_the_training_after_it_meet_the_budget_together(records: ModuleType) -> None:
    from centring import mean_run

    budget = records.honestdp.Budget(3.0, 1e-5)
    for way in ("untuned, centred", "untuned, long, centred"):
        run = records.run_of("cifar10", 3.0, way)
        together = ComposedDpEvent([mean_run(budget, 50_000).event, run.event])
        assert 2.98 < epsilon(together, delta=1e-5) <= 3
        assert epsilon(run.event, delta=1e-5) < 2.98
        assert run.noise > records.run_of("cifar10", 3.0, way.removesuffix(", centred")).noise
    several = records.batches(cells("digits", "untuned, centred", (3.0, 2.0), 2))
    assert [len(batch.cells) for batch in several] == [2, 2], "an epsilon has a mean of its own"


def test_a_mean_and_the_search_after_it_add_up_to_the_budget(
    records: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def released_mean(x: torch.Tensor, run: Run, **_: Any) -> torch.Tensor:
        given["mean"] = run
        return x[0]

    monkeypatch.setattr(records, "released_mean", released_mean)
    monkeypatch.setattr(records.honestdp, "tune", lambda *_, **named: given.update(named))
    side = (torch.zeros(2, 1, 2, 2), torch.zeros(2))
    for spent in records.EPSILONS:
        (batch,) = records.batches(cells("cifar10", "search, centred", (spent,), 1))
        records.centred((side, side), batch, "cpu")
        records.search(lambda: torch.nn.Linear(2, 2), side, batch, "cpu")
        left = given["budget"]
        assert 1e-5 - left.delta > 0
        assert epsilon(given["mean"].event, delta=1e-5 - left.delta) + left.epsilon <= spent * (1 + 1e-9)
        assert left.epsilon > 0.97 * spent


def test_the_released_mean_is_the_mean_with_the_noise_that_is_accounted(records: ModuleType) -> None:
    from centring import mean_run, released_mean

    budget, count = records.honestdp.Budget(3.0, 1e-5), 4000
    x = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    x = torch.nn.functional.group_norm(x + torch.linspace(0, 2, 64).view(8, 8), 1)
    for reach in (1.0, 3.0):
        mean = released_mean(x, mean_run(budget, count), device="cpu", preprocessing="none", reach=reach)
        expected = reach * mean_run(budget, count).noise * 192**0.5 / count  # a record has a norm of at most sqrt(192)
        assert (mean - x.mean(0)).std() == pytest.approx(expected, rel=0.3)
    assert x.flatten(1).norm(dim=1).max() <= 192**0.5


def test_a_stopped_table_goes_on_and_begins_nothing_that_would_end_too_late(
    records: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, made = tmp_path / "r.jsonl", []

    def carry_out(batch: Any, sides: Any, device: str) -> list[dict[str, Any]]:
        made.append(batch)
        told = {"accuracy": 90.0, "device": device, "seconds": 1.0, "work": batch.work()}
        return [{"cell": cell, **told} for cell in batch.cells]

    monkeypatch.setattr(records, "carry_out", carry_out)
    monkeypatch.setattr(records, "loaded", lambda *_: None)
    asked = ["records.py", "--device", "cpu", "--data", "mnist", "--ways", "untuned", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*asked, "--seconds", "0"])
    records.main()
    assert not made
    assert "not begun" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*asked, "--epsilon", "3"])
    records.main()
    monkeypatch.setattr(sys, "argv", asked)
    records.main()
    assert len(out.read_text().splitlines()) == 20
    assert len({cell for batch in made for cell in batch.cells}) == sum(len(batch.cells) for batch in made) == 20
    assert "| mnist | linear | untuned | 3 | 90.00 (90.00 to 90.00) | 5 | 98.7 |" in capsys.readouterr().out


def test_the_pages_say_what_the_lines_say_and_what_is_older_is_noticed(records: ModuleType) -> None:
    import records_page

    known = records.lines(records.RESULTS)
    pages = {page.name if page.parent.name != "notes" else "notes": page.read_text() for page in records_page.PAGES}
    wanted = {"README.md": 1, "index.md": 1, "records.md": 5, "notes": 1}
    assert {name: text.count("<!-- records/") for name, text in pages.items()} == wanted
    assert {name: text.count("<!-- /records/") for name, text in pages.items()} == wanted
    for text in pages.values():
        assert records_page.filled(text, known) == text, "python benchmarks/records.py --document"
    other = [line | {"accuracy": line["accuracy"] - 0.1} for line in known]
    for name, text in pages.items():
        assert (records_page.filled(text, other) != text) is (name != "notes")
        assert name != "notes" or records_page.filled(text, known[1:]) != text


def test_the_headline_is_above_or_below_by_all_seeds_and_the_digit_that_is_published(records: ModuleType) -> None:
    from records_page import HEADLINE, PUBLISHED, headline, judged, sentence

    assert judged([98.76, 98.9], 98.7) == "above"
    assert judged([98.74, 98.9], 98.7) == judged([98.66, 98.6], 98.7) == "level"
    assert judged([98.64, 98.6], 98.7) == "below"
    worse = [
        {"cell": (*key, way, 3.0, seed), "accuracy": PUBLISHED[key] - (key[1] == "cnn")}
        for key, way in HEADLINE.items()
        for seed in range(5)
    ]
    better = [{"cell": (*key, "untuned, long", 3.0, 0), "accuracy": 100.0} for key in HEADLINE]
    assert list(headline(worse)) == list(headline(worse + better)), "one way, whatever the others have"
    said = " ".join(next(sentence(worse)).split())
    assert [said.count(word) for word in ("not reached", "(69.3", "68.30 on CIFAR-10")] == [3, 1, 1]


def test_the_pace_is_that_of_all_lines_of_the_device(records: ModuleType) -> None:
    (batch,) = records.batches(cells("mnist", "search, centred", (3.0,), 1))
    known = [
        {"cell": batch.cells[0], "device": device, "seconds": seconds, "work": batch.work()}
        for device, seconds in (("cpu", 30.0), ("cpu", 90.0), ("cuda", 1.0))
    ]
    assert records.pace("cpu", known)(batch) == pytest.approx(62)
    assert records.pace("cuda", known)(batch) == pytest.approx(3)


def test_what_the_page_says_of_centring_and_of_echo_is_so(records: ModuleType) -> None:
    from records_page import HEADLINE, PUBLISHED, grouped

    means = {key: sum(found) / len(found) for key, found in grouped(records.lines(records.RESULTS)).items()}

    def gains(word: str) -> dict[tuple[Any, ...], float]:
        plain = {key: (*key[:2], key[2].replace(word, ""), key[3]) for key in means if word in key[2]}
        return {key: means[key] - means[other] for key, other in plain.items() if other in means}

    assert min(gains(", centred").values()) > 0
    echo, beside = gains(" echo"), {key: way.replace("untuned", "untuned echo") for key, way in HEADLINE.items()}
    for name, model in PUBLISHED:
        found = [
            echo[key] for each in (3.0, 2.0, 1.0, 0.5) if (key := (name, model, beside[name, model], each)) in echo
        ]
        assert (found == sorted(found) and found[0] > 0) if name == "cifar10" else max(map(abs, found)) < 0.3
    assert max(value for key, value in means.items() if key[:2] == ("cifar10", "cnn")) < PUBLISHED["cifar10", "cnn"]
