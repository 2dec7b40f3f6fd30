"""The client of a connection, and the address that a request is from.

These differ for a trusted proxy. It names the addresses of its clients in the PROXY protocol, for
the whole connection, and in X-Forwarded-For or Forwarded, for each request.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from gateway.domain.certificates import peer_names
from gateway.domain.key_format import holds_key
from gateway.domain.networks import (
    client_address,
    is_within,
    limit_subject,
    parse_forwarded,
    parse_forwarded_for,
    peer_address,
)
from gateway.domain.policy import Policy
from gateway.http1.head import Fields


@dataclass(frozen=True, slots=True, eq=False)
class _Origin:
    """What a trusted proxy says in the fields of a request.

    client: the address, and its subject for limits
    lines:  the forwarding fields for the upstream
    is_tls: the proxy received it over TLS
    """

    fields: Fields
    client: tuple[str, str]
    lines: bytes
    is_tls: bool


class Client:
    """The other end of one connection, under a policy.

    ip:         its address: "192.0.2.1"
    scheme:     of its connection: "http" or "https"
    subject:    of limits per address: for IPv6 the client's network
    is_trusted: it is one of the policy's trusted proxies
    policy:     that policy
    forwarded:  the forwarding fields for an upstream, if it is not trusted
    tls:        returns the TLS object of its connection, None before the handshake; None: no TLS
    """

    __slots__ = (
        "_address",
        "_certified",
        "_origin",
        "forwarded",
        "ip",
        "is_trusted",
        "policy",
        "scheme",
        "subject",
        "tls",
    )

    def __init__(
        self,
        address: str,
        scheme: str,
        policy: Policy,
        tls: Callable[[], ssl.SSLObject | None] | None = None,
    ) -> None:
        self._address, self.ip = peer_address(address)
        self.tls = tls
        self.scheme = scheme
        self.forwarded = f"X-Forwarded-For: {self.ip}\r\nX-Forwarded-Proto: {scheme}\r\n".encode(
            "ascii"
        )
        self.use(policy)

    @property
    def tls_version(self) -> str | None:
        """Of its connection: "TLSv1.3"; None: it has no TLS."""
        session = None if self.tls is None else self.tls()
        return None if session is None else session.version()

    def use(self, policy: Policy) -> None:
        """Apply this policy."""
        self.policy = policy
        self.is_trusted = is_within(self._address, policy.trusted_proxies)
        self.subject = limit_subject(self.ip, policy.ipv6_prefix)
        self._origin: _Origin | None = None
        #: The key of its certificate, and when that expires, by the epoch's seconds.
        self._certified: tuple[str | None, float] | None = None

    def certified_key(self, now_s: float) -> str | None:
        """The id of the key that the client's certificate has in the policy; None: none now."""
        if self._certified is None:
            self._certified = self._read_certificate()
        key_id, ends_s = self._certified
        return key_id if now_s <= ends_s else None

    def _read_certificate(self) -> tuple[str | None, float]:
        tls = self.policy.tls
        asked = None if tls is None else tls.client_certificates
        session = None if asked is None or self.tls is None else self.tls()
        found = None if session is None else _described(session)
        if asked is None or not found:
            return None, inf
        names = frozenset(peer_names(found))
        key_id = next((key_id for name, key_id in asked.keys if name in names), None)
        return key_id, ssl.cert_time_to_seconds(found["notAfter"])

    def origin(self, fields: Fields) -> tuple[str, str]:
        """The address that a trusted proxy's request is from, and its subject for limits."""
        return self._of(fields).client

    def forwarded_lines(self, fields: Fields) -> bytes:
        """The forwarding fields for the upstream, of a trusted proxy's request."""
        return self._of(fields).lines

    def is_secure(self, fields: Fields) -> bool:
        """Did the request come over TLS, here or at a trusted proxy?"""
        return self.scheme == "https" or (self.is_trusted and self._of(fields).is_tls)

    def counted(self, fields: Fields, name: str) -> str:
        """The value of a header that a limit counts by; "": it is empty or absent.

        name: in lower case
        """
        found = None if fields.counted is None else fields.counted.get(name.encode("ascii"))
        if found is None or (found[1] and not self.is_trusted):
            return ""
        return found[0].decode("latin-1")

    def _of(self, fields: Fields) -> _Origin:
        """What the proxy says; read once for requests with the same fields."""
        origin = self._origin
        if origin is None or origin.fields is not fields:
            origin = self._origin = self._read(fields)
        return origin

    def _read(self, fields: Fields) -> _Origin:
        policy, hops = self.policy, _hops(fields)
        client, subject = self.ip, self.subject
        if hops:
            address = client_address(self._address, hops, policy.trusted_proxies)
            client, subject = str(address), limit_subject(address, policy.ipv6_prefix)
        chain = ", ".join((*hops, self.ip)).encode("latin-1")
        lines = b"X-Forwarded-For: %b\r\n%b" % (
            self.ip.encode("ascii") if holds_key(chain) else chain,
            fields.proxied,
        )
        proxied = b"\r\n" + fields.proxied.lower()
        if b"\r\nx-forwarded-proto:" not in proxied:
            lines += b"X-Forwarded-Proto: %b\r\n" % self.scheme.encode("ascii")
        if b"\r\nx-forwarded-host:" not in proxied:
            lines += fields.asked
        is_tls = b"\r\nx-forwarded-proto: https\r\n" in proxied
        return _Origin(fields, (client, subject), lines, is_tls)


def _described(session: ssl.SSLObject) -> Mapping[str, Any] | None:
    """The client's certificate; None: there is none, or it has names that cannot be read.

    Some authorities sign names that are not in the alphabet of their kind, such as a URI that is
    not UTF-8: `getpeercert` then fails for all of them.
    """
    try:
        return session.getpeercert()
    except (ValueError, ssl.SSLError):
        return None


def _hops(fields: Fields) -> tuple[str, ...]:
    """The addresses that the request passed, in order: of X-Forwarded-For, or else Forwarded."""
    if fields.forwarded_for:
        return parse_forwarded_for(fields.forwarded_for.decode("latin-1"))
    if fields.forwarded:
        return parse_forwarded(fields.forwarded.decode("latin-1"))
    return ()
