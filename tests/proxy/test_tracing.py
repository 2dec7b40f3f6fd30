"""Traced requests, over sockets, without an exporter: what is recorded, and what upstreams get."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from gateway.domain.tracing import Tracing
from gateway.http1.trace_context import TraceParent, read_trace_context
from gateway.observe.metrics import Metrics
from gateway.observe.spans import TracedRequest
from gateway.proxy.tracing import Tracer
from gateway.runtime import traces
from tests.kit.eventually import eventually
from tests.kit.upstream import Exchange, Received, reply
from tests.kit.wire import build_request
from tests.observe.test_span_queue import Gated
from tests.proxy.conftest import Bench, Start

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
SAMPLED = ("traceparent", f"00-{TRACE:032x}-{SPAN:016x}-01")
Traced = Callable[..., Awaitable[tuple[Bench, list[TracedRequest]]]]


@pytest.fixture
def traced(start: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    """Start a bench with traces; it comes with the list of what is recorded."""
    monkeypatch.setattr(traces, "_exporter", lambda version: Gated())

    async def started(sample: float = 0.0, identity: bool = False, **options: object):
        bench = await start(tracing=Tracing(sample, identity), **options)
        recorded: list[TracedRequest] = []
        tracer = bench.gateway._context.tracer
        assert tracer is not None
        monkeypatch.setattr(tracer, "_record", recorded.append)
        return bench, recorded

    return started


def sent(received: Received) -> TraceParent:
    """The trace that an upstream got; it is valid."""
    found = read_trace_context(
        *(
            [value.encode() for value in received.all(name)]
            for name in ("traceparent", "tracestate")
        )
    )
    assert found is not None
    return found


@pytest.mark.parametrize("sample", [0.0, 1.0])
def test_the_parent_decides(sample: float) -> None:
    """A share is for traces that begin here. Ids of spans are new each time."""
    recorded: list[TracedRequest] = []
    tracer = Tracer(Tracing(sample), recorded.append, Metrics("1"))
    begun, lines = tracer.begin(None)
    assert (begun is not None) == bool(sample)
    assert lines.endswith(b"-01\r\n" if sample else b"-00\r\n")
    for sampled in (True, False):
        seen = {tracer.begin(TraceParent(TRACE, SPAN, sampled, b"a=1"))[1] for _ in range(9)}
        assert len(seen) == 9
        assert all(line.startswith(b"traceparent: 00-%032x-" % TRACE) for line in seen)
        assert all(line.endswith(b"-%02x\r\ntracestate: a=1\r\n" % sampled) for line in seen)
        begun, _ = tracer.begin(TraceParent(TRACE, SPAN, sampled, b"a=1"))
        assert (begun is not None) == sampled


async def test_a_retried_request_is_one_span(traced: Traced) -> None:
    """Each attempt has the same parent; it says how often it was sent again."""
    routes = 'routes:\n  api: {match: "* /api/**", upstream: api, retries: 2}\n'
    bench, recorded = await traced(files={"routes": routes})
    left = 2

    async def script(exchange: Exchange) -> None:
        nonlocal left
        left -= 1
        await reply(503 if left >= 0 else 200)(exchange)

    bench.upstream.script = script
    async with await bench.connect() as wire:
        assert (await wire.request("GET", "/api/x", [*bench.auth, SAMPLED])).status == 200
    assert len({sent(received).span_id for received in bench.upstream.requests}) == 1
    (request,) = recorded
    assert request.upstream is not None
    assert (request.upstream.resent, request.upstream.status) == (2, 200)
    assert request.upstream.span_id == sent(bench.upstream.requests[0]).span_id


async def test_a_client_that_leaves(traced: Traced) -> None:
    """It is recorded once, without a status and with the reason."""
    bench, recorded = await traced()
    arrived = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        arrived.set()
        await exchange.ended()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", [*bench.auth, SAMPLED]))
        await asyncio.wait_for(arrived.wait(), 20)
    await eventually(lambda: bool(recorded), "it is recorded")
    (request,) = recorded
    assert (request.status, request.reason) == (0, "client_gone")
    assert request.gate["gateway.decision"] == "admitted"
    assert request.from_ns <= request.decided_ns <= request.to_ns


async def test_an_answer_that_is_cut_off(traced: Traced) -> None:
    """It has the status that was sent, and the reason; it is recorded once."""
    bench, recorded = await traced()

    async def script(exchange: Exchange) -> None:
        await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour")
        exchange.close()

    bench.upstream.script = script
    async with await bench.connect() as wire:
        await wire.send(build_request("GET", "/api/x", [*bench.auth, SAMPLED]))
        await eventually(lambda: bool(recorded), "it is recorded")
    assert [(each.status, each.reason) for each in recorded] == [(200, "upstream_truncated")]


async def test_pipelined_requests_and_own_answers(traced: Traced) -> None:
    """Each request of a connection is recorded, in order; some of them no upstream got."""
    bench, recorded = await traced(1.0, identity=True)
    paths = ("/health", "/api/a", "/api/b", "/none")
    async with await bench.connect() as wire:
        await wire.send(b"".join(build_request("GET", path, bench.auth) for path in paths))
        for _ in paths:
            await wire.read_response()
    assert [request.path for request in recorded] == list(paths)
    assert [request.upstream is not None for request in recorded] == [False, True, True, False]
    assert len({request.trace_id for request in recorded}) == 4
    assert recorded[1].more["gateway.account"] == "acme"
    assert recorded[1].pattern == "/api/**"


async def test_a_head_that_cannot_be_read(traced: Traced) -> None:
    """It is recorded where the share says so: it has no method, no path and no parent."""
    bench, recorded = await traced(1.0)
    async with await bench.connect() as wire:
        await wire.send(b"nonsense\r\n\r\n")
        assert (await wire.read_response()).status == 400
    (request,) = recorded
    assert (request.method, request.path, request.pattern, request.status) == ("", "", "", 400)
