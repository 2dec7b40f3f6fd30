"""Everything that a receiver answers.

An error has the form of the gateway's: `error`, `message` and `code`. The gateway shows the first
characters of an answer among the attempts of a delivery, so a message says what to do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from gateway_client.webhooks.seen import CLAIM_S

Header = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer over HTTP. headers: all that it has, Content-Length included"""

    status: int
    headers: tuple[Header, ...]
    body: bytes

    @property
    def status_line(self) -> str:
        """As WSGI wants it: "200 OK"."""
        return f"{self.status} {HTTPStatus(self.status).phrase}"


def method_not_allowed(method: str) -> Answer:
    message = "Webhooks are sent by POST."
    answer = _refusal(405, "method_not_allowed", "METHOD_NOT_ALLOWED", message, ("Allow", "POST"))
    return Answer(answer.status, answer.headers, b"") if method == "HEAD" else answer


def unauthorized(reason: str) -> Answer:
    """reason: the text of a SignatureInvalid"""
    message = f"The webhook could not be verified: {reason}."
    # RFC 9110, 11.6.1: a 401 "MUST send a WWW-Authenticate header field".
    scheme = ("WWW-Authenticate", "Webhook")
    return _refusal(401, "unauthorized", "INVALID_SIGNATURE", message, scheme)


def too_large(most: int) -> Answer:
    message = f"The body is larger than {most} bytes, the most that is read here."
    return _refusal(413, "content_too_large", "BODY_TOO_LARGE", message)


def no_event(reason: str) -> Answer:
    """reason: the text of an EventInvalid"""
    message = f"The webhook is verified, but its body is no event: {reason}."
    return _refusal(400, "bad_request", "INVALID_EVENT", message)


def _refusal(status: int, error: str, code: str, message: str, *more: Header) -> Answer:
    return _shown(status, {"error": error, "message": message, "code": code}, *more)


def _shown(status: int, record: dict[str, str], *more: Header) -> Answer:
    body = json.dumps(record).encode("ascii")
    length = ("Content-Length", str(len(body)))
    return Answer(status, (("Content-Type", "application/json"), length, *more), body)


BAD_LENGTH: Final = _refusal(
    400,
    "bad_request",
    "BAD_REQUEST",
    "The length of the body is malformed, or the body ended before it.",
)
NO_LENGTH: Final = _refusal(
    411,
    "length_required",
    "LENGTH_REQUIRED",
    "The length of the body is not known here. Send it with a Content-Length.",
)
HANDLED: Final = _shown(200, {"result": "handled"})
SEEN: Final = _shown(200, {"result": "seen"})
FAILED: Final = _refusal(
    500, "internal_error", "EVENT_NOT_HANDLED", "The event could not be handled. Send it again."
)
#: Another process handles the same event. It may fail yet, so the sender must keep the event: a
#: 2xx would end its attempts. 503 rather than 409, as senders take 4xx for a fault of the webhook
#: that no repetition mends; and only 503 is defined with Retry-After. By then the claim has ended.
BUSY_NOW: Final = _refusal(
    503,
    "service_unavailable",
    "EVENT_IN_PROGRESS",
    "The event is being handled at the moment. Send it again later.",
    ("Retry-After", str(CLAIM_S)),
)
#: Without the store nothing tells whether the event was handled before.
STORE_DOWN: Final = _refusal(
    503,
    "service_unavailable",
    "SERVICE_UNAVAILABLE",
    "The event cannot be handled at the moment. Send it again later.",
    ("Retry-After", "30"),
)
