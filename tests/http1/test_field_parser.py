"""The cache of header blocks: it changes no meaning, holds no key, and is bounded."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.headers import HeaderRules
from gateway.errors import HEADERS_TOO_LARGE, KEY_CONFLICTING, KEY_MISSING, Refusal
from gateway.http1 import field_parser, own_fields
from gateway.http1.field_parser import FieldParser
from gateway.http1.head import Fields, parse_fields
from tests.kit.reach import reached, reaches

HOST = b"Host: a\r\n"
KEY = b"gwk_production_7h3k9m2p4q6r_0123456789ABCDEFGHIJKLMNOPQRSTUV012345"
SPAN = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RULES = {
    "plain": HeaderRules(100),
    "few": HeaderRules(3),
    "traced": HeaderRules(100, traced=True),
    "counted": HeaderRules(100, counted=("b3", "x-correlation-id")),
    "trusted": HeaderRules(100, trusted_only=("traceparent", "Idempotency-*")),
}
LINES = [
    HOST,
    b"Host: b\r\n",
    b"X-Item: 1\r\n",
    b"X: Authorization: Bearer no\r\n",
    b"Proxy-Authorization: Bearer no\r\n",
    b"Authorization: Bearer other\r\n",
    b"authorization: Bearer key\r\n",
    b"authorization: Bearer  key\r\n",
    b"authorization: Bearer k\xe9y\r\n",
    b"authorization: Basic eDp5\r\n",
    b"AUTHORIZATION: Bearer key\r\n",
    b"apiKey: key\r\n",
    b"apiKey: other\r\n",
    b"apiKey: \r\n",
    b"APIKEY:\r\n",
    b"apiKey: key \r\n",
    b"X: %b\r\n" % KEY,
    b"baggage: %b\r\n" % KEY,
    b"Connection: Authorization, x-item, traceparent\r\n",
    b"Connection: keep-alive\r\n",
    b"Connection: close\r\n",
    b"Connection: b3, x-correlation-id\r\n",
    b"connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    b"Upgrade: websocket\r\n",
    b"Content-Length: 3\r\n",
    b"content-length: 12\r\n",
    b"Content-Length: x\r\n",
    b"Content-Length:3\r\n",
    b"Content-Length: 3, 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"X-Forwarded-For: 10.1.2.3\r\n",
    b"x-forwarded-for: 10.1.2.4, 10.1.2.5\r\n",
    b"X-Request-Id: one\r\n",
    b"X-Request-ID: t w o\r\n",
    b"X_Request_Id: three\r\n",
    b"traceparent: %b\r\n" % SPAN,
    b"Traceparent: other\r\n",
    b"traceparent:%b\r\n" % SPAN,
    b"tracestate: a=b\r\n",
    b"b3: 1\r\n",
    b"B3: 2\r\n",
    b"X-Correlation-Id: 7\r\n",
    b"x_correlation_id: 8\r\n",
    b"Idempotency-Key: 9\r\n",
    b"Cookie: gateway_session=a; b=c\r\n",
    b"\r\n",
    b"bad line\r\n",
    b"b3 : 1\r\n",
    b"b3: 1\rX: y\r\n",
    b"X: y\nb3: 1\r\n",
    b" folded\r\n",
    b"no end",
]

OWN = LINES[
    LINES.index(b"Content-Length: 3\r\n") : LINES.index(b"Cookie: gateway_session=a; b=c\r\n")
]


def by_name(lines: bytes) -> list[tuple[bytes, list[bytes]]]:
    """The lines of each name in their order; Host has to be the first one."""
    found: dict[bytes, list[bytes]] = {}
    for line in lines.split(b"\r\n"):
        found.setdefault(line.partition(b":")[0].lower(), []).append(line)
    return [(b"first", [lines[:5]] if b"host" in found else []), *sorted(found.items())]


def meaning(parsed: Fields | Refusal) -> object:
    """What the parsed block means: only the order of fields with different names may differ."""
    if isinstance(parsed, Refusal):
        return parsed
    found = {name: getattr(parsed, name) for name in Fields.__slots__}
    return found | {"forward": by_name(parsed.forward)}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@reaches(0.5)
@given(
    blocks=st.lists(
        st.tuples(st.lists(st.sampled_from(LINES), max_size=6), st.sampled_from([0, 1, 1])),
        min_size=1,
        max_size=3,
    ),
    has_host=st.booleans(),
)
def test_the_cache_changes_no_meaning(
    rules: HeaderRules, blocks: list[tuple[list[bytes], int]], has_host: bool
) -> None:
    """A block means the same, how often it and others came before."""
    parser = FieldParser(rules)
    for lines, minor in [*blocks, *blocks, *blocks]:
        block = HOST * has_host + b"".join(lines)
        reached()
        assert meaning(parser.parse(block, minor)) == meaning(parse_fields(rules, block, minor))


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("minor", [0, 1])
def test_each_pair_of_lines(rules: HeaderRules, minor: int) -> None:
    """When they come again, and could be cached, they mean the same."""
    parser = FieldParser(rules)
    for first, second in product(LINES, repeat=2):
        block = HOST + first + second
        expected = meaning(parse_fields(rules, block, minor))
        assert [meaning(parser.parse(block, minor)) for _ in range(3)] == [expected] * 3


@given(st.lists(st.sampled_from(LINES[1:]), max_size=3), st.data())
def test_other_values_of_own_fields(rest: list[bytes], data: st.DataObject) -> None:
    """What was cached of a block holds for one with other fields of its own, wherever they are."""
    rules = RULES["plain"]
    parser = FieldParser(rules)
    own = st.lists(st.sampled_from(OWN), max_size=3)
    for _ in range(4):
        lines = [HOST, *rest]
        for line in data.draw(own):
            lines.insert(data.draw(st.integers(0, len(lines))), line)
        block = b"".join(lines)
        assert meaning(parser.parse(block, 1)) == meaning(parse_fields(rules, block, 1))


def test_fields_of_its_own_are_not_in_the_way() -> None:
    """One parsed block serves requests with other keys, ids, lengths and traces."""
    parser = FieldParser(RULES["plain"])
    block = (
        HOST + b"Accept: */*\r\nauthorization: Bearer %d\r\ntraceparent: %d\r\nX-Request-Id: %d\r\n"
    )
    for number in range(10):
        fields = parser.parse(block % ((number,) * 3) + b"Content-Length: %d\r\n" % number, 1)
        assert isinstance(fields, Fields)
        assert fields.credential == fields.request_id == b"%d" % number
        assert fields.authorization == b"Authorization: Bearer %d\r\n" % number
        assert b"traceparent: %d\r\n" % number in fields.forward
        assert (fields.length, fields.bare) == (number, False)
    assert [minor for _, minor in parser._blocks.known] == [1]


@pytest.mark.parametrize("own", [b"Authorization: Bearer k\r\n", b"b3: 1\r\n", b"apiKey: k\r\n"])
def test_fields_of_its_own_are_counted(own: bytes) -> None:
    """A block that is cached, and has as many fields as the bound, takes none beside them."""
    parser, rest = FieldParser(RULES["few"]), HOST + b"X: 1\r\nY: 1\r\n"
    for _ in range(3):
        assert isinstance(parser.parse(rest, 1), Fields)
        assert parser.parse(rest + own, 1) is HEADERS_TOO_LARGE


@pytest.mark.parametrize(
    ("lines", "is_continued"),
    [
        (b"", True),
        (b"Connection: traceparent\r\n", False),
        (b"Connection: close, TraceParent\r\n", False),
        (b"Connection: tracestate\r\n", True),
    ],
)
def test_a_span_that_connection_names(lines: bytes, is_continued: bool) -> None:
    """It is for the hop before the gateway, and is not continued."""
    block = HOST + b"traceparent: %b\r\n" % SPAN + lines
    parser = FieldParser(RULES["traced"])
    for _ in range(3):
        fields = parser.parse(block, 1)
        assert isinstance(fields, Fields)
        assert (fields.trace is not None) is is_continued


def test_a_third_credential_is_refused_like_a_second() -> None:
    """If two lines contradict each other, a third one cannot make them valid."""
    lines = [b"Authorization: Bearer %b\r\n" % key for key in (b"one", b"two", b"three")]
    parser = FieldParser(HeaderRules(100))
    for _ in range(3):
        fields = parser.parse(HOST + b"".join(lines), 1)
        assert isinstance(fields, Fields)
        assert fields.credential is KEY_CONFLICTING


def test_keys_are_not_cached() -> None:
    """A block is cached without its key, in bounded number; one with a key elsewhere is not."""
    parser = FieldParser(HeaderRules(100))
    for number in range(2 * own_fields.MOST_KNOWN):
        key = (b"Authorization: Bearer sesame", b"apiKey: sesame", b"AUTHORIZATION:sesame")
        other = (b"", b"apiKey:sesame\r\n", b"X: %b\r\n" % KEY, b"baggage: %b\r\n" % KEY)
        block = HOST + b"X: %d\r\n%b\r\n%b" % (number, key[number % 3], other[number % 4])
        for _ in range(2):
            parser.parse(block, 1)
    assert 0 < len(parser._blocks.known) <= own_fields.MOST_KNOWN
    assert "sesame" not in repr(parser._blocks.known)
    assert "gwk_" not in repr(parser._blocks.known)
    size = len(parser._blocks.known)
    long = HOST + b"X: %b\r\nAuthorization: Bearer k\r\n" % (b"x" * own_fields.MOST_KNOWN_BYTES)
    for _ in range(2):
        parser.parse(long, 1)
    assert len(parser._blocks.known) == size


def test_requests_with_other_keys_share_a_parsed_block() -> None:
    """A block that comes again is parsed once for all keys."""
    parse = FieldParser(HeaderRules(100)).parse
    parse(HOST + b"X-A: 1\r\nX-B: 2\r\nAuthorization: Bearer zero\r\n", 1)
    one = parse(HOST + b"X-A: 1\r\nAuthorization: Bearer one\r\nX-B: 2\r\n", 1)
    two = parse(HOST + b"X-A: 1\r\nX-B: 2\r\nauthorization: Bearer two\r\n", 1)
    none = parse(HOST + b"X-A: 1\r\nX-B: 2\r\n", 1)
    assert isinstance(one, Fields)
    assert isinstance(two, Fields)
    assert isinstance(none, Fields)
    assert one.forward is two.forward is none.forward
    assert (one.credential, two.credential) == (b"one", b"two")
    assert none.credential is KEY_MISSING
    assert two.authorization == b"Authorization: Bearer two\r\n"


def test_a_copy_keeps_every_field() -> None:
    """Only the lines for the upstream are others, and none is left out."""
    fields = Fields()
    for name in Fields.__slots__:
        setattr(fields, name, f"of {name}")
    copied = field_parser._copied(fields, b"others")
    names = [each.name for each in dataclasses.fields(Fields)]
    expected = {name: f"of {name}" for name in names} | {"forward": b"others"}
    assert {name: getattr(copied, name) for name in names} == expected
