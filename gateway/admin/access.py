"""Who may come in to the admin side: the admin token, attempts at it, and sessions.

The token is compared by digests, in constant time. Wrong ones are counted, by address and in all;
whoever has tried too often waits, even with the right one, or the wait would tell it from the
others. A session stands for a token that was right; it ends by itself. Time is an argument
everywhere: seconds of a clock that never goes back.
"""

from __future__ import annotations

import hmac
import math
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal

#: A token that was made here has 256 bits; one that a person chose may have few.
ATTEMPT_WINDOW_S: Final = 60.0
ATTEMPTS_PER_ADDRESS: Final = 10
ATTEMPTS_IN_ALL: Final = 100
#: Addresses that the right token came from lately: guesses made elsewhere do not keep them out.
FRIENDS: Final = 256

IDLE_S: Final = 30 * 60.0
LONGEST_S: Final = 12 * 3_600.0
MOST_SESSIONS: Final = 1_000

_is_name = re.compile(r"[\w.@+'-](?:[\w .@+'-]{0,62}[\w.@+'-])?").fullmatch


@dataclass(frozen=True, slots=True)
class Retry:
    """Too many attempts; as a truth value False, as every refusal is. after_s: 1 or more"""

    after_s: int

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(slots=True, eq=False)
class Session:
    """Somebody who signed in.

    name:      what they called themselves, for the audit log
    address:   where from
    cookie:    the secret that the browser holds
    csrf:      the secret that each form of the session carries
    """

    name: str
    address: str
    opened_s: float
    used_s: float
    cookie: str = field(repr=False)
    csrf: str = field(repr=False)

    def ends_s(self) -> float:
        """When it ends, if it is not used again."""
        return min(self.used_s + IDLE_S, self.opened_s + LONGEST_S)


class Sessions:
    """Those that are open, the one used last at the end; at most MOST_SESSIONS."""

    def __init__(self) -> None:
        #: By digest, so that a look-up by a guessed cookie tells nothing by the time it takes.
        self._open: OrderedDict[bytes, Session] = OrderedDict()

    def open(self, name: str, address: str, now_s: float) -> Session:
        """A new session; the one that was not used for longest makes room where it must."""
        cookie, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        session = Session(name, address, now_s, now_s, cookie, csrf)
        self._open[_digest(cookie)] = session
        if len(self._open) > MOST_SESSIONS:
            self._open.popitem(last=False)
        return session

    def find(self, cookie: str, now_s: float) -> Session | None:
        """The session of a cookie, which is used thereby; None where it has ended."""
        digest = _digest(cookie)
        session = self._open.get(digest)
        if session is None:
            return None
        if now_s >= session.ends_s():
            del self._open[digest]
            return None
        session.used_s = now_s
        self._open.move_to_end(digest)
        return session

    def close(self, cookie: str) -> None:
        """End a session; harmless where there is none."""
        self._open.pop(_digest(cookie), None)


class Attempts:
    """Wrong tokens of the current minute. Its size is bounded by what it allows."""

    def __init__(self) -> None:
        self._window = -1
        self._in_all = 0
        self._by_address: dict[str, int] = {}
        self._friends: OrderedDict[str, None] = OrderedDict()

    def wait_s(self, address: str, now_s: float) -> int:
        """For how many seconds this address must not try; 0: it may."""
        self._turn(now_s)
        is_shut_out = self._in_all >= ATTEMPTS_IN_ALL and address not in self._friends
        if self._by_address.get(address, 0) < ATTEMPTS_PER_ADDRESS and not is_shut_out:
            return 0
        return max(1, math.ceil((self._window + 1) * ATTEMPT_WINDOW_S - now_s))

    def failed(self, address: str, now_s: float) -> None:
        self._turn(now_s)
        self._in_all += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1

    def succeeded(self, address: str) -> None:
        self._friends[address] = None
        self._friends.move_to_end(address)
        if len(self._friends) > FRIENDS:
            self._friends.popitem(last=False)

    def _turn(self, now_s: float) -> None:
        window = int(now_s // ATTEMPT_WINDOW_S)
        if window != self._window:
            self._window, self._in_all = window, 0
            self._by_address.clear()


class Access:
    """Lets in who has the token. sessions: of those who signed in with it"""

    def __init__(self, token: str) -> None:
        self.sessions = Sessions()
        self._token = _digest(token)
        self._attempts = Attempts()

    def admit(self, token: str, address: str, now_s: float) -> bool | Retry:
        """Is this the token? A wrong one counts as an attempt of the address."""
        if wait_s := self._attempts.wait_s(address, now_s):
            return Retry(wait_s)
        if hmac.compare_digest(_digest(token), self._token):
            self._attempts.succeeded(address)
            return True
        self._attempts.failed(address, now_s)
        return False


def is_actor_name(text: str) -> bool:
    """Can a person call themselves this in the audit log? Up to 64 letters, digits, . _ @ + ' -

    No brackets and commas: what stands behind a name there is ours to say.
    """
    return _is_name(text) is not None


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
