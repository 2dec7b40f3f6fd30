"""Deliveries of events: what the queues of the store take and give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from zlib import crc32

#: Events and deliveries are divided by integration.
SHARDS: Final = 16
#: Ids of events, integrations and watches. There is no colon in them, as in those of deliveries.
is_id = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch


T = TypeVar("T")


class Page(list[T]):
    """Entries of a list by time, the newest first. It may have few or none though there are more.

    next_us: the bound before which the next page is; 0: there is none
    """

    def __init__(self, entries: Iterable[T] = (), next_us: int = 0) -> None:
        super().__init__(entries)
        self.next_us = next_us


@dataclass(frozen=True, slots=True)
class Filter:
    """Which entries of a list by time are wanted.

    type:           of their events: one type, or `PREFIX.*` as watches have it; "": any
    from_us, to_us: from then on, and before then; None: any
    """

    type: str = ""
    from_us: int | None = None
    to_us: int | None = None


#: All entries of a list.
ALL: Final = Filter()


def shard_of(integration: str) -> int:
    """The shard of an integration's events."""
    return crc32(integration.encode()) % SHARDS


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that a courier has to make.

    id:       EVENT:WATCH:NUMBER
    token:    of the claim: a lease that ended may be claimed again by the same courier
    watch:    the watch's record, as it was written
    body:     the event, as it was accepted
    attempts: made before
    at_us:    when it was accepted
    is_good:  its watch's last attempt succeeded, and it answers quickly
    openings: of its watch's breaker since the last success
    account:  of the event; '': of an older gateway
    """

    id: str
    token: str
    watch: bytes
    integration: str
    body: bytes
    attempts: int
    at_us: int
    is_good: bool
    openings: int
    account: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a courier got.

    wait_s: until something else that it asked for is due; None: nothing waits
    lost:   leases of couriers that did not renew them
    faults: watches whose names in the store cannot be read, and why
    """

    deliveries: tuple[Claimed, ...]
    wait_s: float | None
    lost: int
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """What an attempt means for its watch.

    failed:   attempts since its last success
    silent_s: how long that is ago; without one, its first failure
    """

    failed: int
    silent_s: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a delivery, as it is kept.

    at_us:  when it began; ms: how long it took
    status: of the answer; 0: there was none
    found:  the first characters of the answer, or why there was none
    """

    at_us: int
    ms: int
    status: int
    found: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery, as it is shown.

    state:    queued, leased, waiting, delivered, dead or cancelled
    reason:   why it is dead (gone, exhausted, expired) or cancelled (disabled, removed)
    at_us:    when it was made; ended_us: 0: it is not over
    """

    id: str
    state: str
    reason: str
    at_us: int
    ended_us: int
    attempts: tuple[Attempt, ...]

    @property
    def event(self) -> str:
        return self.id.partition(":")[0]

    @property
    def watch(self) -> str:
        return self.id.split(":")[1]


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event that was accepted.

    body:  as it is delivered; b'': it is too long to be
    at_us: when it was accepted
    left:  its deliveries that are not over
    """

    id: str
    integration: str
    type: str
    body: bytes
    at_us: int
    left: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay has queued.

    complete: all events of the range were looked at
    next_us:  else, the time from which they were not; 0: they all were
    waiting:  events left out, as a delivery of them to the watch is not over
    """

    count: int
    complete: bool
    next_us: int
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ShardStats:
    """What a shard has.

    waiting:      deliveries that wait, due or not
    due:          those of them that could be sent now. Of a watch that is as many as it may have
                  in flight more, and as its rate allows; none while it is paused or disabled, or
                  has its breaker open. If very many watches have any, it is less than there are
    finished:     events of which nothing waits
    bytes:        of its events and deliveries, as the budget counts them
    oldest_due_s: how long the first delivery that may be sent waits for it. Those of a watch do not
                  count while it is paused or disabled, has its breaker open, has the most in
                  flight, or waits for its rate. A lease that ended counts from its end
    breakers:     watches whose last attempts failed, so that one attempt at a time is made
    oldest_finished_s: how long its first finished event is over; -1: there is none
    accounts:     those with the most bytes of events with deliveries left, and how many
    """

    waiting: int
    due: int
    in_flight: int
    dead: int
    finished: int
    bytes: int
    oldest_due_s: float
    breakers: int
    oldest_finished_s: float
    accounts: Mapping[str, int] = field(default_factory=dict)
