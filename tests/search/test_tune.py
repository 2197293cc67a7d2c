"""The front door: every selection from data to statement, and what the search does with records, devices and failures."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import honestdp
from honestdp import Budget, ClippedLoss, Compute, DeclaredMetric, LogUniform
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.ledger import Ledger
from honestdp.selection import SELECTIONS, named
from tests.tiny_search import BUDGET, SEARCH, clouds, hidden, linear, weights

FOLDER = Path(__file__).parent / "golden"
GOLDEN = ["one-run", *SELECTIONS]
QUICK = named("papernot-steinke", runs=6)


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["auto", *SELECTIONS])
def test_every_selection_goes_from_records_to_a_statement(selection: str) -> None:
    result = honestdp.tune(linear, clouds(), selection=selection, max_runs=30, **SEARCH)
    assert result.epsilon == result.statement.epsilon <= 3.0
    assert set(result.hyperparameters) == {"optimizer", "clip", "lr", "lot", "steps"}
    assert result.score is not None
    assert 0 <= result.score.low <= result.score.value <= result.score.high <= 1
    assert result.run.records == 320
    assert len(result.candidates) == (4 if selection == "compose" else 0)
    assert result.folder is None


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["compose", "envelope"])
def test_what_leaves_is_written(selection: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = honestdp.tune(linear, clouds(), selection=selection, out=out, max_runs=30, **SEARCH)
    assert json.loads((out / "result.json").read_text()) == json.loads(json.dumps(result.as_dict()))
    assert json.loads((out / "statement.json").read_text()) == result.statement.as_dict()
    assert result.folder == out
    assert result.report(tmp_path / "again.html").read_text() == (out / "report.html").read_text()
    result.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").stat().st_size == (out / "model.safetensors").stat().st_size
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    models = {f"candidates/{i:04d}.safetensors" for i in range(4)} if selection == "compose" else set()
    assert files == models | {"model.safetensors", "search.json", "statement.json", "result.json", "report.html"}


def said(selection: str) -> dict:
    """The statement of a small search, as JSON gives it back."""
    own = {"optimizer": None, "space": None} if selection == "one-run" else {"selection": selection}
    result = honestdp.tune(linear, clouds(), records=400, max_runs=30, **{**SEARCH, **own})
    return json.loads(json.dumps(result.statement.as_dict()))


@pytest.mark.parametrize("selection", GOLDEN)
def test_the_statement_reads_as_it_was_agreed(selection: str) -> None:
    """A change of words or of a number is seen by whoever reviews it: `python -m tests.search.test_tune` writes them anew."""
    file = FOLDER / f"{selection}.json"
    assert file.exists(), "a new selection: let `python -m tests.search.test_tune` write its statement, and read it"
    golden = json.loads(file.read_text())
    found = said(selection)
    assert found.keys() == golden.keys()
    for name, value in golden.items():
        if name == "published" and value is not None:
            assert found[name].pop("epsilon") == pytest.approx(value.pop("epsilon"), rel=1e-12)
        assert found[name] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), name


@pytest.mark.slow
def test_a_statement_names_everything_a_reader_needs() -> None:
    result = honestdp.tune(linear, clouds(), selection="envelope", max_runs=10, **SEARCH)
    said = str(result.statement)
    for words in (
        "at delta 1e-05",
        "add or remove one record",
        "pld",
        "envelope",
        "may leave",
        "our own proof",
        "published",
        "validation record",
        "operator",
        "floating point",
        "preprocessing",
        "not declared but taken",
    ):
        assert words in said
    declared = honestdp.tune(linear, clouds(), selection="envelope", max_runs=10, records=400, **SEARCH)
    assert "it was declared" in str(declared.statement)


def test_a_search_finds_the_good_candidate() -> None:
    """All begin with the answers swapped; one learns and three stay there."""
    swapped = linear()
    with torch.no_grad():
        swapped.weight.copy_(torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]))
        swapped.bias.copy_(torch.tensor([-1.5, 1.5]))
    space = {"clip": [1.0], "lr": [1e-9, 1e-8, 1e-7, 0.1]}
    given = {**SEARCH, "space": space, "steps": 60, "budget": Budget(6.0, 1e-5)}
    result = honestdp.tune(swapped, clouds(4000), selection="compose", noise_seed=3, **given)
    assert result.hyperparameters["lr"] == 0.1
    assert result.score is not None
    assert result.score.value > 0.75


@pytest.mark.slow
def test_the_same_seed_gives_the_same_search_and_says_not_private() -> None:
    first, again, other = (
        honestdp.tune(linear, clouds(), selection="envelope", max_runs=8, noise_seed=seed, **SEARCH)
        for seed in (1, 1, 2)
    )
    assert torch.equal(weights(first.model), weights(again.model))
    assert first.score == again.score
    assert not torch.equal(weights(first.model), weights(other.model))
    assert str(first.statement).startswith("NOT PRIVATE")
    unseeded = [honestdp.tune(linear, clouds(), selection=QUICK, **SEARCH) for _ in range(2)]
    assert not torch.equal(weights(unseeded[0].model), weights(unseeded[1].model))
    assert not unseeded[0].statement.not_private


def test_the_default_needs_no_search() -> None:
    result = honestdp.tune(linear, clouds(), budget=BUDGET, lot=40, steps=20, compute=Compute(device="cpu"))
    assert result.hyperparameters == {"optimizer": "echo", "lot": 40.0, "steps": 20}
    assert result.statement.how == "one run"
    everything = honestdp.tune(
        linear, clouds(), budget=BUDGET, lot=40, steps=20, validation=0, compute=Compute(device="cpu")
    )
    assert everything.score is None
    assert everything.run.records == 400


@pytest.mark.slow
def test_widths_lots_and_steps_are_searched() -> None:
    space = {"clip": [1.0], "width": [2, 6], "lot": [20, 40], "steps": [10, 15]}
    given = {**SEARCH, "space": space}
    result = honestdp.tune(hidden, clouds(), selection="compose", **given)
    found = result.hyperparameters
    assert result.model[0].out_features == found["width"]
    assert (result.run.lot, result.run.steps) == (found["lot"], found["steps"])


def test_random_search_and_several_optimizers() -> None:
    space = {"sgd": {"lr": LogUniform(1e-2, 1), "clip": [1.0]}, "adam": {"clip": [1.0]}}
    given = {**SEARCH, "optimizer": ["sgd", "adam"], "space": space}
    result = honestdp.tune(linear, clouds(), selection="envelope", candidates=5, max_runs=6, **given)
    assert result.hyperparameters["optimizer"] in ("sgd", "adam")


def test_regression_is_scored_by_a_clipped_loss_and_by_a_metric_of_ones_own() -> None:
    x, y = clouds()
    targets = x.sum(axis=1) / 4
    model = lambda: nn.Linear(3, 1)  # noqa: E731
    given = {**SEARCH, "space": {"clip": [1.0], "lr": [0.01]}}
    result = honestdp.tune(model, (x, targets), metric=ClippedLoss(2.0), **given)
    assert result.score is not None
    assert result.score.name == "loss"
    with pytest.raises(InvalidArgument, match="ClippedLoss"):
        honestdp.tune(model, (x, targets), **given)
    own = DeclaredMetric(lambda out, y: 10.0 * (out.argmax() == y), low=0, high=10, name="points")
    result = honestdp.tune(linear, (x, y), metric=own, **given)
    assert result.score is not None
    assert result.score.name == "points"
    assert 0 <= result.score.low <= result.score.value <= result.score.high <= 10


class Noting(Dataset):
    """A Dataset that notes which records were read."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y, self.read = x, y, []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        self.read.append(index)
        return self.x[index], self.y[index]


@pytest.mark.slow
def test_datasets_and_memory_mapped_arrays_are_searched_too(tmp_path: Path) -> None:
    x, y = clouds(120)
    given = {
        **SEARCH,
        "lot": 20,
        "steps": 6,
        "space": {"clip": [1.0], "lr": [0.01, 0.1]},
        "compute": Compute(device="cpu", workers=0),
    }
    data = Noting(x, y)
    result = honestdp.tune(linear, data, metric=honestdp.Accuracy(), selection=QUICK, **given)
    assert result.score is not None
    assert data.read
    with pytest.raises(InvalidArgument, match="metric"):
        honestdp.tune(linear, data, selection=QUICK, **given)
    mapped = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=x.shape)
    mapped[:] = x
    assert honestdp.tune(linear, (mapped, y), selection=QUICK, **given).score is not None


def test_every_record_is_on_one_side_and_only_there() -> None:
    from honestdp.boundary.data import PrivateData

    x, y = clouds(50)
    held = np.arange(50) % 3 == 0
    for data in ((x, y), (torch.tensor(x), torch.tensor(y)), Noting(x, y)):
        sides = [side._data for side in PrivateData(data).split(held)]
        rows = [[one[i][0] for i in range(len(one))] if isinstance(data, Noting) else list(one[0]) for one in sides]
        assert [len(side) for side in rows] == [33, 17]
        assert np.array_equal(np.array([np.asarray(row) for row in rows[0]]), x[~held])
        assert np.array_equal(np.array([np.asarray(row) for row in rows[1]]), x[held])


def test_a_record_is_on_one_side_and_the_coin_is_the_declared_one() -> None:
    from honestdp.search.secret import Secret

    drawn = Secret(candidates=(), noise=(), ties=(), starts=(), split=12345, seed=None)
    held = drawn.held_out(100_000, 0.2)
    assert abs(held.mean() - 0.2) < 5 * math.sqrt(0.16 / 100_000)
    assert np.array_equal(held[:500], drawn.held_out(500, 0.2))  # a record more leaves the coins of the others alone
    other = replace(drawn, split=54321).held_out(100_000, 0.2)
    assert abs((held & other).mean() - 0.04) < 0.005


def test_a_run_that_diverges_scores_minus_infinity_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    given = {**SEARCH, "optimizer": "sgd", "space": {"lr": [1e38, 0.1], "clip": [1e3]}}
    with caplog.at_level(logging.DEBUG):
        result = honestdp.tune(linear, clouds(), selection="compose", noise_seed=1, **given)
    assert result.hyperparameters["lr"] == 0.1
    assert torch.isfinite(weights(result.model)).all()
    assert not [record for record in caplog.records if "diverge" in record.message or "nan" in record.message.lower()]


@pytest.mark.slow
def test_a_search_without_a_run_that_ends_says_no_more_than_that(tmp_path: Path) -> None:
    given = {**SEARCH, "optimizer": "sgd", "space": {"lr": [1e38, 1e37], "clip": [1e6]}}
    with pytest.raises(HonestdpError, match="no run ended") as caught:
        honestdp.tune(linear, clouds(), selection=QUICK, out=tmp_path / "run", **given)
    assert caught.value.__context__ is None
    assert not (tmp_path / "run" / ".secret").exists()


@pytest.mark.parametrize("wrap", [tuple, lambda data: Noting(*data)], ids=["arrays", "dataset"])
def test_a_record_whose_label_is_no_class_contributes_zero_and_nothing_tells_of_it(
    wrap, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = clouds(120)
    y[7] = 414_141_414
    given = {**SEARCH, "metric": honestdp.Accuracy(), "compute": Compute(device="cpu", workers=0), "validation": 0.01}
    result = honestdp.tune(linear, wrap((x, y)), selection=QUICK, out=tmp_path / "run", **{**given, "lot": 60})
    assert torch.isfinite(weights(result.model)).all()
    assert "414141414" not in f"{result} {result.as_dict()} {caplog.text}"
    assert not (tmp_path / "run" / ".secret").exists()


@pytest.mark.slow
def test_a_count_that_may_be_zero_leaves_the_untrained_model() -> None:
    own = named("envelope", runs=0.05, shape="poisson")
    results = [honestdp.tune(linear, clouds(80), selection=own, noise_seed=seed, **SEARCH) for seed in range(4)]
    empty = [result for result in results if not result.hyperparameters]
    assert empty
    assert empty[0].score is None


@pytest.mark.slow
def test_the_ledger_is_charged_what_the_statement_says(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    Ledger(file).set_budget("clouds", Budget(3.0, 1e-5))
    given = {**SEARCH, "ledger": file, "dataset": "clouds"}
    result = honestdp.tune(linear, clouds(), selection="envelope", max_runs=8, **given)
    assert result.balance is not None
    assert result.balance.before == 0
    assert result.balance.spent == pytest.approx(result.epsilon, rel=1e-9)
    with pytest.raises(HonestdpError, match="over budget"):
        honestdp.tune(linear, clouds(), selection="envelope", max_runs=8, again=True, **given)
    with pytest.raises(HonestdpError, match="no budget"):
        honestdp.tune(linear, clouds(), selection=QUICK, **{**given, "dataset": "others"})
    with pytest.raises(InvalidArgument, match="dataset"):
        honestdp.tune(linear, clouds(), selection=QUICK, **{**given, "dataset": None})


def test_the_given_module_is_not_changed() -> None:
    module = linear()
    before = weights(module).clone()
    result = honestdp.tune(module, clouds(), selection=QUICK, **SEARCH)
    assert torch.equal(weights(module), before)
    assert not torch.equal(weights(result.model), before)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in GOLDEN:
        (FOLDER / f"{each}.json").write_text(json.dumps(said(each), indent=2) + "\n")
