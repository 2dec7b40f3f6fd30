"""Events, as they are read from a body that is verified.

A body is read strictly: two programs that read the same signed bytes should find the same event.
So a key that is there twice, NaN, and a number that Python alone has are refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NoReturn, TypeVar, cast

from gateway_client.webhooks.data import Incident, Package, PullRequest, Ticket
from gateway_client.webhooks.json_text import MOST_LEVELS, TooDeep, read_json

#: The most characters of an event's id, and of its type.
MOST_NAME: Final = 256
#: The most digits of a whole number. Python reads longer ones in quadratic time, or not at all.
MOST_DIGITS: Final = 4_300

_Data = TypeVar("_Data", PullRequest, Ticket, Incident, Package)

_PATTERN = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)*\.(?:\*|[a-z0-9_]+)").fullmatch
_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))",
    re.ASCII,
).fullmatch


class EventInvalid(ValueError):
    """A body that is verified is no event, or its data is not that of its type."""


@dataclass(frozen=True, slots=True)
class Integration:
    """Where an event is from.

    provider: such as "github"
    name:     given by its user
    """

    id: str
    provider: str
    name: str


@dataclass(frozen=True, slots=True)
class Event:
    """What has happened.

    id:      the same when it is sent again
    type:    such as "pull_request.merged"
    created: with its time zone
    data:    by type; `as_pull_request` and so on give it with its fields
    body:    the bytes that were verified
    """

    id: str
    type: str
    created: datetime
    integration: Integration
    data: Mapping[str, Any] = field(repr=False, hash=False)
    body: bytes = field(repr=False)

    def is_a(self, *patterns: str) -> bool:
        """Is it of one of these types? As watches take them: "ticket.created" or "ticket.*".

        By segment: "pull_request.*" is not "pull_request_review.submitted". Raises ValueError for
        what is no pattern, such as "ticket".
        """
        for pattern in patterns:
            if not _PATTERN(pattern):
                raise ValueError(
                    f"found {pattern!r}, expected a type such as ticket.created, or PREFIX.*"
                )
        return any(
            self.type.startswith(pattern[:-1]) if pattern.endswith(".*") else self.type == pattern
            for pattern in patterns
        )

    @property
    def is_test(self) -> bool:
        """Was it made by a test of the watch? Then nothing has happened; `data` has no fields."""
        return self.data.get("test") is True

    def as_pull_request(self) -> PullRequest:
        """The data of "pull_request.*". Raises EventInvalid for other data."""
        return _data_as(self, PullRequest, "pull_request")

    def as_ticket(self) -> Ticket:
        """The data of "ticket.*". Raises EventInvalid for other data."""
        return _data_as(self, Ticket, "ticket")

    def as_incident(self) -> Incident:
        """The data of "incident.*". Raises EventInvalid for other data."""
        return _data_as(self, Incident, "incident")

    def as_package(self) -> Package:
        """The data of "package.*". Raises EventInvalid for other data."""
        return _data_as(self, Package, "package")


def read_event(body: bytes) -> Event:
    """The event in a body, which has been verified. Raises EventInvalid."""
    record = _object(_parsed(body), "the body")
    integration = _object(record.get("integration"), "integration")
    created = _text(record, "created")
    try:
        at = read_date(created)
    except ValueError as error:
        raise EventInvalid(f"created: {error}") from None
    return Event(
        id=_name(record, "id"),
        type=_name(record, "type"),
        created=at,
        integration=Integration(
            *(_text(integration, key, "integration.") for key in ("id", "provider", "name"))
        ),
        data=_object(record.get("data"), "data"),
        body=body,
    )


def read_date(text: str) -> datetime:
    """A date of an event, such as "2026-11-23T16:43:58.446Z", with its zone. Raises ValueError."""
    found = _DATE(text)
    try:
        if found is None:
            raise ValueError
        *whole, fraction, sign, hours, minutes = found.groups()
        year, month, day, hour, minute, second = map(int, whole)
        micros = int((fraction or "0")[:6].ljust(6, "0"))
        offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        zone = timezone(-offset if sign == "-" else offset)
        return datetime(year, month, day, hour, minute, second, micros, zone)
    except ValueError:
        expected = "a date such as 2026-11-23T16:43:58.446Z"
        raise ValueError(f"found another text, expected {expected}") from None


def _data_as(event: Event, shape: type[_Data], resource: str) -> _Data:
    """The data, if the type is right and no field is missing, as in a test or an own event."""
    if not event.is_a(f"{resource}.*"):
        raise EventInvalid(f"found an event of type {event.type!r}, expected {resource}.*")
    missing = sorted(shape.__annotations__.keys() - event.data.keys())
    if missing:
        raise EventInvalid(f"the data of {event.type!r} has no {', '.join(missing)}")
    return cast(_Data, event.data)


def _parsed(body: bytes) -> object:
    try:
        return read_json(
            body.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_number,
            parse_float=_float,
            parse_int=_int,
        )
    except TooDeep as error:
        raise EventInvalid(f"the body has {error.found}, expected at most {MOST_LEVELS}") from None
    except json.JSONDecodeError as error:
        raise EventInvalid(f"the body is not JSON, at character {error.pos + 1}") from None
    except UnicodeDecodeError as error:
        raise EventInvalid(f"the body is not UTF-8, at byte {error.start + 1}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise EventInvalid("an object of the body has a key twice")
    return found


def _no_number(_text: str) -> NoReturn:
    raise EventInvalid("the body has NaN or Infinity, which are not JSON")


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def _int(text: str) -> int:
    try:
        if len(text) <= MOST_DIGITS:
            return int(text)
    except ValueError:  # Python can be set to read fewer
        pass
    raise EventInvalid(f"a number of the body has more than {MOST_DIGITS} digits")


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise EventInvalid(f"{where}: found {_kind(value)}, expected an object")
    return value


def _text(record: Mapping[str, Any], key: str, within: str = "") -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise EventInvalid(f"{within}{key}: found {_kind(value)}, expected a text")
    return value


def _name(record: Mapping[str, Any], key: str) -> str:
    """A text that can be a key of a store, and stand in a log."""
    value = _text(record, key)
    if not 1 <= len(value) <= MOST_NAME or not value.isprintable():
        raise EventInvalid(
            f"{key}: found another text, expected 1 to {MOST_NAME} characters that can be printed"
        )
    return value


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "nothing" if value is None else kinds.get(type(value), "a number")
