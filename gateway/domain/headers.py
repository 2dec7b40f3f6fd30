"""Request header fields by their names: what the gateway does with each, compiled from a policy.

A field is read here, passed on, passed on from trusted proxies only, or dropped. Upstreams that
make variables of field names (RFC 3875, 4.1.18) take `_`, and some take every character that is no
letter or digit, for the same as `-`. So a spelling that could pass for a name that decides, counts
or identifies is dropped.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from functools import lru_cache
from typing import Final


class Handling(Enum):
    """What is done with a field, by its name."""

    #: Goes on as it was sent.
    FORWARDED = 0
    #: Read by the gateway; what goes on of it is rebuilt.
    READ = 1
    #: Goes on where the client is a trusted proxy.
    FROM_TRUSTED = 2
    DROPPED = 3


#: Fields that speak of this connection only (RFC 9110, 7.6.1), that the gateway sets, or that ask
#: the upstream for another path or method than was judged. Synonyms of them are dropped.
_READ: Final = frozenset(
    # `Proxy` becomes HTTP_PROXY in a CGI's environment (httpoxy, CVE-2016-5385).
    b"connection keep-alive proxy te trailer "
    b"upgrade http2-settings transfer-encoding content-length expect authorization apikey "
    b"x-request-id x-forwarded-for forwarded host via sec-websocket-key sec-websocket-version "
    b"x-original-url x-original-uri x-original-method x-rewrite-url "
    b"x-http-method x-http-method-override x-method-override".split()
)
_OURS: Final = (b"x-gateway-", b"x-ratelimit-", b"proxy-")
#: What a proxy in front says of the client, whatever the policies say.
_PROXYS: Final = ("x-real-ip", "x-forwarded", "x-forwarded-*")

#: Fields by which proxies tell an upstream of the client, and which many upstreams believe. In the
#: policies, `headers: {trusted_only: [...]}` takes the place of this list.
TRUSTED_ONLY: Final = (
    # The client's address.
    *("CF-Connecting-IP", "CF-Connecting-IPv6", "CF-Pseudo-IPv4", "Client-IP", "Cluster-Client-IP"),
    *("DO-Connecting-IP", "Fastly-Client-IP", "Fly-Client-IP", "Forwarded-For", "True-Client-IP"),
    *("X-Appengine-User-IP", "X-Azure-ClientIP", "X-Azure-SocketIP", "X-Client-IP"),
    *("X-Cluster-Client-IP", "X-NF-Client-Connection-IP", "X-Original-Forwarded-For"),
    *("X-Originating-IP", "X-ProxyUser-IP", "X-Remote-Addr", "X-Remote-IP"),
    *("X-Vercel-Forwarded-For", "X-Vercel-IP-*", "X-Vercel-Proxied-For"),
    # The host and the scheme that the client asked for.
    *("CF-Visitor", "Front-End-HTTPS", "X-Host", "X-HTTP-Host-Override", "X-Original-Host"),
    *("X-Scheme", "X-URL-Scheme"),
    # Who the client is. RFC 9440, 4: a proxy has to remove Client-Cert from what clients send.
    *("Client-Cert", "Client-Cert-Chain", "Remote-User", "SSL-Client-*", "X-Amzn-Mtls-*"),
    *("X-Amzn-Oidc-*", "X-ARR-*", "X-Auth-Request-*", "X-Client-Cert"),
    *("X-Goog-Authenticated-User-*", "X-Goog-IAP-JWT-Assertion", "X-MS-Client-Principal"),
    *("X-MS-Client-Principal-*", "X-Remote-Group", "X-Remote-User", "X-SSL-*"),
    # Addresses, and orders to an Envoy in front of the upstream.
    "X-Envoy-*",
)

_SYNONYMS: Final = bytes.maketrans(b"!#$%&'*+.^_`|~", b"-" * 14)


class HeaderRules:
    """How header fields are handled under one policy.

    most:         how many fields a request may have
    trusted_only: names of fields that only trusted proxies may send, "X-Envoy-*" for all that
                  begin so
    counted:      names of fields that a limit counts by, in lower case
    handling:     of a name as it was sent: the name in lower case, and what is done with it
    """

    __slots__ = ("_counted_plain", "_names", "_prefixes", "counted", "handling", "most")

    def __init__(
        self,
        most: int,
        trusted_only: Collection[str] = TRUSTED_ONLY,
        counted: Collection[str] = (),
    ) -> None:
        self.most = most
        self.counted = frozenset(name.encode("ascii") for name in counted)
        self._counted_plain = frozenset(map(_plain, self.counted))
        trusted = [name.lower().encode("ascii") for name in (*_PROXYS, *trusted_only)]
        self._names = frozenset(name for name in trusted if not name.endswith(b"*"))
        self._prefixes = tuple(name[:-1] for name in trusted if name.endswith(b"*"))
        # The names that clients send are few. Bounded, as a name may have 32 KiB.
        self.handling = lru_cache(maxsize=256)(self._handling)

    def _handling(self, name: bytes) -> tuple[bytes, Handling]:
        lower = name.lower()
        plain = _plain(lower)
        if plain.startswith(_OURS):
            return lower, Handling.DROPPED
        if plain in _READ:
            return lower, Handling.READ if plain == lower else Handling.DROPPED
        if plain in self._names or plain.startswith(self._prefixes):
            return lower, Handling.FROM_TRUSTED if plain == lower else Handling.DROPPED
        if plain in self._counted_plain and lower not in self.counted:
            return lower, Handling.DROPPED
        return lower, Handling.FORWARDED


def is_forwarded(name: str) -> bool:
    """Can a field of this name go on to an upstream, if a policy says nothing against it?"""
    plain = _plain(name.lower().encode("ascii"))
    return plain not in _READ and not plain.startswith(_OURS)


def _plain(lower: bytes) -> bytes:
    """A name in the spelling that all its synonyms share."""
    return lower.translate(_SYNONYMS)
