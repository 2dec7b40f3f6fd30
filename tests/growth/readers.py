"""The functions that read texts of others, each with the parts that its texts are made of.

A module that imports what texts are read with (`LIBRARIES`) is here: with its functions in
`READERS`, or in `EXEMPT`, with the reason. The patterns of each module are checked in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

from gateway_client import calls, limits, retries
from gateway_client.webhooks import events as client_events
from gateway_client.webhooks import json_text as client_json
from gateway_client.webhooks import verification
from gateway_client.webhooks.signatures import SignatureInvalid

from gateway import routing
from gateway.admin import access, guard, sessions
from gateway.admin.api import reading as api_reading
from gateway.admin.console import cookie, forms, gate, webhook_parts
from gateway.cli import log_formats, log_lines
from gateway.domain import (
    certificates,
    cors,
    costs,
    counters,
    error_pages,
    headers,
    json_array,
    json_text,
    key_format,
    media_types,
    networks,
    patterns,
    policy_files,
    translation,
)
from gateway.domain.access_log import AccessLogFormat
from gateway.domain.mcp import agreement, discovery, endpoints, events, lists, members, messages
from gateway.domain.mcp.sessions import Seals
from gateway.domain.policy import Policy
from gateway.domain.ports import CorruptRecord, KeyFilter
from gateway.domain.webhooks import (
    destinations,
    event_types,
    id_headers,
    payload,
    raw_bodies,
    signatures,
)
from gateway.domain.webhooks.kinds import kind as kinds
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.http1 import (
    field_lines,
    framing,
    head,
    paths,
    redirect,
    response,
    trace_context,
    websocket,
)
from gateway.http1.field_parser import FieldParser
from gateway.http1.response_parser import HeadParser
from gateway.manage import json_object, key_file, reading, usage_reports, warnings
from gateway.manage.problems import Problem
from gateway.manage.refusals import Refused
from gateway.observe import access_fields, access_lines, exposition, logs
from gateway.policies.load import load
from gateway.proxy import mcp_exchange, mcp_head, proxy_protocol
from gateway.stores import admin as stored_admin
from gateway.stores import names
from gateway.stores.audit import store as audit_store
from gateway.stores.keys import prefilter
from gateway.stores.keys import records as key_records
from gateway.stores.limits import membership
from gateway.stores.policies import records as policy_records
from gateway.stores.usage import journal, measures, texts
from gateway.stores.webhooks import records as webhook_records
from gateway.webhooks import requests, sealing, sender, spool
from gateway.webhooks.endpoint import EndpointConnection
from tests.growth.measure import KIB, Pump
from tests.kit.transport import MemoryTransport

#: What texts are read with.
LIBRARIES: Final = frozenset({"re", "email", "urllib", "json", "http", "yaml", "msgspec", "html"})
#: What those who read raise for a text that is not valid.
EXPECTED: Final = (ValueError, Problem, Refused, CorruptRecord, signatures.Unverified)


@dataclass(frozen=True)
class Reader:
    """A function that reads texts of others.

    parts:  what its texts are made of; frames: what may stand before them and after them
    raises: for texts that are not valid, beside EXPECTED
    unit:   the shortest length of a text
    """

    name: str
    read: Callable[[Any], object]
    parts: Sequence[Any]
    frames: Sequence[tuple[Any, Any]] = ()
    raises: tuple[type[Exception], ...] = ()
    unit: int = KIB

    def pumps(self) -> Iterator[Pump[Any]]:
        """Each part again and again, also after another one, and each two of them in turn."""
        empty = self.parts[0][:0]
        for before, after in self.frames or [(empty, empty)]:
            for one in self.parts:
                yield Pump(before, one, after)
                for other in self.parts:
                    if other != one:
                        yield Pump(before + other, one, after)
                        yield Pump(before, one + other, after)


def chars(text: str) -> Sequence[str]:
    return list(text)


def bytes_of(text: str) -> Sequence[bytes]:
    return [char.encode("latin-1") for char in text]


LIST: Final = chars('a ,;="\\*')
LISTED: Final = bytes_of('a ,;="\\*')
WORD: Final = chars("a1-. \xa0\x00é")
LINES: Final = [b"a", b" ", b":", b"\r\n", b"\n", b"\r", b"a: b\r\n", b"Cookie: a;\r\n"]
JSON: Final = [b"[", b"]", b"{", b'"', b'"a":', b",", b"1", b" ", b"\\", b"\\u0041", b"\xc3\xa9"]
URL: Final = chars("/a.%2?#&=;:@[]\\ ")
TARGET: Final = bytes_of("/a.%2?#&=;:@[]\\ |")
JSON_FRAMES: Final = [(b"", b""), (b'{"a": "', b'"}'), (b'{"ids": [', b"]}"), (b"{", b"}")]


def _fields(read: Callable[..., object], name: str) -> Callable[[str], object]:
    """A reader of a mapping of headers or fields, of which one has the text."""
    return lambda text: read({name: text})


def _any_header(read: Callable[[Callable[[str], str]], object]) -> Callable[[str], object]:
    """A reader of headers, all of which have the text."""
    return lambda text: read(lambda _name: text)


def _first(data: bytes, size: int = 1 << 24) -> None:
    first = endpoints.FirstEvent(lambda url: endpoints.target_of(url, "/a", "a") is None)
    for at in range(0, len(data), size):
        first.feed(data[at : at + size])


def _first_in_pieces(data: bytes) -> None:
    _first(data, 64)


def _edited(data: bytes) -> bytes:
    stream = events.EditedStream(lambda data: data + b" ", 1 << 24, lambda: None, b"m")
    return stream.feed(data) + stream.end()


def _in_pieces(data: bytes) -> bytes:
    stream = events.EditedStream(lambda data: data + b" ", 1 << 24, lambda: None, b"m")
    pieces = [stream.feed(data[at : at + 64]) for at in range(0, len(data), 64)]
    return b"".join([*pieces, stream.end()])


class _Waiting:
    """A future without a loop."""

    def __init__(self) -> None:
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, _result: object) -> None:
        self._is_done = True

    set_exception = set_result


def _answered(data: bytes, size: int = 1 << 24) -> None:
    connection = EndpointConnection()
    connection.connection_made(cast("asyncio.Transport", MemoryTransport()))
    connection._waiting = cast("asyncio.Future[Any]", _Waiting())
    for at in range(0, len(data), size):
        connection.data_received(data[at : at + size])


def _answered_in_pieces(data: bytes) -> None:
    _answered(data, 64)


def _level(text: bytes) -> bool:
    """Raises ValueError for what its callers refuse before."""
    json_text.check_levels(text)
    return True


def _kinds_by_header(text: str) -> None:
    for kind in KINDS.values():
        for call in (
            lambda kind=kind: kind.verify(b"{}", lambda _name: text, ["secret"], 0.0),
            lambda kind=kind: kind.delivery_id(lambda _name: text, {}),
            lambda kind=kind: kind.normalize(lambda _name: text, {}),
        ):
            _tried(call)


def _kinds_by_body(body: bytes) -> None:
    content_type = kinds.FORM if body.startswith(b"payload=") else "application/json"
    for read in {kind.read for kind in KINDS.values()}:
        read(lambda _name: content_type, body)


def _kinds_by_value(text: str) -> None:
    for path in ("created_at", "date", "resource.createdBy", "user.name"):
        outer: Any = text
        for name in reversed(path.split(".")):
            outer = {name: outer}
        for kind in KINDS.values():
            _tried(lambda kind=kind, given=outer: kind.normalize(lambda _name: "push", given))


def _tried(call: Callable[[], object]) -> None:
    try:
        call()
    except (*EXPECTED, KeyError):
        pass


COOKIES: Final = tuple(cookie._values_of.values())
_SIGNATURE_HEADERS: Final = (
    *("x-service-signature", "x-service-timestamp"),
    *("webhook-id", "webhook-timestamp", "webhook-signature"),
)
_LIMIT_HEADERS: Final = tuple(
    f"x-ratelimit-{name}" for name in ("limit", "remaining", "reset", "reset-after")
)
_QUERY: Final = access_fields.QueryText(AccessLogFormat(query="all", redact=("token",)))
_PLACES: Final = translation.Places({b"api.internal"}, {b"api.internal"}, b"/v1", None, b"a.b")
_CORS: Final = cors.CorsRules(cors.Cors(origins=("https://*.example.com",), headers=("*",)))
_PREFILTER: Final = prefilter.Prefilter(KeyFilter(text="a", expires_before_us=1, status="expired"))
_SESSIONS: Final = sessions.Sessions("token", stored_admin.MemoryAdminStore())


@cache
def _policy() -> Policy:
    return load(Path(__file__).parents[2] / "policies")


_DESTINATIONS: Final = destinations.Destinations()
_PARSED: Final = members.Members(("a",))
_TEMPLATE: Final = log_formats.template_reader('{time} {method} "{path}" {status}')

#: By module.
READERS: Final[Mapping[str, Sequence[Reader]]] = {
    "gateway.admin.access": [Reader("is_actor_name", access.is_actor_name, WORD)],
    "gateway.admin.api.reading": [
        Reader(
            "read_value",
            lambda text: api_reading.read_value({"type": "integer", "minimum": 0}, text),
            chars("-01a "),
        ),
    ],
    "gateway.admin.console.cookie": [
        Reader("_values_of", lambda text: [list(each(text)) for each in COOKIES], LIST),
    ],
    "gateway.admin.console.forms": [
        Reader("ranges", forms.ranges, chars("a1., \n\t/:")),
        Reader("permissions", _fields(forms._lists, "permissions"), chars("a:, \n\t")),
    ],
    "gateway.admin.console.gate": [
        Reader("local_path", gate.local_path, URL, [("/console", ""), ("/console", "\n")]),
        Reader("origin", urlsplit, URL, [("", ""), ("https://", "")]),
        Reader(
            "typed",
            lambda text: parse_qsl(text, keep_blank_values=True, max_num_fields=gate._MOST_FIELDS),
            chars("a=&;%4+é"),
        ),
    ],
    "gateway.admin.console.webhook_parts": [
        Reader("json_text", webhook_parts.json_text, JSON, JSON_FRAMES),
    ],
    "gateway.admin.guard": [
        Reader("is_allowed", lambda text: guard.is_allowed(text, ["a"]), chars("a.:[]0f%")),
    ],
    "gateway.admin.sessions": [
        Reader("unseal", lambda text: _SESSIONS.unseal(text, "", 0.0), chars("aA0-_=%é")),
    ],
    "gateway.cli.log_formats": [
        Reader("template_reader", _TEMPLATE, bytes_of('a "/\\x1-')),
        Reader("_detect", log_formats._detect, bytes_of('a "/\\[]-{}')),
        Reader("parse_gateway", log_formats.parse_gateway, JSON, JSON_FRAMES),
    ],
    "gateway.cli.log_lines": [
        Reader("parse_any_time", log_lines.parse_any_time, chars("0/:-+TZ .a")),
    ],
    "gateway.domain.certificates": [
        Reader(
            "index", certificates.ServerNames([["a.example", "*.example"]]).index, chars("a.-*é")
        ),
    ],
    "gateway.domain.cors": [
        Reader("is_list", cors.is_list, LIST),
        Reader("allows", _CORS.allows, URL, [("", ""), ("https://", ".example.com")]),
        Reader("preflight_lines", lambda text: _CORS.preflight_lines("a", "GET", text), LIST),
    ],
    "gateway.domain.costs": [
        Reader(
            "is_json",
            lambda text: costs.is_json(text, ""),
            LIST,
            [("", ""), ("application/json;", ""), ('application/json;a="', '"')],
        ),
        Reader("coding", lambda text: costs.is_json("application/json; a=b", text), LIST),
        Reader(
            "header_cost",
            lambda text: costs.header_cost(costs.HeaderCost("a", 9), text),
            chars("01- ,"),
        ),
        Reader(
            "body_cost",
            lambda body: costs.body_cost(costs.JsonCost(("ids",), 9), body),
            JSON,
            JSON_FRAMES,
        ),
    ],
    "gateway.domain.counters": [Reader("subject_tag", counters.subject_tag, WORD)],
    "gateway.domain.error_pages": [
        Reader("prefers_html", error_pages.prefers_html, [*LIST, "q=", "text/html"]),
    ],
    "gateway.domain.headers": [
        Reader(
            "read_credential",
            lambda value: headers.read_credential([value], [value]),
            [*LISTED, b"gwk_", b"%67"],
            [(b"", b""), (b"Bearer ", b""), (b"Basic ", b"")],
        ),
        Reader(
            "without_secrets",
            headers.without_secrets,
            [*LINES, b"gwk_a_", b"gateway_session=", b"%67wk"],
        ),
        Reader(
            "without_session",
            headers.without_session,
            [*LISTED, b"gateway_session="],
            [(b"Cookie: ", b"\r\n")],
        ),
        Reader("sets_session", headers.sets_session, [*LISTED, b"gateway_session="]),
    ],
    "gateway.domain.json_array": [
        Reader("count_elements", lambda body: json_array.count_elements(body, ("ids",)), JSON),
    ],
    "gateway.domain.json_text": [
        Reader("read_json", json_text.read_json, JSON, JSON_FRAMES),
        Reader("check_levels", json_text.check_levels, JSON, unit=16 * KIB),
    ],
    "gateway.domain.key_format": [
        Reader(
            "holds_key", key_format.holds_key, [b"gwk_", b"a", b"_", b"%", b"%67wk_", b"-", b"0"]
        ),
        Reader("looks_like_key", key_format.looks_like_key, ["gwk_", "a", "_", "%", "-", "0"]),
        Reader("parse", key_format.parse, [b"gwk_", b"a", b"_", b"%", b"-", b"0"]),
    ],
    "gateway.domain.mcp.agreement": [
        Reader(
            "read_headers",
            _any_header(agreement.read_headers),
            chars("aA=?/+"),
            [("=?base64?", "?=")],
        ),
    ],
    "gateway.domain.mcp.discovery": [
        Reader("is_discovery", lambda text: discovery.is_discovery("GET", text), URL),
    ],
    "gateway.domain.mcp.endpoints": [
        Reader(
            name,
            read,
            [b"a", b"\n", b"\r", b":\n\n", b"data:", b"event: endpoint\n", b"id: 1\n"],
            [(b"", b""), (b"event: endpoint\ndata: ", b"\n\n")],
        )
        for name, read in (("FirstEvent", _first), ("FirstEvent in pieces", _first_in_pieces))
    ],
    "gateway.domain.mcp.events": [
        Reader(
            name,
            read,
            [b"a", b"\n", b"\r", b"\r\n", b"data:", b"data: ", b"data\n", b"m", b":", b"a\n"],
            [(b"", b""), (b"data: m\n", b"\n\n"), (b"", b"\ndata: m\n\n")],
        )
        for name, read in (("EditedStream", _edited), ("EditedStream in pieces", _in_pieces))
    ],
    "gateway.domain.mcp.lists": [
        Reader(
            "edited_fields",
            lists.edited_fields,
            [*LINES, b"Cache-Control:", b"private", b",", b'"', b"ETag: a\r\n"],
            [(b"", b"\r\n"), (b"Cache-Control: ", b"\r\n")],
        ),
        Reader(
            "filtered",
            lambda body: lists.filtered(body, lambda _name: True, ""),
            [*JSON, b'{"name":"a"},'],
            [*JSON_FRAMES, (b'{"jsonrpc":"2.0","id":1,"result":{"tools":[', b"]}}")],
            raises=(lists.Unreadable,),
        ),
    ],
    "gateway.domain.mcp.members": [
        Reader(
            name,
            read,
            JSON,
            [*JSON_FRAMES, (b"[", b"]")],
            raises=(members.Invalid,),
        )
        for name, read in (
            ("Members", lambda text: _level(text) and _PARSED.read(text)),
            ("read_objects", lambda text: _level(text) and members.read_objects(text)),
            ("read_elements", lambda text: _level(text) and members.read_elements(text)),
        )
    ],
    "gateway.domain.mcp.messages": [
        Reader(
            "read_body",
            lambda body: messages.read_body(body, ""),
            JSON,
            [
                *JSON_FRAMES,
                (b"[", b"]"),
                (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":"', b'"}}'),
                (b'{"jsonrpc":"2.0","id":', b',"method":"ping"}'),
            ],
        ),
    ],
    "gateway.domain.mcp.sessions": [
        Reader("open", lambda text: Seals([b"s"]).open(text, "a", "b"), chars("a.-_=é ")),
    ],
    "gateway.domain.media_types": [
        Reader(
            "read_media_type",
            media_types.read_media_type,
            LIST,
            [("", ""), ("a/b", ""), ("a/b;c=", ""), ('a/b;c="', '"')],
        ),
    ],
    "gateway.domain.networks": [
        Reader("parse_forwarded", networks.parse_forwarded, [*LIST, "for=", "for=a,"]),
        Reader("parse_forwarded_for", networks.parse_forwarded_for, chars("1.:,[] a")),
        Reader("parse_address", networks.parse_address, chars("1.:0f%")),
        Reader("_hop", networks._hop.__wrapped__, chars("1.:0f%[]")),
    ],
    "gateway.domain.patterns": [
        Reader(rule.__name__, rule, WORD)
        for rule in (
            *(patterns.is_word, patterns.is_limit_name, patterns.is_title),
            *(patterns.is_scope, patterns.is_per, patterns.printable),
        )
    ],
    "gateway.domain.policy_files": [
        Reader("is_file_name", policy_files.is_file_name, chars("a./\\-")),
    ],
    "gateway.domain.translation": [
        Reader(
            "translated",
            lambda lines: translation.translated(
                lines, translation.Translation(True, True), _PLACES
            ),
            [b"a", b"/", b";", b"=", b" ", b".", b"%2e", b"?", b"\\", b"url=", b":", b'"'],
            [
                (before, b"\r\n")
                for before in (
                    *(b"Location: ", b"Location: http://api.internal/", b"Refresh: 1; url="),
                    *(
                        b"Refresh: ",
                        b"Set-Cookie: ",
                        b"Set-Cookie: a=b; Path=",
                        b"Set-Cookie: a=b;",
                    ),
                )
            ],
        ),
    ],
    "gateway.domain.webhooks.destinations": [
        Reader("fault_of_url", destinations.fault_of_url, URL, [("", ""), ("https://", "")]),
        Reader("fault_of_address", _DESTINATIONS.fault_of_address, URL, [("https://", "/")]),
        Reader("numbers", _DESTINATIONS.fault_of_address, chars("0x.a9-"), [("https://", "/")]),
    ],
    "gateway.domain.webhooks.event_types": [
        Reader("is_type", event_types.is_type, chars("a._*")),
        Reader("is_pattern", event_types.is_pattern, chars("a._*")),
        Reader("takes", lambda text: event_types.takes([text], "a.b"), chars("a._*")),
    ],
    "gateway.domain.webhooks.id_headers": [
        Reader("is_id_header", id_headers.is_id_header, WORD),
        Reader("id_in", id_headers.id_in, WORD),
    ],
    "gateway.domain.webhooks.kinds.kind": [
        Reader("headers", _kinds_by_header, [*LIST, "sha256=", "v1=", "t=1,"]),
        Reader("values", _kinds_by_value, chars("0-:TZ.<a> é")),
        Reader(
            "bodies",
            _kinds_by_body,
            [*JSON, b"%", b"%41", b"&", b"="],
            [*JSON_FRAMES, (b"payload=", b"")],
        ),
        Reader("basic_secret", kinds.basic_secret, chars("aA=: "), [("Basic ", "")]),
    ],
    "gateway.domain.webhooks.payload": [
        Reader("moment", payload.moment, chars("0-:TZ.a ")),
        Reader("number", lambda text: payload.number({"a": text}, "a"), chars("-01 a")),
    ],
    "gateway.domain.webhooks.raw_bodies": [
        Reader(
            "as_kept",
            raw_bodies.as_kept,
            [b"[", b'"a":', b'"', b"1,", b"\\", b"\\ud83d", b"\xc3\xa9"],
            [(b"", b""), (b'{"a": "', b'"}')],
            unit=4 * KIB,
        ),
    ],
    "gateway.domain.webhooks.signatures": [
        Reader(
            "read_claim",
            lambda text: _tried(
                lambda: signatures.read_claim(
                    dict.fromkeys(_SIGNATURE_HEADERS, text), now_s=0.0
                ).check(b"", ["secret"])
            ),
            [*LIST, "v1,", "sha256=", "0"],
            [("", ""), ("sha256=", ""), ("v1,", "")],
        ),
    ],
    "gateway.http1.field_lines": [
        Reader("plain_lines", field_lines.plain_lines, LINES),
        Reader("without", lambda block: field_lines.without(block, {b"a"}), LINES),
    ],
    "gateway.http1.field_parser": [
        Reader(
            "parse",
            lambda block: FieldParser(headers.HeaderRules(100)).parse(block, 1),
            [b"a", b" ", b",", b";", b'"', b"for=a,", b"gwk_", b"a=b;", b"\r\nX: "],
            [
                (b"Host: a\r\n%b: " % name, b"\r\n")
                for name in (
                    *(b"X", b"Connection", b"Forwarded", b"X-Forwarded-For", b"Transfer-Encoding"),
                    *(b"Via", b"Cookie", b"Authorization", b"tracestate"),
                )
            ],
        ),
    ],
    "gateway.http1.framing": [
        Reader(
            "ChunkedReader",
            lambda data: framing.ChunkedReader().feed(data),
            [b"1\r\na\r\n", b"a", b"\r\n", b"0", b";", b"=", b'"', b"\\", b"2\r\nab\r\n", b"0\r\n"],
            [(b"", b""), (b"1;", b"\r\n"), (b"0\r\n", b"\r\n"), (b'1;a="', b'"\r\n')],
        ),
    ],
    "gateway.http1.head": [
        Reader(
            "parse_request_line",
            head.parse_request_line,
            TARGET,
            [(b"", b""), (b"GET ", b" HTTP/1.1"), (b"", b" / HTTP/1.1")],
        ),
        Reader(
            "received_credential",
            head.received_credential,
            [*LINES, b"apikey:", b"Authorization: Bearer "],
            [(b"GET / HTTP/1.1\r\n", b"\r\n")],
        ),
        Reader("is_host", head.is_host, bytes_of("a.:[]0f-%@")),
        Reader("safe_request_id", lambda value: head.safe_request_id([value]), LISTED),
        Reader("_via_fault", lambda value: head._via_fault([value]), LISTED),
    ],
    "gateway.http1.paths": [
        Reader("canonical", paths.canonical, [*TARGET, b"%61", b"/..", b"%2F", b"/.%20", b"%25"]),
    ],
    "gateway.http1.redirect": [
        Reader(
            "read_redirect",
            lambda data: redirect.read_redirect(data, 443),
            [*LINES, b"/", b"Host: a\r\n"],
            [(b"", b""), (b"GET /", b" HTTP/1.1\r\nHost: a\r\n"), (b"GET / HTTP/1.1\r\n", b"")],
        ),
    ],
    "gateway.http1.response": [
        Reader(
            name,
            read,
            [*LINES, b"Set-Cookie: a\r\n", b"Content-Length: 1\r\n", b"Connection: a,\r\n"],
            [(b"HTTP/1.1 200 OK\r\n", b""), (b"HTTP/1.1 200 ", b"\r\n"), (b"", b"\r\n")],
        )
        for name, read in (
            ("parse_response_head", response.parse_response_head),
            ("HeadParser", lambda data: HeadParser().parse(data)),
        )
    ],
    "gateway.http1.trace_context": [
        Reader(
            "read_trace_context",
            lambda value: trace_context.read_trace_context(
                [b"00-%b-%b-01" % (b"a" * 32, b"b" * 16)], [value]
            ),
            bytes_of("a=,@ \t-/"),
        ),
        Reader(
            "traceparent",
            lambda value: trace_context.read_trace_context([value], []),
            bytes_of("0a-"),
        ),
    ],
    "gateway.http1.websocket": [
        Reader(
            "read_handshake",
            lambda value: websocket.read_handshake(
                [b"websocket"], [b"upgrade"], [value], [b"13"], framed=False
            ),
            LISTED,
        ),
        Reader(
            "_values",
            lambda data: websocket._values(data, b"upgrade"),
            [*LINES, b"Upgrade: websocket\r\n"],
        ),
    ],
    "gateway.manage.json_object": [
        Reader("read_object", json_object.read_object, JSON, JSON_FRAMES),
        Reader("check_media_type", json_object.check_media_type, LIST, [("application/json;", "")]),
    ],
    "gateway.manage.key_file": [Reader("read_line", key_file.read_line, JSON, JSON_FRAMES)],
    "gateway.manage.reading": [
        Reader("read_name", reading.read_name, WORD),
        Reader(
            "read_moment_us", lambda text: reading.read_moment_us("a", text), chars("0-:TZ.da ")
        ),
        Reader("read_expiry_us", lambda text: reading.read_expiry_us(0, text), chars("0-:TZ.da ")),
        Reader("read_networks", lambda text: reading.read_networks([text]), chars("1.:/0f%")),
        Reader("read_scopes", lambda text: reading.read_scopes([text]), chars("a:._*")),
        Reader("a limit", lambda text: reading.read_limits(None, {"a": text}), chars("1/,=ab ")),
        Reader("a name", lambda text: reading.read_limits(None, {text: "1/day"}), WORD),
        Reader("found", reading.found, [*WORD, "gwk_"]),
    ],
    "gateway.manage.usage_reports": [
        Reader(
            "read_span", lambda text: usage_reports.read_span(None, text, text, 0), chars("0-a")
        ),
        Reader("read_window", usage_reports.read_window, WORD),
    ],
    "gateway.manage.warnings": [Reader("is_id", warnings.is_id, chars("0-a"))],
    "gateway.observe.access_fields": [
        Reader("shown_path", access_fields.shown_path, [*URL, "gwk_a_"]),
        Reader("shown_host", access_fields.shown_host, [*TARGET, b"gwk_a_"]),
        Reader("url", _QUERY.url, [*URL, "gwk_a_", "token="], [("", ""), ("https://a/?", "")]),
    ],
    "gateway.observe.access_lines": [
        Reader(
            "_escaped",
            lambda text: access_lines._escaped(text, '"', quotes=True),
            chars('a"\\\x00é €'),
        ),
    ],
    "gateway.observe.exposition": [
        Reader(
            "format_of",
            exposition.format_of,
            [*LIST, "version=", "1.", "application/openmetrics-text", "escaping="],
            [("", ""), ("application/openmetrics-text;version=", "")],
        ),
    ],
    "gateway.observe.logs": [
        Reader(
            name,
            read,
            [*URL, "gwk_", "apikey", "'", '"', "\n", "bearer ", "authorization", "/hooks/", "://"],
            [("", ""), ("://", "@"), ('{"apikey": "', "")],
        )
        for name, read in (("redact", logs.redact), ("redact_path", logs.redact_path))
    ],
    "gateway.proxy.mcp_exchange": [
        Reader(
            "_kind",
            mcp_exchange._kind,
            [*LISTED, b"\n", b"\r\n", b"content-type:"],
            [(b"\n", b""), (b"\ncontent-type: ", b"\r\n")],
        ),
    ],
    "gateway.proxy.mcp_head": [
        Reader(
            "McpHead",
            lambda block: mcp_head.McpHead(SimpleNamespace(forward=block), lambda _name: ""),
            [*LINES, b"Mcp-Session-Id:", b"Accept-Encoding: a\r\n"],
        ),
    ],
    "gateway.proxy.proxy_protocol": [
        Reader(
            "read_header",
            proxy_protocol.read_header,
            bytes_of("a1. \r\n\x00:"),
            [(b"PROXY TCP4 ", b"\r\n"), (b"PROXY UNKNOWN ", b"\r\n")],
        ),
    ],
    "gateway.routing": [
        Reader(
            "read_request_line",
            lambda line: routing.read_request_line(line, _policy()),
            [*TARGET, b"%61", b"/..", b"%2F"],
            [
                (b"GET /", b" HTTP/1.1"),
                (b"GET /v1/", b" HTTP/1.1"),
                (b"GET http://a/", b" HTTP/1.1"),
            ],
        ),
    ],
    "gateway.stores.admin": [
        Reader(
            "_read_mark",
            stored_admin._read_mark,
            bytes_of("a %4\xff"),
            [(b"", b""), (b"a a ", b"")],
        )
    ],
    "gateway.stores.audit.store": [
        Reader(
            "_read_entry",
            lambda content: audit_store._read_entry(b"1-0", {b"event": content}),
            JSON,
            [*JSON_FRAMES, (b'{"at_us":1,"actor":"', b'"}'), (b'{"before":{"a":', b"}}")],
        ),
        Reader("_read_head", audit_store._read_head, bytes_of("1 aF")),
    ],
    "gateway.stores.keys.prefilter": [
        Reader(
            name, read, [*JSON, b'"expires_us":1,', b'"status":"a",', b'"plan":'], [*JSON_FRAMES]
        )
        for name, read in (("may_pass", _PREFILTER.may_pass), ("owner_of", prefilter.owner_of))
    ],
    "gateway.stores.keys.records": [
        Reader(name, read, JSON, [*JSON_FRAMES, (b'{"name":"', b'","scopes":[]}')])
        for name, read in (
            ("read_record", lambda content: key_records.read_record("7h3k9m2p4q6r", content)),
            ("read_account", lambda content: key_records.read_account("a", content)),
        )
    ],
    "gateway.stores.limits.membership": [
        Reader("read_ids", lambda text: membership.read_ids([text, b"1"]), bytes_of("a0-_")),
    ],
    "gateway.stores.names": [
        Reader("subject_of", lambda name: names.subject_of(name, "gw:"), bytes_of("a%4:{}\xff")),
    ],
    "gateway.stores.policies.records": [
        Reader(
            "read_load",
            lambda text: policy_records.read_load(
                dict.fromkeys((b"at", b"hash", b"previous", b"gateway", b"summary", b"actor"), text)
            ),
            bytes_of("1a \x00"),
        ),
    ],
    "gateway.stores.usage.journal": [
        Reader("read_lines", journal.read_lines, [b"1", b"a", b" ", b"\n", b"~", b":", b"%41"]),
        Reader("read_label", journal.read_label, bytes_of("1:a")),
    ],
    "gateway.stores.usage.measures": [
        Reader("split_line", measures.split_line, bytes_of("1a.~=;+%\n"), [(b"~", b"\n")]),
        Reader("unpack", measures.unpack, chars("1a.~")),
    ],
    "gateway.stores.usage.texts": [
        Reader(
            "read_text",
            lambda content: list(texts.read_text(content, "hour")),
            bytes_of("1a:;,@+%\n "),
            [(b"", b""), (b"1:", b"\n")],
        ),
    ],
    "gateway.stores.webhooks.records": [
        Reader(name, read, JSON, JSON_FRAMES)
        for name, read in (
            ("read_integration", lambda text: webhook_records.read_integration("a", text)),
            ("read_watch", lambda text: webhook_records.read_watch("a", text)),
        )
    ],
    "gateway.webhooks.endpoint": [
        Reader(
            name,
            read,
            [*LINES, b"1\r\na\r\n", b"HTTP/1.1 103 A\r\n\r\n"],
            [
                (b"", b""),
                (b"HTTP/1.1 200 OK\r\n", b"\r\n\r\n"),
                (b"HTTP/1.1 200 OK\r\nRetry-After: ", b"\r\n\r\n"),
                (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
            ],
        )
        for name, read in (("an answer", _answered), ("an answer in pieces", _answered_in_pieces))
    ],
    "gateway.webhooks.requests": [
        Reader("an id", requests._is_delivery, chars("a:1-_")),
        Reader("_read_limit", requests._read_limit, chars("01a")),
        Reader("_read_before", requests._read_before, chars("0-:TZ.a")),
        Reader("_read_states", requests._read_states, chars("a,")),
    ],
    "gateway.webhooks.sealing": [
        Reader("open", lambda text: sealing.Sealer(b"m" * 32).open("a", text), chars("aA=+/é")),
    ],
    "gateway.webhooks.sender": [
        Reader("_retry_after_s", sender._retry_after_s, [*chars("0a:,-+( )"), "Mon, ", "Jan "]),
        Reader("_place_of", sender._place_of.__wrapped__, URL, [("https://", "")]),
    ],
    "gateway.webhooks.spool": [Reader("_read_line", spool._read_line, bytes_of("0a {\n"))],
    "gateway_client.calls": [Reader("printable", calls.printable, WORD)],
    "gateway_client.limits": [
        Reader(
            "read_limits",
            lambda text: limits.read_limits(dict.fromkeys(_LIMIT_HEADERS, text)),
            chars("01,;= a"),
        ),
    ],
    "gateway_client.retries": [
        Reader(
            "retry_after_s",
            _fields(retries.retry_after_s, "retry-after"),
            [*chars("0a:,-+( )"), "Mon, ", "Jan "],
        ),
    ],
    "gateway_client.webhooks.events": [
        Reader("read_event", client_events.read_event, JSON, JSON_FRAMES),
        Reader("read_date", client_events.read_date, chars("0-:TZ.a ")),
    ],
    "gateway_client.webhooks.json_text": [
        Reader("read_json", client_json.read_json, JSON, JSON_FRAMES),
        Reader("check_levels", client_json.check_levels, JSON, unit=16 * KIB),
    ],
    "gateway_client.webhooks.signatures": [
        Reader(
            "verify",
            lambda text: verification.check(
                b"", dict.fromkeys(_SIGNATURE_HEADERS, text), "secret", now=0.0
            ),
            [*LIST, "v1,", "sha256=", "0"],
            [("", ""), ("sha256=", ""), ("v1,", "")],
            raises=(SignatureInvalid,),
        ),
    ],
}

_OF_PATTERNS: Final = "texts of others are read there by patterns alone, each of which is checked"
_WRITES: Final = "writes, and reads no text of others"
_BY_OTHERS: Final = "texts of others are read there by modules that are checked"
_OF_OPERATORS: Final = "reads what the operator of the gateway, or of a receiver, has written"
_OF_COMMANDS: Final = "a command: reads arguments, files of its user and answers of the gateway"
_OF_OWN: Final = "reads what another process of the same user has sent"

#: Modules whose functions are not checked, by the reason. A name with ".*" is all in a package that
#: is not in READERS.
EXEMPT: Final[Mapping[str, Sequence[str]]] = {
    _OF_PATTERNS: (
        "gateway.admin.console.account_pages",
        "gateway.admin.console.watch_forms",
        "gateway.domain.webhooks.deliveries",
        "gateway.proxy.cross_origin",
        "gateway.proxy.resolver",
        "gateway.stores.mcp.store",
        "gateway.stores.usage.store",
        "gateway_client.webhooks.endpoint",
    ),
    _WRITES: (
        "gateway.admin.console.audit_page",
        "gateway.admin.console.integration_pages",
        "gateway.admin.console.key_pages",
        "gateway.admin.console.usage_span",
        "gateway.admin.console.warnings_page",
        "gateway.admin.console.watch_pages",
        "gateway.admin.refusals",
        "gateway.domain.audit",
        "gateway.domain.mcp.refusals",
        "gateway.manage.views",
        "gateway.proxy.answers",
        "gateway.proxy.context",
        "gateway.proxy.verify",
        "gateway.stores.webhooks.queue",
        "gateway_client.webhooks.answers",
    ),
    _BY_OTHERS: (
        # The parameters that messages.read_body has read.
        "gateway.domain.mcp.demands",
        # The kinds, by the rows of kinds.kind.
        "gateway.domain.webhooks.events",
        "gateway.domain.webhooks.kinds.azure_devops",
        "gateway.domain.webhooks.kinds.harbor",
        "gateway.domain.webhooks.kinds.zendesk",
        # Within field_parser and response_parser.
        "gateway.http1.own_fields",
        # URLs of watches, once destinations.fault_of_url has allowed them.
        "gateway.webhooks.notices",
    ),
    _OF_OPERATORS: (
        "gateway.admin.token",
        "gateway.domain.header_edits",
        "gateway.observe.access_targets",
        "gateway.policies.*",
        "gateway.stores.redis.address",
        "gateway.stores.redis.embedded",
        # What INFO tells of the server's settings.
        "gateway.stores.redis.eviction",
        "gateway_client.settings",
        "gateway_client.webhooks.arguments",
    ),
    _OF_COMMANDS: ("gateway.cli.*",),
    _OF_OWN: ("gateway.runtime.take_over",),
}


def exempt(module: str) -> bool:
    """Is a module exempt?"""
    named = {name for names in EXEMPT.values() for name in names}
    return module in named or f"{module.rpartition('.')[0]}.*" in named
