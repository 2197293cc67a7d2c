"""Each entry says what it was, who charged it and what they noted; its number is one number everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from honestdp import Ledger
from honestdp.checks import InvalidArgument
from honestdp.ledger import Place
from honestdp.ledger.names import Described
from honestdp.ledger.paying import books_of
from tests.ledger.small_ledger import BUDGET, ledger_of, spending


@pytest.mark.parametrize(
    ("what", "who", "note"), [("a search", "ann", "for the board"), ("", "ann", ""), ("a", "", "b"), ("", "", "")]
)
def test_a_line_is_read_as_it_was_put_together(what: str, who: str, note: str) -> None:
    assert Described.read(Described(what, who, note).line) == (what, who, note)


def test_an_earlier_line_is_all_of_it_what_was_charged() -> None:
    assert Described.read("honestdp tune, envelope") == ("honestdp tune, envelope", "", "")


def test_a_charge_says_who_made_it_and_what_they_noted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    ledger = ledger_of(place)
    ledger.charge("a", spending(), key="one", what="a model", note="for the board")
    ledger.charge("a", spending(), key="two", who="")
    assert [Described.read(entry.what) for entry in ledger.entries("a")] == [
        ("budget", "ann", ""),
        ("a model", "ann", "for the board"),
        ("", "", ""),
    ]


def test_the_number_of_a_charge_counts_the_entries_of_every_dataset(place: Place) -> None:
    ledger = ledger_of(place)
    ledger.set_budget("b", BUDGET)
    first = ledger.charge("a", spending(), key="one")
    ledger.end("a", key="one")
    second = ledger.charge("a", spending(), key="two")
    known = {charge.entry.key: (charge.entry.number, charge.entry.hash) for charge in ledger.charges("a")}
    assert known == {"one": (first.entry, first.head), "two": (second.entry, second.head)}
    assert (second.entry, second.charges) == (5, 2)
    again = ledger.charge("a", spending(), key="one")
    assert (again.entry, again.head, again.charged) == (first.entry, first.head, False)


def test_the_environment_names_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HONESTDP_LEDGER", raising=False)
    with pytest.raises(InvalidArgument, match="HONESTDP_LEDGER"):
        Ledger()
    monkeypatch.setenv("HONESTDP_LEDGER", str(tmp_path / "ledger.db"))
    Ledger().set_budget("a", BUDGET)
    assert Ledger(tmp_path / "ledger.db").datasets() == ["a"]
    assert Ledger(tmp_path / "other.db").path == tmp_path / "other.db"


def test_nothing_is_charged_without_a_dataset_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONESTDP_LEDGER", "ledger.db")
    assert books_of(None, None) is None
    named = books_of(None, "a")
    assert named is not None
    assert (named.ledger, named.dataset) == (Path("ledger.db"), "a")
    other = books_of("other.db", "a", note="why")
    assert other is not None
    assert (other.ledger, other.note) == (Path("other.db"), "why")
    with pytest.raises(InvalidArgument, match="noise_seed"):
        books_of(None, "a", noise_seed=3)
    monkeypatch.setenv("HONESTDP_LEDGER", "")
    with pytest.raises(InvalidArgument, match="dataset must be given together with ledger"):
        books_of(None, "a")
    with pytest.raises(InvalidArgument, match="dataset must be given together with ledger"):
        books_of("ledger.db", None)
    with pytest.raises(InvalidArgument, match="note must be left out without a ledger"):
        books_of(None, None, note="why")
