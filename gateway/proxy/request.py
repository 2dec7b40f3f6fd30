"""The data of one request, from its head to its line in the log.

All parts of the proxy read it. The gate sets its findings, the exchange the outcome.
`exchange.Exchange`, which carries a request out, is a `Request`, and initialises every field:
separate objects for request, findings and outcome took 7 % more instructions for a GET and 12 % for
a 429, and an `__init__` here 1 %.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import perf_counter
from typing import Final, Protocol

from gateway.domain.identity import Grant, Identity
from gateway.domain.limits import Check, Decision
from gateway.domain.mcp.messages import Message
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.errors import Refusal
from gateway.http1.head import Fields
from gateway.observe.metrics import Source
from gateway.proxy.client import Client
from gateway.proxy.connection_cache import ConnectionCache
from gateway.routing import Requested


def variables(request: Request) -> dict[str, str]:
    """The values of `header_edits.VARIABLES`."""
    identity, grant = request.identity, request.grant
    return {
        "request_id": request.request_id.decode("ascii"),
        "client_ip": request.client_ip,
        "key_id": "" if identity is None else identity.record.id,
        "account": "" if identity is None else identity.record.account,
        "plan": "" if identity is None or grant is None else grant.plan,
    }


JSON: Final = "application/json"


class SentTo(Protocol):
    """A server. name: of its upstream; label: its address"""

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...


class Request(ABC):
    """The request, which does not change:

    policy:     the policy that it began with, to its end
    requested:  the parsed request line; route, method and minor are from it
    fields:     the parsed header block
    client:     the other end of its connection; cache: of that connection
    client_ip:  the client's address, or the one that a trusted proxy names
    subject:    of limits per address
    request_id: its X-Request-Id
    started:    when its head was complete, by `time.perf_counter`

    Findings of the gate; None: not known, or there is none:

    identity: the key, and its account
    grant:    what the key may do on the route
    check:    the question to the limiter
    decision: the limiter's answer
    refusal:  why the request is refused
    detail:   what a refusal's message says about this request; "": nothing

    The outcome:

    keep:          the client's connection stays open after the answer
    status:        of the answer; 0: none has begun
    source:        of the answer: the gateway or the upstream
    bytes_in:      of the request's body, read so far; bytes_out: of the answer's, sent so far
    sent_to:       the server that it was sent to; None: it was not sent to any
    upstream_from: when an upstream connection was asked for, by `time.perf_counter`; 0.0: never
    upstream_s:    how long the upstream took; None: it was not used, or has not finished
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "cache",
        "check",
        "client",
        "client_ip",
        "decision",
        "detail",
        "fields",
        "grant",
        "identity",
        "keep",
        "method",
        "minor",
        "policy",
        "refusal",
        "request_id",
        "requested",
        "route",
        "sent_to",
        "source",
        "started",
        "status",
        "subject",
        "upstream_from",
        "upstream_s",
    )

    policy: Policy
    requested: Requested
    route: Route
    method: str
    minor: int
    fields: Fields
    client: Client
    cache: ConnectionCache
    client_ip: str
    subject: str
    request_id: bytes
    started: float
    identity: Identity | None
    grant: Grant | None
    check: Check | None
    decision: Decision | None
    refusal: Refusal | None
    detail: str
    keep: bool
    status: int
    source: Source
    bytes_in: int
    bytes_out: int
    sent_to: SentTo | None
    upstream_from: float
    upstream_s: float | None

    @property
    def websocket_key(self) -> bytes:
        """The key of the WebSocket handshake; b"": the request is none.

        RFC 6455, 4.1: "The method of the request MUST be GET".
        """
        key = self.fields.websocket
        return key if isinstance(key, bytes) and self.method == "GET" else b""

    @property
    def passed_bytes(self) -> int:
        """Bytes that the client and the upstream have sent each other; not those of the gateway."""
        return self.bytes_in + self.bytes_out

    def header(self, name: str) -> str:
        """The value of a field, for limits per header; "" if it is absent."""
        return self.client.counted(self.fields, name)

    def subject_of(self, by: str) -> str:
        """What load balancing goes by: "key", "account", "ip" or "header:NAME", as for limits.

        A request without a key or the header is that of its address.
        """
        if by.startswith("header:"):
            found = self.header(by.removeprefix("header:"))
        elif by == "ip" or self.identity is None:
            found = ""
        else:
            record = self.identity.record
            found = record.lineage if by == "key" else record.account
        return found or self.subject

    @property
    def connection(self) -> int:
        """The connection that it is part of, for limits that count them; 0: it is its own."""
        return 0

    @property
    def message(self) -> Message | None:
        """The first MCP message in it; None: it has none, or was not read."""
        return None

    @property
    def mcp_version(self) -> str:
        """The version of MCP that it names; "": none"""
        return ""

    @property
    def is_taken_as_signed(self) -> bool:
        """Its signature is not verified: it is a request of a policy's test."""
        return False

    @property
    def trace_id(self) -> bytes:
        """Of the trace that it is part of, in hexadecimal; b"": traces are off."""
        return b""

    @property
    def asked_at(self) -> float:
        """When the limiter was asked, by `time.perf_counter`; 0.0: it was not, or `is_timed` not.

        The time in the connection's cache may be that of an earlier request.
        """
        asked_at = self.cache.asked_at
        return asked_at if asked_at >= self.started else 0.0

    @property
    def decided_at(self) -> float:
        """When the limiter answered; 0.0: it has not, or `is_timed` is not set."""
        decided_at = self.cache.decided_at
        return decided_at if decided_at >= self.started else 0.0

    def decided_then(self, decision: Decision | None) -> None:
        """Note when the limiter answered, and act on its decision."""
        self.cache.decided_at = perf_counter()
        self.decided(decision)

    def upstream_for(self) -> str:
        """The name of the upstream that it is for: the route's, or that of its canary."""
        canary = self.route.canary
        if canary is None or not canary.takes(self):
            return self.route.upstream
        return canary.upstream

    # -- implemented by the exchange --------------------------------------------------------------
    @property
    @abstractmethod
    def is_over(self) -> bool:
        """It was answered or abandoned."""

    @abstractmethod
    def whole_body(self, most: int, too_large: Refusal) -> bytes | Refusal | None:
        """The whole body, b"" if there is none, for a decision that depends on it.

        None: it has not arrived yet. It is collected, and then the gate is asked again, from the
        start: by then the request may have a refusal.

        most: its largest size; too_large: the refusal of a larger one, which is returned
        """

    @abstractmethod
    def puts_off(self) -> bool:
        """Have the gate asked again in a later turn of the loop, as reading the body takes long.

        False: there are no others to be served meanwhile; go on at once
        """

    @abstractmethod
    def message_check(self, granted: Grant) -> Check | None:
        """The check for the messages in it, on a route that reads them; None: not all are read.

        It sets `refusal` if they are refused; the check is then at cost 0.
        """

    @abstractmethod
    def decided(self, decision: Decision | None) -> None:
        """Act on the limiter's decision; None: it was unavailable."""

    @abstractmethod
    def answer(self, status: int, body: bytes, content_type: str = JSON) -> None:
        """Answer with a small body of the gateway."""

    @abstractmethod
    def answer_refusal(self, refusal: Refusal) -> None:
        """Refuse it."""

    @abstractmethod
    def abandon(self, reason: str) -> None:
        """End without an answer: it cannot be sent, or was sent in part."""

    @abstractmethod
    def failed(self) -> None:
        """Handle an unexpected exception."""
