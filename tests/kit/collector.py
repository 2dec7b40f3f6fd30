"""An OpenTelemetry collector: receives spans by OTLP over HTTP, and keeps them."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.kit.eventually import eventually
from tests.kit.listening import Listening

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Collected:
    """One span. ids in hexadecimal; parent: "": none; kind: "SERVER"; instance: of the resource"""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent: str
    state: str
    start_ns: int
    end_ns: int
    is_error: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


def answering(status: int) -> Behaviour:
    """Answer each export with this status."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %d Test\r\nContent-Length: 0\r\n\r\n" % status)

    return behave


async def never(writer: asyncio.StreamWriter) -> None:
    """Answer no export."""
    await asyncio.Event().wait()


class Collector(Listening):
    """spans: received so far; behaviour: how exports are answered; exports: their number"""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[Collected] = []
        self.headers: list[bytes] = []
        self.behaviour = answering(200)

    @property
    def exports(self) -> int:
        return len(self.headers)

    def environment(self, **more: str) -> dict[str, str]:
        """The variables with which a gateway exports to it, without delay."""
        url = f"http://127.0.0.1:{self.port}"
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "20", **more}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"POST /v1/traces HTTP/1.1\r\n"), head
            fields = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))
            }
            body = await reader.readexactly(int(fields[b"content-length"]))
            if fields.get(b"content-encoding") == b"gzip":
                body = gzip.decompress(body)
            self.headers.append(head)
            self.spans += spans_in(body)
            await self.behaviour(writer)
            await writer.drain()

    async def trace(self, trace_id: str, count: int) -> dict[str, Collected]:
        """Wait until this many spans of a trace have come; return them by kind."""

        def found() -> list[Collected]:
            return [span for span in self.spans if span.trace_id == trace_id]

        await eventually(lambda: len(found()) >= count, f"{count} spans of {trace_id}")
        assert len(found()) == count
        return {span.kind: span for span in found()}


def spans_in(body: bytes) -> list[Collected]:
    """The spans of one export."""
    found = []
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                found.append(
                    Collected(
                        span.name,
                        span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.trace_state,
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        span.status.code == span.status.STATUS_CODE_ERROR,
                        _plain(span.attributes),
                        _plain(resource.resource.attributes),
                    )
                )
    return found


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
