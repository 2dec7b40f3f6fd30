"""The bytes that a client gets in answer: an upstream's head rebuilt, or an answer of our own.

Every one of them carries the limits' fields and the request's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.errors import RATE_LIMITED, UPGRADE_REQUIRED, Refusal
from gateway.http1 import answers
from gateway.http1.response import ResponseHead
from gateway.http1.websocket import REQUIRED_FIELDS

if TYPE_CHECKING:
    from gateway.proxy.exchange import Exchange


def relayed_head(exchange: Exchange, head: ResponseHead, framing: bytes) -> bytes:
    """An upstream's final head. framing: the field that tells the body's length, or nothing."""
    return b"HTTP/1.1 %d %b\r\n%b%b%bX-Request-Id: %b\r\n%b\r\n" % (
        head.status,
        head.reason,
        head.forward,
        framing,
        _limit_fields(exchange),
        exchange.request_id,
        answers.connection_field(exchange.keep, exchange.minor),
    )


def interim_head(head: ResponseHead) -> bytes:
    """An upstream's 1xx."""
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (head.status, head.reason, head.forward)


def switched_head(exchange: Exchange, head: ResponseHead) -> bytes:
    """An upstream's agreement to a WebSocket."""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"%b%bX-Request-Id: %b\r\n\r\n"
    ) % (head.forward, _limit_fields(exchange), exchange.request_id)


def refusal(exchange: Exchange, why: Refusal) -> tuple[bytes, bytes]:
    """The body of a refusal, and the fields that it needs besides."""
    retry_s = None
    if why is RATE_LIMITED and exchange.decision is not None:
        retry_s = answers.retry_after_s(exchange.decision)
    elif why.status == 503:
        retry_s = 1
    fields = answers.extra_fields(why, retry_s, exchange.requested.allow)
    if why is UPGRADE_REQUIRED:
        fields += REQUIRED_FIELDS
    return answers.refusal_body(why, retry_s, json_rpc=exchange.route.json_rpc), fields


def own_answer(exchange: Exchange, status: int, body: bytes, fields: bytes) -> bytes:
    """A whole answer of the gateway's own."""
    context = exchange.context
    return answers.answer(
        status,
        b"%b%b%bX-Request-Id: %b\r\n"
        % (
            context.date_field.line(context.clock_us()),
            fields,
            _limit_fields(exchange),
            exchange.request_id,
        ),
        body,
        keep=exchange.keep,
        minor=exchange.minor,
        head_only=exchange.method == "HEAD",
    )


def _limit_fields(exchange: Exchange) -> bytes:
    check, decision, policy = exchange.check, exchange.decision, exchange.policy
    assert check is not None, "every exchange asks how its limits stand"
    if decision is None:
        return answers.undecided_fields(check, exchange.context.clock_us())
    lines = answers.rate_fields(check.limits, decision)
    if policy.ietf_headers:
        lines += answers.ietf_fields(check.limits, decision)
    if policy.hsts is not None and exchange.conn.client.is_secure(exchange.fields):
        lines += b"Strict-Transport-Security: %b\r\n" % policy.hsts.encode("ascii")
    return lines
