"""What is known of one request, from its head to its line in the log.

All parts of the proxy read it, and some fill it in: the gate what it finds out, the exchange what
comes of it. `exchange.Exchange`, which carries a request out, is a `Request` itself, and sets every
field: an object each for what was read, found out and answered took 7 % more instructions for a GET
and 12 % for a 429, and an `__init__` of its own here 1 %.
"""

from __future__ import annotations

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


class Request:
    """As it was read, and not changed afterwards:

    policy:     the policy that it began with, to its end
    requested:  what its request line asks for; route, method and minor are the line's
    fields:     what its header block means
    client:     the other end of its connection; cache: what that connection keeps
    client_ip:  the address that it is from: the client's, or the one that a trusted proxy names
    subject:    what limits per address count it under
    request_id: its X-Request-Id
    started:    when its head was complete, by `time.perf_counter`

    What the gate finds out; None: not known, or there is none:

    identity: the key, and its account
    grant:    what the key may do on the route
    check:    the question to the limiter
    decision: the limiter's answer
    refusal:  why the request is refused

    What comes of it:

    keep:          the client's connection stays open after the answer
    status:        of the answer; 0: none has begun
    source:        who answered
    bytes_in:      of the request's body, as read so far; bytes_out: of the answer's, as sent so far
    upstream_name: None: it was not sent to any
    upstream_from: when an upstream connection was asked for, by `time.perf_counter`; 0.0: never
    upstream_s:    how long the upstream's part took; None: it has none, or it is not over
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
        """The key of the WebSocket handshake that the request is; b"": it is none.

        RFC 6455, 4.1: "The method of the request MUST be GET".
        """
        key = self.fields.websocket
        return key if isinstance(key, bytes) and self.method == "GET" else b""

    def header(self, name: str) -> str:
        """A field of the request, for limits that are counted per header; "" where it is absent."""
        return self.client.counted(self.fields, name)

    # -- what the parts ask of whoever carries it out ---------------------------------------------
    @property
    def is_over(self) -> bool:
        """It was answered, or nobody waits for an answer any more."""
        raise NotImplementedError

    def decided(self, decision: Decision | None) -> None:
        """The limiter has answered; None: it could not be asked."""
        raise NotImplementedError

    def answer(self, status: int, body: bytes) -> None:
        """Answer with a small JSON body of the gateway's own."""
        raise NotImplementedError

    def answer_refusal(self, refusal: Refusal) -> None:
        """Refuse it."""
        raise NotImplementedError

    def abandon(self, reason: str) -> None:
        """Break it off: nobody can be told any more."""
        raise NotImplementedError

    def failed(self) -> None:
        """To be called where an exception was caught that should not have come."""
        raise NotImplementedError
