"""The refusals of the admin listener alone, beside those of `errors` and `manage.refusals`.

`connection` completes each error body with the request's id before it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from gateway.errors import Refusal
from gateway.manage.refusals import Told, told_of

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
NO_WEBHOOKS: Final = Refusal(
    "no_webhooks",
    503,
    "service_unavailable",
    "WEBHOOKS_OFF",
    "Webhooks need couriers and a Redis: start the gateway without --couriers 0, and without "
    "memory:// as --store.",
    "gateway",
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
        self._told = Told(refused, message or refused.message, more or {})

    def complete(self, request_id: str, error_docs: str | None) -> None:
        """Write the body. error_docs: the page that describes all errors; None: there is none"""
        body = self._told.body(request_id)
        if error_docs is not None:
            body["doc"] = f"{error_docs}#{self.refused.anchor}"
        self.text = json.dumps(body)


def refusal(refused: Refusal, headers: Mapping[str, str] | None = None) -> ErrorResponse:
    """A refusal as an answer."""
    return ErrorResponse(refused, headers)


def refusal_of(error: Exception) -> ErrorResponse | None:
    """The answer to an exception. None: it is an internal error."""
    told = told_of(error)
    if told is None:
        return None
    headers = {"Retry-After": str(told.retry_s)} if told.retry_s else None
    return ErrorResponse(told.refusal, headers, message=told.message, more=told.more)
