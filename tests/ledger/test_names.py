"""What looks like one dataset is one dataset; files with older names are still read."""

from __future__ import annotations

from pathlib import Path

import pytest

from honestdp import Budget
from honestdp.checks import InvalidArgument
from honestdp.ledger import Ledger, LookAlike, NoBudget
from honestdp.ledger.chain import canonical
from honestdp.ledger.names import known_name
from tests.ledger.small_ledger import BUDGET, spending

NFC, NFD = "caf\u00e9", "cafe\u0301"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget(f"{NFC} data", BUDGET)
    return ledger


def older(ledger: Ledger, *names: str) -> None:
    """Budgets as files from before the rule hold them."""
    for name in names:
        with ledger._store.writing() as transaction:
            content = canonical({"version": 1, "epsilon": 5.0, "delta": 1e-6})
            transaction.append(dataset=name, kind="budget", key="", what="", content=content)


@pytest.mark.parametrize("name", [f"{NFD} data", f" {NFC} data", f"{NFC} data ", f"{NFC}   data", f"  {NFD}  data  "])
def test_one_dataset_whatever_its_spaces_and_composition(ledger: Ledger, name: str) -> None:
    assert ledger.charge(name, spending(), key="1").dataset == f"{NFC} data"
    ledger.resume(name, key="1", token="t", after="")
    ledger.end(name, key="1")
    assert ledger.balance(name).charges == 1
    assert len(ledger.charges(name)) == 1
    assert ledger.set_budget(name, BUDGET).charges == 1
    assert {entry.dataset for entry in ledger.entries(name)} == {f"{NFC} data"} == set(ledger.datasets())
    ledger.verify()


@pytest.mark.parametrize(
    "unseen",
    [
        "\u200b",
        "\u200d",
        "\u2060",
        "\ufeff",
        "\u00ad",
        "\u202e",
        "\u00a0",
        "\u3000",
        "\t",
        "\x00",
    ],
)
def test_what_cannot_be_seen_is_refused_by_its_code(ledger: Ledger, unseen: str, tmp_path: Path) -> None:
    name = f"hospital{unseen}2026"
    for ask in (
        lambda: ledger.set_budget(name, BUDGET),
        lambda: ledger.charge(name, spending(), key="1"),
        lambda: Ledger(tmp_path / "new.db").set_budget(name, BUDGET),
    ):
        with pytest.raises(InvalidArgument, match="dataset"):
            ask()
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ("hospital", "Hospital"),
        ("hospital", "HOSPITAL"),
        ("hospital", "ｈospital"),
        ("straße", "STRASSE"),
        ("office", "oﬃce"),
        ("data 2", "data ²"),
    ],
)
def test_a_name_that_looks_like_a_known_one_is_refused_with_that_name(tmp_path: Path, known: str, name: str) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget(known, BUDGET)
    for ask in (
        lambda: ledger.set_budget(name, Budget(9.0, 1e-6)),
        lambda: ledger.charge(name, spending(), key="1"),
        lambda: ledger.balance(name),
    ):
        with pytest.raises(LookAlike) as raised:
            ask()
        assert ascii(known) in str(raised.value)
    assert len(ledger.entries()) == 1


def test_names_that_differ_are_different(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    names = ["a", "b", "ab", "a b", "a-b", "a_b", "a.b", "é", "e", "データ", "1", "2"]
    for name in names:
        ledger.set_budget(name, BUDGET)
    assert ledger.datasets() == names
    with pytest.raises(NoBudget):
        ledger.balance("c")


def test_older_names_are_found_letter_by_letter(ledger: Ledger) -> None:
    names = ["my  data", " my data", "my data", "My Data", f"{NFD} data", "x\u2800"]
    older(ledger, *names)
    for number, name in enumerate(names, start=1):
        assert ledger.set_budget(name, BUDGET).dataset == name
        for key in range(number):
            assert ledger.charge(name, spending(), key=str(key)).dataset == name
    assert [ledger.balance(name).charges for name in names] == [1, 2, 3, 4, 5, 6]
    assert ledger.balance(f"{NFC} data").charges == 0
    assert ledger.balance("my   data").charges == 3
    with pytest.raises(LookAlike):
        ledger.charge("MY DATA", spending(), key="new")
    ledger.verify()
    ledger.export()


def test_an_older_name_alone_is_pointed_to(ledger: Ledger) -> None:
    older(ledger, "my  data")
    with pytest.raises(LookAlike, match="'my  data'"):
        ledger.charge("my data", spending(), key="1")


def test_the_form_of_a_name_is_its_own_form() -> None:
    for name in (NFC, NFD, " a  b ", "Ａ", "ﬃ", "데이터"):
        once = known_name(name, [])
        assert known_name(once, []) == known_name(name, [once]) == once
