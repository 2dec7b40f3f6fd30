"""Traces, through a real gateway to a collector that decodes what it gets."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.end_to_end.conftest import Site, add_key
from tests.end_to_end.test_observed import counted, lines
from tests.kit.collector import Collector, answering, never
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.policies import GATEWAY, write_policies
from tests.kit.ports import free_port
from tests.kit.upstream import reply
from tests.kit.websocket import HANDSHAKE, switch
from tests.kit.wire import Wire, bearer, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SAMPLED = ("traceparent", f"00-{TRACE}-{PARENT}-01")
UNSAMPLED = ("traceparent", f"00-{TRACE}-{PARENT}-00")
WHOLE = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-(0[01])").fullmatch
Traced = Callable[..., Awaitable[ServedGateway]]


@pytest_asyncio.fixture(loop_scope="session")
async def collector() -> AsyncIterator[Collector]:
    async with Collector() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def serve(site: Site, collector: Collector, tmp_path: Path) -> AsyncIterator[Traced]:
    """Start a gateway that exports to the collector; tracing: the text of the setting."""
    async with AsyncExitStack() as stack:

        async def start(
            *arguments: str,
            tracing: str = "{sample: 100%}",
            upstream: str = "",
            variables: dict[str, str] | None = None,
            **files: str,
        ) -> ServedGateway:
            setting = f"tracing: {tracing}\n" if tracing else ""
            policies = write_policies(
                tmp_path / "policies",
                upstream or site.upstream.url,
                gateway=GATEWAY + setting,
                **files,
            )
            environment = collector.environment(**(variables or {}))
            served = ServedGateway(
                tmp_path / "gateway", policies, site.store, *arguments, environment=environment
            )
            return await stack.enter_async_context(served)

        yield start


def mapped_files(pid: int) -> str:
    """The libraries that a process has loaded, among other files."""
    return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


async def test_one_trace_from_the_client_to_the_upstream(
    site: Site, serve: Traced, collector: Collector
) -> None:
    """The server's span is a child of the client's, the upstream gets a child of the server's."""
    gateway = await serve()
    key, record = await add_key(site.keys, "free", account="acme")
    headers = [SAMPLED, ("tracestate", "a=1,b=2")]
    await gateway.fetch("/api/search/x?secret=1", key=key, headers=headers)
    spans = await collector.trace(TRACE, 3)
    server, gate, client = spans["SERVER"], spans["INTERNAL"], spans["CLIENT"]
    assert (server.parent, gate.parent, client.parent) == (PARENT, server.span_id, server.span_id)
    received = site.upstream.requests[-1]
    assert received.maybe("traceparent") == f"00-{TRACE}-{client.span_id}-01"
    assert received.maybe("tracestate") == server.state == "a=1,b=2"
    assert server.name == "GET /api/search/**"
    assert gate.start_ns == server.start_ns
    assert server.start_ns < gate.end_ns == client.start_ns < client.end_ns <= server.end_ns
    port = server.attributes.pop("server.port")
    assert port in (80, gateway.port)
    assert server.attributes.pop("gateway.request_id") == received.maybe("X-Request-Id")
    assert server.attributes == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "http.route": "/api/search/**",
        "url.path": "/api/search/x",
        "url.scheme": "http",
        "server.address": received.maybe("Host").partition(":")[0],
        "client.address": "127.0.0.1",
        "network.peer.address": "127.0.0.1",
        "network.protocol.version": "1.1",
        "gateway.route": "search",
    }
    assert gate.attributes == {
        "gateway.decision": "admitted",
        "gateway.limit": "search",
        "gateway.cost": 1,
        "gateway.local": False,
    }
    assert client.attributes == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": site.upstream.port,
        "url.full": f"{site.upstream.url}/api/search/x",
        "network.protocol.version": "1.1",
        "gateway.upstream": "api",
    }
    assert server.resource["service.name"] == "rate-limiting-gateway"
    assert server.resource["service.instance.id"]
    # The same look finds it where traces are on.
    assert "google" in mapped_files(gateway.worker_pid)
    assert not any(record.id in str(span) or key in str(span) for span in collector.spans)


async def test_the_client_decides_before_the_share(
    site: Site, serve: Traced, collector: Collector
) -> None:
    """Of requests with a traceparent those are sampled whose parent is; of others the share."""
    gateway = await serve(tracing="{sample: 0%, identity: true}")
    key, record = await add_key(site.keys, "free", account="acme")
    seen = site.upstream.requests
    await gateway.fetch("/api/x", key=key, headers=[UNSAMPLED])
    trace_id, span_id, flags = WHOLE(seen[-1].maybe("traceparent")).groups()
    assert (trace_id, flags) == (TRACE, "00")
    assert span_id != PARENT
    for headers in (
        [],
        [("traceparent", "00-no-no-01"), ("tracestate", "a=1")],
        [SAMPLED, SAMPLED],
    ):
        await gateway.fetch("/api/x", key=key, headers=headers)
        trace_id, _, flags = WHOLE(seen[-1].maybe("traceparent")).groups()
        assert trace_id != TRACE
        assert flags == "00"
        assert seen[-1].maybe("tracestate") is None
    await gateway.fetch("/api/x", key=key, headers=[SAMPLED])
    spans = await collector.trace(TRACE, 3)
    assert len(collector.spans) == 3
    shown = {name: spans["SERVER"].attributes[f"gateway.{name}"] for name in ("key_id", "account")}
    assert shown == {"key_id": record.id, "account": "acme"}
    assert spans["SERVER"].attributes["gateway.plan"] == "free"


async def test_the_log_has_the_id_that_the_upstream_got(site: Site, serve: Traced) -> None:
    """Of the client's trace and of one that began here, sampled or not."""
    gateway = await serve(
        tracing="{sample: 0%}", log="access_log: {fields: [request_id, trace_id]}\n"
    )
    key = await site.key()
    for number, headers in enumerate(([SAMPLED], [UNSAMPLED], []), 1):
        answer = await gateway.fetch("/api/x", key=key, headers=headers)
        trace_id, _, _ = WHOLE(site.upstream.requests[-1].maybe("traceparent")).groups()
        assert (trace_id == TRACE) == bool(headers)
        expected = {"request_id": answer["X-Request-Id"], "trace_id": trace_id}
        assert expected in await lines(gateway, number)


async def test_without_traces_the_fields_pass_untouched(
    site: Site, serve: Traced, collector: Collector
) -> None:
    """Even if they are not valid. The worker does not load OpenTelemetry."""
    gateway = await serve(tracing="")
    key = await site.key()
    for name, value in (SAMPLED, ("TraceParent", "nonsense"), ("tracestate", "x")):
        await gateway.fetch("/api/x", key=key, headers=[(name, value)])
        assert (name, value) in site.upstream.requests[-1].headers
    assert "google" not in mapped_files(gateway.worker_pid)
    assert not collector.exports


@pytest.mark.parametrize(
    ("target", "status", "decision", "reason"),
    [
        ("/api/x", 401, "refused", "key_missing"),
        ("/nothing", 404, "refused", "not_found"),
        ("/public/x", 502, "failed", "upstream_unreachable"),
    ],
)
async def test_refusals_have_spans(
    serve: Traced, collector: Collector, target: str, status: int, decision: str, reason: str
) -> None:
    """With the decision and the reason; only a 5xx is an error of the server."""
    gateway = await serve(upstream=f"http://127.0.0.1:{free_port()}")
    assert (await gateway.fetch(target, headers=[SAMPLED])).status == status
    spans = await collector.trace(TRACE, 3 if status == 502 else 2)
    server = spans["SERVER"]
    assert server.attributes["http.response.status_code"] == status
    assert server.attributes["gateway.reason"] == reason
    assert server.is_error == (status == 502)
    assert server.attributes.get("error.type") == (reason if status == 502 else None)
    if status == 502:
        assert spans["INTERNAL"].attributes["gateway.decision"] == "admitted"
        assert spans["CLIENT"].is_error
        assert spans["CLIENT"].attributes["error.type"] == reason
    else:
        assert spans["INTERNAL"].attributes["gateway.decision"] == decision


async def test_a_429_names_its_limit(site: Site, serve: Traced, collector: Collector) -> None:
    """The gate's span has the limit that refused; there is no span of an upstream."""
    gateway = await serve(tracing="{sample: 0%}")
    key = await site.key()
    for _ in range(5):
        await gateway.fetch("/api/webhooks/test", key=key, method="POST")
    answer = await gateway.fetch("/api/webhooks/test", key=key, method="POST", headers=[SAMPLED])
    assert answer.status == 429
    spans = await collector.trace(TRACE, 2)
    gate = spans["INTERNAL"].attributes
    assert (gate["gateway.decision"], gate["gateway.limit"]) == ("limited", "webhook-test")
    assert not spans["SERVER"].is_error


async def test_a_failing_upstream_is_an_error(
    site: Site, serve: Traced, collector: Collector
) -> None:
    """An upstream's own 503 is one for both spans, its 404 only for the client's span."""
    gateway = await serve()
    key = await site.key()
    for status, is_error in ((503, True), (404, False)):
        collector.spans.clear()
        site.upstream.script = reply(status)
        await gateway.fetch("/api/x", key=key, headers=[SAMPLED])
        spans = await collector.trace(TRACE, 3)
        assert (spans["SERVER"].is_error, spans["CLIENT"].is_error) == (is_error, True)
        assert spans["CLIENT"].attributes["error.type"] == str(status)


async def test_a_websocket_is_one_span(site: Site, serve: Traced, collector: Collector) -> None:
    """From the handshake to the end of the tunnel, with 101; a client that leaves is no error."""
    site.upstream.script = switch
    gateway = await serve()
    headers = [*bearer(await site.key()), SAMPLED, *HANDSHAKE]
    async with await Wire.connect(gateway.port) as wire:
        await wire.request("GET", "/api/socket", headers)
        assert not collector.spans
    spans = await collector.trace(TRACE, 3)
    assert spans["SERVER"].attributes["http.response.status_code"] == 101
    assert not spans["SERVER"].is_error


async def test_each_worker_exports_by_itself(
    site: Site, serve: Traced, collector: Collector
) -> None:
    """Workers are instances; one that is killed is replaced by another, and metrics are merged."""
    gateway = await serve("--workers", "2")
    key = await site.key("enterprise")

    def instances() -> set[str]:
        return {span.resource["service.instance.id"] for span in collector.spans}

    def traces() -> set[str]:
        return {span.trace_id for span in collector.spans}

    async def asked(count: int) -> bool:
        await gateway.fetch("/api/x", key=key)
        return len(instances()) == count

    await eventually(lambda: asked(2), "both workers export")
    os.kill(gateway.worker_pids()[0], signal.SIGKILL)
    await eventually(lambda: asked(3), "a third worker exports")
    headers = [("Host", "127.0.0.1"), ("Accept", "application/openmetrics-text; version=1.0.0")]
    text = (await fetch(gateway.admin_port, "/metrics", headers=headers)).body.decode()
    names = ("gateway_request_duration_seconds", "gateway_overhead_seconds")
    for family in text_string_to_metric_families(text):
        if family.name in names:
            found = {each.exemplar.labels["trace_id"] for each in family.samples if each.exemplar}
            assert found
            await eventually(lambda ids=found: ids <= traces(), "exemplars name exported traces")
    assert "trace_id" not in await gateway.metrics()


@pytest.mark.parametrize("fault", ["down", "silent", "500"])
async def test_a_collector_that_fails_costs_requests_nothing(
    site: Site, serve: Traced, collector: Collector, fault: str
) -> None:
    """Requests are answered, what is lost is counted, the log has one line, the end is bounded."""
    secret = "do-not-show"
    gateway = await serve(
        variables={
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{secret}",
            "OTEL_BSP_MAX_QUEUE_SIZE": "2",
        }
    )
    if fault == "down":
        await collector.stop()
    collector.behaviour = never if fault == "silent" else answering(500)
    key = await site.key("enterprise")

    async def dropped() -> bool:
        assert (await gateway.fetch("/api/x", key=key)).status == 200
        return await counted(gateway, "gateway_traces_dropped_requests_total") > 10

    await eventually(dropped, "dropped spans are counted")
    await eventually(lambda: "traces: dropped" in gateway.output(), "it is logged")
    assert await gateway.stop() == 0
    lines = [line for line in gateway.output().splitlines() if "traces" in line]
    assert len(lines) == 1
    assert "opentelemetry" not in gateway.output()
    assert secret not in gateway.output()


async def test_the_end_exports_what_is_left(
    site: Site, serve: Traced, collector: Collector
) -> None:
    """A stop does not wait for the batch's delay."""
    gateway = await serve(
        variables={
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=shop",
            "OTEL_SERVICE_NAME": "edge",
        }
    )
    await gateway.fetch("/api/x", key=await site.key(), headers=[SAMPLED])
    assert not collector.spans
    assert await gateway.stop() == 0
    spans = await collector.trace(TRACE, 3)
    assert spans["SERVER"].resource["service.name"] == "edge"
    assert b"x-tenant: shop" in collector.headers[0]


async def test_a_reload_begins_and_ends_traces(
    site: Site, serve: Traced, collector: Collector
) -> None:
    """Without a restart: first the fields pass, then they are continued, then they pass again."""
    gateway = await serve(tracing="")
    key = await site.key("enterprise")
    path = gateway.policies / "gateway.yaml"

    async def is_continued() -> bool:
        await gateway.fetch("/api/x", key=key, headers=[SAMPLED])
        return site.upstream.requests[-1].maybe("traceparent") != SAMPLED[1]

    assert not await is_continued()
    path.write_text(GATEWAY + "tracing: {}\n", encoding="utf-8")
    await eventually(is_continued, "traces begin")
    await eventually(lambda: len(collector.spans) >= 3, "spans are exported")
    path.write_text(GATEWAY, encoding="utf-8")

    async def passes() -> bool:
        return not await is_continued()

    await eventually(passes, "traces end")
