"""The refusals of the admin listener, beside those of `errors`, in one table.

It also maps each `Problem` of the management, and each exception of the store, to a refusal.
`connection` completes each error body with the request's id before it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

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
    "The admin token is required. Send it as 'Authorization: Bearer <ADMIN_TOKEN>'.",
)
TOKEN_WRONG: Final = Refusal(
    "token_wrong",
    401,
    "unauthorized",
    "INVALID_ADMIN_TOKEN",
    "This is not the admin token. API keys are not accepted here. Send the token of this gateway.",
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
    "The admin listener is not served under this name. Use its address, or allow the name "
    "with --admin-host.",
)
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
)
MEDIA_TYPE: Final = Refusal(
    "media_type",
    415,
    "unsupported_media_type",
    "UNSUPPORTED_MEDIA_TYPE",
    "The body is not declared as JSON. Send it as 'Content-Type: application/json'.",
)
VERSION_REQUIRED: Final = Refusal(
    "version_required",
    428,
    "precondition_required",
    "IF_MATCH_REQUIRED",
    "Send the ETag of what you have read as If-Match, so that no other change is lost.",
)
NO_STORE: Final = Refusal(
    "no_store",
    503,
    "service_unavailable",
    "STORE_NOT_SHARED",
    "With memory:// the keys are kept inside each worker. Start the gateway with the URL of a "
    "Redis as --store, or without --store.",
    "gateway",
)

#: The message of these is the text of the exception.
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
    """Raised by a handler that refuses a request; its caller sends the answer."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class ErrorResponse(web.Response):
    """A refusal as an answer; `complete` writes its body.

    message: replaces that of the refusal; more: further fields
    """

    def __init__(
        self,
        refused: Refusal,
        headers: Mapping[str, str] | None = None,
        message: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            status=refused.status, headers=headers, content_type="application/json", text=""
        )
        self.refused = refused
        self._message = refused.message if message is None else message
        self._more = more or {}

    def complete(self, request_id: str, error_docs: str | None) -> None:
        """Write the body. error_docs: the page that describes all errors; None: there is none"""
        body = {
            "error": self.refused.error,
            "message": self._message,
            "code": self.refused.code,
            **self._more,
            "request_id": request_id,
        }
        if error_docs is not None:
            body["doc"] = f"{error_docs}#{self.refused.anchor}"
        self.text = json.dumps(body)


def refusal(refused: Refusal, headers: Mapping[str, str] | None = None) -> ErrorResponse:
    """A refusal as an answer."""
    return ErrorResponse(refused, headers)


def refusal_of(error: Exception) -> ErrorResponse | None:
    """The answer to an exception. None: it is an internal error."""
    if isinstance(error, Refused):
        return ErrorResponse(error.refusal)
    found = next((refused for kind, refused in _OF.items() if isinstance(error, kind)), None)
    if found is None:
        return None
    if isinstance(error, Invalid):
        faults = [
            {"path": fault.at, "found": fault.found, "expected": fault.expected}
            for fault in error.faults
        ]
        return ErrorResponse(
            found,
            message="The input has faults. Correct those in `faults`, then send it again.",
            more={"faults": faults},
        )
    return ErrorResponse(found, message=found.message or str(error))
