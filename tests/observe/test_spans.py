"""The spans of a request, and the names of their attributes."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from gateway.observe import spans
from gateway.observe.spans import Span, TracedRequest, UpstreamPart, spans_of

PART = UpstreamPart(5, 20, 30, "api", ("http", "10.0.0.1", 9000), 200, 0)
REQUEST = TracedRequest(
    *(1, 2, 3, 4, b"", 10, 40, 20, "GET", "/a/b", "/a/*", "http", "shop.test:8080"),
    *("192.0.2.1", "10.0.0.9", 1, 200, None),
    upstream=PART,
)


def server_of(**fields: object) -> Span:
    return next(spans_of(replace(REQUEST, **fields)))


def test_parents_and_times() -> None:
    """The server's span is the client's child; the gate's and the upstream's are its children."""
    found = list(spans_of(REQUEST))
    assert [(span.kind, span.span_id, span.parent_id) for span in found] == [
        *(("server", 3, 2), ("internal", 4, 3), ("client", 5, 3)),
    ]
    assert [(span.start_ns, span.end_ns) for span in found] == [(10, 40), (10, 20), (20, 30)]


@pytest.mark.parametrize(
    ("method", "pattern", "name", "attributes"),
    [
        ("GET", "/a/*", "GET /a/*", {"http.request.method": "GET"}),
        ("GET", "", "GET", {"http.request.method": "GET"}),
        ("PURGE", "/a", "HTTP /a", {"http.request.method_original": "PURGE"}),
        ("", "", "HTTP", {"http.request.method": "_OTHER"}),
    ],
)
def test_names(method: str, pattern: str, name: str, attributes: dict[str, str]) -> None:
    """A name has the route, never the path; an unknown method is _OTHER."""
    span = server_of(method=method, pattern=pattern)
    assert span.name == name
    assert attributes.items() <= span.attributes.items()
    assert ("http.request.method_original" in span.attributes) == (method == "PURGE")


@pytest.mark.parametrize(
    ("host", "scheme", "address", "port"),
    [
        ("shop.test:8080", "http", "shop.test", 8080),
        ("shop.test", "https", "shop.test", 443),
        ("[2001:db8::1]", "http", "2001:db8::1", 80),
        ("[2001:db8::1]:81", "http", "2001:db8::1", 81),
        ("", "http", None, None),
    ],
)
def test_the_address_that_was_asked_for(
    host: str, scheme: str, address: str | None, port: int | None
) -> None:
    attributes = server_of(host=host, scheme=scheme).attributes
    assert attributes.get("server.address") == address
    assert attributes.get("server.port") == port


@pytest.mark.parametrize(
    ("status", "reason", "error", "is_error"),
    [
        (200, None, None, False),
        (404, "not_found", None, False),
        (503, None, "503", True),
        (502, "upstream_unreachable", "upstream_unreachable", True),
        (0, "client_gone", "client_gone", False),
        (200, "upstream_truncated", "upstream_truncated", True),
    ],
)
def test_errors_of_the_server(
    status: int, reason: str | None, error: str | None, is_error: bool
) -> None:
    """A 5xx, or an answer that was cut off; not a client's fault, nor a client that left."""
    span = server_of(status=status, reason=reason)
    assert (span.attributes.get("error.type"), span.is_error) == (error, is_error)
    assert span.attributes.get("http.response.status_code") == (status or None)


def test_a_server_that_was_not_reached() -> None:
    """Its address is unknown; a retry is counted; a key in a path is not shown."""
    part = replace(PART, upstream="api", server=None, status=0, resent=2)
    path = "/a/gwk_live_secret"
    fields = {"upstream": part, "status": 502, "reason": "upstream_unreachable", "path": path}
    *_, client = spans_of(replace(REQUEST, **fields))
    assert "server.address" not in client.attributes
    assert client.attributes["http.request.resend_count"] == 2
    assert client.is_error
    assert "secret" not in str(list(spans_of(replace(REQUEST, path=path))))


def test_stable_names() -> None:
    """What is not named gateway.* is a stable name of OpenTelemetry's semantic conventions."""
    pytest.importorskip("opentelemetry.semconv")
    known = set()
    for group in ("client", "error", "http", "network", "server", "url"):
        module = import_module(f"opentelemetry.semconv.attributes.{group}_attributes")
        known |= {value for value in vars(module).values() if isinstance(value, str)}
    source = Path(spans.__file__).read_text(encoding="utf-8")
    used = set(re.findall(r'"([a-z]+(?:\.[a-z_]+)+)"', source))
    assert used
    assert {name for name in used if not name.startswith("gateway.")} <= known
