"""The gateway's own words: refusals, rate-limit fields, small answers. Values in, bytes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

from gateway.domain.limits import SECOND_US, Check, Decision, Limit
from gateway.domain.policy import Bounds, Route
from gateway.errors import (
    BODY_TOO_LARGE,
    INSUFFICIENT_PERMISSION,
    INSUFFICIENT_SCOPE,
    SERVICE_NOT_ENABLED,
    UPGRADE_REQUIRED,
    URL_TOO_LONG,
    Refusal,
)
from gateway.http1.websocket import REQUIRED_FIELDS

REASONS: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: JSON-RPC 2.0, 5.1: -32000 to -32099 are the server's own errors.
JSON_RPC_REFUSED: Final = -32029


def whole_seconds(time_us: int) -> int:
    """Microseconds as seconds, rounded up: what is promised in seconds is then never too early."""
    return -(-time_us // SECOND_US)


def rfc3339(time_us: int) -> str:
    """Unix microseconds as "2026-01-31T12:00:00Z"."""
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.replace(microsecond=0).isoformat().replace("+00:00", "Z")


def rate_fields(limits: tuple[Limit, ...], decision: Decision) -> bytes:
    """The four X-RateLimit-* lines: the governing limit's figures."""
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
    """RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers, one item a limit."""
    policies = ", ".join(f'"{limit.name}";q={limit.amount};{_unit(limit)}' for limit in limits)
    standings = ", ".join(
        f'"{limit.name}";r={standing.remaining};t={whole_seconds(standing.reset_us)}'
        for limit, standing in zip(limits, decision.standings, strict=True)
    )
    return f"RateLimit-Policy: {policies}\r\nRateLimit: {standings}\r\n".encode("ascii")


def _unit(limit: Limit) -> str:
    """What a policy's quota is of: requests in a window, unless it says otherwise."""
    if limit.kind == "concurrency":
        return 'qu="concurrent-requests"'
    return f"w={whole_seconds(limit.window_us)}"


def undecided_fields(check: Check, now_us: int) -> bytes:
    """The four lines where no limiter could be asked: nothing is promised for the next second."""
    return (
        b"X-RateLimit-Limit: %d\r\nX-RateLimit-Remaining: 0\r\n"
        b"X-RateLimit-Reset: %d\r\nX-RateLimit-Reset-After: 1\r\n"
    ) % (check.limits[0].amount, whole_seconds(now_us) + 1)


def retry_after_s(decision: Decision) -> int | None:
    """Whole seconds to wait after a refusal, at least 1; None: waiting does not help."""
    return None if decision.retry_us is None else max(1, whole_seconds(decision.retry_us))


def named(refusal: Refusal, route: Route, bounds: Bounds) -> str:
    """What a refusal with `names` goes on with: "connectors:read", or "8192 bytes"."""
    if refusal is INSUFFICIENT_SCOPE:
        return ", ".join(route.scopes)
    if refusal is INSUFFICIENT_PERMISSION:
        return ":".join(route.permission or ())
    if refusal is SERVICE_NOT_ENABLED:
        return route.service or ""
    if refusal is BODY_TOO_LARGE:
        return f"{bounds.body_bytes} bytes"
    if refusal is URL_TOO_LONG:
        return f"{bounds.url_bytes} bytes"
    return f"{bounds.headers_bytes} bytes in {bounds.header_count} lines"


def refusal_body(
    refusal: Refusal, retry_s: int | None, name: str = "", *, json_rpc: bool = False
) -> bytes:
    """The JSON of a refusal. A 429 has a form of its own, and another for JSON-RPC clients.

    name: as `named` says it, where the refusal has `names`

    The request's id is in a body that was not read; JSON-RPC 2.0, 5 says null then.
    """
    if refusal.status != 429:
        body: dict[str, Any] = {
            "error": refusal.error,
            "message": f"{refusal.message} {refusal.names.format(name)}".rstrip(" "),
            "code": refusal.code,
        }
    elif json_rpc:
        data = {"code": refusal.code, "retry_after": retry_s}
        error = {"code": JSON_RPC_REFUSED, "message": refusal.message, "data": data}
        body = {"jsonrpc": "2.0", "id": None, "error": error}
    else:
        body = {"error": {"code": refusal.code, "message": refusal.message, "retry_after": retry_s}}
    return json.dumps(body).encode("ascii")


def extra_fields(refusal: Refusal, retry_s: int | None, allow: tuple[str, ...] = ()) -> bytes:
    """The lines that a status asks for besides."""
    lines = b""
    if refusal.status == 401:
        # RFC 9110, 11.6.1: a 401 "MUST send a WWW-Authenticate header field".
        lines += b"WWW-Authenticate: Bearer\r\n"
    if allow:
        lines += b"Allow: %b\r\n" % ", ".join(allow).encode("ascii")
    if retry_s is not None:
        lines += b"Retry-After: %d\r\n" % retry_s
    return lines


@lru_cache(maxsize=4096)
def refusal_frame(
    refusal: Refusal,
    retry_s: int | None,
    allow: tuple[str, ...],
    connection: bytes,
    name: str,
    *,
    json_rpc: bool,
    head_only: bool,
) -> tuple[bytes, bytes, int]:
    """What stands before and behind the fields that differ from one answer to the next.

    And the body's length. Remembered: whoever is refused is refused again and again in the same
    words, and to put them together takes longer than to refuse.
    """
    body = refusal_body(refusal, retry_s, name, json_rpc=json_rpc)
    fields = extra_fields(refusal, retry_s, allow)
    if refusal is UPGRADE_REQUIRED:
        fields += REQUIRED_FIELDS
        # RFC 9110, 7.8: "A sender of Upgrade MUST also send an "Upgrade" connection option".
        connection = b"Connection: close, upgrade\r\n"
    start = b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\n%b" % (
        refusal.status,
        REASONS[refusal.status],
        fields,
    )
    sent = b"" if head_only else body
    return start, b"Content-Length: %d\r\n%b\r\n%b" % (len(body), connection, sent), len(sent)


def json_body(value: Mapping[str, Any]) -> bytes:
    """A small JSON answer."""
    return json.dumps(value, ensure_ascii=True).encode("ascii")


def answer(
    status: int, fields: bytes, body: bytes, connection: bytes, *, head_only: bool = False
) -> bytes:
    """A whole answer of the gateway's own. connection: `connection_field`'s line."""
    return b"HTTP/1.1 %d %b\r\n%b%bContent-Length: %d\r\n%b\r\n%b" % (
        status,
        REASONS[status],
        b"Content-Type: application/json\r\n" if body else b"",
        fields,
        len(body),
        connection,
        b"" if head_only else body,
    )


def connection_field(keep: bool, minor: int) -> bytes:
    """What the client must be told: unless it is, HTTP/1.1 stays and HTTP/1.0 goes."""
    if keep:
        return b"" if minor else b"Connection: keep-alive\r\n"
    return b"Connection: close\r\n"
