"""Header fields: what the gateway does with each by its name, and what is removed from all.

A field is read, forwarded, forwarded from trusted proxies only, or dropped. Upstreams that turn
field names into variables (RFC 3875, 4.1.18) treat `_`, and some treat every character that is not
a letter or digit, as `-`. So a spelling that such an upstream would confuse with a name that the
gateway reads, counts or trusts is dropped.

A field of any name with a key in it is not forwarded; neither is the console's session cookie, in
either direction. These are the only rules of the gateway that `http1` uses to read messages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import Enum
from functools import lru_cache
from typing import Final

from gateway.domain.cookies import SECURE_SESSION, SESSION
from gateway.domain.key_format import holds_key
from gateway.errors import KEY_CONFLICTING, KEY_MALFORMED, KEY_MISSING, Refusal


class Handling(Enum):
    """What is done with a field, by its name."""

    #: Forwarded as it was sent.
    FORWARDED = 0
    #: Read by the gateway; what is forwarded of it is rebuilt.
    READ = 1
    #: Forwarded where the client is a trusted proxy.
    FROM_TRUSTED = 2
    DROPPED = 3


#: Fields of this connection only (RFC 9110, 7.6.1), fields that the gateway sets, and fields that
#: override the path or method that was checked. Synonyms of them are dropped.
_READ: Final = frozenset(
    # `Proxy` becomes HTTP_PROXY in a CGI's environment (httpoxy, CVE-2016-5385).
    b"connection keep-alive proxy te trailer "
    b"upgrade http2-settings transfer-encoding content-length expect authorization apikey "
    b"x-request-id x-forwarded-for forwarded host via sec-websocket-key sec-websocket-version "
    b"x-original-url x-original-uri x-original-method x-rewrite-url "
    b"x-http-method x-http-method-override x-method-override".split()
)
#: W3C Trace Context: read only where traces are on, else forwarded as they were sent.
_TRACE: Final = frozenset((b"traceparent", b"tracestate"))
_OURS: Final = (b"x-gateway-", b"x-ratelimit-", b"proxy-")
#: Fields of an upstream's response that are dropped: its limits do not apply to the client.
OURS_IN_ANSWERS: Final = (b"x-ratelimit-", b"ratelimit", b"x-gateway-")
#: Fields by which cross-origin requests are decided; the second one makes OPTIONS a preflight.
ORIGIN: Final = "origin"
CROSS_ORIGIN: Final = (ORIGIN, "access-control-request-method", "access-control-request-headers")
PREFLIGHT: Final = CROSS_ORIGIN[1].encode("ascii")
ACCEPT: Final = "accept"
#: Fields that are decided by, and may have several lines, which are one list.
LISTS: Final = frozenset({b"accept", b"access-control-request-headers"})
#: Fields in which a proxy in front describes the client, under any policy.
_PROXYS: Final = ("x-real-ip", "x-forwarded", "x-forwarded-*")

#: Fields in which proxies describe the client to an upstream, and which many upstreams trust.
#: `headers: {trusted_only: [...]}` in the policies replaces this list.
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
    # Addresses, and settings for an Envoy in front of the upstream.
    "X-Envoy-*",
)

_SYNONYMS: Final = bytes.maketrans(b"!#$%&'*+.^_`|~", b"-" * 14)


class HeaderRules:
    """How header fields are handled under one policy.

    most:         the most fields of a request
    trusted_only: names of fields that only trusted proxies may send; "X-Envoy-*" is a prefix
    counted:      names of fields that a limit counts by, in lower case
    traced:       the gateway continues traces: it reads the fields of W3C Trace Context
    handling:     for a name as it was sent: the name in lower case, and what is done with it
    """

    __slots__ = ("_counted_plain", "_names", "_prefixes", "counted", "handling", "most", "traced")

    def __init__(
        self,
        most: int,
        trusted_only: Collection[str] = TRUSTED_ONLY,
        counted: Collection[str] = (),
        *,
        traced: bool = False,
    ) -> None:
        self.most = most
        self.traced = traced
        self.counted = frozenset(name.encode("ascii") for name in counted)
        self._counted_plain = frozenset(map(plain_name, self.counted))
        trusted = [name.lower().encode("ascii") for name in (*_PROXYS, *trusted_only)]
        self._names = frozenset(name for name in trusted if not name.endswith(b"*"))
        self._prefixes = tuple(name[:-1] for name in trusted if name.endswith(b"*"))
        # Clients send few different names. Bounded, as a name may have 32 KiB.
        self.handling = lru_cache(maxsize=256)(self._handling)

    def _handling(self, name: bytes) -> tuple[bytes, Handling]:
        lower = name.lower()
        plain = plain_name(lower)
        if plain.startswith(_OURS):
            return lower, Handling.DROPPED
        if plain in _READ:
            return lower, Handling.READ if plain == lower else Handling.DROPPED
        if self.traced and lower in _TRACE:
            return lower, Handling.READ
        if plain in self._names or plain.startswith(self._prefixes):
            return lower, Handling.FROM_TRUSTED if plain == lower else Handling.DROPPED
        if plain in self._counted_plain and lower not in self.counted:
            return lower, Handling.DROPPED
        return lower, Handling.FORWARDED


def is_forwarded(name: str) -> bool:
    """Can a field of this name be forwarded, unless the policy forbids it?"""
    plain = plain_name(name.lower().encode("ascii"))
    return plain not in _READ and not plain.startswith(_OURS)


# -- what is never forwarded: keys and the console's session --------------------------------------

#: Is there a key in a field, or a mistyped one?
holds_secret: Final = holds_key
#: Part of both names of the console's session cookie.
SESSION_MARK: Final = SESSION.encode("ascii")
_is_session = re.compile(
    rf"[ \t]*+(?:{SESSION}|{SECURE_SESSION})[ \t]*+(?:=.*+)?".encode(), re.DOTALL
).fullmatch
#: A browser sends a cookie once for each path that it is set for. A field with more of them is an
#: attack that makes their removal expensive, and is dropped as a whole.
MOST_SESSIONS: Final = 16


def read_credential(authorizations: Sequence[bytes], api_keys: Sequence[bytes]) -> bytes | Refusal:
    """The key that was sent, in either form; a refusal if there is none or more than one."""
    if len(authorizations) > 1 or len(set(api_keys)) > 1:
        return KEY_CONFLICTING
    if not authorizations:
        return api_keys[0] or KEY_MISSING if api_keys else KEY_MISSING
    scheme, _, bearer = authorizations[0].partition(b" ")
    bearer = bearer.strip(b" ")
    if scheme.lower() != b"bearer" or not bearer:
        return KEY_CONFLICTING if api_keys else KEY_MALFORMED
    return KEY_CONFLICTING if api_keys and api_keys[0] != bearer else bearer


def may_hold_credential(lines: bytes) -> bool:
    """Could one of these lines be a key, or a field that carries one?"""
    return b"apikey:" in lines.lower() or holds_secret(lines)


def without_secrets(lines: bytes) -> bytes:
    """The lines without those that contain a key, and without the console's session.

    Some clients send keys in other fields as well; the upstream must not get them.
    """
    if holds_secret(lines):
        kept = [line for line in lines.split(b"\r\n")[:-1] if not holds_secret(line)]
        lines = b"".join([line + b"\r\n" for line in kept])
    return without_session(lines) if SESSION_MARK in lines else lines


def without_session(lines: bytes) -> bytes:
    """A request's header lines without the session in Cookie; other cookies stay."""
    return b"".join([_line_without_session(line) for line in lines.split(b"\r\n")[:-1]])


def _line_without_session(line: bytes) -> bytes:
    """One line with its CRLF; b"" if nothing remains of it."""
    name, _, value = line.partition(b":")
    if name.lower() == b"cookie":
        if value.count(SESSION_MARK) > MOST_SESSIONS:
            return b""
        # RFC 6265, 4.2.1: cookie-pair *( ";" SP cookie-pair )
        others = [pair for pair in value.split(b";") if not _is_session(pair)]
        return b"%b: %b\r\n" % (name, b";".join(others).strip(b" \t")) if others else b""
    return line + b"\r\n"


def sets_session(value: bytes) -> bool:
    """Does this value of Set-Cookie set the session?

    RFC 6265bis, 5.6: a pair that begins with "=" has no name, and browsers return it without "=".
    """
    return _is_session(value.partition(b";")[0].lstrip(b" \t=")) is not None


def plain_name(lower: bytes) -> bytes:
    """A name in the one spelling for all its synonyms."""
    return lower.translate(_SYNONYMS)
