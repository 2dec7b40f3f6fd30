"""The refusals of APIs that change something, beside those of `errors`, in one table.

It also maps each `Problem` of the management, and each exception of the store, to a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway import errors
from gateway.domain.ports import CorruptRecord, StoreDown
from gateway.errors import Refusal
from gateway.manage.problems import Changed, Conflict, Full, Invalid, NotThere

UNREADABLE: Final = Refusal(
    "unreadable",
    400,
    "bad_request",
    "BAD_REQUEST",
    "The request cannot be read as HTTP/1.1, or its head is too large. Send a smaller, plain one.",
    closes=True,
)
BODY_BROKEN: Final = Refusal(
    "body_broken",
    400,
    "bad_request",
    "BODY_BROKEN",
    "The body ended before it was complete, or its chunks cannot be read. Send it again.",
    closes=True,
)
BODY_NOT_JSON: Final = Refusal(
    "body_not_json",
    400,
    "bad_request",
    "BODY_NOT_JSON",
    "The body is not a JSON object in UTF-8. Send one, with each name once.",
    names="Reason: {}.",
)
MEDIA_TYPE: Final = Refusal(
    "media_type",
    415,
    "unsupported_media_type",
    "UNSUPPORTED_MEDIA_TYPE",
    "The body is not declared as JSON. Send it as 'Content-Type: application/json'.",
    names="Found {}.",
)
BODIES_FULL: Final = Refusal(
    "bodies_full",
    503,
    "service_unavailable",
    "TOO_MANY_BODIES",
    "Too many request bodies are being received at the moment. Try again shortly.",
    "gateway",
    closes=True,
)
TOO_MANY_TESTS: Final = Refusal(
    "too_many_tests",
    503,
    "service_unavailable",
    "TOO_MANY_TESTS",
    "Too many webhooks are being tested at the moment. Try again shortly.",
    "gateway",
)
TOO_MANY_CALLS: Final = Refusal(
    "too_many_calls",
    429,
    "too_many_requests",
    "TOO_MANY_CALLS",
    "Too many requests of this account are in progress at the API of webhooks. Send fewer at once.",
)

#: The message of these is the text of the exception.
INVALID: Final = Refusal("invalid", 422, "invalid", "INVALID", "")
NOT_THERE: Final = Refusal("not_there", 404, "not_found", "NOT_FOUND", "")
CONFLICT: Final = Refusal("conflict", 409, "conflict", "CONFLICT", "")
CORRUPT: Final = Refusal("corrupt", 500, "internal_error", "CORRUPT_RECORD", "", "gateway")
CHANGED: Final = Refusal("changed", 412, "precondition_failed", "CHANGED_MEANWHILE", "")
FULL: Final = Refusal(
    "events_full",
    503,
    "service_unavailable",
    "EVENTS_FULL",
    "There is no room for more events and deliveries until some are over. Try again later.",
    "gateway",
)

#: After so many seconds there may be room.
_FULL_RETRY_S: Final = 30

_OF: Final[dict[type[Exception], Refusal]] = {
    Invalid: INVALID,
    NotThere: NOT_THERE,
    Conflict: CONFLICT,
    Changed: CHANGED,
    Full: FULL,
    CorruptRecord: CORRUPT,
    StoreDown: errors.STORE_UNAVAILABLE,
}


class Refused(Exception):
    """Raised by a handler that refuses a request; its caller sends the answer.

    named: what the message names, as `Refusal.names` says
    """

    def __init__(self, refusal: Refusal, named: str = "") -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal
        self.named = named


@dataclass(frozen=True, slots=True)
class Told:
    """A refusal with what is told about one request. more: further fields of the body"""

    refusal: Refusal
    message: str
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def retry_s(self) -> int | None:
        """After so many seconds the request may be sent again; None: the refusal does not say"""
        return _FULL_RETRY_S if self.refusal is FULL else None

    def body(self, request_id: str) -> dict[str, Any]:
        """The body of the answer, as JSON."""
        return {
            "error": self.refusal.error,
            "message": self.message,
            "code": self.refusal.code,
            **self.more,
            "request_id": request_id,
        }


def told(refusal: Refusal, named: str = "") -> Told:
    """A refusal with its own message. named: what it names, as `Refusal.names` says"""
    names = refusal.names.format(named) if named else ""
    return Told(refusal, f"{refusal.message} {names}".rstrip(" "))


def told_of(error: Exception) -> Told | None:
    """What an exception means for the client. None: it is an internal error."""
    if isinstance(error, Refused):
        return told(error.refusal, error.named)
    found = next((refused for kind, refused in _OF.items() if isinstance(error, kind)), None)
    if found is None:
        return None
    if isinstance(error, Invalid):
        faults = [
            {"path": fault.at, "found": fault.found, "expected": fault.expected}
            for fault in error.faults
        ]
        words = "The input has faults. Correct those in `faults`, then send it again."
        return Told(found, words, {"faults": faults})
    return Told(found, found.message or str(error))
