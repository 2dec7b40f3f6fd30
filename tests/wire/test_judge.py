"""The checker itself: exactly what follows RFC 9112 passes."""

from __future__ import annotations

import pytest

from tests.kit.rows import each_row
from tests.wire.cases import read_case
from tests.wire.judge import NotExact, read_answers, read_requests

VIA = b"Via: 1.1 rate-limiting-gateway\r\n"
HEAD = b"Host: a\r\nX-Forwarded-For: 127.0.0.1\r\nX-Request-Id: 1\r\n" + VIA
DATE = b"Date: Sat, 21 Nov 2026 12:25:03 GMT\r\n"
LIMITS = DATE + (
    b"X-RateLimit-Limit: 1\r\nX-RateLimit-Remaining: 1\r\nX-RateLimit-Reset: 1\r\n"
    b"X-RateLimit-Reset-After: 1\r\nX-Request-Id: 1\r\n"
)


def request(line: bytes = b"GET /x HTTP/1.1", fields: bytes = b"", body: bytes = b"") -> bytes:
    return line + b"\r\n" + HEAD + fields + b"\r\n" + body


@each_row(
    "data",
    [
        request(b"GET  /x HTTP/1.1"),
        request(b"get /x HTTP/1.1"),
        request(b"GET x HTTP/1.1"),
        request(b"GET /x HTTP/1.0"),
        request(b"GET //x HTTP/1.1"),
        request(b"GET /./x HTTP/1.1"),
        request(b"GET /x/.. HTTP/1.1"),
        request(b"GET /;x HTTP/1.1"),
        request(b"GET /%61 HTTP/1.1"),
        request(b"GET /%2e HTTP/1.1"),
        request(b"GET /%c3%a9 HTTP/1.1"),
        request(b"GET /x?a#b HTTP/1.1"),
        request(fields=b"X:y\r\n"),
        request(fields=b"X : y\r\n"),
        request(fields=b"X: y \r\n"),
        request(fields=b"X: a\x00b\r\n"),
        request(fields=b"X: a\nb\r\n"),
        request(fields=b" X: y\r\n"),
        request(fields=b"Host: b\r\n"),
        request(fields=b"Connection: close\r\n"),
        request(fields=b"Upgrade: websocket\r\n"),
        request(fields=b"TE: trailers\r\n"),
        request(fields=b"X_Gateway_Plan: a\r\n"),
        request(fields=b"X-Gateway-Plan: a\r\nX-Gateway-Plan: b\r\n"),
        request(fields=b"Content_Length: 1\r\n"),
        request(fields=b"apiKey: x\r\n"),
        request(fields=b"Authorization: x\r\n"),
        request(fields=b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
        request(fields=b"Content-Length: 01\r\n"),
        request(fields=b"Transfer-Encoding: Chunked\r\n"),
        request(fields=b"Transfer-Encoding: chunked\r\n", body=b"01\r\na\r\n0\r\n\r\n"),
        request(fields=b"Transfer-Encoding: chunked\r\n", body=b"1;x\r\na\r\n0\r\n\r\n"),
        request(fields=b"Transfer-Encoding: chunked\r\n", body=b"1\r\nab\r\n0\r\n\r\n"),
        request(fields=b"Transfer-Encoding: chunked\r\n", body=b"0\r\nX: y\r\n\r\n"),
        b"GET /x HTTP/1.1\r\nHost: a\r\n" + VIA + b"\r\n",
        request().replace(VIA, b""),
        request(fields=b"Via: 1.1 a\r\n"),
        b"GET /x HTTP/1.1\r\n\r\n",
        b"\r\n" + request() + b"\r\n\r\n",
    ],
)
def test_inexact_requests(data: bytes) -> None:
    """Whatever differs from the grammar, or from what a gateway may forward, is reported."""
    with pytest.raises(NotExact):
        read_requests(data)


def test_exact_requests() -> None:
    """Requests of each framing, one after the other, and the beginning of another one."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    chunked = request(fields=b"Transfer-Encoding: chunked\r\n", body=b"2\r\nab\r\n0\r\n\r\n")
    sized = request(b"POST /%C3%A9?q HTTP/1.1", b"Content-Length: 3\r\n", b"abc")
    read_requests(request(b"GET /public/x HTTP/1.1", b"Authorization: x\r\n"))
    for rest in (b"", sized[:-1], chunked[:-1], chunked[:-6], chunked[:-11], b"GET"):
        found, left = read_requests(sized + chunked + request(fields=upgrade) + rest)
        assert [one.body for one in found] == [b"abc", b"ab", b""]
        assert found[0].start == "POST /%C3%A9?q"
        assert left == rest


@each_row(
    "data",
    [
        b"HTTP/1.0 200 OK\r\n" + LIMITS + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200\r\n" + LIMITS + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + DATE + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + LIMITS.replace(DATE, b"") + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + LIMITS * 2 + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + LIMITS + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + LIMITS + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_inexact_answers(data: bytes) -> None:
    """An answer is framed once, and has the limits' values once."""
    with pytest.raises(NotExact):
        read_answers(data, (), ended=False)


def test_exact_answers() -> None:
    """Interim answers, answers without a body, and one that ends with its connection."""
    data = (
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n"
        + LIMITS
        + b"Content-Length: 5\r\n\r\nHTTP/1.1 204 No Content\r\n"
        + LIMITS
        + b"\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n"
        + LIMITS
        + b"\r\nall of it"
    )
    found, left = read_answers(data, ("HEAD",), ended=True)
    assert [(one.start, one.interim, one.body) for one in found] == [
        ("200", ["103"], b""),
        ("204", [], b""),
        ("200", [], b"all of it"),
    ]
    assert left == b""
    short = b"HTTP/1.1 200 OK\r\n" + LIMITS + b"Content-Length: 5\r\n\r\nabc"
    assert read_answers(short, (), ended=True) == ([], short)


@each_row(
    ("text", "words"),
    [
        ("--- send\nx\n--- expect\n400 closes\n", "a title"),
        ("# x\n--- expect\n400 closes\n", "a title"),
        ("# x\n--- send\nx\n--- expected\n400 closes\n", "a title"),
        ("# x\n--- send\nx\n--- expect\n400 ends\n", "expected one of"),
        ("# x\n--- send\nx \n--- expect\n400 closes\n", "white space"),
    ],
)
def test_invalid_cases(text: str, words: str) -> None:
    """A file that does not follow the README is not a case."""
    with pytest.raises(ValueError, match=words):
        read_case("x", text)


def test_a_case() -> None:
    """Escapes, repetitions and unfinished lines become bytes."""
    case = read_case(
        "x",
        "# A\n# title\n--- send\na\\x00{2*b\\r\\n}\\\nc\\\\\n\n--- send\nd\\\n"
        "--- answer and close\ne\n--- expect\n100 HEAD:200 closes\n"
        "--- upstream\nPOST /x\nX: \\t\n!Y\nbody: \\xff\n",
    )
    assert case.title == "A title"
    assert case.sends == (b"a\0b\r\nb\r\nc\\\r\n\r\n", b"d")
    assert (case.answers, case.hangs_up) == ((b"e\r\n",), True)
    assert (case.statuses, case.methods, case.ending) == (("100", "200"), ("HEAD",), "closes")
    assert case.reaches is not None
    (expected,) = case.reaches
    assert (expected.start, expected.body) == ("POST /x", b"\xff")
    assert expected.fields == (("X", b"\t"), ("Y", None))
