"""The id of a request to the admin listener: in X-Request-Id, in error bodies and in log lines."""

from __future__ import annotations

import secrets
from typing import Final

from aiohttp import web

from gateway.http1.head import safe_request_id

HEADER: Final = "X-Request-Id"

_ID: Final = web.RequestKey("request_id", str)


def request_id_of(request: web.BaseRequest) -> str:
    """The client's id, if it follows the proxy's rules, else a new one; the same at each call."""
    found = request.get(_ID)
    if found is None:
        values = [value for name, value in request.raw_headers if name.lower() == b"x-request-id"]
        found = safe_request_id(values).decode("ascii") or secrets.token_hex(8)
        request[_ID] = found
    return found
