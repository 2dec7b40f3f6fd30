"""The core: what to do with an answer, or with none. It does no I/O and reads no clock.

| what came | what is sent again | after |
| --- | --- | --- |
| 429 | any request | the lesser of 2^attempt delays and `X-RateLimit-Reset-After` |
| 429, and the client is patient | any request | `Retry-After` |
| 502, 503, 504 | what may run twice | 2^attempt delays, or `Retry-After` if it is longer |
| a connection that was lost | what may run twice | 2^attempt delays |
| no connection | any request | 2^attempt delays |

A request may run twice if its method is idempotent, or it has an `Idempotency-Key`. Nothing is sent
again if its body cannot be, if the attempts are used up, or if the wait would be longer than
`Rules.patience_s`, as for a daily quota. Waits are made longer at random by up to a quarter, so
that clients that were refused together do not come back together. They are never shorter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Final

#: RFC 9110, 9.2.2.
IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})
_UNAVAILABLE: Final = frozenset({502, 503, 504})
#: By how much waits are made longer at the most.
JITTER: Final = 0.25
#: No wait is shorter, whatever an answer says.
LEAST_S: Final = 0.1

#: The longest date that is read, in characters; those of HTTP have up to 33.
_MOST_DATE: Final = 64

_NUMBER = re.compile(r"[0-9]{1,9}").fullmatch


@dataclass(frozen=True)
class Rules:
    """How often a request is sent again, and after how long.

    attempts:    retries after the first attempt
    delay_s:     the wait before the first retry; the next ones are twice as long each
    max_delay_s: the longest of these waits
    patient:     wait for `Retry-After` of a 429, whatever the delays are
    patience_s:  the longest wait of all
    """

    attempts: int = 3
    delay_s: float = 1.0
    max_delay_s: float = 10.0
    patient: bool = False
    patience_s: float = 120.0

    def backoff_s(self, attempt: int) -> float:
        """The wait after this attempt, from 0 on, without what an answer asks for."""
        return min(self.delay_s * 2.0 ** min(attempt, 60), self.max_delay_s)


@dataclass(frozen=True)
class Sent:
    """A request. method: in upper case; is_repeatable: can its body be sent again?"""

    method: str
    has_idempotency_key: bool = False
    is_repeatable: bool = True

    @property
    def may_run_twice(self) -> bool:
        """May the server execute it twice?"""
        return self.method in IDEMPOTENT or self.has_idempotency_key


@dataclass(frozen=True)
class Answer:
    """An answer: its status, and its headers by lower-case name (or ignoring letter case)."""

    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Lost:
    """No answer. was_sent: may the server have got the request?"""

    was_sent: bool


@dataclass(frozen=True)
class Wait:
    """Send it again after `seconds`."""

    seconds: float


@dataclass(frozen=True)
class Done:
    """The caller gets the answer, or an error. why: it is not sent again; "": there is no error"""

    why: str = ""


def decide(
    sent: Sent, came: Answer | Lost, attempt: int, rules: Rules, *, random: float
) -> Wait | Done:
    """What to do now.

    attempt: how often it was sent again before, 0 for the first time
    random:  from 0 to 1, for the jitter
    """
    asked_s = _asked_wait_s(sent, came, attempt, rules)
    if isinstance(asked_s, Done):
        return asked_s
    if attempt >= rules.attempts:
        return Done(f"sent {attempt + 1} times")
    if not sent.is_repeatable:
        return Done("its body cannot be sent again")
    if asked_s > rules.patience_s:
        return Done(f"the wait would be {asked_s:.0f} s, longer than {rules.patience_s:.0f} s")
    return Wait(max(asked_s, min(LEAST_S, rules.delay_s)) * (1 + JITTER * random))


def _asked_wait_s(sent: Sent, came: Answer | Lost, attempt: int, rules: Rules) -> float | Done:
    """The least wait before it is sent again, in seconds; Done: it is not."""
    backoff_s = rules.backoff_s(attempt)
    if isinstance(came, Lost):
        if came.was_sent and not sent.may_run_twice:
            return Done(f"{sent.method} without Idempotency-Key may have been executed")
        return backoff_s
    if came.status == 429:
        return _limited_wait_s(came, backoff_s, rules)
    if came.status not in _UNAVAILABLE:
        return Done("" if came.status < 400 else f"{came.status} is final")
    if not sent.may_run_twice:
        return Done(f"{sent.method} without Idempotency-Key may have been executed")
    return max(backoff_s, retry_after_s(came.headers) or 0.0)


def _limited_wait_s(came: Answer, backoff_s: float, rules: Rules) -> float | Done:
    retry_s = retry_after_s(came.headers)
    reset_s = seconds(came.headers.get("x-ratelimit-reset-after", ""))
    if retry_s is None and reset_s is not None:
        # The gateway always says when, unless the request costs more than its limit.
        return Done("no wait helps: the answer has no Retry-After")
    if retry_s is not None and (rules.patient or retry_s > rules.patience_s):
        # Too long to wait for, whatever the delays are: a retry before then would be refused.
        return retry_s
    return backoff_s if reset_s is None else min(backoff_s, reset_s)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds; None: there is none.

    A date is compared with the answer's own `Date`, as the server's clock may differ from ours.
    """
    value = headers.get("retry-after", "")
    found = seconds(value)
    if found is not None:
        return found
    until, now = _date(value), _date(headers.get("date", ""))
    return None if until is None or now is None else max(0.0, (until - now).total_seconds())


def _date(value: str) -> datetime | None:
    """A date of HTTP, RFC 9110, 5.6.7; None: it is not that."""
    if len(value) > _MOST_DATE:
        return None
    try:
        found = parsedate_to_datetime(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def seconds(value: str) -> float | None:
    """A header of whole seconds; None: it is not that."""
    value = value.strip()
    return float(value) if _NUMBER(value) else None
