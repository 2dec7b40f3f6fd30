"""Builds the bytes of an answer: an upstream's head, or an answer of the gateway.

Each has the limits' fields and the request's id.
"""

from __future__ import annotations

from gateway.domain.shown import retry_after_s
from gateway.errors import RATE_LIMITED, Refusal
from gateway.http1.response import ResponseHead
from gateway.proxy import answers
from gateway.proxy.connection_cache import CachedRefusal, RefusalParts
from gateway.proxy.context import Context
from gateway.proxy.request import Request


def relayed(
    request: Request, context: Context, head: ResponseHead, framing: bytes, body: bytes
) -> bytes:
    """An upstream's final head, and the body so far.

    framing: the Content-Length or Transfer-Encoding line, or b""
    """
    return b"%b%b%bX-Request-Id: %b\r\n%b\r\n%b" % (
        head.start if head.dated else head.start + _date(context),
        framing,
        _limit_fields(request, context),
        request.request_id,
        b""
        if request.keep and request.minor
        else answers.connection_field(request.keep, request.minor),
        body,
    )


def interim_head(head: ResponseHead) -> bytes:
    """An upstream's 1xx."""
    return head.start + b"\r\n"


def switched_head(request: Request, context: Context, head: ResponseHead) -> bytes:
    """An upstream's agreement to a WebSocket."""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"%b%bX-Request-Id: %b\r\n\r\n"
    ) % (
        head.forward if head.dated else head.forward + _date(context),
        _limit_fields(request, context),
        request.request_id,
    )


def refusal(request: Request, context: Context, why: Refusal) -> tuple[bytes, int]:
    """A complete refusal, and the length of its body."""
    # Ids have letters, digits, ".", "_" and "-" only: JSON escapes none of them.
    request_id = request.request_id
    if request.method == "HEAD":
        start, end, _, body_bytes = _parts(request, context, why)
        return start + request_id + end, body_bytes
    if why is RATE_LIMITED and request.keep:
        decision, fields, route = request.decision, request.fields, request.route
        cached = request.cache.refusal
        if (
            cached is None
            or cached.decision is not decision
            or cached.fields is not fields
            or cached.route is not route
            or cached.id_bytes != len(request_id)
        ):
            assert decision is not None, "a 429 has a decision"
            parts = _parts(request, context, why)
            cached = CachedRefusal(decision, fields, route, len(request_id), parts)
            request.cache.refusal = cached
        start, middle, end, body_bytes = cached.parts
    else:
        start, middle, end, body_bytes = _parts(request, context, why)
    return b"".join((start, request_id, middle, request_id, end)), body_bytes


def _parts(request: Request, context: Context, why: Refusal) -> RefusalParts:
    """The parts of a refusal, without the request's id."""
    decision = request.decision
    retry_s = None
    if why is RATE_LIMITED and decision is not None:
        retry_s = retry_after_s(decision)
    elif why.status == 503:
        retry_s = 1
    route, policy = request.route, request.policy
    start, middle, end, body_bytes = answers.refusal_frame(
        why,
        retry_s,
        request.requested.allow,
        b""
        if request.keep and request.minor
        else answers.connection_field(request.keep, request.minor),
        answers.named(why, route, policy.bounds) if why.names else "",
        len(request.request_id),
        policy.error_docs,
        route.json_rpc,
        request.method == "HEAD",
    )
    # As `_date`, without its call, which would be 1 % of a 404.
    before = b"%b%b%bX-Request-Id: " % (
        start,
        context.date_field.line(context.clock_us()),
        _limit_fields(request, context),
    )
    return before, middle, end, body_bytes


def own_answer(request: Request, context: Context, status: int, body: bytes) -> bytes:
    """A complete answer of the gateway."""
    return answers.answer(
        status,
        b"%b%bX-Request-Id: %b\r\n"
        % (_date(context), _limit_fields(request, context), request.request_id),
        body,
        answers.connection_field(request.keep, request.minor),
        head_only=request.method == "HEAD",
    )


def _date(context: Context) -> bytes:
    """RFC 9110, 6.6.1: a recipient of a response without Date "MUST record the time it was received
    and append a corresponding Date header field" if it forwards it.
    """
    return context.date_field.line(context.clock_us())


def _limit_fields(request: Request, context: Context) -> bytes:
    check, decision, policy = request.check, request.decision, request.policy
    if check is None:  # it failed, or no decision came in time, before the limiter was asked
        lines = b""
    elif decision is None:
        lines = answers.undecided_fields(check, context.gate.clock_us())
    else:
        lines = answers.rate_fields(check.limits, decision)
        if policy.ietf_headers:
            lines += answers.ietf_fields(check.limits, decision)
        if decision.local and policy.fallback_header:
            # The mode may have been changed to "closed" since, which has no such decisions.
            how = b"open" if policy.on_store_failure == "open" else b"local"
            lines += b"X-RateLimit-Fallback: %b\r\n" % how
    if policy.hsts is not None and request.client.is_secure(request.fields):
        lines += b"Strict-Transport-Security: %b\r\n" % policy.hsts.encode("ascii")
    return lines
