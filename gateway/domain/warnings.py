"""Warnings of limits: a counter of a key or an account came close to its limit, or reached it.

Clients can cause any number of them. So a store keeps the newest, and a bounded number of each
minute; a metric counts all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The newest that are kept, some 0.6 MB.
MOST_KEPT: Final = 10_000
#: Those that are kept of a minute, of all gateways on a store: so the newest are of some hours.
MOST_A_MINUTE: Final = 60


@dataclass(frozen=True, slots=True)
class LimitWarning:
    """A counter came close to its limit, or reached it.

    counter: the counter's name in the store
    level:  80 or 100, in percent of the limit
    at_us:  when, Unix microseconds; for_us: until the window is over
    """

    counter: str
    level: int
    limit: str
    plan: str
    key_id: str
    at_us: int
    for_us: int


@dataclass(frozen=True, slots=True)
class KeptWarning:
    """A warning as a store keeps it. id: its id there, "1800000000000-0"; the rest as above"""

    id: str
    at_us: int
    key_id: str
    plan: str
    limit: str
    level: int
