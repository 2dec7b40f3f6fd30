"""Events of integrations: captured from a provider's webhook, or published by the API itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from gateway.domain.json_text import TooDeep, check_levels
from gateway.domain.webhooks.event_types import is_type
from gateway.domain.webhooks.id_headers import id_in
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.domain.webhooks.payload import moment

#: The most bytes of an event where nothing else is set. It is kept until all its deliveries are
#: over.
MOST_EVENT: Final = 1024 * 1024
#: The most characters of an id that a provider or publisher gives.
MOST_ID: Final = 512


class NotJson(Exception):
    """The body of a webhook is not JSON, nor a form with JSON where its kind knows forms.

    The message says why, if it is JSON that is too deep; else it is empty.
    """


class TooLarge(Exception):
    """An event has more bytes than it may have. size: how many; most: those that it may have"""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(f"the event has {size} bytes, and may have {most}")
        self.size = size
        self.most = most


@dataclass(frozen=True, slots=True)
class Integration:
    """A connection of an account with a provider.

    kind:    of its provider: a name of `kinds.table`
    name:    given by its user
    capture: the part of its capture address that nobody can guess; "": it has none
    sealed:  the secrets of its provider; "": it has none
    id_header: in which its sender names a webhook, in lower case; "": as its kind says
    """

    id: str
    account: str
    kind: str
    name: str
    created_us: int
    capture: str = ""
    sealed: str = field(default="", repr=False)
    is_paused: bool = False
    id_header: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, and the bytes that are delivered: made once, so that every signature fits."""

    id: str
    type: str
    body: bytes


def captured(
    integration: Integration,
    body: bytes,
    header: Callable[[str], str],
    secrets: Sequence[str],
    now_us: int,
    most: int = MOST_EVENT,
) -> Event | None:
    """The event of a provider's webhook; None: its table does not know what it is.

    body:    as it was received; header: the value by its lower-case name, "" if there is none
    secrets: of the provider
    most:    bytes of the event. It can be several times as large as the webhook: numbers and texts
             are written longer, some values twice

    Raises Unverified before anything is parsed, NotJson and TooLarge.
    """
    kind = KINDS[integration.kind]
    kind.verify(body, header, secrets, now_us / 1_000_000)
    try:
        payload = kind.read(header, body)
    except ValueError as error:
        raise _not_json(error) from error
    found = kind.normalize(header, payload)
    if not found.type:
        return None
    try:
        sent = id_in(header(integration.id_header)) if integration.id_header else ""
        given = sent or kind.delivery_id(header, payload)[:MOST_ID]
        # Most ids are in headers, which are not signed: none may be that of another origin.
        named = f"captured {given}" if given else f"body {sha256(body).hexdigest()}"
        created = found.created or _now(now_us)
        return _event(integration, named, found.type, created, found.data, most)
    # Also of NaN or infinity, as 1e999 is, which Python's JSON alone has.
    except ValueError as error:
        raise _not_json(error) from error


def published(
    integration: Integration,
    event_type: str,
    data: dict[str, Any],
    given: str,
    now_us: int,
    most: int = MOST_EVENT,
) -> Event:
    """An event of the API itself. Raises ValueError, TooDeep among them, and TooLarge.

    given: its id there, by which it is the same when sent again; most: bytes of the event
    """
    if not is_type(event_type):
        raise ValueError(event_type)
    return _event(integration, f"published {given}", event_type, _now(now_us), data, most)


def noticed(
    integration: Integration, event_type: str, data: dict[str, Any], named: str, at_us: int
) -> Event:
    """An event of the gateway itself. named: the same event has the same name, whoever makes it"""
    return _event(integration, f"notice {named}", event_type, _now(at_us), data)


def trial(integration: Integration, event_type: str, nonce: str, now_us: int) -> Event:
    """An event that tests an endpoint. Its data says so, whatever the type.

    nonce: that no other test has
    """
    data = {"test": True, "message": "This is a test. Nothing has happened."}
    return _event(integration, f"test {nonce}", event_type, _now(now_us), data)


def _event(
    integration: Integration,
    named: str,
    event_type: str,
    created: str,
    data: Mapping[str, Any],
    most: int = MOST_EVENT,
) -> Event:
    """All events are made here. Raises TooLarge, TooDeep.

    named: begins with the event's origin, so that events of two origins never have one id
    """
    digest = sha256(f"{integration.id}\0{named}".encode("utf-8", "surrogatepass")).hexdigest()
    event_id = f"evt_{digest[:32]}"
    record = {
        "id": event_id,
        "type": event_type,
        "created": created,
        "integration": {
            "id": integration.id,
            "provider": integration.kind,
            "name": integration.name,
        },
        "data": data,
    }
    # In ASCII: a lone surrogate, which JSON can have by an escape, has no form in UTF-8.
    body = _written(record)
    if len(body) > most:
        raise TooLarge(len(body), most)
    check_levels(body)
    return Event(event_id, event_type, body)


def _not_json(error: ValueError) -> NotJson:
    return NotJson(str(error) if isinstance(error, TooDeep) else "")


def _written(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii")


def _now(now_us: int) -> str:
    return moment(now_us / 1_000_000)
