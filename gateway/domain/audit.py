"""The audit log's entries, each chained to the previous one, so that gaps and changes are detected.

An entry's hash is over the previous hash and the entry's own content, so an entry cannot be
changed, removed or inserted without changing the hash of every later one.

The oldest entries are dropped over time. An entry records this, with the number and the hash of the
last of them, so that the rest can still be verified.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

#: The previous hash of the first entry.
NOTHING_BEFORE: Final = "0" * 64
#: The largest number of an entry. A stream's id can be larger, but JSON readers round integers
#: above 2^53, and 15 digits are below that.
MOST_NUMBER: Final = 10**15 - 1
#: The action of an entry which records that all entries before one were dropped.
TRIM: Final = "audit.trim"
#: The action of an entry which records that the log before it was moved aside.
MOVED: Final = "audit.moved"
#: The action shown for an entry that the gateway has not written.
UNREADABLE: Final = "unreadable"
#: The actor of the gateway's own changes; other actors always have their origin in brackets.
_GATEWAY: Final = "gateway"
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Event:
    """An audited event. It never contains a secret.

    at_us:   Unix microseconds
    actor:   who did it, and by what: "anna (console, 127.0.0.1)", "root (cli)", "gateway"
    action:  "key.create", "key.rotate", "key.edit", "key.suspend", "key.resume", "key.revoke",
             "account.set", "limit.reset", "policy.load", "policy.rollback", "audit.trim",
             "audit.moved"
    subject: "key:7h3k9m2p4q6r", "account:acme", "policy:0123456789abcdef", "audit:log"
    before, after: what was changed, as the admin API shows it; None where there was or is nothing
    """

    at_us: int
    actor: str
    action: str
    subject: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An event in the log. number: from 1, without gaps; previous, hash: 64 hex digits"""

    number: int
    event: Event
    previous: str
    hash: str


def as_fields(event: Event) -> dict[str, object]:
    """The fields of an event. `dataclasses.asdict` also copies them, in five times the time."""
    return {
        "at_us": event.at_us,
        "actor": event.actor,
        "action": event.action,
        "subject": event.subject,
        "before": event.before,
        "after": event.after,
    }


def chained(event: Event, number: int, previous: str) -> Entry:
    """The event as the entry of this number. previous: the hash of the entry before it"""
    content = json.dumps([number, as_fields(event)], separators=(",", ":"), sort_keys=True)
    return Entry(number, event, previous, sha256(f"{previous}\n{content}".encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class Trim:
    """What an entry records about dropped entries.

    last, hash: the number and the hash of the last of them
    is_whole:   their chain was valid until then
    """

    last: int
    hash: str
    is_whole: bool


def write_trim(trim: Trim, at_us: int) -> Event:
    """The event that records a trim."""
    after = {"last": trim.last, "hash": trim.hash, "whole": trim.is_whole}
    return Event(at_us, _GATEWAY, TRIM, "audit:log", after=after)


def read_trim(event: Event) -> Trim | None:
    """What an event records about dropped entries; None: the event is another one."""
    if (event.actor, event.action) != (_GATEWAY, TRIM) or event.after is None:
        return None
    last, last_hash = event.after.get("last"), event.after.get("hash")
    if not isinstance(last, int) or not isinstance(last_hash, str):
        return None
    return Trim(last, last_hash, event.after.get("whole") is True)


def write_move(name: str, at_us: int) -> Event:
    """The event which records that the log before it was moved to this name in the store."""
    return Event(at_us, _GATEWAY, MOVED, "audit:log", after={"to": name})


def read_move(event: Event) -> str | None:
    """The name that the log before this event was moved to; None: the event is another one."""
    if (event.actor, event.action) != (_GATEWAY, MOVED) or event.after is None:
        return None
    return str(event.after.get("to"))


def unreadable(number: int) -> Event:
    """Replaces entry `number`, which the gateway has not written."""
    return Event(0, "", UNREADABLE, f"entry:{number}")


@dataclass(frozen=True, slots=True)
class Cut:
    """Which entries are dropped, oldest first: those up to this number, or before this time."""

    number: int
    at_us: int

    def drops(self, entry: Entry) -> bool:
        return entry.number <= self.number or entry.event.at_us < self.at_us


def cut_of(oldest: Entry, last: int, keep_us: int, most: int, now_us: int) -> Cut | None:
    """Which entries to drop now; None: none yet.

    Entries are dropped rarely, many at a time: a tenth of `most`, or a day of expired ones.

    last:    the number of the newest entry
    keep_us: how long entries are kept; most: how many are kept
    """
    are_too_many = last - oldest.number >= most
    if not are_too_many and oldest.event.at_us >= now_us - keep_us - _DAY_US:
        return None
    return Cut(last - (most - most // 10) if are_too_many else 0, now_us - keep_us)
