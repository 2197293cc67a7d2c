"""A network between client and server that can be cut: at a chosen statement, before it arrives or before it is answered."""

from __future__ import annotations

import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from honestdp.ledger import Address

Cut = Literal["before", "after", "silent", "either"]
_SOCKET = ".s.PGSQL.5432"


class Network:
    """Forwards to the server's socket until a client sends `at`. Then once, or for good:

    before: the connection ends and the server never hears it; after: the server hears it and its answer is lost; silent: as
    after, but the connection stays and says nothing; either: before or after, by chance. often: the part of such statements
    that is cut.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self._to = str(server / _SOCKET)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / _SOCKET))
        self._listening.listen(64)
        self.at, self.how, self.times, self.down, self._stays_down = b"", "before", 0, False, False
        self.often, self.chance = 1.0, random.Random(11)
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self, at: bytes, how: Cut, *, times: int = 1, stays_down: bool = False) -> None:
        self.at, self.how, self.times, self._stays_down = at, how, times, stays_down

    def close(self) -> None:
        for end in (self._listening, *self._ends):
            _shut(end)
        for thread in self._threads:
            thread.join(20)
        for end in (self._listening, *self._ends):
            end.close()

    def _start(self, work: Any, *given: Any) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.down:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._to)
                except OSError:  # the server is down: the client hears of nobody
                    client.close()
                    server.close()
                    continue
                self._ends += [client, server]
                muted = threading.Event()
                self._start(self._forward, client, server, muted)
                self._start(self._answer, server, client, muted)

    def _forward(self, client: socket.socket, server: socket.socket, muted: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.times and self.at in data and self.chance.random() < self.often:
                    self.times -= 1
                    self.down = self._stays_down
                    how = self.chance.choice(["before", "after"]) if self.how == "either" else self.how
                    if how != "before":
                        muted.set()
                        server.sendall(data)
                    if how == "silent":
                        continue
                    client.shutdown(socket.SHUT_RDWR)
                    break
                server.sendall(data)
        if not muted.is_set():
            _shut(server)

    def _answer(self, server: socket.socket, client: socket.socket, muted: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if not muted.is_set():
                    client.sendall(data)
        _shut(client)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def network(address: Address, server: Path) -> Iterator[tuple[Network, Address]]:
    """The network, and the address of the same ledger through it."""
    with tempfile.TemporaryDirectory(prefix="net") as folder:
        between = Network(Path(folder), server)
        try:
            yield between, Address(address.url.replace(str(server), folder))
        finally:
            between.close()
