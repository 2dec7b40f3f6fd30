"""The cases: kinds of requests through the rig, and single parts alone.

A case is built once and then run repeatedly. Building it checks that it does what its name says, so
that no error is measured.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Final

from gateway.domain.headers import HeaderRules
from gateway.domain.limits import Check, Decision, Limit
from gateway.domain.tracing import Tracing
from gateway.http1.field_parser import FieldParser
from gateway.http1.head import Fields
from gateway.http1.response import ResponseHead, parse_response_head
from gateway.observe.access import AccessLog
from gateway.observe.spans import TracedRequest
from gateway.proxy.tracing import Tracer
from tests.bench.mcp_cases import (
    CALL,
    events,
    mcp_call,
    mcp_session_call,
    message,
    plain_post,
    plain_session_call,
)
from tests.bench.rig import (
    KEYS,
    TOGETHER,
    PromptLink,
    Rig,
    deliver,
    limiter_client,
    remembering,
)
from tests.kit.access import logged
from tests.kit.proxy import NOW_US, PromptLimiter, request

Round = Callable[[], object]

_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sat, 21 Nov 2026 12:25:03 GMT\r\n"
    b"Content-Type: application/json\r\n%bConnection: keep-alive\r\n\r\n"
)
SIZED: Final = _HEAD % b"Content-Length: 11\r\n" + b'{"ok":true}'
CHUNKED: Final = _HEAD % b"Transfer-Encoding: chunked\r\n" + b'b\r\n{"ok":true}\r\n0\r\n\r\n'
BODY: Final = b"x" * 4096
#: More different heads than are cached.
OTHERS: Final = 3_000


@dataclass(frozen=True, slots=True)
class Case:
    """build: prepares the rig and returns one round; requests: their number in a round."""

    name: str
    build: Callable[[Rig], Round]
    requests: int = 1


# -- requests, with a limiter that answers at once -------------------------------------------------
def _passed(rig: Rig, sent: bytes, response: bytes = SIZED) -> Round:
    """The same request each time, and its answer."""
    client, seen = rig.connect()

    def once() -> None:
        deliver(client, sent)
        rig.answer(response)

    once()
    _expect(seen.last, b"200 OK")
    return once


def _refused(rig: Rig, sent: bytes, status: bytes) -> Round:
    """One request that the gateway answers itself."""
    client, seen = rig.connect()

    def once() -> None:
        deliver(client, sent)

    once()
    _expect(seen.last, status)
    return once


def _expect(answer: bytes, status: bytes) -> None:
    # The end of a chunked body is written separately.
    assert answer.startswith(b"HTTP/1.1 " + status) or answer == b"0\r\n\r\n", answer


def _get(rig: Rig) -> Round:
    return _passed(rig, request(rig.keys[0]))


def _traced(share: float) -> Callable[[Rig], Round]:
    """The same with traces of this share; what is recorded is not exported."""

    def build(rig: Rig) -> Round:
        policy = replace(rig.context.gate.policy, tracing=Tracing(share))
        rig.context.gate.use(policy)
        recorded = deque[TracedRequest](maxlen=1)
        rig.context.tracer = Tracer(Tracing(share), recorded.append, rig.metrics)
        return _passed(rig, request(rig.keys[0]))

    return build


def _get_others(rig: Rig) -> Round:
    requests = cycle([request(key, f"/v1/items/{at}") for at, key in enumerate(rig.keys)])
    client, seen = rig.connect()

    def once() -> None:
        deliver(client, next(requests))
        rig.answer(SIZED)

    for _ in range(KEYS):  # each line and key has been used once
        once()
        _expect(seen.last, b"200 OK")
    return once


def _get_own_fields(rig: Rig) -> Round:
    """Requests of one client, each with fields of its own, as from a program that writes traces."""
    own = b"traceparent: 00-%032x-%016x-01\r\nX-Request-Id: %016x\r\n"
    requests = cycle(
        [request(rig.keys[0])[:-2] + own % (at, at, at) + b"\r\n" for at in range(1, OTHERS)]
    )
    client, seen = rig.connect()

    def once() -> None:
        deliver(client, next(requests))
        rig.answer(SIZED)

    once()
    _expect(seen.last, b"200 OK")
    return once


def _answer_own_fields(rig: Rig) -> Round:
    """Answers, each with fields of its own."""
    own = b'ETag: W/"%016x"\r\nX-Request-Id: %032x\r\nContent-Length: %d\r\n'
    return _answered(rig, [_HEAD % (own % (at, at, 11)) + b'{"ok":true}' for at in range(OTHERS)])


def _answer_own_length(rig: Rig) -> Round:
    """Answers that differ in their length, as most applications send."""
    own = b"Content-Length: %d\r\n"
    return _answered(
        rig, [_HEAD % (own % (11 + at)) + b'{"ok":true}' + b" " * at for at in range(16)]
    )


def _answered(rig: Rig, answers: list[bytes]) -> Round:
    """The same request each time, and another answer."""
    following = cycle(answers)
    client, seen = rig.connect()
    sent = request(rig.keys[0])

    def once() -> None:
        deliver(client, sent)
        rig.answer(next(following))

    once()
    _expect(seen.last, b"200 OK")
    return once


def _post(rig: Rig) -> Round:
    return _passed(rig, request(rig.keys[0], "/v1/items", "POST", BODY))


def _chunked(rig: Rig) -> Round:
    return _passed(rig, request(rig.keys[0]), CHUNKED)


def _limited(rig: Rig) -> Round:
    rig.use_limiter(PromptLimiter(allowed=False))
    return _refused(rig, request(rig.keys[0]), b"429")


def _limited_remembered(rig: Rig) -> Round:
    prompt = PromptLimiter(allowed=False)
    rig.use_limiter(remembering(prompt))
    once = _refused(rig, request(rig.keys[0]), b"429")
    once()
    assert prompt.asked == 1, "the refusal was not remembered"
    return once


def _unknown_key(rig: Rig) -> Round:
    return _refused(rig, request(rig.unknown), b"401")


def _not_found(rig: Rig) -> Round:
    return _refused(rig, request(rig.keys[0], "/nowhere"), b"404")


# -- through the limiter's client ------------------------------------------------------------------
def get_together(rig: Rig) -> Round:
    """GETs of several clients in one turn of the loop, and the answers of store and upstream."""
    rig.use_limiter(limiter_client(rig.store_link, rig.metrics))
    clients = [rig.connect() for _ in range(TOGETHER)]
    arriving = [(client, request(key)) for (client, _), key in zip(clients, rig.keys, strict=False)]

    def once() -> None:
        for client, sent in arriving:
            deliver(client, sent)
        rig.loop.run()
        rig.store_link.answer()
        rig.answer(SIZED)

    once()
    for _, seen in clients:
        _expect(seen.last, b"200 OK")
    return once


def _others_together(rig: Rig) -> Round:
    """The same, each request of a client with another key."""
    rig.use_limiter(limiter_client(rig.store_link, rig.metrics))
    clients = [rig.connect() for _ in range(TOGETHER)]
    requests = cycle([request(key) for key in rig.keys])

    def once() -> None:
        for client, _ in clients:
            deliver(client, next(requests))
        rig.loop.run()
        rig.store_link.answer()
        rig.answer(SIZED)

    for _ in range(KEYS // TOGETHER):  # each key has been used once
        once()
    for _, seen in clients:
        _expect(seen.last, b"200 OK")
    return once


def _away(rig: Rig) -> Round:
    """GETs as above while the store is away: the worker decides."""
    rig.store_link.is_up = False
    return get_together(rig)


def _unknown_together(rig: Rig) -> Round:
    """Requests with unknown keys of several clients in one turn of the loop."""
    link = PromptLink(1)  # they share one decision
    rig.use_limiter(limiter_client(link, rig.metrics))
    clients = [rig.connect() for _ in range(TOGETHER)]
    arriving = [(client, request(rig.unknown_key())) for client, _ in clients]

    def once() -> None:
        for client, sent in arriving:
            deliver(client, sent)
        rig.loop.run()
        while link.sent:
            link.answer()
            rig.loop.run()

    once()
    for _, seen in clients:
        _expect(seen.last, b"401")
    return once


def _limiter(rig: Rig) -> Round:
    limiter = limiter_client(rig.store_link, rig.metrics)
    limit = Limit("plan", "rate", 600, 60_000_000, 1000)
    checks = [
        Check((limit,), (f"gw:limit:{{account-{at}}}:key:{at}:{limit.counter}",))
        for at in range(TOGETHER)
    ]
    decisions: list[Decision | None] = []

    def once() -> None:
        decisions.clear()
        for check in checks:
            limiter.decide(check, decisions.append)
        rig.loop.run()
        rig.store_link.answer()

    once()
    assert [decision and decision.remaining for decision in decisions] == [500] * TOGETHER
    return once


# -- parts -----------------------------------------------------------------------------------------
def _request_head(rig: Rig) -> Round:
    block = request(rig.keys[0]).partition(b"\r\n")[2][:-2]
    parse = FieldParser(HeaderRules(100)).parse
    assert isinstance(parse(block, 1), Fields)
    return lambda: parse(block, 1)


def _response_head(rig: Rig) -> Round:
    head = SIZED.partition(b"\r\n\r\n")[0] + b"\r\n"
    assert isinstance(parse_response_head(head), ResponseHead)
    return lambda: parse_response_head(head)


def _metrics(rig: Rig) -> Round:
    ended = rig.metrics.ended
    return lambda: ended("v1", "GET", 200, "upstream", 0.0021, "api", 0.002)


def _access_line(rig: Rig) -> Round:
    log = AccessLog(os.devnull)
    rig.closing.callback(log.close)
    write, request = log.write, logged()
    return lambda: write(request, 200, NOW_US, 2125, None)


CASES: Final = (
    Case("GET", _get),
    Case("GET, traces of 1 %", _traced(0.01)),
    Case("GET, traces of all", _traced(1.0)),
    Case("GET, another key and path", _get_others),
    Case("GET, fields of its own", _get_own_fields),
    Case("answer, fields of its own", _answer_own_fields),
    Case("answer, length of its own", _answer_own_length),
    Case("POST of 4 KiB", _post),
    Case("answer in chunks", _chunked),
    Case("POST of 300 bytes, 5 limits", plain_post),
    Case("MCP call of 300 bytes, 5 limits", mcp_call),
    Case("POST, 5 limits, session's field", plain_session_call),
    Case("MCP call in a session", mcp_session_call),
    Case("event of a stream", events("/plain", CALL)),
    Case("event of an MCP stream", events("/mcp", CALL)),
    Case("event before an MCP list", events("/mcp", message("tools/list"))),
    Case("429, remembered", _limited_remembered),
    Case("429, fresh", _limited),
    Case("401, unknown key", _unknown_key),
    Case("404", _not_found),
    Case("GET, 16 at once, limiter's client", get_together, TOGETHER),
    Case("GET, 16 at once, other keys", _others_together, TOGETHER),
    Case("GET, 16 at once, store away", _away, TOGETHER),
    Case("401, 16 at once, limiter's client", _unknown_together, TOGETHER),
    Case("limiter's client, 16 at once", _limiter, TOGETHER),
    Case("fresh request head", _request_head),
    Case("fresh response head", _response_head),
    Case("metrics of one exchange", _metrics),
    Case("line of the access log", _access_line),
)
