"""A strict checker of messages: anything that is not exactly RFC 9112 is an error.

It reads what the gateway sent to an upstream (`read_requests`) and to a client (`read_answers`).
It shares no code with the gateway, and is written literally, not for speed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

Field = tuple[str, bytes]

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
#: RFC 9110, 5.5: VCHAR, obs-text, and SP or HTAB only between them.
VALUE = rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?"
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z_-]{0,31}) (/[\x21-\x7e]*) HTTP/1\.1").fullmatch
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-9][0-9]{2}) ([\t\x20-\x7e\x80-\xff]*)").fullmatch
_FIELD = re.compile(rb"(%b): (%b)" % (TOKEN, VALUE)).fullmatch
_SIZE = re.compile(rb"[1-9a-f][0-9a-f]{0,14}|0").fullmatch
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,17}").fullmatch
_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?").fullmatch
#: RFC 3986, 3.3, with upper-case encodings; `_ENCODED_NEEDLESSLY` finds needless ones.
_PATH = re.compile(rb"(?:/(?:[A-Za-z0-9\-._~!$&'()*+,=:@]|%[0-9A-F]{2})*)+").fullmatch
_ENCODED_NEEDLESSLY = re.compile(
    rb"%(?:2D|2E|5F|7E|3[0-9]|4[1-9A-F]|5[0-9A]|6[1-9A-F]|7[0-9A])"
).search

_asks_for_no_key = re.compile(r"(?:GET|HEAD) /public(?:[/?]|$)", re.IGNORECASE).match

#: RFC 9110, 7.6.1: of one connection only. Connection and Upgrade are for a WebSocket only.
_HOP_BY_HOP = (
    "keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer expect "
    "http2-settings apikey x-original-url x-rewrite-url x-http-method "
    "x-http-method-override x-method-override"
)
HOP_BY_HOP = frozenset(_HOP_BY_HOP.split())
#: Only the gateway sends these, at most once.
ONCE = frozenset({"host", "x-forwarded-for", "x-forwarded-proto", "x-request-id", "content-length"})
#: Each final answer (RFC 9110, 15) has all of these.
RATE_FIELDS = (
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-request-id",
)


class NotExact(AssertionError):
    """A message does not follow RFC 9112."""


@dataclass(slots=True)
class Message:
    """A request or an answer. start: "GET /api/x" or "200"; names in lower case."""

    start: str
    fields: list[Field]
    body: bytes = b""
    method: str = ""
    interim: list[str] = field(default_factory=list)

    def all(self, name: str) -> list[bytes]:
        return [value for key, value in self.fields if key == name.lower()]


def read_requests(data: bytes) -> tuple[list[Message], bytes]:
    """All complete requests, and the bytes of an incomplete one after them."""
    found: list[Message] = []
    while True:
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end:
            return found, data
        line, *lines = head.split(b"\r\n")
        match = _REQUEST_LINE(line)
        if match is None:
            raise NotExact(f"request line {line!r}")
        method, target = match[1].decode(), match[2]
        _judge_target(target)
        request = Message(f"{method} {target.decode()}", _fields(lines), method=method)
        _judge_fields(request)
        body = _body(request, rest, needs_framing=False)
        if body is None:
            return found, data
        request.body, data = body
        found.append(request)


def read_answers(data: bytes, methods: Sequence[str], ended: bool) -> tuple[list[Message], bytes]:
    """All complete answers, each to a request of this method (GET after the last), and the rest.

    ended: the connection has ended, which ends a body without framing
    """
    found: list[Message] = []
    interim: list[str] = []
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end:
            break
        line, *lines = head.split(b"\r\n")
        match = _STATUS_LINE(line)
        if match is None:
            raise NotExact(f"status line {line!r}")
        status = match[1].decode()
        answer = Message(status, _fields(lines), interim=interim)
        if status[0] == "1" and status != "101":
            interim = [*interim, status]
            data = rest
            continue
        for name in RATE_FIELDS:
            if len(answer.all(name)) != 1:
                raise NotExact(f"{name} came {len(answer.all(name))} times in {head!r}")
        # RFC 9110, 6.6.1: an answer that is generated or forwarded has one.
        if not answer.all("date"):
            raise NotExact(f"no Date in {head!r}")
        answer.method = methods[len(found)] if len(found) < len(methods) else "GET"
        if answer.method == "HEAD" or status in {"101", "204", "304"}:
            data = rest
        else:
            closes = answer.all("connection") == [b"close"]
            body = _body(answer, rest, needs_framing=not (closes and ended))
            if body is None:
                break
            answer.body, data = body
        interim = []
        found.append(answer)
    return found, data


def _fields(lines: list[bytes]) -> list[Field]:
    fields = []
    for line in lines:
        match = _FIELD(line)
        if match is None:
            # RFC 9110, 5.5 allows `Name: ` without a value.
            raise NotExact(f"field line {line!r}")
        fields.append((match[1].decode().lower(), match[2]))
    return fields


def _judge_target(target: bytes) -> None:
    """Check that it is canonical: RFC 3986's characters, and no ambiguity."""
    path, _, query = target.partition(b"?")
    if _PATH(path) is None or _ENCODED_NEEDLESSLY(path):
        raise NotExact(f"path {path!r}")
    if b"//" in path or {b".", b".."} & set(path.split(b"/")) or b"#" in query:
        raise NotExact(f"target {target!r}")


def _judge_fields(request: Message) -> None:
    names = [name for name, _ in request.fields]
    hosts = request.all("host")
    if len(hosts) != 1 or _HOST(hosts[0]) is None:
        raise NotExact(f"Host {hosts!r}")
    upgrade = [one.lower() for one in (*request.all("connection"), *request.all("upgrade"))]
    if upgrade not in ([], [b"upgrade", b"websocket"]):
        raise NotExact(f"Connection and Upgrade {upgrade!r}")
    for name in names:
        plain = re.sub("[^a-z0-9]", "-", name)
        if plain in HOP_BY_HOP or (plain != name and plain in ONCE | {"transfer-encoding"}):
            raise NotExact(f"{name} was forwarded")
        # For the upstream, on the one route of these tests that needs no key.
        if plain == "authorization" and not _asks_for_no_key(request.start):
            raise NotExact(f"{name} was forwarded")
        if plain.startswith("x-gateway-") and plain != name:
            raise NotExact(f"{name} was forwarded")
        if (name in ONCE or name.startswith("x-gateway-")) and names.count(name) > 1:
            raise NotExact(f"{name} came twice")
    for name in ("x-forwarded-for", "x-request-id"):
        if name not in names:
            raise NotExact(f"{name} is missing")
    # RFC 9110, 7.6.3: a gateway adds itself, after the other entries.
    if re.fullmatch(rb"1\.[01] rate-limiting-gateway", (request.all("via") or [b""])[-1]) is None:
        raise NotExact(f"Via {request.all('via')!r}")


def _body(message: Message, rest: bytes, needs_framing: bool) -> tuple[bytes, bytes] | None:
    """The body and the bytes after it; None: it is incomplete."""
    lengths, codings = message.all("content-length"), message.all("transfer-encoding")
    if len(lengths) + len(codings) > 1:
        raise NotExact(f"framed twice: {lengths!r} {codings!r}")
    if codings:
        if codings != [b"chunked"]:
            raise NotExact(f"transfer coding {codings!r}")
        return _chunks(rest)
    if not lengths:
        if not message.method or message.start[0].isdigit():
            if needs_framing:
                raise NotExact(f"a body without an end: {message.start} {message.fields!r}")
            return rest, b""
        return b"", rest
    if _LENGTH(lengths[0]) is None:
        raise NotExact(f"Content-Length {lengths[0]!r}")
    length = int(lengths[0])
    return None if len(rest) < length else (rest[:length], rest[length:])


def _chunks(rest: bytes) -> tuple[bytes, bytes] | None:
    """A chunked body, without extensions and trailers: the gateway writes neither."""
    body = b""
    while True:
        line, end, after = rest.partition(b"\r\n")
        if not end:
            return None
        if _SIZE(line) is None:
            raise NotExact(f"chunk size {line!r}")
        size = int(line, 16)
        if len(after) < size + 2:
            return None
        if after[size : size + 2] != b"\r\n":
            raise NotExact(f"chunk end {after[size : size + 2]!r}")
        if not size:
            return body, after[2:]
        body += after[:size]
        rest = after[size + 2 :]
