"""Response heads: parsed as strictly as requests, and rebuilt without reserved fields."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http1.framing import ChunkedReader, CloseReader, LengthReader
from gateway.http1.response import ResponseHead, parse_response_head


def head_of(text: bytes) -> ResponseHead:
    result = parse_response_head(text)
    assert isinstance(result, ResponseHead), result
    return result


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"hello\r\n",
        b"HTTP/2 200 OK\r\n",
        b"HTTP/1.1 20 OK\r\n",
        b"HTTP/1.1 099 OK\r\n",
        b"HTTP/1.1 1000 OK\r\n",
        b"HTTP/1.1  200 OK\r\n",
        b"HTTP/1.1 200\tOK\r\n",
        b"HTTP/1.1 200 O\x00K\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\x01\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: content-length\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: " + b"a," * 257 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"Connection: a,b,c\r\n" * 129,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300,
    ],
)
def test_invalid(text: bytes) -> None:
    """An invalid head gives the reason."""
    assert isinstance(parse_response_head(text), str)


def test_what_is_forwarded() -> None:
    """The upstream's fields are passed on; framing, hop-by-hop and rate-limit fields are not."""
    head = head_of(
        b"HTTP/1.1 201 Made It\r\nServer: x\r\nContent-Length: 3\r\nConnection: X-Hop\r\n"
        b"X-Hop: 1\r\nKeep-Alive: 5\r\nX-RateLimit-Limit: 9\r\nRateLimit: 9\r\nX-Request-Id: 1\r\n"
        b"X-Gateway-Plan: free\r\nRetry-After: 7\r\nSet-Cookie: a\r\nSet-Cookie:  b\r\n"
    )
    assert (head.status, head.reason, head.length, head.keep) == (201, b"Made It", 3, True)
    assert head.forward == (b"Server: x\r\nRetry-After: 7\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n")


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", True),
    ],
)
def test_keep(text: bytes, keep: bool) -> None:
    """HTTP/1.1 stays open by default, HTTP/1.0 closes."""
    assert head_of(text).keep is keep


@pytest.mark.parametrize(
    ("method", "text", "reader"),
    [
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", LengthReader),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n", ChunkedReader),
        ("GET", b"HTTP/1.1 200 OK\r\n", CloseReader),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", type(None)),
        ("GET", b"HTTP/1.1 204 No Content\r\n", type(None)),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n", type(None)),
        ("GET", b"HTTP/1.1 103 Early Hints\r\n", type(None)),
    ],
)
def test_body(method: str, text: bytes, reader: type) -> None:
    """The body's framing by method, status and fields, in the order of RFC 9112, 6.3."""
    assert type(head_of(text).reader(method)) is reader


@pytest.mark.parametrize(
    ("status", "framing"),
    [(200, b"Content-Length: 3\r\n"), (304, b"Content-Length: 3\r\n"), (204, b""), (103, b"")],
)
def test_the_length_that_clients_get(status: int, framing: bytes) -> None:
    """RFC 9110, 8.6: a server "MUST NOT send a Content-Length" in a 1xx or a 204."""
    head = head_of(b"HTTP/1.1 %d X\r\nContent-Length: 3\r\n" % status)
    assert (head.framing, head.sized) == (framing, status == 200)


@pytest.mark.parametrize(
    ("lines", "keep"),
    [
        (b"WWW-Authenticate: NTLM\r\n", False),
        (b"A: b\r\nwww-authenticate: Basic realm=x, Negotiate\r\n", False),
        (b"WWW-Authenticate: Basic\r\nWWW-AUTHENTICATE: negotiate dG9rZW4=\r\n", False),
        (b"WWW-Authenticate: Basic realm=x\r\nA: ntlm\r\n", True),
        (b"X-WWW-Authenticate: NTLM\r\n", True),
    ],
)
def test_challenges_that_identify_a_connection(lines: bytes, keep: bool) -> None:
    """The connection is not used again."""
    head = head_of(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n" + lines)
    assert head.keep is keep
    assert lines in head.forward


@pytest.mark.parametrize("status", [100, 599, 600, 999])
def test_statuses(status: int) -> None:
    """Every status of three digits passes; a client reads those from 600 on as an error."""
    head = head_of(b"HTTP/1.1 %d Odd\r\nContent-Length: 3\r\n" % status)
    assert (head.status, head.reason) == (status, b"Odd")
    assert head.start.startswith(b"HTTP/1.1 %d Odd\r\n" % status)


@pytest.mark.parametrize(
    ("lines", "dated"),
    [
        (b"", False),
        (b"Date: Sat, 21 Nov 2026 12:25:03 GMT\r\n", True),
        (b"A: b\r\ndate:x\r\n", True),
        (b"X-Date: x\r\nDates: Date: x\r\n", False),
        (b"Date: x\r\nConnection: date\r\n", False),
    ],
)
def test_whether_it_has_a_date(lines: bytes, dated: bool) -> None:
    """`dated` says whether the forwarded fields include a Date."""
    assert head_of(b"HTTP/1.1 200 OK\r\n" + lines).dated is dated


def test_no_upstream_sets_the_consoles_session() -> None:
    """Every Set-Cookie is passed on except one for the console's cookie."""
    head = head_of(
        b"HTTP/1.1 200 OK\r\nSet-Cookie: gateway_session=x; Path=/console\r\nSet-Cookie: a=b\r\n"
        b"set-cookie: =__Host-gateway_session=x; Secure\r\nSet-Cookie: c=gateway_session\r\n"
        b"X: gateway_session=x\r\n"
    )
    assert head.forward == (
        b"Set-Cookie: a=b\r\nSet-Cookie: c=gateway_session\r\nX: gateway_session=x\r\n"
    )


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value(data: bytes) -> None:
    """No bytes raise an exception."""
    for head in (data, b"HTTP/1.1 200 OK\r\n" + data + b"\r\n"):
        assert isinstance(parse_response_head(head), ResponseHead | str)
