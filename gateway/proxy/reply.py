"""Builds the bytes of an answer: an upstream's head, or an answer of the gateway.

Each has the limits' fields and the request's id.
"""

from __future__ import annotations

from typing import Final

from gateway.domain.cors import with_vary
from gateway.domain.error_pages import ErrorPages, Page
from gateway.domain.headers import ACCEPT, ORIGIN
from gateway.errors import RATE_LIMITED, Refusal
from gateway.http1.response import ResponseHead
from gateway.proxy import answers
from gateway.proxy.connection_cache import CachedRefusal, RefusalParts
from gateway.proxy.context import Context
from gateway.proxy.request import Request, variables

#: A longer body of a 429 is not cached.
MOST_KEPT_BODY_BYTES: Final = 2048


def relayed(
    request: Request, context: Context, head: ResponseHead, framing: bytes, body: bytes
) -> bytes:
    """An upstream's final head, and the body so far.

    framing: the Content-Length or Transfer-Encoding line, or b""
    """
    start = head.start if request.requested.answers is None else _changed_start(request, head)
    return b"%b%b%bX-Request-Id: %b\r\n%b\r\n%b" % (
        start if head.dated else start + _date(context),
        framing,
        _limit_fields(request, context),
        request.request_id,
        b""
        if request.keep and request.minor
        else answers.connection_field(request.keep, request.minor),
        body,
    )


def _changed_start(request: Request, head: ResponseHead) -> bytes:
    """An upstream's status line and fields, changed by the rules for answers."""
    lines = _changed(request, head.forward)
    return b"HTTP/1.1 %d %b\r\n%b" % (head.status, head.reason, lines)


def _changed(request: Request, lines: bytes, *, is_own: bool = False) -> bytes:
    """The field lines of an answer, changed by the rules for answers."""
    rules = request.requested.answers
    if rules is None:
        return lines
    values = variables(request) if rules.has_variables else {}
    return rules.applied(lines, request.header(ORIGIN), values, is_own=is_own)


def interim_head(head: ResponseHead) -> bytes:
    """An upstream's 1xx."""
    return head.start + b"\r\n"


def switched_head(request: Request, context: Context, head: ResponseHead) -> bytes:
    """An upstream's agreement to a WebSocket."""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"%b%bX-Request-Id: %b\r\n\r\n"
    ) % (
        _changed(request, head.forward if head.dated else head.forward + _date(context)),
        _limit_fields(request, context),
        request.request_id,
    )


def refusal(request: Request, context: Context, why: Refusal) -> tuple[bytes, int]:
    """A complete refusal, and the length of its body."""
    # Ids have letters, digits, ".", "_" and "-" only: JSON escapes none of them.
    request_id = request.request_id
    if (
        why is RATE_LIMITED
        and request.keep
        and request.method != "HEAD"
        and ((rules := request.requested.answers) is None or not rules.has_variables)
    ):
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
            found = _parts(request, context, why)
            cached = CachedRefusal(decision, fields, route, len(request_id), found)
            # An idle connection keeps little.
            request.cache.refusal = cached if found[1] <= MOST_KEPT_BODY_BYTES else None
        parts, body_bytes = cached.parts
    else:
        parts, body_bytes = _parts(request, context, why)
    return request_id.join(parts), body_bytes


def _parts(request: Request, context: Context, why: Refusal) -> RefusalParts:
    """The parts of a refusal, without the request's id."""
    route, policy = request.route, request.policy
    name = ""
    if why.names:
        name = request.detail or answers.named(why, route, policy.bounds)
    # Most refusals have none: this saves a call.
    retry_s = (
        answers.retry_after(why, route, request.decision) if why.status in (429, 503) else None
    )
    connection = (
        b""
        if request.keep and request.minor
        else answers.connection_field(request.keep, request.minor)
    )
    requested = request.requested
    page = None if policy.error_pages is None else _page(request, policy.error_pages)
    if page is None or page[1] is None:
        start, rest, body_bytes = answers.refusal_frame(
            why,
            retry_s,
            requested.allow,
            connection,
            name,
            len(request.request_id),
            policy.error_docs,
            route.json_rpc,
            request.method == "HEAD",
        )
    else:
        start, rest, body_bytes = answers.page_frame(
            why,
            retry_s,
            requested.allow,
            connection,
            name,
            len(request.request_id),
            request.method == "HEAD",
            page,
        )
    if page is not None and page[2]:
        start += with_vary(_changed(request, b"", is_own=True), b"Accept")
    elif requested.answers is not None:
        start += _changed(request, b"", is_own=True)
    # As `_date`, without its call, which would be 1 % of a 404.
    before = b"%b%b%bX-Request-Id: " % (
        start,
        context.date_field.line(context.clock_us()),
        _limit_fields(request, context),
    )
    return (before, *rest), body_bytes


def _page(request: Request, pages: ErrorPages) -> Page | None:
    """The policy's page for a refusal; None: it stays the gateway's, as for JSON-RPC clients."""
    return None if request.route.json_rpc else pages.chosen(request.header(ACCEPT))


def own_answer(
    request: Request, context: Context, status: int, body: bytes, content_type: str, lines: bytes
) -> bytes:
    """A complete answer of the gateway. lines: of further header fields"""
    return answers.answer(
        status,
        b"%b%b%bX-Request-Id: %b\r\n"
        % (
            lines + _changed(request, b"", is_own=True),
            _date(context),
            _limit_fields(request, context),
            request.request_id,
        ),
        body,
        answers.connection_field(request.keep, request.minor),
        content_type,
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
