"""The cache of response heads: it changes no meaning, and is bounded."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http1 import own_fields
from gateway.http1.response import MOST_FIELDS, ResponseHead, parse_response_head
from gateway.http1.response_parser import HeadParser
from tests.kit.reach import reached, reaches

STATUS = b"HTTP/1.1 200 OK\r\n"
LINES = [
    b"Content-Length: 3\r\n",
    b"content-length: 14\r\n",
    b"Content-Length: 1x\r\n",
    b"Content-Length:2\r\n",
    b"CONTENT-LENGTH: 2 \r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: content-length\r\n",
    b"Connection: etag, x-request-id\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"X: Content-Length: 5\r\n",
    b"Server: x\r\n",
    b"Date: Sat, 21 Nov 2026 12:25:03 GMT\r\n",
    b"ETag: 1\r\n",
    b"etag: 2\r\n",
    b"ETag:\r\n",
    b"X-Request-Id: 1\r\n",
    b"X-RateLimit-Remaining: 7\r\n",
    b"RateLimit : 7\r\n",
    b"X-Gateway-Plan: a\r\n",
    b"Last-Modified: Sat, 21 Nov 2026 12:25:03 GMT\r\n",
    b"Set-Cookie: gateway_session=x\r\n",
    b"Age: 1\rX: y\r\n",
    b"Age: 1\nX: y\r\n",
    b"X: y\nAge: 1\r\n",
    b"bad line\r\n",
]
STATUSES = [STATUS, b"HTTP/1.1 204 No\r\n", b"HTTP/1.0 304\r\n", b"HTTP/1.1 200 OK\n", b"bad\r\n"]


def meaning(parsed: ResponseHead | str) -> object:
    """What the head means: only the order of fields with different names may differ."""
    if isinstance(parsed, str):
        return str
    found: dict[bytes, list[bytes]] = {}
    for line in parsed.start.split(b"\r\n"):
        found.setdefault(line.partition(b":")[0].lower(), []).append(line)
    names = set(ResponseHead.__slots__) - {"start", "forward"}
    return {name: getattr(parsed, name) for name in names}, sorted(found.items())


@reaches(0.5)
@given(
    st.lists(
        st.tuples(st.sampled_from(STATUSES), st.lists(st.sampled_from(LINES), max_size=5)),
        min_size=1,
        max_size=3,
    ),
    st.data(),
)
def test_the_cache_changes_no_meaning(
    heads: list[tuple[bytes, list[bytes]]], data: st.DataObject
) -> None:
    """A head means the same, whatever came before it, and whichever fields of its own it has."""
    parser = HeadParser()
    own = st.lists(st.sampled_from(LINES[13:21]), max_size=2)
    for status, lines in [*heads, *heads, *heads]:
        raw = status + b"".join([*lines, *data.draw(own)])
        reached()
        assert meaning(parser.parse(raw)) == meaning(parse_response_head(raw))


@pytest.mark.parametrize("status", STATUSES)
def test_each_pair_of_lines(status: bytes) -> None:
    """When they come again, and could be cached, they mean the same."""
    parser = HeadParser()
    for first, second in product(LINES, repeat=2):
        raw = status + first + second
        expected = meaning(parse_response_head(raw))
        assert [meaning(parser.parse(raw)) for _ in range(3)] == [expected] * 3


def test_fields_of_its_own_are_not_in_the_way() -> None:
    """One parsed head serves answers with other lengths and ids, wherever these are."""
    parser = HeadParser()
    for number in range(10):
        lines = [b"A: b\r\n", b"C: d\r\n"]
        lines.insert(number % 3, b"Content-Length: %d\r\nETag: %d\r\n" % (number, number))
        head = parser.parse(STATUS + b"".join(lines) + b"X-RateLimit-Limit: %d\r\n" % number)
        assert isinstance(head, ResponseHead)
        assert head.framing == b"Content-Length: %d\r\n" % number
        assert b"ETag: %d\r\n" % number in head.forward
        assert b"X-RateLimit" not in head.forward
    assert len(parser._blocks.known) == 1


def test_the_number_of_fields_is_bounded() -> None:
    """Those that are cut out count as well."""
    parser = HeadParser()
    for count in (0, 0, MOST_FIELDS - 1):
        assert isinstance(parser.parse(STATUS + b"A: b\r\n" + b"Age: 1\r\n" * count), ResponseHead)
    assert isinstance(parser.parse(STATUS + b"A: b\r\n" + b"Age: 1\r\n" * MOST_FIELDS), str)


@pytest.mark.parametrize("length", [0, own_fields.MOST_KNOWN_BYTES])
def test_long_heads_are_not_cached(length: int) -> None:
    """Only what is short is cached."""
    parser = HeadParser()
    for _ in range(3):
        assert isinstance(parser.parse(STATUS + b"X: %b\r\n" % (b"x" * length)), ResponseHead)
    assert bool(parser._blocks.known) is (length == 0)
