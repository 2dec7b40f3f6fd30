"""A watch: where events of an integration are delivered, and how they are signed."""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from gateway.domain.limits import UNITS_US
from gateway.domain.webhooks.signatures import PREFIX

#: After a rotation the secret before is good for as long: the receiver changes to the new one.
OVERLAP_US: Final = 24 * 3600 * 1_000_000
#: The most watches of an integration, and patterns of a watch.
MOST_WATCHES: Final = 50
MOST_PATTERNS: Final = 50
#: The periods that a watch's rate may have, and their names.
RATE_PERIODS: Final = {UNITS_US[name]: name for name in ("second", "minute", "hour")}

#: Watches whose secrets are remembered.
_MOST_KNOWN: Final = 2048

State = Literal["active", "failing", "disabled", "paused"]


@dataclass(frozen=True, slots=True)
class Rate:
    """The most attempts that begin in any period of so many microseconds, one of RATE_PERIODS.

    They are spread evenly: `claim.lua` decides when the next one may begin.
    """

    amount: int
    period_us: int

    @property
    def unit(self) -> str:
        return RATE_PERIODS[self.period_us]

    def __str__(self) -> str:
        return f"{self.amount}/{self.unit}"


@dataclass(frozen=True, slots=True)
class Watch:
    """An endpoint of a customer.

    events:     types, or patterns as of `event_types`
    form:       of the service's own signature
    version:    of its secret; rotated_us: when that was made, Unix microseconds
    rate:       of attempts to deliver; None: there is none
    """

    id: str
    integration: str
    url: str
    events: tuple[str, ...]
    created_us: int
    form: Literal["timed", "body-only"] = "timed"
    version: int = 1
    rotated_us: int = 0
    rate: Rate | None = None

    def secrets(self, master: bytes, now_us: int) -> tuple[str, ...]:
        """Those that deliveries are signed with now, the newest first."""
        versions = [self.version]
        if self.version > 1 and now_us - self.rotated_us < OVERLAP_US:
            versions.append(self.version - 1)
        return tuple(secret_of(master, self.id, version) for version in versions)


@dataclass(frozen=True, slots=True)
class Health:
    """How a watch does.

    why:         it was disabled; "": it was not
    in_flight:   deliveries; waiting: those that wait
    failures:    in a row; last_success_us: 0: none is known
    next_us:     when the next attempt of what waits is made; 0: nothing waits, or it is paused
    disabled_us: when it was disabled; failed_us: the first of the failures; 0: not, or not known
    allowed_us:  its rate allows no attempt before then; 0: it has no rate, or made none
    """

    state: State
    why: str
    in_flight: int
    waiting: int
    failures: int
    last_success_us: int
    next_us: int
    disabled_us: int
    failed_us: int
    allowed_us: int = 0


@lru_cache(_MOST_KNOWN)
def secret_of(master: bytes, watch: str, version: int) -> str:
    """The secret of a watch. It is derived, so that no store has it.

    master: at least 32 random bytes
    """
    mac = hmac.digest(master, f"watch:{watch}:{version}".encode(), "sha256")
    return PREFIX + b64encode(mac).decode("ascii")


def mark_of(master: bytes) -> str:
    """Tells webhook keys apart. The store has it, so that no other key makes secrets for it."""
    return hmac.digest(master, b"mark of the webhook key", "sha256").hex()
