"""Results of trainings and of searches share their verbs: statement, as_dict, save and report."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_model

import honestdp
from honestdp.checks import InvalidArgument
from honestdp.training.result import Outcome
from tests.tiny_search import WHOLE, clouds, linear, weights

RUN = honestdp.Run(records=400, lot=40, steps=4, noise=1.0)


def trained(**more: Any) -> honestdp.Result:
    return honestdp.train(linear(), clouds(), run=RUN, optimizer=honestdp.optimizers.SGD(lr=0.1, clip=1.0), **more)


def tuned() -> honestdp.TuneResult:
    return honestdp.tune(linear, clouds(), **{**WHOLE, "space": {"lr": 0.1, "clip": 1.0}})


@pytest.fixture(scope="module", params=["train", "tune"])
def result(request: pytest.FixtureRequest) -> honestdp.Result | honestdp.TuneResult:
    return trained(delta=1e-5) if request.param == "train" else tuned()


def test_the_weights_are_saved_and_read_again(result: Outcome, tmp_path: Path) -> None:
    result.save(tmp_path / "model.safetensors")
    again = linear()
    load_model(again, tmp_path / "model.safetensors")
    assert weights(again).equal(weights(result.model).cpu())


def test_the_dictionary_is_json_with_the_same_words(result: Any) -> None:
    words = json.loads(json.dumps(result.as_dict()))
    assert {"hyperparameters", "epsilon", "delta", "run", "statement"} <= set(words)
    assert words["hyperparameters"] == {
        "optimizer": "sgd",
        "lr": 0.1,
        "clip": 1.0,
        "lot": result.run.lot,
        "steps": result.run.steps,
    }
    assert words["epsilon"] == result.epsilon == words["statement"]["epsilon"]
    assert words["delta"] == 1e-5


def test_the_report_is_a_page_that_states_the_guarantee(result: Any, tmp_path: Path) -> None:
    path = result.report(tmp_path / "report.html")
    assert path == tmp_path / "report.html"
    page = path.read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "What is guaranteed" in page
    assert "add or remove one record" in page
    assert "sgd" in page
    assert result.report(tmp_path / "again.html").read_text() == page


def test_a_training_s_page_speaks_of_a_training() -> None:
    page = trained(delta=1e-5)._page()
    assert "search" not in page.split("<body>")[1].lower()
    assert "NOT PRIVATE" not in page
    assert "NOT PRIVATE" in trained(delta=1e-5, noise_seed=1)._page()


def test_a_result_travels_with_its_report(result: Any) -> None:
    again = pickle.loads(pickle.dumps(result))
    assert weights(again.model).equal(weights(result.model))
    assert again._page() == result._page()
    assert again.as_dict() == result.as_dict()


def test_without_a_delta_there_is_no_dictionary_and_no_report(tmp_path: Path) -> None:
    for ask in (lambda one: one.as_dict(), lambda one: one.report(tmp_path / "report.html")):
        with pytest.raises(InvalidArgument, match="delta must be given"):
            ask(trained())
    assert not (tmp_path / "report.html").exists()


def test_a_statement_names_the_accountant_that_its_number_comes_from() -> None:
    """At noise .02 losses are beyond the pld accountant: what is stated is a Renyi bound, and is called one."""
    assert trained(delta=1e-5).statement.accountant == "pld"
    loud = dataclasses.replace(trained(delta=1e-5), run=honestdp.Run(records=400, lot=40, steps=5, noise=0.02))
    with pytest.warns(honestdp.accounting.FallBack):
        said = loud.statement
    assert said.accountant == "rdp"
    assert "this is a Renyi bound" in said.notes[0]
    assert re.search("^accountant +rdp$", str(said), flags=re.M)
