"""One canonical form of a request's path: what is matched is what is forwarded.

An upstream may read a URL in its own way: raw, decoded once, decoded twice, with `;` parameters
cut off, with backslashes as slashes. Where those readings could disagree about which route a path
names, the path is refused; everywhere else it is settled into the form that RFC 3986, section 6.2.2
calls normal, which all of them read alike:

- dot segments are resolved (section 5.2.4), doubled slashes merged;
- an encoded unreserved character is decoded, every other encoding is written with capitals;
- characters that should have been encoded are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from gateway.errors import BAD_TARGET, Refusal


@dataclass(frozen=True, slots=True)
class CanonicalPath:
    """path: what is forwarded, b"/api/search/x"; query: b"?q=1" or b"", as it was sent;
    segments: the path decoded and split, without empty ones at the end: ("api", "search", "x").
    """

    path: bytes
    query: bytes
    segments: tuple[str, ...]


#: Nothing to settle: no encoding, no doubled slash, no segment that starts with a dot.
_PLAIN = re.compile(rb"(?:/(?!\.)[A-Za-z0-9\-._~!$&'()*+,=:@]+)+/?|/").fullmatch
#: What may stand in a request target at all: visible ASCII but no fragment.
_TARGET = re.compile(rb"[\x21\x22\x24-\x7e]+").fullmatch
_ENCODINGS = re.compile(rb"(?:[^%]|%[0-9A-Fa-f]{2})*").fullmatch
_ENCODING = re.compile(rb"%[0-9A-Fa-f]{2}")
_NEEDS_ENCODING = re.compile(rb"[^A-Za-z0-9\-._~!$&'()*+,=:@%]")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
#: In a decoded segment: separators of one reading or another, control characters, and a percent
#: sign that a second decoding would take for an encoding.
_AMBIGUOUS = re.compile(rb"[/\\;\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}").search


def canonical(target: bytes) -> CanonicalPath | Refusal:
    """Settle an origin-form target ("/path?query"), or refuse it."""
    raw, mark, query = target.partition(b"?")
    if not _TARGET(target):
        return BAD_TARGET
    if _PLAIN(raw):
        segments = raw.decode("ascii").strip("/")
        return CanonicalPath(raw, mark + query, tuple(segments.split("/")) if segments else ())
    if not raw.startswith(b"/") or not _ENCODINGS(raw):
        return BAD_TARGET
    kept: list[bytes] = []
    decoded: list[str] = []
    ends_in_slash = False
    for segment in raw[1:].split(b"/"):
        plain = unquote_to_bytes(segment)
        if _AMBIGUOUS(plain):
            return BAD_TARGET
        ends_in_slash = plain in {b"", b".", b".."}
        if plain == b"..":
            # RFC 3986, 5.2.4 would ignore the excess; nginx refuses to leave the root, so do we.
            if not kept:
                return BAD_TARGET
            kept.pop()
            decoded.pop()
        elif not ends_in_slash:
            try:
                decoded.append(plain.decode("utf-8"))
            except UnicodeDecodeError:  # overlong forms among them
                return BAD_TARGET
            kept.append(_normal(segment))
    path = b"/" + b"/".join(kept)
    if ends_in_slash and kept:
        path += b"/"
    return CanonicalPath(path, mark + query, tuple(decoded))


def _normal(segment: bytes) -> bytes:
    """A segment's spelling after RFC 3986, 6.2.2.1 and 6.2.2.2."""
    return _NEEDS_ENCODING.sub(_encode, _ENCODING.sub(_settle, segment))


def _settle(match: re.Match[bytes]) -> bytes:
    byte = int(match[0][1:], 16)
    return bytes((byte,)) if byte in _UNRESERVED else match[0].upper()


def _encode(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]
