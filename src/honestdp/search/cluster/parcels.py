"""What goes to a node and comes back, sealed: Ray sees bytes, and a disk that it spills to gets nothing but them.

The plan of a search, its seed among it, and what a population became are encrypted under a key that is made for one search and
one process and is kept nowhere. Tasks carry it as a small argument, which Ray hands from process to process and keeps in no
store. Whoever operates the cluster can still read all of it out of the memory of its processes.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from honestdp.search.errors import MachineStopped

_KEY_BYTES, _NONCE_BYTES = 32, 12
PLAN, TASK, OUTCOME, RECORDS = b"plan", b"task", b"outcome", b"records"
"""What a parcel is, authenticated with it: none can be put in the place of another kind."""


def new_key() -> bytes:
    return secrets.token_bytes(_KEY_BYTES)


@dataclass(frozen=True)
class Parcels:
    """Seals and opens under one key."""

    key: bytes = field(repr=False)

    def sealed(self, content: bytes, kind: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self.key).encrypt(nonce, content, kind)

    def opened(self, sealed: bytes, kind: bytes) -> bytes:
        try:
            return AESGCM(self.key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], kind)
        except InvalidTag:
            raise MachineStopped("what a node sent was damaged") from None
