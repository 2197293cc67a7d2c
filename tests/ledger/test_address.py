"""A ledger is named by a path or an address of PostgreSQL; what looks like another address is refused, its password unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from honestdp.checks import InvalidArgument
from honestdp.ledger import Unreachable
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


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://team:p%40ss@db:5433/x?sslmode=require&sslpassword=y", "team@db:5433/x?sslmode=require"),
        ("postgresql://u@h/d", "u@h/d"),
        ("postgresql://a%40b:secret@/d?host=/run/server&passfile=f", "a%40b@/d?host=/run/server"),
        ("postgresql://u:secret@[::1]:5432,h:5433/d", "u@/d?host=::1,h&port=5432,5433"),
    ],
)
def test_an_address_shows_its_parts_that_are_no_secret_and_is_read_back(url: str, shown: str) -> None:
    address = Address(url)
    assert str(address) == f"postgresql://{shown}"
    assert Address(str(address)) == address
    assert address.url.partition("://")[2] == url.partition("://")[2]
    assert str(address.with_user("other")).count("other@") == 1


@pytest.mark.parametrize("url", ["postgresql://u:p/ss@h/d", "postgresql://u:p@ss@h/d", "postgresql://u:pss@[h/d"])
def test_a_password_that_would_be_read_as_a_host_is_refused_unsaid(url: str) -> None:
    with pytest.raises(Unreachable, match="is no address") as refused:
        Address(url)
    assert url.partition("u:")[2] not in str(refused.value)
    assert str(refused.value).startswith(
        "this is no address that PostgreSQL's library can read: write postgresql://USER@"
    )
