"""The bytes that a client gets in answer: an upstream's head rebuilt, or an answer of our own.

Every one of them carries the limits' fields and the request's id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.domain.limits import Decision
from gateway.domain.policy import Policy, Route
from gateway.errors import RATE_LIMITED, Refusal
from gateway.http1 import answers
from gateway.http1.head import Fields
from gateway.http1.response import ResponseHead

if TYPE_CHECKING:
    from gateway.proxy.exchange import Exchange


def relayed(exchange: Exchange, head: ResponseHead, framing: bytes, body: bytes) -> bytes:
    """An upstream's final head, and what there is of the body.

    framing: the field that tells the body's length, or nothing
    """
    return b"%b%b%bX-Request-Id: %b\r\n%b\r\n%b" % (
        head.start if head.dated else head.start + _date(exchange),
        framing,
        _limit_fields(exchange),
        exchange.request_id,
        b""
        if exchange.keep and exchange.minor
        else answers.connection_field(exchange.keep, exchange.minor),
        body,
    )


def interim_head(head: ResponseHead) -> bytes:
    """An upstream's 1xx."""
    return head.start + b"\r\n"


def switched_head(exchange: Exchange, head: ResponseHead) -> bytes:
    """An upstream's agreement to a WebSocket."""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"%b%bX-Request-Id: %b\r\n\r\n"
    ) % (
        head.forward if head.dated else head.forward + _date(exchange),
        _limit_fields(exchange),
        exchange.request_id,
    )


@dataclass(slots=True, eq=False)
class Told:
    """The last 429 on a connection, but for the request's id, and what made it so.

    A decision that is remembered is told again and again, the very same object: so are its words.
    """

    decision: Decision
    fields: Fields
    route: Route
    policy: Policy
    start: bytes
    end: bytes
    body_bytes: int


def refusal(exchange: Exchange, why: Refusal) -> tuple[bytes, int]:
    """A refusal, whole, and the length of its body."""
    if why is RATE_LIMITED and exchange.keep and exchange.minor and exchange.method != "HEAD":
        told = exchange.conn.told
        if (
            told is None
            or told.decision is not exchange.decision
            or told.fields is not exchange.fields
            or told.route is not exchange.route
            or told.policy is not exchange.policy
        ):
            start, end, body_bytes = _words(exchange, why)
            assert exchange.decision is not None, "it is a decision that limits"
            told = exchange.conn.told = Told(
                exchange.decision,
                exchange.fields,
                exchange.route,
                exchange.policy,
                *(start, end, body_bytes),
            )
        return told.start + exchange.request_id + told.end, told.body_bytes
    start, end, body_bytes = _words(exchange, why)
    return start + exchange.request_id + end, body_bytes


def _words(exchange: Exchange, why: Refusal) -> tuple[bytes, bytes, int]:
    """What a refusal says before the request's id and behind it, and the length of its body."""
    retry_s = None
    if why is RATE_LIMITED and exchange.decision is not None:
        retry_s = answers.retry_after_s(exchange.decision)
    elif why.status == 503:
        retry_s = 1
    start, end, body_bytes = answers.refusal_frame(
        why,
        retry_s,
        exchange.requested.allow,
        answers.connection_field(exchange.keep, exchange.minor),
        answers.named(why, exchange.route, exchange.policy.bounds) if why.names else "",
        json_rpc=exchange.route.json_rpc,
        head_only=exchange.method == "HEAD",
    )
    # As `_date`, but without a call, which would be 1 % of a 404.
    context = exchange.context
    before = b"%b%b%bX-Request-Id: " % (
        start,
        context.date_field.line(context.clock_us()),
        _limit_fields(exchange),
    )
    return before, b"\r\n" + end, body_bytes


def own_answer(exchange: Exchange, status: int, body: bytes) -> bytes:
    """A whole answer of the gateway's own."""
    return answers.answer(
        status,
        b"%b%bX-Request-Id: %b\r\n"
        % (_date(exchange), _limit_fields(exchange), exchange.request_id),
        body,
        answers.connection_field(exchange.keep, exchange.minor),
        head_only=exchange.method == "HEAD",
    )


def _date(exchange: Exchange) -> bytes:
    """RFC 9110, 6.6.1: who receives a response without Date "MUST record the time it was received
    and append a corresponding Date header field" where it is forwarded.
    """
    context = exchange.context
    return context.date_field.line(context.clock_us())


def _limit_fields(exchange: Exchange) -> bytes:
    check, decision, policy = exchange.check, exchange.decision, exchange.policy
    if check is None:  # it failed, or was judged for too long, before anybody asked how they stand
        return b""
    if decision is None:
        return answers.undecided_fields(check, exchange.context.gate.clock_us())
    lines = answers.rate_fields(check.limits, decision)
    if policy.ietf_headers:
        lines += answers.ietf_fields(check.limits, decision)
    if decision.local and policy.fallback_header:
        # The mode may have been changed to "closed" since, under which nothing is decided so.
        how = b"open" if policy.on_store_failure == "open" else b"local"
        lines += b"X-RateLimit-Fallback: %b\r\n" % how
    if policy.hsts is not None and exchange.conn.client.is_secure(exchange.fields):
        lines += b"Strict-Transport-Security: %b\r\n" % policy.hsts.encode("ascii")
    return lines
