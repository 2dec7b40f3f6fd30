"""The gateway's own responses: refusals, rate-limit fields, small bodies. Values in, bytes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

from gateway.domain.costs import JsonCost
from gateway.domain.error_pages import CONTENT_TYPES, Kind, Page, pieces
from gateway.domain.limits import SECOND_US, Check, Decision, Limit
from gateway.domain.policy import Bounds
from gateway.domain.route import Route
from gateway.domain.shown import retry_after_s, whole_seconds
from gateway.errors import (
    BODY_TOO_LARGE,
    COUNTED_BODY_TOO_LARGE,
    INSUFFICIENT_PERMISSION,
    INSUFFICIENT_SCOPE,
    MAINTENANCE,
    RATE_LIMITED,
    SERVICE_NOT_ENABLED,
    UPGRADE_REQUIRED,
    URL_TOO_LONG,
    Refusal,
)
from gateway.http1.websocket import REQUIRED_FIELDS

REASONS: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}


def rate_fields(limits: tuple[Limit, ...], decision: Decision) -> bytes:
    """The four X-RateLimit-* lines: the governing limit's values."""
    standing = decision.standings[decision.governing]
    now_us = decision.now_us
    reset_us = standing.reset_us
    return (
        b"X-RateLimit-Limit: %d\r\nX-RateLimit-Remaining: %d\r\n"
        b"X-RateLimit-Reset: %d\r\nX-RateLimit-Reset-After: %d\r\n"
    ) % (
        limits[decision.governing].amount,
        standing.remaining,
        -(-(now_us + reset_us) // SECOND_US),
        -(-reset_us // SECOND_US),
    )


def ietf_fields(limits: tuple[Limit, ...], decision: Decision) -> bytes:
    """RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers, an item per limit.

    Limits in shadow mode, and candidates, refuse nothing: a client that heeded one would change
    what is tried out. Without any other limit the governing one is reported, as in X-RateLimit-*.
    """
    pairs = list(zip(limits, decision.standings, strict=True))
    told = [pair for pair in pairs if not pair[0].shadow] or [pairs[decision.governing]]
    policies = ", ".join(f'"{limit.name}";q={limit.amount};{_unit(limit)}' for limit, _ in told)
    standings = ", ".join(
        f'"{limit.name}";r={standing.remaining};t={whole_seconds(standing.reset_us)}'
        for limit, standing in told
    )
    return f"RateLimit-Policy: {policies}\r\nRateLimit: {standings}\r\n".encode("ascii")


def _unit(limit: Limit) -> str:
    """The item's quota unit; requests in a window have none."""
    if limit.rules.quota_unit is not None:
        return f'qu="{limit.rules.quota_unit}"'
    return f"w={whole_seconds(limit.window_us)}"


def undecided_fields(check: Check, now_us: int) -> bytes:
    """The four lines without a decision: nothing remains until the next second."""
    return (
        b"X-RateLimit-Limit: %d\r\nX-RateLimit-Remaining: 0\r\n"
        b"X-RateLimit-Reset: %d\r\nX-RateLimit-Reset-After: 1\r\n"
    ) % (check.limits[0].amount, whole_seconds(now_us) + 1)


def named(refusal: Refusal, route: Route, bounds: Bounds) -> str:
    """What a refusal's message names if it has `names`: "connectors:read", or "8192 bytes"."""
    if refusal is INSUFFICIENT_SCOPE:
        return ", ".join(route.scopes)
    if refusal is INSUFFICIENT_PERMISSION:
        return ":".join(route.permission or ())
    if refusal is SERVICE_NOT_ENABLED:
        return route.service or ""
    if refusal is BODY_TOO_LARGE:
        return f"{route.body_bytes or bounds.body_bytes} bytes"
    if refusal is COUNTED_BODY_TOO_LARGE:
        most = route.costing.body_bytes if isinstance(route.costing, JsonCost) else 0
        return f"{most} bytes"
    if refusal is MAINTENANCE:
        return (route.maintenance and route.maintenance.message) or ""
    if refusal is URL_TOO_LONG:
        return f"{bounds.url_bytes} bytes"
    return f"{bounds.headers_bytes} bytes in {bounds.header_count} lines"


def retry_after(refusal: Refusal, route: Route, decision: Decision | None) -> int | None:
    """The seconds of Retry-After; None: there is none."""
    if refusal is RATE_LIMITED and decision is not None:
        return retry_after_s(decision)
    if refusal is MAINTENANCE and route.maintenance is not None:
        return int(route.maintenance.retry_after_s)
    return 1 if refusal.status == 503 else None


def message_of(refusal: Refusal, name: str) -> str:
    """For the client. name: from `named`, if the refusal has `names`"""
    if refusal is MAINTENANCE and name:
        return name
    return f"{refusal.message} {refusal.names.format(name)}".rstrip(" ")


def refusal_body(
    refusal: Refusal,
    retry_s: int | None,
    name: str = "",
    *,
    json_rpc: bool = False,
    request_id: str = "",
    error_docs: str | None = None,
) -> bytes:
    """The JSON of a refusal. A 429 has another form, and a third one for JSON-RPC clients.

    name:       from `named`, if the refusal has `names`
    request_id: the value of X-Request-Id
    error_docs: the page that describes all errors; None: the body has no `doc`

    The id of a JSON-RPC request is in its body, which was not read; JSON-RPC 2.0, 5: null then.
    """
    more = {"request_id": request_id}
    if error_docs is not None:
        more["doc"] = f"{error_docs}#{refusal.anchor}"
    message = message_of(refusal, name)
    if refusal.status != 429:
        body: dict[str, Any] = {
            "error": refusal.error,
            "message": message,
            "code": refusal.code,
            **more,
        }
    elif json_rpc:
        data = {"code": refusal.code, "retry_after": retry_s, **more}
        # Not one of -32000 to -32099: MCP gives them meanings of its own.
        error = {"code": refusal.status, "message": message, "data": data}
        body = {"jsonrpc": "2.0", "id": None, "error": error}
    else:
        error = {"code": refusal.code, "message": message, "retry_after": retry_s}
        body = {"error": {**error, **more}}
    return json.dumps(body).encode("ascii")


def extra_fields(refusal: Refusal, retry_s: int | None, allow: tuple[str, ...] = ()) -> bytes:
    """The lines that a status requires in addition."""
    lines = b""
    if refusal.status == 401:
        # RFC 9110, 11.6.1: a 401 "MUST send a WWW-Authenticate header field".
        lines += b"WWW-Authenticate: Bearer\r\n"
    if allow:
        lines += b"Allow: %b\r\n" % ", ".join(allow).encode("ascii")
    if retry_s is not None:
        lines += b"Retry-After: %d\r\n" % retry_s
    return lines


#: The status line and the first fields; what follows X-Request-Id, up to the id in the body, what
#: follows that, and so on; the length of the body that is sent.
Frame = tuple[bytes, tuple[bytes, ...], int]


@lru_cache(maxsize=4096)
def refusal_frame(
    refusal: Refusal,
    retry_s: int | None,
    allow: tuple[str, ...],
    connection: bytes,
    name: str,
    id_bytes: int,
    error_docs: str | None,
    json_rpc: bool,
    head_only: bool,
) -> Frame:
    """The parts of a refusal that are the same for all requests with an id of this length.

    Cached: building them takes longer than the rest of a refusal. The caller adds Vary, which other
    rules may set, too.
    """
    body = refusal_body(refusal, retry_s, name, json_rpc=json_rpc, error_docs=error_docs)
    # No string within the JSON has these bytes, as quotation marks are escaped in it.
    opening, mark, closing = body.partition(b'"request_id": "')
    assert mark, "each body has the id"
    bodies = opening + mark, closing
    return _frame(refusal, retry_s, allow, connection, id_bytes, head_only, "json", bodies)


def page_frame(
    refusal: Refusal,
    retry_s: int | None,
    allow: tuple[str, ...],
    connection: bytes,
    name: str,
    id_bytes: int,
    head_only: bool,
    page: Page,
) -> Frame:
    """The same, with a page of the policy. Not cached: `pieces` is, in less memory."""
    kind, text, _ = page
    assert text is not None, "the policy has it"
    bodies = pieces(kind, text, refusal.status, refusal.code, message_of(refusal, name), retry_s)
    return _frame(refusal, retry_s, allow, connection, id_bytes, head_only, kind, bodies)


def _frame(
    refusal: Refusal,
    retry_s: int | None,
    allow: tuple[str, ...],
    connection: bytes,
    id_bytes: int,
    head_only: bool,
    kind: Kind,
    bodies: tuple[bytes, ...],
) -> Frame:
    fields = extra_fields(refusal, retry_s, allow)
    if refusal is UPGRADE_REQUIRED:
        fields += REQUIRED_FIELDS
        # RFC 9110, 7.8: "A sender of Upgrade MUST also send an "Upgrade" connection option".
        connection = b"Connection: close, upgrade\r\n"
    start = b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n%b" % (
        refusal.status,
        REASONS[refusal.status],
        CONTENT_TYPES[kind],
        fields,
    )
    length = sum(map(len, bodies)) + id_bytes * (len(bodies) - 1)
    rest = b"\r\nContent-Length: %d\r\n%b\r\n" % (length, connection)
    if head_only:
        return start, (rest,), 0
    return start, (rest + bodies[0], *bodies[1:]), length


def json_body(value: Mapping[str, Any]) -> bytes:
    """A small JSON answer."""
    return json.dumps(value, ensure_ascii=True).encode("ascii")


def answer(
    status: int,
    fields: bytes,
    body: bytes,
    connection: bytes,
    content_type: str = "application/json",
    *,
    head_only: bool = False,
) -> bytes:
    """A whole answer of the gateway. connection: the line of `connection_field`."""
    return b"HTTP/1.1 %d %b\r\n%b%b%b%b\r\n%b" % (
        status,
        REASONS.get(status, b""),
        b"Content-Type: %b\r\n" % content_type.encode("ascii") if body else b"",
        fields,
        # RFC 9110, 8.6: a server "MUST NOT send a Content-Length header field" with a 204; with a
        # 304 it is that of another answer.
        b"" if status in (204, 304) else b"Content-Length: %d\r\n" % len(body),
        connection,
        b"" if head_only else body,
    )


def connection_field(keep: bool, minor: int) -> bytes:
    """The Connection line, if one is needed: HTTP/1.1 keeps open by default, HTTP/1.0 closes."""
    if keep:
        return b"" if minor else b"Connection: keep-alive\r\n"
    return b"Connection: close\r\n"
