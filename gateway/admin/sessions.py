"""The console's sessions: what a browser holds in its cookie, and when that ends.

A session is in its cookie and nowhere else: who signed in and when, sealed with a key that is made
from the admin token. So every gateway that has this token takes it, a gateway that restarts forgets
nobody, and another token ends all sessions. The store only knows which ones ended before their
time, by names that are made with a key as well:

- Whoever reads the store finds neither token nor cookie, nor anything to try tokens on.
- Whoever writes to it can make no session, and end none. They could take back that one has ended,
  which is of use to nobody but a thief of its cookie.

What a session is bound to is the browser's own name (`User-Agent`) and whether it came by TLS:
neither changes while a browser runs. It is not bound to the client's address. A laptop that moves
from desk to train has a new one; with IPv6 and IPv4 both, a browser changes between two in a
minute; and behind an ingress everybody has the same. The audit log has the address of each change.
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

from gateway.domain.ports import AdminStore, StoreDown

#: Without use, and in all.
IDLE_S: Final = 30 * 60
LONGEST_S: Final = 12 * 3_600
#: A cookie that says it was used so long ago is renewed by the next answer.
RENEW_S: Final = 60

#: With the longest name in the widest letters.
_MOST_CHARACTERS: Final = 1_024
#: In front of what is sealed: another form of it gets another number.
_FORM: Final = b"1."
_MAC_BYTES: Final = 32
#: scrypt: 16 MiB and 50 ms for each token that somebody with a stolen cookie tries. It matters for
#: tokens that people chose; the salt is no secret, and only tells this use of a token from others.
_SALT: Final = b"gateway admin sessions"
_SCRYPT: Final = {"n": 2**14, "r": 8, "p": 1}


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who signed in.

    id:       a word of its own
    name:     what they called themselves, for the audit log
    opened_s: when, Unix seconds
    used_s:   when it was last used, to the minute
    csrf:     the secret that each form of the session carries
    """

    id: str
    name: str
    opened_s: int
    used_s: int
    csrf: str = field(repr=False)

    def ends_s(self) -> int:
        """When it ends, if it is not used again."""
        return min(self.used_s + IDLE_S, self.opened_s + LONGEST_S)


@dataclass(frozen=True, slots=True)
class _Keys:
    """One for each use, all made from the token."""

    seal: bytes
    csrf: bytes
    ended: bytes


class Sessions:
    """Opens, finds and ends sessions under one admin token.

    store: where the gateways tell each other which have ended
    """

    def __init__(self, token: str, store: AdminStore) -> None:
        self._keys = _keys_of(token)
        self._store = store
        #: What ended here, by id, with the time at which it would have at the latest.
        self._ended: dict[str, int] = {}
        #: Those of which the store has not heard yet.
        self._untold: set[str] = set()

    def open(self, name: str, now_s: float) -> Session:
        """A new session, whatever there was before."""
        now = int(now_s)
        return self._session(secrets.token_urlsafe(16), name, now, now)

    def seal(self, session: Session, client: str) -> str:
        """Its cookie, for this client alone: what it says of itself, and how it came."""
        content = [session.id, session.name, session.opened_s, session.used_s, self._bond(client)]
        body = _FORM + json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
        return urlsafe_b64encode(self._mac(body) + body).decode().rstrip("=")

    def unseal(self, cookie: str, client: str, now_s: float) -> Session | None:
        """The session of a cookie, so far as that itself tells. None: it is none, or is over."""
        sealed = _decoded(cookie)
        mac, body = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        if not (body.startswith(_FORM) and hmac.compare_digest(mac, self._mac(body))):
            return None
        # It is ours, so that it is what it should be.
        session_id, name, opened_s, used_s, bond = json.loads(body[len(_FORM) :])
        if not hmac.compare_digest(bond, self._bond(client)):
            return None
        session = self._session(session_id, name, opened_s, used_s)
        return session if now_s < session.ends_s() else None

    def renewed(self, session: Session, now_s: float) -> Session | None:
        """The session as used now; None: its cookie is new enough."""
        if now_s - session.used_s < RENEW_S:
            return None
        return replace(session, used_s=int(now_s))

    async def has_ended(self, session: Session) -> bool:
        """Did somebody end it, at whatever gateway? Raises StoreDown."""
        return session.id in self._ended or await self._store.has_ended(self._name(session.id))

    async def end(self, session: Session, now_s: float) -> None:
        """End it: here at once, at all gateways once the store has heard of it."""
        self._ended = {other: end_s for other, end_s in self._ended.items() if end_s > now_s}
        self._untold &= self._ended.keys()
        self._ended[session.id] = session.opened_s + LONGEST_S
        self._untold.add(session.id)
        await self.tell(now_s)

    async def tell(self, now_s: float) -> None:
        """Have the store know all that has ended; what it cannot be told now is for the next time.

        To be called every few seconds.
        """
        for session_id in tuple(self._untold):
            for_s = math.ceil(self._ended.get(session_id, now_s) - now_s)
            try:
                if for_s > 0:
                    await self._store.end_session(self._name(session_id), for_s)
            except StoreDown:
                return
            self._untold.discard(session_id)

    def _session(self, session_id: str, name: str, opened_s: int, used_s: int) -> Session:
        csrf = hmac.digest(self._keys.csrf, session_id.encode(), "sha256").hex()
        return Session(session_id, name, opened_s, used_s, csrf)

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._keys.seal, body, "sha256")

    def _bond(self, client: str) -> str:
        # Not by _FORM: what is sealed never begins like this.
        words = b"client." + client.encode(errors="surrogatepass")
        return hmac.digest(self._keys.seal, words, "sha256").hex()[:16]

    def _name(self, session_id: str) -> str:
        """What the store calls it."""
        return hmac.digest(self._keys.ended, session_id.encode(), "sha256").hex()[:32]


@lru_cache(maxsize=4)
def _keys_of(token: str) -> _Keys:
    master = scrypt(token.encode(errors="surrogatepass"), salt=_SALT, dklen=32, **_SCRYPT)
    seal, csrf, ended = (hmac.digest(master, use, "sha256") for use in (b"seal", b"csrf", b"ended"))
    return _Keys(seal, csrf, ended)


def _decoded(cookie: str) -> bytes:
    """b"" where it is no base64."""
    if len(cookie) > _MOST_CHARACTERS:
        return b""
    try:
        return urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
    except (ValueError, binascii.Error):
        return b""
