"""The audit log's entries, each chained to the one before: a gap or a change shows.

An entry's hash is over the hash before it and all that the entry says, so nobody can change, take
out or put in one without giving every later one another hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Final

#: What the first entry names as the hash before it.
NOTHING_BEFORE: Final = "0" * 64


@dataclass(frozen=True, slots=True)
class Event:
    """What happened. Never holds a secret.

    at_us:   Unix microseconds
    actor:   who did it, and by what: "anna (console, 127.0.0.1)", "root (cli)", "gateway"
    action:  "key.create", "key.rotate", "key.edit", "key.suspend", "key.resume", "key.revoke",
             "account.set", "limit.reset"
    subject: "key:7h3k9m2p4q6r", "account:acme"
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
    """An event in its place. number: from 1, without gaps; previous, hash: 64 hex digits"""

    number: int
    event: Event
    previous: str
    hash: str


def chained(event: Event, number: int, previous: str) -> Entry:
    """The event as the entry of this number, after the entry with that hash."""
    content = json.dumps([number, asdict(event)], separators=(",", ":"), sort_keys=True)
    return Entry(number, event, previous, sha256(f"{previous}\n{content}".encode()).hexdigest())
