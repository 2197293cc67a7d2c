"""A word before a hopeless run, from public numbers alone; and none before a sane one."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path

import pytest
import torch

import honestdp
from honestdp import Budget, Run
from honestdp.planner.prospects import WARNING, Scoring, counting, drowned, most_parameters, noise_to_signal, prospects
from tests.command_line import called
from tests.tiny_search import clouds, linear

HOPELESS = Run(records=80, lot=20, steps=1000, noise=1928.0)  # what 100 records at epsilon .01 once ran with
SANE = {
    "digits, logistic, epsilon 1": (Run(records=1150, lot=64, steps=2000, noise=9.4), 650),
    "MNIST, hidden layer, epsilon 1": (Run(records=48_000, lot=250, steps=2000, noise=1.3), 79_510),
    "a wide residual network on CIFAR-10, epsilon 1": (Run(records=50_000, lot=4096, steps=900, noise=9.0), 8_900_000),
    "a language model of 100 million, epsilon 3": (Run(records=60_000, lot=2000, steps=500, noise=1.1), 100_000_000),
}


def dense(*widths: int) -> list[tuple[int, ...]]:
    """Shapes of the weights of so many layers."""
    return [shape for one, next_ in itertools.pairwise(widths) for shape in ((next_, one), (next_,))]


LEARNT = {  # test accuracy that such runs have reached, far from chance: three of them are drowned by all their weights
    "Fashion-MNIST, three hidden layers, 58 %": (dense(784, 128, 128, 128, 10), 8.0, 64, 1000),
    "Fashion-MNIST, a wide layer, 72 %": (dense(784, 512, 10), 4.0, 64, 1000),
    "Fashion-MNIST, a wide layer in few steps, 71 %": (dense(784, 512, 10), 8.0, 250, 300),
    "Adult, three hidden layers, 79 %": (dense(104, 128, 128, 128, 2), 8.0, 64, 1000),
    "ENRON, linear, 89 %": (dense(5512, 2), 4.0, 64, 1000),
}
REFERENCE = [  # Horizon was made on lots of 250 and 5000 steps of these, at noises up to 8
    dense(784, 10), dense(784, 100, 10), dense(104, 2), dense(104, 100, 2), dense(5512, 2), dense(5512, 100, 2)
]  # fmt: skip


def test_weights_count_that_stand_between_inputs_and_outputs() -> None:
    assert counting(dense(64, 10)) == 650
    assert counting(dense(64, 32, 10)) == 650
    assert counting(dense(64, 128, 128, 10)) == 129 * 10
    assert counting([(16, 1, 8, 8), (16,), (32, 16, 4, 4), (32,), (32, 512), (32,), (10, 32), (10,)]) == 5130
    assert counting(dense(1000, 2, 10)) == 2032  # never more than there are
    assert counting([(7,)]) == 7
    assert counting([]) == 1


@pytest.mark.parametrize("name", LEARNT)
def test_what_has_been_seen_to_learn_gets_no_word(name: str) -> None:
    shapes, noise, lot, steps = LEARNT[name]
    assert drowned(Run(records=36_000, lot=lot, steps=steps, noise=noise), counting(shapes)) == []


@pytest.mark.parametrize("shapes", REFERENCE)
def test_the_settings_that_horizon_was_made_on_get_no_word(shapes: list[tuple[int, ...]]) -> None:
    for noise in (0.5, 1.0, 2.0, 4.0, 8.0):
        run = Run(records=4137, lot=250, steps=5000, noise=noise)
        assert prospects(run, parameters=counting(shapes), optimizers=["horizon"]) == []


def test_a_longer_noise_has_a_stronger_word() -> None:
    def word(ratio: float) -> list[str]:
        return drowned(Run(records=1000, lot=100, steps=100, noise=ratio * 100), 100)

    assert word(0.99) == []
    assert "less than half of what the model could learn is to be expected" in word(1.01)[0]
    assert "chance is to be expected" in word(2.0)[0]


def test_noise_that_drowns_the_gradients_is_said_with_its_number_and_the_way_out() -> None:
    [said] = prospects(HOPELESS, parameters=650)
    ratio = noise_to_signal(HOPELESS, 650)
    assert ratio == pytest.approx(1928 * (650 / 1000) ** 0.5 / 20)
    for words in ("chance is to be expected", f"{ratio:.2g} times", "noise 1928", "lot 20", "78 times the records"):
        assert words in said
    [without_size] = prospects(HOPELESS)
    assert "for a single weight" in without_size


@pytest.mark.parametrize("name", SANE)
def test_a_sane_run_gets_no_word(name: str) -> None:
    run, parameters = SANE[name]
    assert prospects(run, parameters=parameters, optimizers=["horizon", "adam"]) == []


def test_the_ways_out_lead_out() -> None:
    run = Run(records=1000, lot=10, steps=100, noise=5.0)
    [said] = prospects(run, parameters=10_000)
    assert "5 times the records or the epsilon" in said
    assert prospects(Run(records=5100, lot=51, steps=100, noise=5.0), parameters=10_000) == []
    assert most_parameters(run) == pytest.approx(400)
    assert "at most 4e+02 weights between them" in said
    assert prospects(run, parameters=399) == []
    assert "larger lots" not in said  # at such a noise they change nothing
    assert "larger lots" in prospects(Run(records=1000, lot=1, steps=4, noise=0.6), parameters=100)[0]


@pytest.mark.parametrize(("optimizer", "few", "least"), [("horizon", 29, 30), ("adam-wosm", 99, 100), ("mine", 10, 30)])
def test_too_few_steps_for_an_optimizer_are_said(optimizer: str, few: int, least: int) -> None:
    def words(steps: int) -> list[str]:
        return prospects(Run(records=1000, lot=100, steps=steps, noise=1.0), parameters=10, optimizers=[optimizer])

    [said] = words(few)
    assert f"{few} steps are too few for {optimizer} (it needs about {least} to learn anything)" in said
    assert words(least) == []


def test_a_score_that_says_nothing_is_said() -> None:
    [said] = prospects(SANE["digits, logistic, epsilon 1"][0], scoring=Scoring(noise=300.0, records=20))
    assert "its 95 % interval is all of its range" in said
    assert prospects(SANE["digits, logistic, epsilon 1"][0], scoring=Scoring(noise=4.0, records=287)) == []
    blurred = Scoring(noise=25.0, records=100)
    assert prospects(SANE["digits, logistic, epsilon 1"][0], scoring=blurred) == []
    [said] = prospects(SANE["digits, logistic, epsilon 1"][0], scoring=Scoring(noise=25.0, records=100, candidates=9))
    assert "the winner will mostly be the luckiest" in said


def said_by(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.name == "honestdp")


@pytest.mark.slow
def test_tune_warns_before_it_charges_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """100 records at epsilon .01: noise in the thousands and a score of "1 (0 to 1)" once came without a word."""
    x, y = clouds()
    with caplog.at_level(logging.WARNING):
        result = honestdp.tune(
            linear, (x[:100], y[:100]), budget=Budget(0.01, 1e-5), steps=10, compute=honestdp.Compute(device="cpu")
        )
    words = said_by(caplog)
    assert "noise drowns the gradients" in words
    assert "warning: 10 steps are too few for echo" in words
    assert "all of its range" in words
    assert result.epsilon <= 0.01
    [noted] = [note for note in result.statement.notes if note.startswith(WARNING)]
    assert "chance is to be expected" in noted
    assert "chance is to be expected" in str(result)


def test_train_warns(caplog: pytest.LogCaptureFixture) -> None:
    x, y = clouds()
    run = Run(records=len(x), lot=10, steps=40, noise=500.0)
    with caplog.at_level(logging.WARNING):
        result = honestdp.train(
            linear(), (x, y), run=run, optimizer="horizon", delta=1e-5, compute=honestdp.Compute(device="cpu")
        )
    assert "noise drowns the gradients" in said_by(caplog)
    assert [note for note in result.statement.notes if note.startswith(WARNING)]
    assert result.statement.as_dict()["notes"] == list(result.statement.notes)


def test_a_sane_search_gets_no_word(caplog: pytest.LogCaptureFixture) -> None:
    x, y = honestdp.load_dataset("digits").train
    with caplog.at_level(logging.WARNING):
        result = honestdp.tune(
            lambda: torch.nn.Linear(64, 10),
            (x, y),
            budget=Budget(1.0, 1e-5),
            steps=100,
            compute=honestdp.Compute(device="cpu"),
        )
    assert said_by(caplog) == ""
    assert not [note for note in result.statement.notes if note.startswith(WARNING)]


@pytest.mark.slow
def test_the_command_line_has_it_in_its_json(tmp_path: Path) -> None:
    """A table too: 40 rows at epsilon .02."""
    rows = "".join(f"{i % 7},{i % 2}\n" for i in range(40))
    (tmp_path / "t.csv").write_text(f"a,b\n{rows}")
    (tmp_path / "t.toml").write_text(
        'target = "b"\n[columns.a]\nkind = "range"\nlow = 0\nhigh = 7\n[columns.b]\nkind = "flag"\n'
    )
    asked = [str(tmp_path / "t.csv"), "--schema", str(tmp_path / "t.toml"), "--epsilon", "0.02", "--delta", "1e-5"]
    for words in (["plan", *asked], ["tune", *asked, "--steps", "40", "--out", "out"]):
        code, out, _ = called(tmp_path, *words, "--json")
        assert code == 0
        said = json.loads(out)["warnings"]
        assert "noise drowns the gradients, and chance is to be expected: for 4 weights" in said[0]


def test_a_plan_warns_too() -> None:
    made = honestdp.plan(records=100, epsilon=0.01, delta=1e-5, candidates=1)
    assert any("chance is to be expected: for a single weight" in words for words in made.warnings)
    assert any("all of its range" in words for words in made.warnings)
    assert honestdp.plan(records=60_000, epsilon=1.0, delta=1e-5, candidates=1, parameters=7850).warnings == ()
    large = honestdp.plan(records=1437, epsilon=1.0, delta=1e-5, candidates=1, parameters=10**7)
    assert "10000000 weights between inputs and outputs" in large.warnings[0]
