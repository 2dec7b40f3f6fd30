"""The spans of one request: of the server, of the gate, and of the request to the upstream.

Names are those of OpenTelemetry's semantic conventions for HTTP, as far as they are stable; what
these do not know is named `gateway.*`. Nothing here needs OpenTelemetry's packages: `otlp` makes
its spans of these values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.observe.logs import redact_path

Kind = Literal["server", "internal", "client"]
Attributes = dict[str, str | int | bool]

#: The methods that the conventions know; of any other, http.request.method is _OTHER.
_METHODS: Final = frozenset(
    ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")
)
#: The client left: that is no error of the service.
_CLIENT_GONE: Final = "client_gone"


@dataclass(frozen=True, slots=True)
class Span:
    """One span. parent_id: 0: it has none; times: Unix nanoseconds; attributes: by their names"""

    kind: Kind
    name: str
    span_id: int
    parent_id: int
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int | bool]
    is_error: bool


@dataclass(slots=True)  # frozen, its creation takes three times as long
class UpstreamPart:
    """The request to the upstream.

    span_id:  as it was sent to the upstream
    from_ns:  when a connection was asked for, Unix nanoseconds; to_ns: the end of the answer
    upstream: its name; None: no server was connected to
    server:   scheme, address and port of the server; None: the same
    status:   of its answer; 0: there was none
    resent:   how often it was sent again
    """

    span_id: int
    from_ns: int
    to_ns: int
    upstream: str | None
    server: tuple[str, str, int] | None
    status: int
    resent: int


@dataclass(slots=True)
class TracedRequest:
    """A sampled request that has ended.

    trace_id:   of its trace
    parent_id:  the client's span; 0: the trace begins here
    span_id:    of the server's span; gate_id: of the gate's
    state:      the value of tracestate
    from_ns, to_ns: Unix nanoseconds
    decided_ns: when it was decided
    method:     "": it could not be read; path: without the query
    pattern:    of its route, as a path: "/api/*"; "": it has none
    scheme:     by which the client came: "http" or "https"
    host:       that it asked for, and perhaps a port; "": none
    client:     its address; peer: that of the connection
    minor:      of the HTTP version
    status:     of the answer; 0: none was sent
    reason:     why it was refused or ended early; None: neither
    gate:       attributes of the decision; more: of the request
    upstream:   None: it was not sent to one
    """

    trace_id: int
    parent_id: int
    span_id: int
    gate_id: int
    state: bytes
    from_ns: int
    to_ns: int
    decided_ns: int
    method: str
    path: str
    pattern: str
    scheme: str
    host: str
    client: str
    peer: str
    minor: int
    status: int
    reason: str | None
    gate: Attributes = field(default_factory=dict)
    more: Attributes = field(default_factory=dict)
    upstream: UpstreamPart | None = None


def spans_of(request: TracedRequest) -> Iterator[Span]:
    """Its spans, the server's first."""
    error = _error(request.status, request.reason, least=500)
    method = _method(request.method)
    name = method["http.request.method"] if request.method in _METHODS else "HTTP"
    attributes: Attributes = {
        **method,
        "url.scheme": request.scheme,
        "client.address": request.client,
        "network.peer.address": request.peer,
        "network.protocol.version": f"1.{request.minor}",
        **_server(request),
        **request.more,
    }
    if request.path:
        attributes["url.path"] = redact_path(request.path)
    if request.pattern:
        attributes["http.route"] = request.pattern
        name = f"{name} {request.pattern}"
    if request.status:
        attributes["http.response.status_code"] = request.status
    if error is not None:
        attributes["error.type"] = error
    if request.reason is not None:
        attributes["gateway.reason"] = request.reason
    yield Span(
        kind="server",
        name=str(name),
        span_id=request.span_id,
        parent_id=request.parent_id,
        start_ns=request.from_ns,
        end_ns=request.to_ns,
        attributes=attributes,
        is_error=error not in (None, _CLIENT_GONE),
    )
    yield Span(
        kind="internal",
        name="gate",
        span_id=request.gate_id,
        parent_id=request.span_id,
        start_ns=request.from_ns,
        end_ns=request.decided_ns,
        attributes=request.gate,
        is_error=False,
    )
    if request.upstream is not None:
        yield _upstream_span(request, request.upstream)


def _upstream_span(request: TracedRequest, part: UpstreamPart) -> Span:
    attributes = _method(request.method)
    if part.upstream is not None:
        attributes["gateway.upstream"] = part.upstream
    if part.server is not None:
        scheme, address, port = part.server
        host = f"[{address}]" if ":" in address else address
        attributes |= {
            "server.address": address,
            "server.port": port,
            "url.full": f"{scheme}://{host}:{port}{redact_path(request.path)}",
            "network.protocol.version": "1.1",
        }
    if part.status:
        attributes["http.response.status_code"] = part.status
    if part.resent:
        attributes["http.request.resend_count"] = part.resent
    # RFC 9110, 15.5: to a client, a 4xx is an error as well.
    error = _error(part.status, request.reason, least=400)
    if error is not None:
        attributes["error.type"] = error
    return Span(
        kind="client",
        name=request.method if request.method in _METHODS else "HTTP",
        span_id=part.span_id,
        parent_id=request.span_id,
        start_ns=part.from_ns,
        end_ns=part.to_ns,
        attributes=attributes,
        is_error=error not in (None, _CLIENT_GONE),
    )


def _error(status: int, reason: str | None, least: int) -> str | None:
    """What error.type has; None: there is no error. least: the lowest status that is one"""
    if reason is not None and (not status or status >= least or status < 400):
        return reason
    return str(status) if status >= least else None


def _method(method: str) -> Attributes:
    if method in _METHODS:
        return {"http.request.method": method}
    other: Attributes = {"http.request.method": "_OTHER"}
    if method:
        other["http.request.method_original"] = method
    return other


def _server(request: TracedRequest) -> Attributes:
    """The address and port that the client asked for."""
    if not request.host:
        return {}
    name, colon, port = request.host.rpartition(":")
    if not colon or port.endswith("]"):
        name, port = request.host, ""
    default = 443 if request.scheme == "https" else 80
    return {"server.address": name.strip("[]"), "server.port": int(port) if port else default}
