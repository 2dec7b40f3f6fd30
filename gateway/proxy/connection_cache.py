"""What one client connection keeps of its last request, for a next one that is the same.

Most clients send the same header block with each request, and a client that is limited repeats
its request. What was found out about the last one then holds for the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.domain.identity import Identity
from gateway.domain.limits import Decision
from gateway.domain.policy import Policy
from gateway.domain.route import Route
from gateway.http1.head import Fields


@dataclass(slots=True, eq=False)
class CachedIdentity:
    """The key of the last request that was admitted by its key.

    fields, policy: it holds for a request with these very objects
    identity:       a key that was good, at an address from which it may be used
    epoch:          of the gate, when that was found out
    """

    fields: Fields
    policy: Policy
    identity: Identity
    epoch: int


#: What precedes the request's id in the head; what follows it, up to the id in the body; what
#: follows that; and the length of the body that is sent.
RefusalParts = tuple[bytes, bytes, bytes, int]


@dataclass(slots=True, eq=False)
class CachedRefusal:
    """The last 429, without the request's id.

    A cached decision is the same object each time, and so is the answer to it.

    decision, fields, route, policy: it holds for a request with these very objects
    id_bytes: and with an id of this length
    parts:    of the answer
    """

    decision: Decision
    fields: Fields
    route: Route
    policy: Policy
    id_bytes: int
    parts: RefusalParts


class ConnectionCache:
    """Owned by the client connection; the gate and the answers fill it.

    identity:   who sent the last request
    refusal:    its 429
    key_fields: the fields whose credential was parsed last
    key_id:     the id of the key in it; None: it is no key
    key_digest: the credential's digest
    """

    __slots__ = ("identity", "key_digest", "key_fields", "key_id", "refusal")

    def __init__(self) -> None:
        self.identity: CachedIdentity | None = None
        self.refusal: CachedRefusal | None = None
        self.key_fields: Fields | None = None
        self.key_id: str | None = None
        self.key_digest = b""

    def clear(self) -> None:
        """Keep nothing of the last request: it was a large one."""
        self.identity = self.refusal = self.key_fields = None
