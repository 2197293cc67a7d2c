"""Where the ledgers of these tests are: in a file, and on a server of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from honestdp.ledger import Address, Place
from tests.ledger.postgres_server import Server, binaries

NONE = "NO POSTGRESQL SERVER ON THIS MACHINE (Debian: postgresql): what a ledger there promises is NOT TESTED"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    if binaries() is None:
        pytest.skip(NONE)
    started = Server()
    yield started
    started.remove()


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Of a ledger that is still empty: the contract is one."""
    if request.param == "file":
        yield tmp_path / "ledger.db"
        return
    with request.getfixturevalue("server").ledger() as address:
        yield address


@pytest.fixture
def address(server: Server) -> Iterator[Address]:
    """Of a ledger on the server that is still empty."""
    with server.ledger() as address:
        yield address
