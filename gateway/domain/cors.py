"""Cross-origin resource sharing: which pages of other origins may read answers, by their browsers.

The Fetch standard, 3.2 (https://fetch.spec.whatwg.org/#http-cors-protocol). Browsers enforce it for
their users: a client that is no browser can send any Origin, so nothing here replaces a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

ANY: Final = "*"

#: What may be sent in a cross-origin request unless `headers` says otherwise: what the gateway
#: reads itself, and fields of HTTP that clients of an API set. Cookie and Origin are not for
#: scripts at all.
DEFAULT_HEADERS: Final = (
    *("Accept", "Accept-Language", "apiKey", "Authorization", "Content-Language", "Content-Type"),
    *("Idempotency-Key", "If-Match", "If-Modified-Since", "If-None-Match", "If-Unmodified-Since"),
    *("Last-Event-ID", "Range", "X-Request-Id"),
)
#: What scripts can always read of an answer, beside the fields that Fetch exposes to all of them.
EXPOSED: Final = (
    *("RateLimit", "RateLimit-Policy", "Retry-After", "X-RateLimit-Fallback", "X-RateLimit-Limit"),
    *("X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Reset-After", "X-Request-Id"),
)
#: What routes in front of MCP servers allow and expose beside: the fields of Streamable HTTP.
MCP_HEADERS: Final = (
    "Last-Event-ID",
    "Mcp-Method",
    "Mcp-Name",
    "MCP-Protocol-Version",
    "Mcp-Session-Id",
)
MCP_EXPOSED: Final = ("Mcp-Session-Id",)
#: Longer origins are not compared with patterns: a host has at most 253 characters.
MOST_ORIGIN: Final = 300
#: A longer list of requested fields is not allowed by `headers: ["*"]`.
MOST_REQUESTED: Final = 2_048

_ACCESS_CONTROL: Final = b"access-control-"
_TOKENS = re.compile(
    r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++(?:[ \t]*+,[ \t]*+[!#$%&'*+\-.^_`|~0-9A-Za-z]++)*"
).fullmatch
#: The scheme, host and port of an origin.
_parts = re.compile(
    r"([a-z][a-z0-9+.-]*+)://([a-z0-9._-]++|\[[0-9a-f:.]++\])(:[0-9]{1,5})?"
).fullmatch
#: What "*." stands for at the beginning of a host: one label or more.
_is_labels = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+").fullmatch
_SOME_LABELS: Final = "*."
_ANY_PORT: Final = ":*"


@dataclass(frozen=True, slots=True)
class Cors:
    """`cors` of a route, or of all.

    origins:     as browsers send them: "https://app.example.com"; patterns: with "*." before the
                 host, for one label or more, or ":*" after it, for any port; or only "*"
    methods:     that a preflight allows; (): those of the requested route
    headers:     request headers that a preflight allows; ("*",): those that it asks for
    expose:      response headers that scripts may read, beside EXPOSED; ("*",): all
    credentials: browsers send cookies and client certificates, and show the answers to scripts
    max_age_s:   how long browsers cache a preflight; None: as they choose, which is 5 s
    """

    origins: tuple[str, ...]
    methods: tuple[str, ...] = ()
    headers: tuple[str, ...] = DEFAULT_HEADERS
    expose: tuple[str, ...] = ()
    credentials: bool = False
    max_age_s: float | None = None


class OriginPatterns:
    """Patterns of origins in tables: however many there are, an origin takes the same time.

    A port is ":8443", ":*" for any, or "".
    """

    __slots__ = ("_domains", "_hosts", "_most_labels")

    def __init__(self, patterns: Iterable[str]) -> None:
        #: Schemes, hosts and ports; the same with the domains after "*.".
        self._hosts = set[tuple[str, str, str]]()
        self._domains = set[tuple[str, str, str]]()
        self._most_labels = 0
        for pattern in patterns:
            scheme, _, rest = pattern.removesuffix(_ANY_PORT).partition("://")
            found = _parts(f"{scheme}://{rest.removeprefix(_SOME_LABELS)}")
            assert found is not None, f"{pattern} is an origin but for what stands for others"
            host, port = found[2], found[3] or ""
            if pattern.endswith(_ANY_PORT):
                port = _ANY_PORT
            if rest.startswith(_SOME_LABELS):
                self._domains.add((scheme, host, port))
                self._most_labels = max(self._most_labels, host.count(".") + 1)
            else:
                self._hosts.add((scheme, host, port))

    def match(self, origin: str) -> bool:
        """Does an origin match one of them?"""
        found = _parts(origin)
        if found is None:
            return False
        scheme, host, port = found.groups("")
        if (scheme, host, _ANY_PORT) in self._hosts:
            return True
        labels = host.split(".")
        for at in range(max(len(labels) - self._most_labels, 1), len(labels)):
            domain = ".".join(labels[at:])
            if (scheme, domain, port) in self._domains or (
                (scheme, domain, _ANY_PORT) in self._domains
            ):
                return _is_labels(host.removesuffix(domain)) is not None
        return False


class CorsRules:
    """`Cors`, compiled.

    varies: answers depend on the request's Origin
    """

    __slots__ = ("_exact", "_exposed", "_patterns", "_who", "cors", "varies")

    def __init__(self, cors: Cors) -> None:
        self.cors = cors
        self.varies = cors.origins != (ANY,)
        self._exact = frozenset(origin for origin in cors.origins if ANY not in origin)
        self._patterns = OriginPatterns(o for o in cors.origins if ANY in o and o != ANY)
        self._who = b"Access-Control-Allow-Credentials: true\r\n" if cors.credentials else b""
        exposed = cors.expose if cors.expose == (ANY,) else (*EXPOSED, *cors.expose)
        self._exposed = _line("Expose-Headers", ", ".join(exposed))

    def allows(self, origin: str) -> bool:
        """May pages of this origin read answers? It is compared byte by byte, as browsers do."""
        if not self.varies or origin in self._exact:
            return True
        return len(origin) <= MOST_ORIGIN and self._patterns.match(origin)

    def _allowed(self, origin: str) -> bytes:
        """The lines that allow an origin, which `allows` admits."""
        return _line("Allow-Origin", origin if self.varies else ANY) + self._who

    def lines(self, origin: str) -> bytes:
        """The lines of an answer; b"": the origin is not allowed, or there is none.

        origin: the request's; "": it has none. Without `varies` each answer has the same lines.
        """
        if not self.allows(origin):
            return b""
        return self._allowed(origin) + self._exposed

    def preflight_lines(self, origin: str, methods: str, requested: str) -> bytes:
        """The lines of the answer to a preflight of an allowed origin.

        methods:   of the requested route, as a list, for `methods: ()`
        requested: the value of Access-Control-Request-Headers
        """
        cors = self.cors
        headers = ", ".join(cors.headers)
        if cors.headers == (ANY,):
            # Not "*" itself, which does not include Authorization.
            headers = requested if is_list(requested) else ""
        return b"".join(
            (
                self._allowed(origin),
                _line("Allow-Methods", ", ".join(cors.methods) or methods),
                _line("Allow-Headers", headers) if headers else b"",
                b"" if cors.max_age_s is None else _line("Max-Age", f"{cors.max_age_s:.0f}"),
            )
        )


def for_mcp(cors: Cors) -> Cors:
    """The setting of a route in front of an MCP server: its clients need these fields."""
    headers = _with_names(cors.headers, MCP_HEADERS)
    return replace(cors, headers=headers, expose=_with_names(cors.expose, MCP_EXPOSED))


def _with_names(names: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Names of fields and further ones, each once; all are in ("*",)."""
    if names == (ANY,):
        return names
    known = {name.lower() for name in names}
    return (*names, *(name for name in more if name.lower() not in known))


@lru_cache(maxsize=1024)
def compiled(cors: Cors) -> CorsRules:
    """The rules, compiled once for all routes that share them."""
    return CorsRules(cors)


def is_list(names: str) -> bool:
    """Is this a list of field names, of a length that may be repeated in an answer?"""
    return len(names) <= MOST_REQUESTED and _TOKENS(names) is not None


def with_vary(lines: bytes, field: bytes) -> bytes:
    """Header lines with a request's field in their Vary: in one line, at the end.

    RFC 9110, 12.5.5: a cache may use the answer for requests with the same values of these fields.
    """
    kept: list[bytes] = []
    names: list[bytes] = []
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        if name.lower() == b"vary":
            names += [each for each in (part.strip(b" \t") for part in value.split(b",")) if each]
        else:
            kept.append(line + b"\r\n")
    if b"*" in names:
        names = [b"*"]
    elif field.lower() not in [name.lower() for name in names]:
        names.append(field)
    return b"%bVary: %b\r\n" % (b"".join(kept), b", ".join(names))


def without_access_control(lines: bytes) -> bytes:
    """Header lines without the upstream's own Access-Control-*."""
    if _ACCESS_CONTROL not in lines.lower():
        return lines
    return b"".join(
        [
            line + b"\r\n"
            for line in lines.split(b"\r\n")[:-1]
            if not line.lower().startswith(_ACCESS_CONTROL)
        ]
    )


def _line(name: str, value: str) -> bytes:
    return f"Access-Control-{name}: {value}\r\n".encode("latin-1")
