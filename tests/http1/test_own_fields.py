"""Fields of a message's own: what is cut out leaves the others as they are."""

from __future__ import annotations

import pytest

from gateway.http1 import own_fields
from gateway.http1.own_fields import Blocks, Cut, names_fields

CUT = Cut((b"b3", b"x-id", b"etag"), prefixes=(b"ratelimit", b"x-rate-"))


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (b"b3: 1", b"b3", b"1"),
        (b'ETag: W/"a b"', b"ETag", b'W/"a b"'),
        (b"x-ID: \xe9\tb", b"x-ID", b"\xe9\tb"),
        (b"RateLimit: 1", b"RateLimit", b"1"),
        (b"RateLimit-Policy: 1", b"RateLimit-Policy", b"1"),
        (b"X-Rate-: 1", b"X-Rate-", b"1"),
        *[
            (line, b"", b"")
            for line in (
                *(b"b3:1", b"b3:  1", b"b3: 1 ", b"b3: ", b"b3 : 1", b" b3: 1", b"X-b3: 1"),
                *(b"b33: 1", b"b: 1", b"b3: \x01", b"ratelimit : 1", b"ratelimit\r: 1", b"rate: 1"),
            )
        ],
    ],
)
def test_what_is_cut(line: bytes, name: bytes, value: bytes) -> None:
    """Lines of these names in their usual form, alone, first, in between, last and twice."""
    for before, after in ((b"", b""), (b"", b"A: b"), (b"A: b", b""), (b"A: b", b"C: d")):
        others = b"".join(b"\r\n" + each for each in (before, after) if each) + b"\r\n"
        whole = b"".join(b"\r\n" + each for each in (before, line, line, after) if each) + b"\r\n"
        parts = CUT.split(whole)
        if name:
            assert b"".join(parts[::3]) == others
            assert (parts[1::3], parts[2::3]) == ([name] * 2, [value] * 2)
        else:
            assert parts == [whole]


@pytest.mark.parametrize("before", [b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r\n"])
@pytest.mark.parametrize("after", [b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r\n"])
def test_only_whole_lines_are_cut(before: bytes, after: bytes) -> None:
    """What is no line end stays, on whichever side of a field it is."""
    whole = b"\r\nA: b%bb3: 1%bC: d\r\n" % (before, after)
    rest = b"".join(CUT.split(whole)[::3])
    no_line_end = rest.replace(b"\r\n", b"")
    assert (b"\r" in no_line_end or b"\n" in no_line_end) is ((before, after) != (b"\r\n",) * 2)


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (b"\r\nb3:\r\n", True),
        (b"\r\nA: b\nETAG:x\r\n", True),
        (b"\r\nratelimit-x:1\r\n", True),
        (b"\r\nA: b3: 1\r\nab3: 1\r\n", False),
    ],
)
def test_any(block: bytes, found: bool) -> None:
    """Of every form that a parser could take for such a field."""
    assert bool(CUT.any(block)) is found


@pytest.mark.parametrize(
    ("block", "named"),
    [
        (b"Connection: keep-alive\r\n", False),
        (b"A: b\r\nconnection: Close\r\n", False),
        (b"X-Connection: a\r\n", False),
        (b"Connection: a\r\n", True),
        (b"Connection: close, a\r\n", True),
        (b"A: b\r\nCONNECTION:close\r\n", True),
        (b"Connection: close\r\nConnection: a\r\n", True),
    ],
)
def test_whether_connection_names_fields(block: bytes, named: bool) -> None:
    """Anything but one of the two usual options may name a field."""
    assert bool(names_fields(block)) is named


def test_blocks() -> None:
    """A block is worth caching when it comes again; both memories are bounded."""
    blocks = Blocks[int]()
    assert not blocks.comes_again("a")
    assert blocks.comes_again("a")
    for number in range(2 * own_fields.MOST_SEEN):
        blocks.comes_again(number)
        blocks.put(number, number)
        assert len(blocks._seen) <= own_fields.MOST_SEEN
        assert len(blocks.known) <= own_fields.MOST_KNOWN
        assert blocks.known[number] == number
    assert not blocks.comes_again("a")
