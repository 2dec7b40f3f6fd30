"""Spans as the collector gets them. `tests/end_to_end/test_traces.py` has whole gateways."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export import SpanExportResult

from gateway.observe.otlp import OtlpExporter
from tests.kit.collector import Collected, spans_in
from tests.observe.test_spans import REQUEST

VARIABLES = ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_HEADERS")


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    library, interval = logging.getLogger("opentelemetry"), sys.getswitchinterval()
    before = library.handlers, library.propagate
    yield
    library.handlers, library.propagate = before
    sys.setswitchinterval(interval)


def exported(exporter: OtlpExporter, **fields: object) -> list[Collected]:
    found = exporter._spans(replace(REQUEST, **fields))
    return spans_in(encode_spans(list(found)).SerializeToString())


def test_what_is_sent() -> None:
    """Ids, parents, kinds, times, status and the state of the trace."""
    server, gate, client = exported(OtlpExporter("1.2"), state=b"a=1", status=500)
    assert {span.trace_id for span in (server, gate, client)} == {f"{1:032x}"}
    assert server.parent == f"{2:016x}"
    assert gate.parent == client.parent == server.span_id == f"{3:016x}"
    assert [span.kind for span in (server, gate, client)] == ["SERVER", "INTERNAL", "CLIENT"]
    assert (server.start_ns, server.end_ns) == (10, 40)
    assert {span.state for span in (server, gate, client)} == {"a=1"}
    assert (server.is_error, client.is_error) == (True, False)
    assert server.attributes["http.response.status_code"] == 500
    assert server.resource["service.version"] == "1.2"


def test_a_trace_that_begins_here_has_no_parent() -> None:
    assert exported(OtlpExporter("1"), parent_id=0)[0].parent == ""


def test_the_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard variables name the service; each process is an instance of it."""
    found = exported(OtlpExporter("1"))[0].resource
    assert found["service.name"] == "rate-limiting-gateway"
    assert found["service.instance.id"]
    monkeypatch.setenv("OTEL_SERVICE_NAME", "edge")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=a,service.instance.id=pod-1")
    found = exported(OtlpExporter("1"))[0].resource
    assert (found["service.name"], found["team"]) == ("edge", "a")
    assert found["service.instance.id"] == "pod-1"


def test_reasons(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What the library logs of a failed export is its reason, and not a line of our log."""
    exporter = OtlpExporter("1")

    def fail(spans: object) -> SpanExportResult:
        logger = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        logger.warning("Transient error %s", "refused")
        logger.error("max retries")
        return SpanExportResult.FAILURE

    monkeypatch.setattr(exporter._exporter, "export", fail)
    assert exporter.export([REQUEST]) == "Transient error refused"
    monkeypatch.setattr(exporter._exporter, "export", lambda spans: SpanExportResult.FAILURE)
    assert exporter.export([REQUEST]) == "the collector did not accept them"
    monkeypatch.setattr(exporter._exporter, "export", lambda spans: SpanExportResult.SUCCESS)
    assert exporter.export([REQUEST]) is None
    assert not caplog.records


def test_a_faulty_variable_is_logged_without_its_value(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A header may have a secret."""
    OtlpExporter("1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization Bearer secret")
    OtlpExporter("1")
    assert "traces: Header format invalid" in caplog.text
    assert "secret" not in caplog.text
