"""What metrics and the access log contain about requests, and what they must not."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.end_to_end.conftest import Serve, Site, add_key
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.wire import fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

FIELDS = [
    *("time", "request_id", "client_ip", "method", "path", "status", "route", "key_id"),
    *("account", "plan", "decision", "limit", "cost", "bytes_in", "bytes_out"),
    *("duration_ms", "upstream_ms", "upstream", "reason", "host", "protocol", "server"),
    *("remaining", "gate_ms", "limiter_ms"),
]


async def counted(gateway: ServedGateway, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    families = text_string_to_metric_families(await gateway.metrics())
    samples = [sample for family in families for sample in family.samples]
    return sum(
        sample.value
        for sample in samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


async def lines(gateway: ServedGateway, count: int) -> list[dict[str, Any]]:
    """The access log, once it has this many lines."""
    await eventually(lambda: len(gateway.log_lines()) >= count, f"{count} lines are logged")
    return gateway.log_lines()


async def test_every_exchange_is_accounted(site: Site, serve: Serve) -> None:
    """Admitted, limited, refused and failed: each is one line of the log and one count."""
    gateway = await serve()
    key, record = await add_key(site.keys, "free", account="acme")
    for _ in range(6):
        await gateway.fetch("/api/webhooks/test", key=key, method="POST", body=b"four")
    await gateway.fetch("/v1/connectors?secret=1", key=key)
    await gateway.fetch("/api/x")
    logged = await lines(gateway, 8)
    assert all(list(line) == FIELDS for line in logged)
    assert [line["decision"] for line in logged] == ["admitted"] * 5 + [
        *("limited", "refused", "refused")
    ]
    assert [line["status"] for line in logged] == [200] * 5 + [429, 403, 401]
    first, forbidden, keyless = logged[0], logged[6], logged[7]
    assert (first["method"], first["path"], first["route"]) == (
        *("POST", "/api/webhooks/test", "webhook-test"),
    )
    assert (first["key_id"], first["account"], first["plan"]) == (record.id, "acme", "free")
    assert (first["limit"], first["cost"], first["bytes_in"]) == ("webhook-test", 1, 4)
    assert first["client_ip"] == "127.0.0.1"
    assert (forbidden["path"], forbidden["reason"]) == ("/v1/connectors", "insufficient_scope")
    assert (keyless["key_id"], keyless["reason"]) == (None, "key_missing")

    async def metered() -> bool:
        return await counted(gateway, "gateway_requests_total") >= 8

    await eventually(metered, "the requests are counted")
    route = {"route": "webhook-test"}
    assert await counted(gateway, "gateway_requests_total", **route, code="200") == 5
    assert await counted(gateway, "gateway_requests_total", **route, code="429") == 1
    assert await counted(gateway, "gateway_auth_failures_total", reason="key_missing") == 1
    limited = {"limit": "webhook-test", "plan": "free", "decision": "limited"}
    assert await counted(gateway, "gateway_ratelimit_decisions_total", **limited) == 1
    assert await counted(gateway, "gateway_store_up") == 1


async def test_no_secret_is_shown(site: Site, serve: Serve) -> None:
    """Neither the log, nor the metrics, nor any output has a key in it."""
    gateway = await serve()
    good, bad = await site.key(), await site.key(status="revoked")
    for key in (good, bad):
        await gateway.fetch("/api/x", key=key)
        await gateway.fetch("/api/x", headers=[("apiKey", key)])
        await gateway.fetch(f"/api/x?key={key}", key=key)
    await lines(gateway, 6)
    output = gateway.access_log.read_text() + gateway.output() + await gateway.metrics()
    for key in (good, bad):
        assert key not in output
        assert key.rsplit("_", 1)[1] not in output


async def test_the_admin_listener_answers(site: Site) -> None:
    """It is live and ready and has metrics, none of which the clients' port serves."""
    admin = site.gateway.admin_port
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await fetch(admin, path, headers=[("Host", "127.0.0.1")])).status == 200
        assert (await site.gateway.fetch(path, key=await site.key())).status == 404
    assert (await fetch(admin, "/nothing", headers=[("Host", "localhost")])).status == 404


async def test_the_format_of_the_log_is_reloaded(site: Site, serve: Serve) -> None:
    """`access_log` takes effect by a reload; phases are parts of the whole."""
    gateway = await serve()
    key = await site.key()
    await gateway.fetch("/api/one", key=key)
    (line,) = await lines(gateway, 1)
    assert line["protocol"] == "HTTP/1.1"
    assert f"http://{line['server']}" == site.upstream.url
    # Each is cut off to whole microseconds.
    parts = line["gate_ms"] + line["limiter_ms"] + line["upstream_ms"]
    assert 0 < parts <= line["duration_ms"] + 0.003
    form = "{method} {path}?{query} {user_agent} {trace_id}"
    (gateway.policies / "log.yaml").write_text(f'access_log: {{format: "{form}", query: keep}}\n')
    gateway.signal(signal.SIGHUP)
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = [("User-Agent", "a b"), ("Traceparent", f"00-{trace}-b7ad6b7169203331-01")]

    async def is_written() -> bool:
        await gateway.fetch("/api/two?a=1&token=2", key=key, headers=headers)
        expected = f"GET /api/two?a=1&token=[redacted] a\\x20b {trace}"
        return expected in gateway.access_log.read_text().splitlines()

    await eventually(is_written, "a line is in the new format")


async def test_the_log_says_the_version_of_tls(site: Site, serve: Serve) -> None:
    """A field that is named is written, also one of the connection; without TLS it is null."""
    gateway = await serve(log="access_log: {fields: [path, tls]}\n")
    await gateway.fetch("/api/one", key=await site.key())
    assert await lines(gateway, 1) == [{"path": "/api/one", "tls": None}]
