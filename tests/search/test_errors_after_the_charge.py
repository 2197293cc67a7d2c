"""What a search raises after its charge has no word, index or size of records in it, nor in what it carries along."""

from __future__ import annotations

import logging
import os
import re
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import honestdp
from honestdp import Accuracy, Budget
from honestdp.boundary.data import PrivateData
from honestdp.boundary.decoding import WorkerDied
from honestdp.boundary.seed import Seed
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.ledger import Ledger
from honestdp.search import secret
from honestdp.search.failures import SearchFailed, without_records
from honestdp.search.runs import Execution
from honestdp.training.spec import Compute
from tests.tiny_search import WHOLE, clouds, linear, once_charged

SECRET = "patient 4711"
ODD = 17
SETTINGS: dict[str, Any] = {
    **WHOLE,
    "space": {"lr": [0.1], "clip": [1.0]},
    "selection": "auto",
    "validation": 0.5,
    "lot": 100,
    "metric": Accuracy(),
    "compute": Compute(device="cpu", workers=0),
}


class OwnTrouble(OSError):
    """An error of the operating system's family without its number."""


class Records(Dataset[Any]):
    """Records of which some do what `how` says: all, or the one that is odd."""

    def __init__(self, how: str, *, everyone: bool = False) -> None:
        self.x, self.y = clouds()
        self._files = {"how": how, "everyone": everyone}  # as if on a disk: no setting of the Dataset's

    @property
    def how(self) -> Any:
        return self._files["how"]

    @property
    def everyone(self) -> Any:
        return self._files["everyone"]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        pair = self.x[index], self.y[index]
        if not self.everyone and index != ODD:
            return pair
        if self.how == "raises":
            raise ValueError(f"{SECRET} is odd")
        if self.how == "raises from another":
            try:
                raise KeyError(SECRET)
            except KeyError as trouble:
                raise RuntimeError(f"{SECRET} is odd") from trouble
        if self.how == "is not there":
            raise FileNotFoundError(2, f"no file of {SECRET}", f"{SECRET}.png")
        if self.how == "has an error of its own":
            raise OwnTrouble(SECRET)
        if self.how == "is larger":
            return np.zeros(4711, np.float32), self.y[index]
        if self.how == "is no pair":
            return {"x": SECRET}
        if self.how == "is a triple":
            return (*pair, 4711)
        if self.how == "ends the process":
            os._exit(3)
        if self.how == "warns":
            warnings.warn(f"{SECRET} is odd", UserWarning, stacklevel=1)
            logging.getLogger("honestdp.data").warning("%s is odd", SECRET)
        return pair


def raised(data: Any, folder: Path, **changes: Any) -> BaseException:
    """What a search on these records raises, after it was charged."""
    ledger = folder / "ledger.db"
    Ledger(ledger).set_budget("a", Budget(5.0, 1e-5))
    settings = {**SETTINGS, "ledger": ledger, "dataset": "a", "out": folder / "out", **changes}
    model = settings.pop("model", linear)
    try:
        honestdp.tune(model, data, **settings)
    except Exception as error:
        assert Ledger(ledger).balance("a").charges == 1
        return error
    raise AssertionError("nothing was raised")


def everything_in(error: BaseException) -> str:
    """All words of an error, of what it carries, and of its traceback."""
    own = [repr(error), str(error), repr(error.args), repr(vars(error)), "".join(traceback.format_exception(error))]
    return " ".join(own + [everything_in(one) for one in (error.__cause__, error.__context__) if one is not None])


def check_discreet(error: BaseException) -> None:
    assert isinstance(error, HonestdpError)
    assert error.__cause__ is None
    assert error.__context__ is None
    said = re.sub(r"/\S+", "", everything_in(error))  # without paths, which have numbers of their own
    for word in (SECRET, "4711", str(ODD), "odd", ".png", "OwnTrouble"):
        assert word not in re.sub(r"line \d+|model", "", said), (word, said)
    assert "charged" in said


@pytest.fixture
def held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The odd record's coin puts it on the validation side, and its number is one of what that side has."""
    from honestdp.search.secret import Secret

    real = Secret.held_out

    def with_the_odd_one(self: Secret, records: int, fraction: float) -> Any:
        coins = real(self, records, fraction)
        coins[ODD] = True
        return coins

    monkeypatch.setattr(Secret, "held_out", with_the_odd_one)


HOW = [
    "raises",
    "raises from another",
    "is not there",
    "has an error of its own",
    "is larger",
    "is no pair",
    "is a triple",
]


@pytest.mark.usefixtures("held_out")
@pytest.mark.parametrize("how", HOW)
def test_a_dataset_that_fails_on_a_validation_record_does_not_say_on_which(how: str, tmp_path: Path) -> None:
    check_discreet(raised(Records(how), tmp_path))


@pytest.mark.usefixtures("held_out")
@pytest.mark.parametrize("how", ["raises", "is not there", "is larger", "ends the process"])
def test_nor_does_one_that_is_decoded_by_worker_processes(how: str, tmp_path: Path) -> None:
    check_discreet(raised(Records(how), tmp_path, compute=Compute(device="cpu", workers=1)))


@pytest.mark.parametrize("how", HOW)
def test_nor_one_that_fails_on_every_record(how: str, tmp_path: Path) -> None:
    check_discreet(raised(Records(how, everyone=True), tmp_path))


@pytest.mark.usefixtures("held_out")
def test_a_dataset_that_was_mended_goes_on_where_it_stopped(tmp_path: Path) -> None:
    check_discreet(raised(Records("raises"), tmp_path))
    ledger = tmp_path / "ledger.db"
    settings = {**SETTINGS, "ledger": ledger, "dataset": "a", "out": tmp_path / "out", "resume": True}
    result = honestdp.tune(linear, Records("nothing"), **settings)
    assert result.score is not None
    assert Ledger(ledger).balance("a").charges == 1


@pytest.mark.usefixtures("held_out")
def test_a_dataset_that_warns_is_not_heard(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        result = honestdp.tune(linear, Records("warns"), **SETTINGS)
    assert result.score is not None
    assert not [warning for warning in heard if SECRET in str(warning.message)]


# ---- What could not be known before the charge


class Labelled(Dataset[Any]):
    """Records with labels of a kind that accuracy cannot count."""

    def __init__(self, kind: str) -> None:
        self.x, self.y, self.kind = *clouds(), kind

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        label = {"real": np.float32(self.y[index]), "many": np.array([self.y[index]] * 2)}[self.kind]
        return self.x[index], label


def _first(output: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, y.reshape(len(y), -1)[:, 0].long(), reduction="none")


@pytest.mark.parametrize("kind", ["real", "many"])
def test_a_metric_that_does_not_fit_a_datasets_labels_is_named_without_sizes(kind: str, tmp_path: Path) -> None:
    error = raised(Labelled(kind), tmp_path, loss=_first)
    check_discreet(error)
    assert isinstance(error, SearchFailed)
    assert "metric does not fit the records and their labels" in str(error)
    assert not any(digit in str(error) for digit in "0123456789")
    assert not (tmp_path / "out" / ".secret").exists()


def test_a_dataset_is_named_among_the_assumptions() -> None:
    words = "the Dataset fails on no record, and holds the same records in the same order"
    for data, named in ((Records("nothing"), True), (clouds(), False)):
        assert (words in " ".join(honestdp.tune(linear, data, **SETTINGS).statement.assumptions)) is named


# ---- Whatever is raised while records are there


class Chained(RuntimeError):
    def __init__(self) -> None:
        super().__init__(f"{SECRET} is odd")
        self.record = ODD
        self.__cause__ = ValueError(SECRET)


TROUBLE = [
    ValueError(f"{SECRET} is odd"),
    Chained(),
    AssertionError(SECRET),
    MemoryError(f"{SECRET}: 4711 bytes"),
    torch.OutOfMemoryError("tried to allocate 4711 rows"),
    torch.AcceleratorError(SECRET),
    OSError(5, SECRET, f"{SECRET}.png"),
    OwnTrouble(SECRET),
    WorkerDied(RuntimeError(SECRET)),
    InvalidArgument("labels", 4711, SECRET),
    InvalidArgument("metric", 4711, SECRET),
    InvalidArgument("data", 4711, SECRET),
    InvalidArgument("loss", 4711, SECRET),
    InvalidArgument("checkpoint", 4711, SECRET),
    InvalidArgument("the model's output", (4711, 2), SECRET),
    StopIteration(SECRET),
]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["_sides", "_door", "_load", "_batch", "_score"])
@pytest.mark.parametrize("trouble", TROUBLE, ids=lambda trouble: f"{type(trouble).__name__}")
def test_no_error_keeps_its_words(
    trouble: Exception, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise trouble

    failing = property(fail) if place in ("_sides", "_door") else fail
    once_charged(monkeypatch, Execution, place, failing)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    check_discreet(raised(clouds(), tmp_path))


@pytest.mark.parametrize("trouble", TROUBLE, ids=lambda trouble: f"{type(trouble).__name__}")
def test_no_word_of_an_error_is_left_in_the_one_that_takes_its_place(trouble: Exception) -> None:
    found = without_records(trouble)
    assert SECRET not in everything_in(found)
    assert "4711" not in everything_in(found)


def test_an_error_of_this_package_keeps_its_own_words_and_nothing_else() -> None:
    try:
        secret.read(SECRET.encode())
    except HonestdpError as trouble:
        found = without_records(trouble)
    assert str(found).startswith("the plan of this search cannot be read (JSONDecodeError)")
    assert found.__cause__ is None


# ---- Planted faults


def test_words_of_a_dataset_would_be_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("honestdp.search.failures.without_records", lambda trouble: trouble)
    monkeypatch.setattr(PrivateData, "_gathered", lambda self, **_: [self._data[i] for i in range(len(self))])
    monkeypatch.setattr(PrivateData, "guarded", lambda self: self)
    error = raised(Records("raises", everyone=True), tmp_path)
    with pytest.raises(AssertionError):
        check_discreet(error)


def test_gathering_alone_keeps_no_words() -> None:
    with pytest.raises(InvalidArgument) as caught:
        PrivateData(Records("raises"))._gathered(
            dtype=torch.float32, device=torch.device("cpu"), workers=0, seed=Seed.fresh()
        )
    assert caught.value.__context__ is None
    assert SECRET not in everything_in(caught.value)


class Pairs(Dataset[Any]):
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.x[index], self.y[index]


@pytest.mark.parametrize("wrap", [tuple, lambda pair: Pairs(*pair)], ids=["arrays", "dataset"])
def test_a_validation_side_without_a_record_is_no_failure(wrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the coins put a record there must not be seen."""
    monkeypatch.setattr("honestdp.search.secret.Secret.held_out", lambda self, n, fraction: np.zeros(n, dtype=bool))
    found = honestdp.tune(
        linear, wrap(clouds()), **{**WHOLE, "metric": honestdp.Accuracy(), "compute": Compute(device="cpu", workers=0)}
    )
    assert found.score is not None
