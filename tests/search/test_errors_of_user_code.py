"""Whatever the code of a user raises after the charge, an end of the process included, leaves in words of this package."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

import honestdp
from honestdp import Accuracy
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.ledger import BrokenChain
from honestdp.search import failures
from honestdp.search import runs as execution
from honestdp.search.failures import SearchFailed, without_records
from honestdp.search.lifecycle import SearchStopped
from honestdp.training.spec import Compute
from tests.tiny_search import WHOLE, clouds, linear, once_charged

SECRET = "image 4711 of a patient"


class Patient4711(BaseException):
    pass


class OtherArguments(HonestdpError):
    def __init__(self, *, record: int) -> None:
        super().__init__(SECRET)


KINDS: dict[str, BaseException] = {
    "an end of the process": SystemExit(SECRET),
    "an end of a generator": GeneratorExit(SECRET),
    "any other end": Patient4711(SECRET),
    "a number of its own": OSError(4711, "bad"),
    "a number beyond all numbers": OSError(10**12, SECRET),
    "a missing file": FileNotFoundError(2, SECRET, "4711.png"),
    "a forbidden file": PermissionError(13, SECRET, "4711.png"),
    "an error of this package": HonestdpError(SECRET),
    "an argument of this package": InvalidArgument("the 4711", 4711, SECRET),
    "an end of a search": SearchFailed(SECRET),
    "an error of this package with other arguments": OtherArguments(record=4711),
    "a broken ledger": BrokenChain(SECRET, entry=4711),
}


class Records(Dataset[Any]):
    """Fails on one record of the training side, or of the other one, which are both read."""

    def __init__(self, kind: str) -> None:
        self.x, self.y = clouds()
        self._files = {"kind": kind}  # as if on a disk: no setting of the Dataset's

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        if index == 317:
            raise KINDS[self._files["kind"]]
        return self.x[index], self.y[index]


HERE = Compute(device="cpu", workers=0)


def left(data: Any, model: Any = linear, **named: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 (its kind is what is asked)
        honestdp.tune(model, data, **{**WHOLE, "metric": Accuracy(), **named})
    return caught.value


def check_own(error: BaseException) -> None:
    assert type(error) in (HonestdpError, SearchFailed)
    assert (error.__cause__, error.__context__) == (None, None)
    for word in ("4711", "patient", "png", "Unknown"):
        assert word not in repr(error) + str(error) + repr(vars(error))


@pytest.fixture(params=[True, False], ids=["held out", "trained on"])
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record that fails has its place on this side."""
    from honestdp.search.secret import Secret

    real = Secret.held_out

    def placed(self: Secret, records: int, fraction: float) -> Any:
        coins = real(self, records, fraction)
        coins[317] = request.param
        return coins

    monkeypatch.setattr(Secret, "held_out", placed)


@pytest.mark.usefixtures("side")
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_dataset_raises_on_a_record_is_not_repeated(kind: str) -> None:
    check_own(left(Records(kind), compute=HERE))


@pytest.mark.parametrize("kind", ["a missing file", "a forbidden file"])
def test_a_file_that_a_dataset_cannot_read_reads_the_same_whoever_decodes_it(kind: str) -> None:
    here, there = (left(Records(kind), compute=compute) for compute in (HERE, Compute(device="cpu", workers=2)))
    check_own(here)
    assert (type(here), str(here)) == (type(there), str(there))


@pytest.mark.usefixtures("side")
def test_an_interruption_with_words_leaves_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "an interruption", KeyboardInterrupt(SECRET))
    error = left(Records("an interruption"), compute=HERE)
    assert type(error) is SearchStopped
    assert (error.__cause__, error.__context__) == (None, None)
    assert "4711" not in repr(error)


def test_a_run_that_ends_the_process_counts_as_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = execution.Execution._population

    def population(self: Any, batch: list[int], *rest: Any) -> Any:
        if 0 in batch:
            raise SystemExit(SECRET)
        return real(self, batch, *rest)

    once_charged(monkeypatch, execution.Execution, "_population", population)
    result = honestdp.tune(linear, clouds(), **WHOLE, metric=Accuracy())
    assert len(result.candidates) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_factory_raises_after_the_charge_is_not_repeated(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise KINDS[kind]

    once_charged(monkeypatch, "honestdp.search.tune_result.result_of", fail)
    check_own(left(clouds()))


def test_a_full_disk_is_named_where_the_file_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = execution.Execution.finish

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, SECRET)

    def finish(self: Any) -> Any:
        monkeypatch.setattr(os, "replace", full)
        return real(self)

    monkeypatch.setattr(execution.Execution, "finish", finish)
    error = left(clouds(), out=tmp_path / "out")
    check_own(error)
    assert str(error).startswith("the machine stopped the search (No space left on device)")


def test_an_error_with_another_constructor_keeps_words_of_the_package() -> None:
    from honestdp.ledger.account import _broken  # what raises it is a module of the package

    try:
        failures.in_own_words(lambda: _raise_from("honestdp.ledger.account", _broken))
    except HonestdpError as trouble:
        found = without_records(trouble)
    assert type(found) is HonestdpError
    assert "is odd" in str(found)


def _raise_from(module: str, make: Any) -> None:
    """As a module of the package would."""

    class Entry:
        number, kind, dataset = 3, "charge", "a"

    exec("raise make(entry, 'it is odd')", {"__name__": module, "make": make, "entry": Entry()})
