"""Places that an upstream names in its answers, translated to those of the client.

Location, Content-Location and Refresh are translated if they point to the upstream: to a path, or
to a URL whose authority is the server's own or a Host that it may know. What remains is a path on
the client's host: it needs no knowledge of the scheme and name that the client sees, and cannot
lead to another host. Of cookies, Path and Domain are translated.

All else stays as it is: relative references, other hosts, paths that no client's path leads to, and
everything malformed. Each value takes time in proportion to its length.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from gateway.domain.rewrites import Rewrite

Part = Literal["location", "cookies"]
#: Without control characters, spaces and backslashes, which browsers drop or read as slashes.
_PLAIN: Final = rb"[!-\[\]-~\x80-\xff]"
_url = re.compile(rb"(?:(?i:(http|https)):)?//([^/?#\\]++)((?=[/?#]|\Z)%b*+)" % _PLAIN).fullmatch
_local = re.compile(rb"/(?!/)%b*+" % _PLAIN).fullmatch
_dots = re.compile(rb"/(?:\.|%2[Ee]){1,2}(?:/|\Z)").search
_end_of_path = re.compile(rb"[?#]").search
_refresh = re.compile(
    rb"([0-9.]{1,16}[\t ]{0,8}[;,][\t ]{0,8}(?i:url)[\t ]{0,8}=[\t ]{0,8}(['\"]?))([^'\"]*+)(\2)"
).fullmatch
_DEFAULT_PORTS: Final = {b"http": b":80", b"https": b":443"}
#: RFC 6265bis, 4.1.3.2: a cookie with this prefix must have the path "/".
_HOST_PREFIX: Final = b"__host-"
#: A cookie with more attributes is malformed: there are nine. Each takes a microsecond or two, and
#: an answer's head has room for 60,000.
MOST_ATTRIBUTES: Final = 16


@dataclass(frozen=True, slots=True)
class Translation:
    """What is translated. location: Location, Content-Location and Refresh; cookies: Set-Cookie"""

    location: bool
    cookies: bool

    @property
    def words(self) -> str:
        """As in a policy file."""
        named = {"location": self.location, "cookies": self.cookies}
        return f"[{', '.join(name for name, is_set in named.items() if is_set)}]"


@dataclass(frozen=True, slots=True)
class Places:
    """What a server and its client call the same place.

    authorities: of the server, in lower case: b"api.internal:8443"
    names:       of the server, as authorities without ports
    base:        its base path: b"/v1"
    rewrite:     of the route
    client:      the name of the host that the client asked for, in lower case; b"": none
    """

    authorities: Collection[bytes]
    names: Collection[bytes]
    base: bytes
    rewrite: Rewrite | None
    client: bytes

    def back(self, path: bytes) -> bytes | None:
        """The client's path to what the server calls this; None: it has none."""
        base = self.base
        if base:
            if path != base and not path.startswith(base + b"/"):
                return None
            path = path[len(base) :] or b"/"
        if self.rewrite is None:
            return path
        return None if self.rewrite.back is None else self.rewrite.back.path(path)


def translated(lines: bytes, what: Translation, places: Places) -> bytes:
    """The header lines of an answer, each with its CRLF, with the client's places."""
    return b"".join([_line(line, what, places) for line in lines.split(b"\r\n")[:-1]])


def _line(line: bytes, what: Translation, places: Places) -> bytes:
    """One line without its CRLF; returned with it."""
    name, _, value = line.partition(b": ")
    lower = name.lower()
    made = value
    if what.location and lower in {b"location", b"content-location"}:
        made = location(value, places)
    elif what.location and lower == b"refresh":
        made = _refreshed(value, places)
    elif what.cookies and lower == b"set-cookie":
        made = cookie(value, places)
    return line + b"\r\n" if made is value else b"%b: %b\r\n" % (name, made)


def location(value: bytes, places: Places) -> bytes:
    """A URL or a reference, as the client should get it."""
    url = _url(value)
    if url is not None:
        scheme, authority, target = url.groups()
        name = authority.lower()
        if scheme is not None:
            name = name.removesuffix(_DEFAULT_PORTS[scheme.lower()])
        if name not in places.authorities:
            return value
    elif _local(value):
        target = value
    else:
        return value
    end = _end_of_path(target)
    at = len(target) if end is None else end.start()
    path = target[:at] or b"/"
    found = None if _dots(path) else places.back(path)
    # "//name" would be another host.
    return value if found is None or found.startswith(b"//") else found + target[at:]


def _refreshed(value: bytes, places: Places) -> bytes:
    """Refresh: "5; url=/login"."""
    found = _refresh(value)
    if found is None:
        return value
    begin, _, url, end = found.groups()
    return begin + location(url, places) + end


def cookie(value: bytes, places: Places) -> bytes:
    """A value of Set-Cookie, as the client should get it."""
    pair, *attributes = value.split(b";", MOST_ATTRIBUTES + 1)
    if len(attributes) > MOST_ATTRIBUTES:
        return value
    is_bound = pair.lstrip(b" \t").lower().startswith(_HOST_PREFIX)
    made = [pair]
    for attribute in attributes:
        name, _, text = attribute.partition(b"=")
        lower, text = name.strip(b" \t").lower(), text.strip(b" \t")
        if lower == b"domain" and _is_foreign(text, places):
            continue  # without it, the cookie is for the host that the client asked for
        if lower == b"path" and not is_bound and _local(text):
            made.append(b"%b=%b" % (name, _cookie_path(text, places)))
        else:
            made.append(attribute)
    return b";".join(made)


def _cookie_path(path: bytes, places: Places) -> bytes:
    """The client's path for a cookie: the same, or what includes all of the route's paths."""
    rewrite = places.rewrite
    head = places.base + (b"" if rewrite is None else rewrite.upstream_head)
    if (head + b"/").startswith(path.rstrip(b"/") + b"/"):
        return (b"" if rewrite is None else rewrite.client_head) or b"/"
    found = places.back(path)
    return path if found is None or found.startswith(b"//") else found


def _is_foreign(domain: bytes, places: Places) -> bool:
    """Is this domain the server's, and none of the client's host?"""
    domain = domain.lower().removeprefix(b".")
    ours = any(_is_within(name, domain) for name in places.names)
    return ours and not _is_within(places.client, domain)


def _is_within(name: bytes, domain: bytes) -> bool:
    return name == domain or name.endswith(b"." + domain)
