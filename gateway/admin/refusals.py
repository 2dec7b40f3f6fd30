"""Every answer of "no" that the admin listener gives beside those of `errors`, in one table.

It also says which of them a `Problem` of the management, or an exception of the store, becomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from gateway import errors
from gateway.domain.ports import CorruptRecord, StoreDown
from gateway.errors import Refusal
from gateway.manage.problems import Changed, Conflict, Invalid, NotThere

TOKEN_MISSING: Final = Refusal(
    "token_missing",
    401,
    "unauthorized",
    "ADMIN_TOKEN_REQUIRED",
    "This takes the admin token. Send it as 'Authorization: Bearer <ADMIN_TOKEN>'.",
)
TOKEN_WRONG: Final = Refusal(
    "token_wrong",
    401,
    "unauthorized",
    "INVALID_ADMIN_TOKEN",
    "This is not the admin token. API keys do not open the admin side.",
)
TOO_MANY_ATTEMPTS: Final = Refusal(
    "too_many_attempts",
    429,
    "too_many_requests",
    "TOO_MANY_ATTEMPTS",
    "There were too many wrong tokens. Wait until the time given in Retry-After, then try again.",
)
HOST_NOT_ALLOWED: Final = Refusal(
    "host_not_allowed",
    421,
    "misdirected_request",
    "HOST_NOT_ALLOWED",
    "The admin side does not go by this name. Use its address, or allow the name with "
    "--admin-host.",
)
UNREADABLE: Final = Refusal(
    "unreadable",
    400,
    "bad_request",
    "BAD_REQUEST",
    "The request cannot be read as HTTP/1.1, or its head is too large.",
    closes=True,
)
BODY_BROKEN: Final = Refusal(
    "body_broken",
    400,
    "bad_request",
    "BODY_BROKEN",
    "The body ended before it was complete, or its chunks cannot be read.",
    closes=True,
)
BODY_NOT_JSON: Final = Refusal(
    "body_not_json",
    400,
    "bad_request",
    "BODY_NOT_JSON",
    "The body is not a JSON object in UTF-8.",
)
MEDIA_TYPE: Final = Refusal(
    "media_type",
    415,
    "unsupported_media_type",
    "UNSUPPORTED_MEDIA_TYPE",
    "The body has to be sent as 'Content-Type: application/json'.",
)
VERSION_REQUIRED: Final = Refusal(
    "version_required",
    428,
    "precondition_required",
    "IF_MATCH_REQUIRED",
    "Send the ETag of what you have read as If-Match, so that nobody's change is lost.",
)
NO_STORE: Final = Refusal(
    "no_store",
    503,
    "service_unavailable",
    "STORE_NOT_SHARED",
    "Keys of memory:// live inside a worker, where nobody else reaches them. Start the gateway "
    "with the URL of a Redis as --store, or without --store.",
    "gateway",
)

#: Of these the exception's own words are the message.
INVALID: Final = Refusal("invalid", 422, "invalid", "INVALID", "")
NOT_THERE: Final = Refusal("not_there", 404, "not_found", "NOT_FOUND", "")
CONFLICT: Final = Refusal("conflict", 409, "conflict", "CONFLICT", "")
CORRUPT: Final = Refusal("corrupt", 500, "internal_error", "CORRUPT_RECORD", "", "gateway")
CHANGED: Final = Refusal("changed", 412, "precondition_failed", "CHANGED_MEANWHILE", "")

_OF: Final[dict[type[Exception], Refusal]] = {
    Invalid: INVALID,
    NotThere: NOT_THERE,
    Conflict: CONFLICT,
    Changed: CHANGED,
    CorruptRecord: CORRUPT,
    StoreDown: errors.STORE_UNAVAILABLE,
}


class Refused(Exception):
    """A handler's "no", to be answered by whoever called it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


def body_of(refusal: Refusal, message: str | None = None) -> dict[str, object]:
    """A refusal as JSON; message: in place of its own."""
    return {
        "error": refusal.error,
        "message": refusal.message if message is None else message,
        "code": refusal.code,
    }


def refusal(refused: Refusal, headers: Mapping[str, str] | None = None) -> web.Response:
    """A refusal as an answer."""
    return web.json_response(body_of(refused), status=refused.status, headers=headers)


def refusal_of(error: Exception) -> tuple[Refusal, dict[str, object]] | None:
    """What an exception is answered with: the refusal and the body. None: it is a fault of ours."""
    if isinstance(error, Refused):
        return error.refusal, body_of(error.refusal)
    found = next((refused for kind, refused in _OF.items() if isinstance(error, kind)), None)
    if found is None:
        return None
    body = body_of(found, None if found.message else str(error))
    if isinstance(error, Invalid):
        body["message"] = "What was sent has faults."
        body["faults"] = [
            {"at": fault.at, "found": fault.found, "expected": fault.expected}
            for fault in error.faults
        ]
    return found, body
