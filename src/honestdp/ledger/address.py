"""`Address`: where a ledger on PostgreSQL is. It holds a password and never shows one.

A ledger is named by a path or by an address; `place_of` tells them apart. Whatever prints, logs, saves or raises with an address
does it through `str` or `repr`, and both are made of the parts that are known to be no secret: what is not on that list is left
out. Two addresses are equal where they look the same.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

from honestdp.budget import LEDGER_VARIABLE
from honestdp.checks import InvalidArgument

_SCHEME = re.compile(r"postgres(ql)?://", re.IGNORECASE)
_COLLAPSED = re.compile(r"postgres(ql)?:/", re.IGNORECASE)  # as pathlib makes it of an address
_ANY_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SHOWN = ("host", "hostaddr", "port", "dbname", "user", "service", "sslmode", "target_session_attrs")


class Address:
    """An address such as `postgresql://team@db.example/privacy`, as libpq reads it, with a password or without.

    parent: where searches are kept that are charged there and have no folder of their own: the current one.
    """

    parent = Path()

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        """All of it, with the password: for the connection alone."""
        return self._url

    @property
    def has_password(self) -> bool:
        return bool(_split(self._url)[0].partition(":")[2])

    @property
    def secrets(self) -> list[str]:
        """What an error of the driver must not repeat."""
        info, query = _split(self._url)[0], _split(self._url)[2]
        hidden = [info.partition(":")[2], *(value for name, value in query if name not in _SHOWN)]
        return [text for text in hidden if text]

    def with_user(self, user: str) -> Address:
        """The same database as another user, who has to have a password of their own."""
        _, rest, query = _split(self._url)
        kept = [(name, value) for name, value in query if name in _SHOWN and name != "user"]
        return Address(f"postgresql://{quote(user, safe='')}@{rest}{_query(kept)}")

    def with_password(self) -> Address:
        """This address, or the one that the environment names where the two differ by a password alone."""
        named = os.environ.get(LEDGER_VARIABLE, "")
        known = Address(named) if _SCHEME.match(named) else self
        return known if known == self and not self.secrets else self

    def absolute(self) -> Address:
        return self

    def __str__(self) -> str:
        info, rest, query = _split(self._url)
        user = info.partition(":")[0]
        shown = [(name, value) for name, value in query if name in _SHOWN]
        return f"postgresql://{user}{'@' if user else ''}{rest}{_query(shown)}"

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Address) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


Place = Path | Address


def place_of(named: object, *, argument: str = "ledger") -> Place:
    """The path or the address that is meant. The error for anything else does not repeat what could hold a password."""
    if isinstance(named, Address):
        return named
    if not named or not isinstance(named, str | os.PathLike):
        wanted = f"the path of a ledger or its address postgresql://..., or left out with {LEDGER_VARIABLE} set"
        raise InvalidArgument(argument, named, wanted)
    text = os.fspath(named)
    if isinstance(text, str) and _SCHEME.match(text):
        return Address(text)
    if isinstance(text, str) and _COLLAPSED.match(text):
        wanted = "postgresql://USER@HOST/DATABASE with two slashes, as text: a Path takes one of them away"
        raise InvalidArgument(argument, "postgresql:/...", wanted)
    if isinstance(text, str) and (other := _ANY_SCHEME.match(text)):
        raise InvalidArgument(
            argument, f"{other[0]}...", "the path of a file, or an address postgresql://USER@HOST/DATABASE"
        )
    return Path(named)


def _split(url: str) -> tuple[str, str, list[tuple[str, str]]]:
    """User and password, host and database, and the options. The password ends at the last @, whatever is in it."""
    rest = _SCHEME.sub("", url, count=1)
    info, at, rest = rest.rpartition("@")
    rest, _, query = rest.partition("?")
    return (info if at else ""), rest, parse_qsl(query, keep_blank_values=True)


def _query(pairs: list[tuple[str, str]]) -> str:
    return "?" + urlencode(pairs, safe="/") if pairs else ""
