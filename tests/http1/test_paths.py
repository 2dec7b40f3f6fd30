"""One canonical form of a path, and no spelling that escapes it."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import BAD_TARGET, Refusal
from gateway.http1.paths import CanonicalPath, canonical

SEARCH = ("api", "search", "x")

SETTLED = [
    # what is sent, what is forwarded, what is matched
    (b"/", b"/", ()),
    (b"/api/search/x", b"/api/search/x", SEARCH),
    (b"/api/search/x?q=1&r=%2f", b"/api/search/x", SEARCH),
    (b"/api/search/x?", b"/api/search/x", SEARCH),
    (b"//api///search//x", b"/api/search/x", SEARCH),
    (b"/./api/./search/x", b"/api/search/x", SEARCH),
    (b"/api/other/../search/x", b"/api/search/x", SEARCH),
    (b"/api/other/%2e%2E/search/x", b"/api/search/x", SEARCH),
    (b"/api/other/.%2e/search/x", b"/api/search/x", SEARCH),
    (b"/api/%2e/search/x", b"/api/search/x", SEARCH),
    (b"/api/%73earch/x", b"/api/search/x", SEARCH),
    (b"/api/se%61rch/%78", b"/api/search/x", SEARCH),
    (b"/api/search/x/", b"/api/search/x/", SEARCH),
    (b"/api/search/x/.", b"/api/search/x/", SEARCH),
    (b"/api/search/x/y/..", b"/api/search/x/", SEARCH),
    (b"/api/search/x//", b"/api/search/x/", SEARCH),
    (b"/..a/b..", b"/..a/b..", ("..a", "b..")),
    (b"/.well-known/x", b"/.well-known/x", (".well-known", "x")),
    (b"/a%20b", b"/a%20b", ("a b",)),
    (b"/a%c3%a9", b"/a%C3%A9", ("aé",)),
    (b"/a%3ab:c", b"/a%3Ab:c", ("a:b:c",)),
    (b"/100%25", b"/100%25", ("100%",)),
    (b"/{id}", b"/%7Bid%7D", ("{id}",)),
    (b"/a%3Fb%23c", b"/a%3Fb%23c", ("a?b#c",)),
    (b"/.", b"/", ()),
    (b"/a/..", b"/", ()),
]

REFUSED = [
    b"",
    b"api",
    b"*",
    b"?q",
    b"/api/search%2fx",
    b"/api%2Fsearch/x",
    b"/api/search%5cx",
    b"/api/search\\x",
    b"/api;v=1/search/x",
    b"/api/search;jsessionid=1/x",
    b"/api/search%3bx",
    b"/api/..;/search",
    b"/api/%00",
    b"/api/%0d%0aX: y",
    b"/api/%7f",
    b"/api/%2573earch/x",
    b"/api/%252e%252e/x",
    b"/api/%25%32%65/x",
    b"/api/%zz",
    b"/api/%2",
    b"/api/%",
    b"/api/%c0%ae%c0%ae/x",
    b"/api/%ff",
    b"/..",
    b"/../etc",
    b"/a/../../b",
    b"/%2e%2e/x",
    b"/a#b",
    b"/a b",
    b"/a\tb",
    b"/a\x00b",
    b"/caf\xc3\xa9",
]


@pytest.mark.parametrize(("sent", "forwarded", "matched"), SETTLED)
def test_settled(sent: bytes, forwarded: bytes, matched: tuple[str, ...]) -> None:
    """A path that reads one way only is settled into its normal form; the query stays as it is."""
    result = canonical(sent)
    assert isinstance(result, CanonicalPath)
    assert (result.path, result.segments) == (forwarded, matched)
    assert result.query == (b"?" + sent.partition(b"?")[2] if b"?" in sent else b"")


@pytest.mark.parametrize("sent", REFUSED)
def test_refused(sent: bytes) -> None:
    """A path that can be read in more than one way, or is no path, is refused."""
    assert canonical(sent) is BAD_TARGET


@given(st.binary(max_size=40).map(lambda tail: b"/" + tail))
@example(b"/%2e%2e%2f")
def test_any_bytes_settle_once_or_are_refused(target: bytes) -> None:
    """Whatever is sent is refused, or settles into a form that settling leaves as it is."""
    result = canonical(target)
    if isinstance(result, Refusal):
        return
    again = canonical(result.path + result.query)
    assert again == result


PIECES = st.sampled_from(
    [b"/", b"//", b".", b"..", b"%2e", b"%2E%2e", b"api", b"search", b"%73", b"a", b"%2f", b";x"]
    + [b"\\", b"%5c", b"%25", b"2e", b"%252e", b"%00", b"%c3%a9", b"%c0%ae", b"?", b"=", b"%3b"]
)

#: How upstreams may read a path.
READINGS = {
    "raw": lambda path: path,
    "decoded": unquote_to_bytes,
    "decoded twice": lambda path: unquote_to_bytes(unquote_to_bytes(path)),
    "parameters cut": lambda path: b"/".join(
        segment.partition(b";")[0] for segment in unquote_to_bytes(path).split(b"/")
    ),
    "backslash as slash": lambda path: unquote_to_bytes(path).replace(b"\\", b"/"),
}


def resolve(path: bytes) -> list[bytes]:
    """Dot segments and doubled slashes as any upstream would treat them."""
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            kept[-1:] = []
        elif segment not in {b"", b"."}:
            kept.append(segment)
    return kept


@given(st.lists(PIECES, max_size=12).map(lambda pieces: b"/" + b"".join(pieces)))
def test_every_reading_sees_what_was_matched(target: bytes) -> None:
    """However an upstream reads the forwarded path, it sees the segments that decided."""
    result = canonical(target)
    if isinstance(result, Refusal):
        return
    matched = [segment.encode() for segment in result.segments]
    for name, read in READINGS.items():
        if name == "raw":
            assert [unquote_to_bytes(one) for one in resolve(result.path)] == matched
        else:
            assert resolve(read(result.path)) == matched, name
