"""A ledger is named by a path or an address of PostgreSQL; what looks like another address is refused, its password unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from honestdp.checks import InvalidArgument
from honestdp.ledger.address import Address, place_of


@pytest.mark.parametrize("named", ["ledger.db", "folder/ledger.db", "C:/ledger.db", Path("ledger.db")])
def test_paths_are_paths(named: str | Path) -> None:
    assert place_of(named) == Path(named)


@pytest.mark.parametrize("named", ["postgresql://u@h/d", "postgres://h/d", "PostgreSQL://h/d"])
def test_addresses_of_postgresql_are_addresses(named: str) -> None:
    assert isinstance(place_of(named), Address)


@pytest.mark.parametrize(
    "named", ["mysql://u:secret@h/d", "sqlite:///ledger.db", "https://u:secret@h", "postgresql+psycopg://u:secret@h/d"]
)
def test_other_addresses_are_not_taken_for_files(named: str) -> None:
    with pytest.raises(InvalidArgument, match="postgresql://USER@HOST/DATABASE") as refused:
        place_of(named)
    assert "secret" not in str(refused.value)
