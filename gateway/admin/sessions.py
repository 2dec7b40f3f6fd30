"""The console's sessions: sealed into cookies, and ended early by a note in the store.

The cookie has the whole session: who signed in, and when. It is sealed with a key derived from
the admin token. So every gateway with the same token accepts it, a restart loses no session, and a
change of the token ends all of them. The store holds only the names of sessions that were ended
early, and those names are made with a second derived key:

- Reading the store reveals no token, no cookie, and nothing to test guesses of a token against.
- Writing to the store can neither create a session nor end one. Deleting a note revives a session
  for an attacker with its cookie, but not at a gateway that ended it, or that has read the note.

A session is bound to the browser's `User-Agent` and to the use of TLS. Neither changes while a
browser runs. It is not bound to the client's address: laptops move between networks, browsers
alternate between IPv4 and IPv6, and behind an ingress all clients may share one address. The audit
log has the address of each change.
"""

from __future__ import annotations

import binascii
import hmac
import json
import math
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import scrypt
from typing import Final

from gateway.domain.json_text import read_json
from gateway.domain.ports import AdminStore, StoreDown

#: The maximum time without use, and in total.
IDLE_S: Final = 30 * 60
LONGEST_S: Final = 12 * 3_600
#: The age of the last use in a cookie from which it is renewed.
RENEW_S: Final = 60

#: Ended sessions that a gateway keeps: each was opened with the admin token. 200 bytes each.
MOST_ENDED: Final = 10_000
#: Enough for a name of 64 letters of four bytes.
_MOST_CHARACTERS: Final = 1_024
#: The version of the format, which is sealed as well.
_FORM: Final = b"1."
_MAC_BYTES: Final = 32
#: An attacker with a stolen cookie can test tokens against it offline. With scrypt each test takes
#: 16 MiB and 50 ms, which matters for tokens that people chose. The salt need not be secret.
_SALT: Final = b"gateway admin sessions"
_SCRYPT: Final = {"n": 2**14, "r": 8, "p": 1}


@dataclass(frozen=True, slots=True)
class Session:
    """A person who signed in.

    id:       random, unique
    name:     their name, for the audit log
    opened_s: the time of the sign-in, Unix seconds
    used_s:   the time of the last use, up to RENEW_S old
    csrf:     the secret in each form of the session
    """

    id: str
    name: str
    opened_s: int
    used_s: int
    csrf: str = field(repr=False)

    def ends_s(self) -> int:
        """When it ends if it is not used again."""
        return min(self.used_s + IDLE_S, self.opened_s + LONGEST_S)


@dataclass(frozen=True, slots=True)
class _Keys:
    """Derived from the admin token, one for each use."""

    seal: bytes
    csrf: bytes
    ended: bytes


class Sessions:
    """Opens, checks and ends sessions under one admin token.

    store: holds the names of ended sessions, for all gateways
    """

    def __init__(self, token: str, store: AdminStore) -> None:
        self._keys = _keys_of(token)
        self._store = store
        #: Sessions that were ended at this gateway, or by a note that it has read, since the store
        #: may lose its data. id -> when they would have ended at the latest.
        self._ended: dict[str, int] = {}
        #: Ended sessions that are not noted in the store yet.
        self._not_noted: set[str] = set()

    def open(self, name: str, now_s: float) -> Session:
        """A new session."""
        now = int(now_s)
        return self._session(secrets.token_urlsafe(16), name, now, now)

    def seal(self, session: Session, client: str) -> str:
        """The cookie of a session. client: what the session is bound to"""
        content = [session.id, session.name, session.opened_s, session.used_s, self._bond(client)]
        body = _FORM + json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
        return urlsafe_b64encode(self._mac(body) + body).decode().rstrip("=")

    def unseal(self, cookie: str, client: str, now_s: float) -> Session | None:
        """The session in a cookie, which may have been ended. None: the cookie is not valid."""
        sealed = _decoded(cookie)
        mac, body = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        if not (body.startswith(_FORM) and hmac.compare_digest(mac, self._mac(body))):
            return None
        # The seal shows that a gateway wrote it, so the content needs no validation.
        session_id, name, opened_s, used_s, bond = read_json(body[len(_FORM) :])
        if not hmac.compare_digest(bond, self._bond(client)):
            return None
        session = self._session(session_id, name, opened_s, used_s)
        return session if now_s < session.ends_s() else None

    def renewed(self, session: Session, now_s: float) -> Session | None:
        """The session with a new time of use; None: its cookie is recent enough."""
        if now_s - session.used_s < RENEW_S:
            return None
        return replace(session, used_s=int(now_s))

    async def has_ended(self, session: Session) -> bool:
        """Was it ended, at any gateway? Raises StoreDown."""
        if session.id in self._ended:
            return True
        if not await self._store.has_ended(self._name(session.id)):
            return False
        self._add_ended(session)
        return True

    async def end(self, session: Session, now_s: float) -> None:
        """End it: at this gateway immediately, at the others once it is noted in the store."""
        self._add_ended(session)
        self._not_noted.add(session.id)
        await self.note_ended(now_s)

    def _add_ended(self, session: Session) -> None:
        # Sessions are ended in about the order in which they were opened.
        while len(self._ended) >= MOST_ENDED:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            self._not_noted.discard(oldest)
        self._ended[session.id] = session.opened_s + LONGEST_S

    async def note_ended(self, now_s: float) -> None:
        """Note all ended sessions in the store; call this every few seconds.

        Failures are retried in the next call.
        """
        self._ended = {other: end_s for other, end_s in self._ended.items() if end_s > now_s}
        self._not_noted &= self._ended.keys()
        for session_id in tuple(self._not_noted):
            for_s = math.ceil(self._ended.get(session_id, now_s) - now_s)
            try:
                if for_s > 0:
                    await self._store.end_session(self._name(session_id), for_s)
            except StoreDown:
                return
            self._not_noted.discard(session_id)

    def _session(self, session_id: str, name: str, opened_s: int, used_s: int) -> Session:
        csrf = hmac.digest(self._keys.csrf, session_id.encode(), "sha256").hex()
        return Session(session_id, name, opened_s, used_s, csrf)

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._keys.seal, body, "sha256")

    def _bond(self, client: str) -> str:
        # The same key as for cookies, whose sealed content never begins with these words.
        words = b"client." + client.encode(errors="surrogatepass")
        return hmac.digest(self._keys.seal, words, "sha256").hex()[:16]

    def _name(self, session_id: str) -> str:
        """Its name in the store."""
        return hmac.digest(self._keys.ended, session_id.encode(), "sha256").hex()[:32]


@lru_cache(maxsize=4)
def _keys_of(token: str) -> _Keys:
    master = scrypt(token.encode(errors="surrogatepass"), salt=_SALT, dklen=32, **_SCRYPT)
    seal, csrf, ended = (hmac.digest(master, use, "sha256") for use in (b"seal", b"csrf", b"ended"))
    return _Keys(seal, csrf, ended)


def _decoded(cookie: str) -> bytes:
    """The decoded cookie; b"": it is not base64."""
    if len(cookie) > _MOST_CHARACTERS:
        return b""
    try:
        return urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
    except (ValueError, binascii.Error):
        return b""
