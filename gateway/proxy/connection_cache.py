"""What one client connection caches of its last request, for a next one that is similar.

Most clients send the same key with each request, and a limited client repeats its request. Findings
about the last one then hold for the next.

A `Fields` object is made under one policy, for one version of HTTP: after a reload, the same block
gives another object. So where `fields` is the same object, policy and version are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.domain.identity import Identity
from gateway.domain.key_format import digest, parse
from gateway.domain.limits import Decision
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.errors import Refusal
from gateway.http1.head import Fields
from gateway.proxy.mcp_head import McpHead

#: What precedes the request's id in the head; what follows it, up to the id in the body, and so on;
#: and the length of the body that is sent.
RefusalParts = tuple[tuple[bytes, ...], int]


@dataclass(slots=True, eq=False)
class CachedRefusal:
    """The last 429, without the request's id.

    A cached decision is the same object each time, and so is the answer to it.

    decision, fields, route: it holds for a request with these very objects
    id_bytes: and with an id of this length
    parts:    of the answer
    """

    decision: Decision
    fields: Fields
    route: Route
    id_bytes: int
    parts: RefusalParts


class ConnectionCache:
    """Owned by the client connection; the gate and the answers fill it.

    identity:   of the last request that was admitted by its key; None: none was
    credential, policy, client_ip, epoch: what it holds for: what the request sent as its key, the
                policy, the client's address, and the gate's epoch when the key was checked
    refusal:    the last 429
    key_text:   the credential that was parsed last
    key_id:     the id of the key in it; None: it is no key
    key_digest: its digest
    mcp:        what the fields of the last request to an MCP server said
    asked_at:   when the limiter was asked about the last request, and decided_at: when it answered,
                by `time.perf_counter`; only noted if `Gate.is_timed`
    """

    __slots__ = (
        "asked_at",
        "client_ip",
        "credential",
        "decided_at",
        "epoch",
        "identity",
        "key_digest",
        "key_id",
        "key_text",
        "mcp",
        "policy",
        "refusal",
    )

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.credential: bytes | Refusal = b""
        self.policy: Policy | None = None
        self.client_ip = ""
        self.epoch = 0
        self.refusal: CachedRefusal | None = None
        self.key_text = b""
        self.key_id: str | None = None
        self.key_digest = b""
        self.mcp: McpHead | None = None
        self.asked_at = 0.0
        self.decided_at = 0.0

    def parse_key(self, credential: bytes) -> None:
        """Parse a credential."""
        parsed = parse(credential)
        self.key_id, self.key_digest = None, b""
        if parsed is not None:
            self.key_id, self.key_digest = parsed.id, digest(credential)
        self.key_text = credential

    def clear(self) -> None:
        """Keep nothing of the last request: its head was large."""
        self.identity = self.refusal = self.key_id = self.mcp = None
        self.credential = self.key_text = b""
