"""The formats of access logs: lines as the servers write them, and lines that are none."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from gateway.cli.log_formats import LogFormat, parse_gateway, read_fields
from gateway.cli.log_lines import Line
from gateway.domain.networks import parse_network
from gateway.errors import BAD_HEADER
from gateway.observe.access import AccessLog
from tests.kit.access import write_line

NGINX = (
    '192.0.2.1 - - [22/Nov/2026:10:37:13 +0000] "GET /api/search/x?q=1 HTTP/1.1" 429 154 '
    '"https://example.com/" "curl/8.5"'
)
ENVOY = (
    '[2026-11-22T10:37:13.250Z] "GET /api/search/x?q=1 HTTP/2" 200 - 0 154 2 1 '
    '"203.0.113.9, 192.0.2.1" "curl/8.5" "cc21d9b0" "api.example.com" "10.0.2.1:80"'
)
ISTIO = (
    '[2026-11-22T10:37:13.250Z] "GET /a HTTP/1.1" 503 UF upstream_reset - "-" 0 91 12 - '
    '"192.0.2.1" "curl" "id" "host" "-" outbound|80||a - 10.0.0.1:80 10.0.0.2:5 - default'
)
ENVOY_JSON = {
    "start_time": "2026-11-22T10:37:13.250Z",
    "method": "GET",
    "path": "/a?b",
    "response_code": 200,
    "duration": "12",
    "x_forwarded_for": None,
    "downstream_remote_address": "192.0.2.1:53412",
}
TIME_US = 1_795_343_833_000_000


#: What the line of nginx says.
SEEN = Line(
    time_us=TIME_US,
    method="GET",
    path="/api/search/x",
    client_ip="192.0.2.1",
    key_id="192.0.2.1",
    status=429,
    decision="limited",
    duration_us=0,
)


def fields_of(line: Line, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(line, name) for name in names}


def read(text: str, name: str = "auto", *fields: str, trusted: str = "10.0.0.0/8") -> Line:
    found = LogFormat(name, read_fields(fields), (parse_network(trusted),))
    raw = text.encode("utf-8", "surrogateescape")
    return (found.detected(raw) if name == "auto" else found).reader()(raw)


def test_nginx() -> None:
    """The address stands for the client; the query is cut off; 429 is a limit's."""
    assert read(NGINX) == SEEN


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ((" - - ", " - alice "), {"key_id": "alice", "client_ip": "192.0.2.1"}),
        ((" - - ", " - a b [c] "), {"key_id": "a b [c]"}),
        (("?q=1", r"\"x\x22\\"), {"path": '/api/search/x"x"\\'}),
        (('"https://example.com/" "curl/8.5"', ""), {"status": 429}),
        (("429", "401"), {"decision": "refused"}),
        (("429", "404"), {"decision": "admitted", "status": 404}),
        (("GET /api/search/x?q=1 HTTP/1.1", ""), {"path": "", "decision": "limited"}),
        (("GET /api/search/x?q=1 HTTP/1.1", r"\x16\x03\x01"), {"method": "", "path": ""}),
        (("192.0.2.1", "2001:db8::1"), {"client_ip": "2001:db8::1"}),
        (("192.0.2.1", "host.example"), {"client_ip": "host.example"}),
    ],
)
def test_lines_of_nginx(change: tuple[str, str], expected: dict[str, Any]) -> None:
    """User names, escapes, Apache's shorter form, and requests that nginx could not read."""
    assert fields_of(read(NGINX.replace(*change)), expected) == expected


def test_envoy() -> None:
    """The client is the last address that no trusted proxy has."""
    line = read(ENVOY)
    assert (line.time_us, line.path, line.status) == (TIME_US + 250_000, "/api/search/x", 200)
    assert (line.client_ip, line.key_id, line.duration_us) == ("192.0.2.1", "192.0.2.1", 2_000)
    assert read(ENVOY, trusted="192.0.2.0/24").client_ip == "203.0.113.9"
    assert read(ENVOY.replace("203.0.113.9, 192.0.2.1", "-")).client_ip == ""


def test_istio() -> None:
    """Istio's text has three more fields in the middle, and others at its end."""
    line = read(ISTIO)
    assert (line.path, line.status, line.duration_us) == ("/a", 503, 12_000)
    assert line.client_ip == "192.0.2.1"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {"path": "/a", "status": 200, "client_ip": "192.0.2.1", "duration_us": 12_000}),
        ({"x_forwarded_for": "198.51.100.7,10.1.1.1"}, {"client_ip": "198.51.100.7"}),
        ({"path": None, "x-envoy-origin-path": "/b"}, {"path": "/b"}),
        ({"method": None, "path": None, "response_code": 400}, {"path": "", "decision": "refused"}),
        ({"response_code": 0}, {"status": None, "decision": None}),
    ],
)
def test_envoys_json(more: dict[str, Any], expected: dict[str, Any]) -> None:
    """Of Istio and Envoy Gateway."""
    assert fields_of(read(json.dumps(ENVOY_JSON | more)), expected) == expected


KONG = {
    "started_at": 1_795_343_833_250,
    "request": {"method": "GET", "uri": "/a?x", "headers": {"x.y": ["z"]}},
    "response": {"status": "429"},
    "consumer": {"id": 7, "plan": "pro"},
    "client_ip": "192.0.2.1",
}


def test_json_by_its_fields() -> None:
    """Paths lead into objects and lists; names may have dots; others have defaults."""
    fields = ("time=started_at", "key=consumer.id", "plan=consumer.plan")
    line = read(json.dumps(KONG), "json", *fields, "account=request.headers.x.y.0")
    found = {"path": "/a", "key_id": "7", "account": "z", "plan": "pro"}
    assert line == replace(SEEN, time_us=TIME_US + 250_000, **found)  # type: ignore[arg-type]


def test_json_with_a_request_line() -> None:
    """As nginx writes $request, with quoted numbers."""
    text = '{"t": "1795343833.250", "r": "GET /a?b HTTP/1.1", "status": "200"}'
    line = read(text, "json", "time=t", "request=r")
    assert (line.time_us, line.method, line.path) == (TIME_US + 250_000, "GET", "/a")


def test_the_gateways_own() -> None:
    """All that a line of `AccessLog` has, of any request."""
    log = AccessLog("/dev/null")
    unread = {"path": "", "method": "", "key_id": None, "status": 400, "limit": None}
    for change in ({}, {**unread, "refusal": BAD_HEADER, "reason": BAD_HEADER.reason}):
        write_line(log, **change)
        raw = log._lines[-1].encode()
        line = parse_gateway(raw)
        fields = json.loads(raw)
        for name in ("method", "path", "client_ip", "key_id", "account", "plan", "status", "limit"):
            assert getattr(line, name) == fields[name], name
        assert (line.is_own, line.duration_us) == (True, 12_345)
        assert LogFormat().detected(raw).name == "gateway"
    log.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found a line of no known format"),
        ("\x00\x01\udcff", "found a line of no known format"),
        ('{"a": 1, "b": 2}', 'found a JSON object with "a", "b", expected the gateway'),
        ("{}", "found a JSON object with no field, expected"),
        ("{", "found invalid JSON"),
        ("{" * 100_000, "found 101 levels of arrays and objects at byte 101"),
        (NGINX[:60], "found a line of no known format"),
    ],
)
def test_no_format(text: str, words: str) -> None:
    """The message says what is known, and how others are read."""
    with pytest.raises(ValueError, match=words):
        read(text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("combined", ENVOY, "found another format, expected a line such as 192"),
        ("envoy", NGINX, "found another format, expected a line such as "),
        ("combined", NGINX.replace("Nov", "Foo"), "time: found"),
        ("json", '{"ts": 1795343833, "method": "GET"}', "path: found none, expected one at path"),
        ("json", '{"method": "GET", "path": "/"}', "time: found none, expected one at time or"),
        ("json", '{"ts": 1, "method": [], "path": "/"}', "method: found a list, expected a text"),
        ("json", "[]", "found another JSON value"),
    ],
)
def test_lines_of_another_format(name: str, text: str, words: str) -> None:
    """What was found, expected, and where."""
    with pytest.raises(ValueError, match=words):
        read(text, name)


TEMPLATE = '{time_local} "{request}" {status} {decision} {sample} {cost}'


def test_a_template() -> None:
    """The gateway's own lines by a template have what they say, as its JSON does."""
    raw = b'22/Nov/2026:10:37:13 +0000 "GET /a\\x22b?q=1 HTTP/1.1" 200 admitted 0.1 7'
    line = LogFormat("template", template=TEMPLATE).reader()(raw)
    assert (line.time_us, line.method, line.path) == (TIME_US, "GET", '/a"b')
    assert (line.status, line.decision, line.cost) == (200, "admitted", 7)
    assert line.sample == Decimal("0.1")
    assert line.is_own


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found another format, expected a line as by"),
        ('22/Nov/2026:10:37:13 +0000 "GET / HTTP/1.1"', "found another format, expected a line"),
        ('- "GET / HTTP/1.1" 200 admitted 1 1', "time: found null, expected a text"),
        ('x "GET / HTTP/1.1" 200 admitted 1 1', 'time: found "x", expected a time such as'),
        ('22/Nov/2026:10:37:13 +0000 "-" 200 admitted 1 1', "method: found"),
        ('22/Nov/2026:10:37:13 +0000 "GET / HTTP/1.1" 2 admitted 1 1', "status: found"),
        ('22/Nov/2026:10:37:13 +0000 "GET / HTTP/1.1" 200 done 1 1', "decision: found"),
        ('22/Nov/2026:10:37:13 +0000 "GET / HTTP/1.1" 200 admitted 2 1', "sample: found 2"),
        ('22/Nov/2026:10:37:13 +0000 "GET / HTTP/1.1" 200 admitted x 1', "sample: found "),
        ('22/Nov/2026:10:37:13 +0000 "GET / HTTP/1.1" 200 admitted 1 x', "cost: found"),
    ],
)
def test_lines_of_another_template(text: str, words: str) -> None:
    """What was found, expected, and where."""
    with pytest.raises(ValueError, match=words):
        LogFormat("template", template=TEMPLATE).reader()(text.encode())


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{path} {method}", "expected one with time, and method and path"),
        ("{time} {path}", "expected one with time, and method and path"),
        ("{time}{method} {path}", "expected a text between any two fields"),
        ("no field", 'found "no field", expected a template with fields in braces'),
        ("{time", 'found "{time", expected a template with fields in braces'),
    ],
)
def test_templates_that_cannot_be_read(template: str, words: str) -> None:
    """A line that lacks what a request is, or where fields end, is of no use."""
    with pytest.raises(ValueError, match=words):
        LogFormat("template", template=template).reader()


def test_a_field_has_one_place() -> None:
    """A name that is given twice, also by its other word, would hide one of its places."""
    for texts in (["time=a", "time=b"], ["key=a", "key_id=a"]):
        with pytest.raises(ValueError, match="twice, expected each name once"):
            read_fields(texts)


@pytest.mark.parametrize("text", ["path", "path=", "=x", "pth=x"])
def test_wrong_fields(text: str) -> None:
    """--field has the names of FIELDS."""
    with pytest.raises(ValueError, match="expected NAME=PATH with a name of time, request"):
        read_fields([text])


@pytest.mark.parametrize(
    "text",
    [
        " [" * 100_000,
        "1 - " + "a [" * 100_000,
        '1 - - [x] "' + "\\" * 300_000,
        '[x] "' + "a" * 300_000,
        '[x] "" 200 - ' + "1 " * 100_000,
        '[x] "" 200 - a b "' + "c" * 300_000,
    ],
)
def test_hostile_lines(text: str) -> None:
    """No line takes more than time in proportion to its length."""
    for name in ("auto", "combined", "envoy"):
        with pytest.raises(ValueError, match="expected"):
            read(text, name)


def test_the_host() -> None:
    """Envoy logs the authority, JSON the Host where it has one; nginx's format has none."""
    assert read(ENVOY).host == "api.example.com"
    assert read(ISTIO).host == "host"
    assert read(json.dumps({**ENVOY_JSON, "authority": "a.example:80"})).host == "a.example:80"
    assert read(json.dumps(ENVOY_JSON)).host is None
    assert read(NGINX).host is None
    fields = {"time": 1, "method": "GET", "path": "/", "status": 200, "http_host": "b.example"}
    assert read(json.dumps(fields), "json").host == "b.example"
    with pytest.raises(ValueError, match="host: found 300 characters"):
        read(json.dumps({**fields, "host": "x" * 300}), "json")
