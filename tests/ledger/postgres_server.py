"""A PostgreSQL server of the tests' own: in a folder and on a socket that nobody else has, without TCP."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from honestdp.ledger.address import Address
from honestdp.ledger.postgres_rules import set_up
from tests.leftover_processes import SHARED

ADMIN, ROLE = "postgres", "honestdp_ledger"
SETTINGS = {
    "listen_addresses": "", "max_connections": "60", "shared_buffers": "16MB", "wal_level": "minimal", "max_wal_senders": "0",
    "recovery_init_sync_method": "syncfs", "autovacuum": "off", "fsync": "on", "log_statement": "all", "log_checkpoints": "off",
}  # fmt: skip
_RULES_OF_ACCESS = "local all passworded scram-sha-256\nlocal all all trust\n"


def binaries() -> Path | None:
    """The folder of the newest server on this machine, as Debian installs it or as the PATH has it."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if found:
        return max(found, key=lambda path: int(path.parent.name))
    named = shutil.which("postgres")
    return None if named is None else Path(named).resolve().parent


class Server:
    """`start`, `kill`, `stop`, `remove`; and `ledger()`, the address of a new ledger in a database of its own."""

    def __init__(self) -> None:
        found = binaries()
        assert found is not None, "there is no PostgreSQL on this machine"
        self._programs = found
        self.folder = Path(tempfile.mkdtemp(prefix="hdp"))
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._free: list[str] = []
        self._how: dict[str, Any] = {}
        if os.geteuid() == 0:  # the server refuses to be root
            user = next(name for name in ("postgres", "nobody") if _known(name))
            self._how = {"user": user, "extra_groups": []}
            os.chown(self.folder, pwd.getpwnam(user).pw_uid, -1)
        data = str(self.folder / "data")
        begin = [
            str(self._programs / "initdb"),
            "-D",
            data,
            "-U",
            ADMIN,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        ]
        self._run(begin)
        (self.folder / "data" / "pg_hba.conf").write_text(_RULES_OF_ACCESS)
        self.start()

    def start(self) -> None:
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), *settings]
        limit = time.monotonic() + 60
        while not self._started(command, limit):  # children of one that was killed may still hold its memory
            time.sleep(0.05)

    def _started(self, command: list[str], limit: float) -> bool:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self._how)
        SHARED.add(self._process.pid)
        while not self._ready():
            assert time.monotonic() < limit, f"the server does not come up: {self.log.read_text()[-2000:]}"
            if self._process.poll() is not None:
                SHARED.discard(self._process.pid)
                return False
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        """kill -9, as a lack of memory or of power does it. Its children notice that it is gone and end."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._end(signal.SIGQUIT)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def reload(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def address(self, database: str, user: str = ROLE) -> Address:
        return Address(f"postgresql://{user}@/{database}?host={self.folder}")

    def admin(self, database: str = "postgres") -> Address:
        return self.address(database, ADMIN)

    def ask(self, query: str, database: str = "postgres", user: str = ADMIN) -> list[Any]:
        import psycopg

        with psycopg.connect(self.address(database, user).url, autocommit=True) as connection:
            cursor = connection.execute(query)
            return [] if cursor.description is None else cursor.fetchall()

    def database(self) -> str:
        """A new one, without a ledger."""
        self._databases += 1
        name = f"d{self._databases}"
        self.ask(f"CREATE DATABASE {name}")
        return name

    @contextmanager
    def ledger(self) -> Iterator[Address]:
        """A new one, in a database that is used again: a database of its own for each takes longer to make and to remove."""
        name = self._free.pop() if self._free else self.database()
        self.ask("DROP SCHEMA IF EXISTS honestdp CASCADE", name)
        set_up(self.admin(name))
        yield self.address(name)
        self._free.append(name)

    def _end(self, how: int) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(60)
        SHARED.discard(self._process.pid)

    def _ready(self) -> bool:
        asked = [str(self._programs / "pg_isready"), "-q", "-h", str(self.folder), "-t", "1"]
        return subprocess.run(asked, check=False).returncode == 0

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, **self._how)
        assert done.returncode == 0, done.stderr


def _known(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
