"""Who has the admin token, and what becomes of guesses at it.

The right token always passes: it is looked at before anything is counted, so that nobody can shut
its owner out by guessing from the same address, be that localhost or a proxy's. Wrong ones are
counted by address and minute; beyond a few the answer is 429, which tells a script that has an old
token to stop, and does not keep anybody from guessing on. What does is arithmetic:

- A guess costs a connection, since each wrong token ends the one that it came by, and 0.14 ms of
  CPU time here. That is at most some 10,000 a second, or 2**38 in a year.
- A token that was made here has 256 random bits: 2**217 years until half of them were tried.
- One that a person chose has 16 characters or more (`token.SHORTEST`). Four words of a list of
  7,776 are 51 bits and take 6,000 years.
- Fewer characters than four words take (`token.STRONG`) may be three words of everyday language,
  some 33 bits: a week. Whoever gives such a token is warned at the start, and tokens are looked at
  one after the other then, with a rest after each wrong one. 100 a second are 2**31 in a year.

With that rest a flood of guesses makes the right token wait, or lose its place to others: there is
no pace that holds back wrong ones alone, since a guess that is right is known by its passing. So
only a weak token has it.
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
from gateway.observe.seldom import Seldom

WINDOW_S: Final = 60.0
WRONG_PER_ADDRESS: Final = 10
#: After a wrong one, where the token is weak.
REST_S: Final = 0.01
#: Addresses that are told apart in one minute, so that the memory for them is bounded. All others
#: of that minute are answered as if they had tried too often.
MOST_ADDRESSES: Final = 4_096
#: Who has an IPv6 address has a whole network of them.
_IPV6_PREFIX: Final = 64

_is_name = re.compile(r"[\w.@+'-](?:[\w .@+'-]{0,62}[\w.@+'-])?").fullmatch


@dataclass(frozen=True, slots=True)
class Retry:
    """Too many wrong tokens; as a truth value False, as every refusal is. after_s: 1 or more"""

    after_s: int

    def __bool__(self) -> Literal[False]:
        return False


class WrongTokens:
    """Those of the current minute, by address."""

    def __init__(self) -> None:
        self._window = -1
        self._by_address: dict[str, int] = {}

    def count(self, address: str, now_s: float) -> Literal[False] | Retry:
        """Note one more; Retry where this address has had its share."""
        window = int(now_s // WINDOW_S)
        if window != self._window:
            self._window = window
            self._by_address.clear()
        subject = _subject(address)
        known = self._by_address.get(subject)
        if known is None and len(self._by_address) >= MOST_ADDRESSES:
            known = WRONG_PER_ADDRESS
        elif (known := known or 0) < WRONG_PER_ADDRESS:
            self._by_address[subject] = known + 1
        if known < WRONG_PER_ADDRESS:
            return False
        return Retry(max(1, math.ceil((window + 1) * WINDOW_S - now_s)))


class Access:
    """Lets in who has the token.

    told:  which wrong ones the log has a line of
    turns: held while a token is looked at; None: the token is not weak
    """

    def __init__(self, token: str, is_weak: bool = False) -> None:
        self.told = Seldom(WINDOW_S)
        self.turns = asyncio.Lock() if is_weak else None
        self._token = _digest(token)
        self._wrong = WrongTokens()

    def admit(self, token: str, address: str, now_s: float) -> bool | Retry:
        """Is this the token? A wrong one is counted for the address."""
        # By digests: what is compared then has one length, and nothing of the token is in the time.
        if hmac.compare_digest(_digest(token), self._token):
            return True
        return self._wrong.count(address, now_s)


def is_actor_name(text: str) -> bool:
    """Can a person call themselves this in the audit log? Up to 64 letters, digits, . _ @ + ' -

    No brackets and commas: what stands behind a name there is ours to say.
    """
    return _is_name(text) is not None


def _subject(address: str) -> str:
    try:
        return limit_subject(parse_address(address), _IPV6_PREFIX)
    except ValueError:  # of a connection that has gone there is none
        return address


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
