"""Checks the admin token, and counts wrong ones.

The right token always passes: it is compared before anything is counted. Otherwise an attacker
could lock out its owner by sending wrong tokens from the same address, such as that of a proxy.
Wrong tokens are counted by address and minute; after a few the answer is 429, which stops a script
with an old token. It does not stop guessing; the number of possible tokens does:

- A guess costs a new connection, because each wrong token closes its connection, and 0.14 ms
  of CPU time here. That allows about 10,000 guesses a second, or 2**38 a year.
- A generated token has 256 random bits. Trying half of them takes 2**217 years.
- A token that a person chose has 16 characters or more (`token.SHORTEST`). Four words from a list
  of 7,776 have 51 bits, which take 6,000 years.
- A shorter one (`token.STRONG`) may be three everyday words: 33 bits, which take a week. The log
  warns of such a token at the start, and tokens are then checked one at a time, with a pause after
  each wrong one. That allows 100 guesses a second, or 2**31 a year.

With that pause, a flood of guesses can also delay the right token: a server knows which guesses are
wrong only after checking them. So only weak tokens have the pause.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from gateway.domain.networks import limit_subject, parse_address
from gateway.observe.log_throttle import LogThrottle

WINDOW_S: Final = 60.0
WRONG_PER_ADDRESS: Final = 10
#: The pause after a wrong token, if the token is weak.
PAUSE_S: Final = 0.01
#: Addresses counted in one minute, to bound the memory. Further addresses get 429 immediately.
MOST_ADDRESSES: Final = 4_096
#: An IPv6 client has a whole network of addresses, which count as one.
_IPV6_PREFIX: Final = 64

_is_name = re.compile(r"[\w.@+'-](?:[\w .@+'-]{0,62}[\w.@+'-])?").fullmatch


@dataclass(frozen=True, slots=True)
class Retry:
    """Too many wrong tokens; False as a truth value. after_s: 1 or more"""

    after_s: int

    def __bool__(self) -> Literal[False]:
        return False


class WrongTokens:
    """Wrong tokens of the current minute, by address."""

    def __init__(self) -> None:
        self._window = -1
        self._by_address: dict[str, int] = {}

    def count(self, address: str, now_s: float) -> Literal[False] | Retry:
        """Count one more. Retry: the address has sent too many."""
        window = int(now_s // WINDOW_S)
        if window != self._window:
            self._window = window
            self._by_address.clear()
        subject = subject_of(address)
        known = self._by_address.get(subject)
        if known is None and len(self._by_address) >= MOST_ADDRESSES:
            known = WRONG_PER_ADDRESS
        elif (known := known or 0) < WRONG_PER_ADDRESS:
            self._by_address[subject] = known + 1
        if known < WRONG_PER_ADDRESS:
            return False
        return Retry(max(1, math.ceil((window + 1) * WINDOW_S - now_s)))


class Access:
    """Checks tokens.

    throttle:      decides which wrong tokens get a line in the log
    one_at_a_time: held while a token is checked; None: the token is not weak
    """

    def __init__(self, token: str, is_weak: bool = False) -> None:
        self.throttle = LogThrottle(WINDOW_S)
        self.one_at_a_time = asyncio.Lock() if is_weak else None
        self._token = _digest(token)
        self._wrong = WrongTokens()

    def admit(self, token: str, address: str, now_s: float) -> bool | Retry:
        """Is this the token? A wrong one is counted for the address."""
        # Digests have equal lengths, and the time to compare them reveals nothing of the token.
        if hmac.compare_digest(_digest(token), self._token):
            return True
        return self._wrong.count(address, now_s)


def is_actor_name(text: str) -> bool:
    """Is it valid as a name in the audit log? Up to 64 letters, digits, spaces, . _ @ + ' -

    No brackets and commas: the gateway writes these after a name.
    """
    return _is_name(text) is not None


def subject_of(address: str) -> str:
    """The subject of an address: an IPv6 address counts as its network."""
    try:
        return limit_subject(parse_address(address), _IPV6_PREFIX)
    except ValueError:  # a connection that was closed has no address
        return address


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
