"""When a failed delivery is tried again, and when a watch is given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The waits before each attempt, in seconds: at once, 5 s, 5 min, 30 min, then hours.
STEPS_S: Final = (
    *(0, 5, 5 * 60, 30 * 60),
    *(hours * 3600 for hours in (2, 5, 10, 14, 20, 24)),
)
#: Each wait is longer or shorter by up to this share, so that what failed together does not return
#: together.
JITTER: Final = 0.2
#: The longest wait that an endpoint can ask for by Retry-After.
MOST_WAIT_S: Final = 24 * 3600
#: A delivery that is older is given up, whatever its attempts.
EXPIRY_S: Final = 4 * 24 * 3600

#: A watch without any success for so long, over at least so many attempts, is disabled.
SILENT_S: Final = 120 * 3600
SILENT_ATTEMPTS: Final = 10

#: So many failures in a row open a watch's breaker. A probe follows after so long, doubling to a
#: bound.
FAILURES: Final = 5
PROBE_S: Final = 5.0
MOST_PROBE_S: Final = 600.0
#: An endpoint that does not exist any more: RFC 9110, 15.5.11.
GONE: Final = 410


@dataclass(frozen=True, slots=True)
class Retry:
    """A delivery is tried again after `wait_s` seconds."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class GivenUp:
    """It is not. reason: "gone", "exhausted", "expired"."""

    reason: str


def is_success(status: int) -> bool:
    """2xx alone is one: a redirect that nobody follows has delivered nothing."""
    return 200 <= status < 300


def after_failure(
    attempts: int,
    age_s: float,
    dice: float,
    *,
    status: int | None = None,
    retry_after_s: float | None = None,
) -> Retry | GivenUp:
    """What follows a failed attempt.

    attempts:      made so far, this one included
    age_s:         of the delivery
    dice:          0 to 1, at random
    status:        of the answer; None: there was none
    retry_after_s: what the answer asks for; at least the step's wait is kept
    """
    if status == GONE:
        return GivenUp("gone")
    if attempts >= len(STEPS_S):
        return GivenUp("exhausted")
    wait_s = STEPS_S[attempts] * (1 - JITTER + 2 * JITTER * dice)
    if retry_after_s is not None:
        wait_s = max(wait_s, min(retry_after_s, MOST_WAIT_S))
    if age_s + wait_s > EXPIRY_S:
        return GivenUp("expired")
    return Retry(wait_s)


def probe_after_s(openings: int, dice: float) -> float:
    """How long a breaker stays open before its next probe.

    openings: how many probes have failed since it opened; dice: 0 to 1, at random
    """
    plain = min(PROBE_S * 2.0 ** min(openings, 30), MOST_PROBE_S)
    return plain * (1 - JITTER + 2 * JITTER * dice)


def is_to_be_disabled(attempts: int, silent_s: float) -> bool:
    """attempts: since the last success, or since it was made; silent_s: how long that is ago"""
    return attempts >= SILENT_ATTEMPTS and silent_s >= SILENT_S
