"""The data of one request, from its head to its line in the log.

All parts of the proxy read it. The gate sets its findings, the exchange the outcome.
`exchange.Exchange`, which carries a request out, is a `Request`, and initialises every field:
separate objects for request, findings and outcome took 7 % more instructions for a GET and 12 % for
a 429, and an `__init__` here 1 %.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from gateway.domain.identity import Grant, Identity
from gateway.domain.limits import Check, Decision
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.errors import Refusal
from gateway.http1.head import Fields
from gateway.observe.metrics import Source
from gateway.proxy.client import Client
from gateway.proxy.connection_cache import ConnectionCache
from gateway.routing import Requested


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

    The outcome:

    keep:          the client's connection stays open after the answer
    status:        of the answer; 0: none has begun
    source:        of the answer: the gateway or the upstream
    bytes_in:      of the request's body, read so far; bytes_out: of the answer's, sent so far
    upstream_name: None: it was not sent to any
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
        "source",
        "started",
        "status",
        "subject",
        "upstream_from",
        "upstream_name",
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
    keep: bool
    status: int
    source: Source
    bytes_in: int
    bytes_out: int
    upstream_name: str | None
    upstream_from: float
    upstream_s: float | None

    @property
    def websocket_key(self) -> bytes:
        """The key of the WebSocket handshake; b"": the request is none.

        RFC 6455, 4.1: "The method of the request MUST be GET".
        """
        key = self.fields.websocket
        return key if isinstance(key, bytes) and self.method == "GET" else b""

    def header(self, name: str) -> str:
        """The value of a field, for limits per header; "" if it is absent."""
        return self.client.counted(self.fields, name)

    # -- implemented by the exchange --------------------------------------------------------------
    @property
    @abstractmethod
    def is_over(self) -> bool:
        """It was answered or abandoned."""

    @abstractmethod
    def decided(self, decision: Decision | None) -> None:
        """Act on the limiter's decision; None: it was unavailable."""

    @abstractmethod
    def answer(self, status: int, body: bytes) -> None:
        """Answer with a small JSON body of the gateway."""

    @abstractmethod
    def answer_refusal(self, refusal: Refusal) -> None:
        """Refuse it."""

    @abstractmethod
    def abandon(self, reason: str) -> None:
        """End without an answer: it cannot be sent, or was sent in part."""

    @abstractmethod
    def failed(self) -> None:
        """Handle an unexpected exception."""
