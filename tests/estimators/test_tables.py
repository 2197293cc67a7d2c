"""Estimators on rows that a `Table` declares: frames, rows with the target in them, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import honestdp
from honestdp import Categories, Range, Table
from honestdp.errors import InvalidArgument
from tests.estimators.made_up import classifier, regressor

COLUMNS = {"age": Range(17, 90), "sex": Categories("Male", "Female"), "ill": Categories("yes", "no")}
TABLE = Table(columns=COLUMNS, target="ill")


def frame(count: int = 80) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    age = generator.integers(17, 90, count)
    sex = generator.choice(["Male", "Female"], count)
    return pd.DataFrame({"age": age, "sex": sex, "ill": np.where(age > 50, "yes", "no")})


def of_table(**arguments: Any) -> honestdp.PrivateClassifier:
    return classifier(**{"bounds": None, "classes": None, "table": TABLE} | arguments)


def test_a_frame_and_its_labels_a_frame_with_both_and_a_file_are_fitted_alike(tmp_path: Path) -> None:
    rows = frame()
    rows.to_csv(tmp_path / "rows.csv", index=False)
    apart = of_table().fit(rows[["age", "sex"]], rows["ill"])
    for fitted in (of_table().fit(rows), of_table().fit(str(tmp_path / "rows.csv"))):
        np.testing.assert_array_equal(fitted.predict_proba(rows), apart.predict_proba(rows[["sex", "age"]]))
    assert apart.classes_.tolist() == ["yes", "no"]
    assert set(apart.predict(rows)) <= {"yes", "no"}
    assert apart.feature_names_in_.tolist() == ["age", "sex"]


def test_the_statement_says_how_the_table_encodes() -> None:
    rows = frame()
    stated = of_table().fit(rows).statement_.preprocessing
    assert "age: 17 to 90" in stated
    assert "not stated" in stated, "what was done to a frame before is not known"


def test_a_second_fit_on_the_same_frame_is_noted() -> None:
    rows, labels = frame().drop(columns="ill"), frame()["ill"]
    first, second = (str(of_table().fit(rows, labels).statement_) for _ in range(2))
    assert "training or search on these data" not in first
    assert "the second training or search on these data" in second


def test_a_quantity_is_predicted_in_its_units() -> None:
    table = Table(columns={"age": Range(17, 90), "cost": Range(0, 1000)}, target="cost")
    rows = pd.DataFrame({"age": frame()["age"], "cost": frame()["age"] * 10})
    predicted = regressor(bounds=None, target_bounds=None, table=table).fit(rows).predict(rows)
    assert predicted.min() >= 0
    assert predicted.max() <= 1000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"classes": ["no", "yes"]}, "classes must be left out"),
        ({"bounds": (0, 1)}, "bounds must be left out"),
        ({"table": {"age": (17, 90)}}, "table must be a honestdp.Table"),
    ],
)
def test_what_a_table_declares_is_not_declared_twice(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        of_table(**arguments).fit(frame())


def test_a_table_is_for_the_estimator_of_its_target() -> None:
    with pytest.raises(InvalidArgument, match="one for regression"):
        regressor(bounds=None, target_bounds=None, table=TABLE).fit(frame())


def test_labels_in_two_places_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="y must be left out"):
        of_table().fit(frame(), frame()["ill"])


def test_a_fitted_estimator_of_a_table_is_scored_and_saved_as_a_model_of_its_own(tmp_path: Path) -> None:
    rows = frame()
    fitted = of_table().fit(rows)
    assert fitted.private_score(rows, epsilon=50).score.value == pytest.approx(
        fitted.score(rows[["age", "sex"]], rows["ill"]), abs=0.02
    )
    saved = honestdp.save(tmp_path / "model", fitted.result_, table=TABLE)
    assert saved.predict(rows).tolist() == fitted.predict(rows).tolist()


def test_a_number_of_people_that_nobody_declared_is_one_of_people() -> None:
    rows = frame().assign(who=np.arange(80) // 2)
    table = Table(columns=COLUMNS, target="ill", person="who", rows_per_person=2)
    assert any(
        "the number of people, 40, was not declared" in note
        for note in of_table(table=table).fit(rows).statement_.notes
    )


def test_where_the_table_says_whose_rows_they_are_the_number_is_a_persons() -> None:
    rows = frame().assign(who=np.arange(80) // 2)
    table = Table(columns=COLUMNS, target="ill", person="who", rows_per_person=2, records=40)
    fitted = of_table(table=table).fit(rows.drop(columns="ill"), rows["ill"])
    assert "one person, with all of their rows" in fitted.statement_.protects
    assert fitted.result_.run.records == 40


def test_what_others_call_otherwise_is_named() -> None:
    with pytest.raises(InvalidArgument, match="class_weight must be spelled class_weights"):
        honestdp.PrivateClassifier(epsilon=1, class_weight="balanced")  # type: ignore[call-arg]
    for name in ("coef_", "intercept_"):
        with pytest.raises(AttributeError, match=r"model_\.weight"):
            getattr(honestdp.PrivateRegressor(epsilon=1), name)
