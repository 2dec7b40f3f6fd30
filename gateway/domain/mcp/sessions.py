"""Seals session ids: a client gets its server's id with the server and a code that proves both.

    ID.SERVER.CODE

So no session is registered: the code shows that this id was given to this key on this route, and
the server, to which its requests are sent. The first secret seals; the others still open.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Final

from gateway.domain.limits import MOST_LEASE

#: The specification: "only visible ASCII characters". The length is ours.
_ID: Final = re.compile(r"[\x21-\x7e]{1,512}").fullmatch
_CODE_BYTES: Final = 16


@dataclass(frozen=True)
class Session:
    """A session of a server. id: as the server gave it; server: as in `server_tag`"""

    id: str
    server: str

    @cached_property
    def tag(self) -> int:
        """Stands for it where connections are counted: 1 to MOST_LEASE."""
        digest = blake2b(f"{self.server} {self.id}".encode("ascii"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % MOST_LEASE + 1


class Seals:
    """Seals and opens. secrets: at least one"""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        # BLAKE2 with a key is a MAC (RFC 7693), at a fifth of the time of HMAC with SHA-256.
        self._keys = tuple(blake2b(secret, person=b"mcp seal").digest() for secret in secrets)

    def seal(self, session: Session, lineage: str, route: str) -> str | None:
        """The id for the client; None: the server's is not valid.

        lineage: of the key, which stays when it is rotated; route: its first name
        """
        if not _ID(session.id):
            return None
        code = _code(self._keys[0], session, lineage, route)
        return f"{session.id}.{session.server}.{code}"

    def open(self, sealed: str, lineage: str, route: str) -> Session | None:
        """The session of a client's id; None: it was not given to this key on this route."""
        found, _, code = sealed.rpartition(".")
        found, _, server = found.rpartition(".")
        if not _ID(found) or not sealed.isascii():
            return None
        session = Session(found, server)
        codes = [_code(key, session, lineage, route) for key in self._keys]
        return session if any(hmac.compare_digest(code, each) for each in codes) else None


def server_tag(address: str) -> str:
    """A short name of a server, which does not reveal its address."""
    return blake2b(address.encode(), digest_size=5, person=b"mcp server").hexdigest()


def _code(key: bytes, session: Session, lineage: str, route: str) -> str:
    text = f"{session.id}\n{session.server}\n{lineage}\n{route}"
    digest = blake2b(text.encode(), digest_size=_CODE_BYTES, key=key).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")
