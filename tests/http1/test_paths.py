"""The canonical form of a path; no spelling evades it."""

from __future__ import annotations

import re
import sys
from types import FrameType
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.errors import BAD_TARGET, TOO_MANY_SEGMENTS, Refusal
from gateway.http1.paths import MOST_SEGMENTS, CanonicalPath, canonical
from tests.kit.reach import mostly, reached, reaches
from tests.kit.tiers import examples

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
    (b"/a=%3D=%3d", b"/a=%3D=%3D", ("a====",)),
    (b"/a.b./c.", b"/a.b./c.", ("a.b.", "c.")),
    (b"/" + b"a/" * (MOST_SEGMENTS - 1), b"/" + b"a/" * (MOST_SEGMENTS - 1), ("a",) * 127),
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
    b"/api/%%",
    b"/api/%=3",
    b"/api/%41%",
    b"/api/%4%41",
    b"/api/..%20/x",
    b"/api/.%20%20",
    b"/api/..%3fx",
    b"/api/.%23",
    b"/api/..%20%3fx",
    b"/api/%20../x",
    b"/api/..%20./x",
    b"/api/%20.%20..",
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
def test_canonical(sent: bytes, forwarded: bytes, matched: tuple[str, ...]) -> None:
    """A path with one reading gets its normal form; the query stays as it is."""
    result = canonical(sent)
    assert isinstance(result, CanonicalPath)
    assert (result.path, result.segments) == (forwarded, matched)
    assert result.query == (b"?" + sent.partition(b"?")[2] if b"?" in sent else b"")


@pytest.mark.parametrize("sent", REFUSED)
def test_refused(sent: bytes) -> None:
    """A path with several readings, or an invalid one, is refused."""
    assert canonical(sent) is BAD_TARGET


@pytest.mark.parametrize("before", ["", "/a", "/ü/."])
@pytest.mark.parametrize("after", ["", "/", "/b"])
@pytest.mark.parametrize(
    "dots",
    [
        *(
            "\uff0e\uff0e",
            "\uff0e",
            ".\uff0e",
            "\ufe52\ufe52",
            "\u2024.",
            "\u2025",
            "\uff0e\uff0e.",
        ),
        *("..\xa0", "..\u200b", "\xa0..", ".\u3000.", "\ufeff.", ".\u2060", "..\u2028 "),
        *("..\uff0fb", "b\uff0f..", "b\uff3c..\xa0"),
    ],
)
def test_dot_segments_beyond_ascii(before: str, dots: str, after: str) -> None:
    """They are refused: servers that normalize or strip Unicode would resolve them."""
    assert canonical(quote(f"{before}/{dots}{after}").encode()) is BAD_TARGET


@pytest.mark.parametrize(
    "path",
    [
        "/ü/../a",
        "/ü/.",
        "/\uff0ehidden",
        "/a\uff0e\uff0e",
        "/..\xa0a",
        "/\xa0",
        "/a\u200b",
        "/日本/。。",
    ],
)
def test_others_beyond_ascii(path: str) -> None:
    """Dots and spaces that are a part of a name are forwarded."""
    assert isinstance(canonical(quote(path).encode()), CanonicalPath)


@pytest.mark.parametrize("joint", [b"/a", b"/", b"/.", b"/%61", b"/a/..", b"/|"])
def test_too_many_segments(joint: bytes) -> None:
    """No path has more segments, even if few remain of them; the refusal says how many."""
    most = joint * (MOST_SEGMENTS // joint.count(b"/"))
    assert isinstance(canonical(most), CanonicalPath)
    assert canonical(most + b"/a?/") is TOO_MANY_SEGMENTS
    assert f" {MOST_SEGMENTS} " in TOO_MANY_SEGMENTS.message


READINGS_OF = [
    # what is sent, what is matched, other readings
    (b"/a", ["a"], []),
    (b"/a.b/c%20d", ["a.b", "c d"], []),
    (b"/a.", ["a."], [["a"]]),
    (b"/a%20/b...", ["a ", "b..."], [["a", "b"]]),
    (b"/a%20.%20/b", ["a . ", "b"], [["a", "b"]]),
    (b"/.../b", ["...", "b"], [["b"]]),
    (b"/a/%20", ["a", " "], [["a"]]),
    (b"/.a", [".a"], []),
    (b"/a%3Fb", ["a?b"], [["a"]]),
    (b"/a%23/b", ["a#", "b"], [["a"]]),
    (b"/%3Fa", ["?a"], [[]]),
    (b"/a%23b%3Fc", ["a#b?c"], [["a#b"], ["a"]]),
    (b"/a/b.%3Fc", ["a", "b.?c"], [["a", "b."], ["a", "b"]]),
    (b"/a./b%3Fc.", ["a.", "b?c."], [["a.", "b"], ["a", "b?c"], ["a", "b"]]),
    (b"/a%3f/../b", ["b"], []),
]


@pytest.mark.parametrize(("sent", "matched", "others"), READINGS_OF)
def test_readings(sent: bytes, matched: list[str], others: list[list[str]]) -> None:
    """The readings of servers that cut off at an encoded "?" or "#", or drop dots and spaces."""
    result = canonical(sent)
    assert isinstance(result, CanonicalPath)
    assert [*result.segments] == matched
    assert [[*reading] for reading in result.readings] == others
    assert result.slash_readings == ()


KEPT = [
    # what is sent, what is matched, the readings with encoded slashes as slashes
    (b"/a%2Fb", ["a/b"], [["a", "b"]]),
    (b"/x/a%2fb%2Fc/y", ["x", "a/b/c", "y"], [["x", "a", "b", "c", "y"]]),
    (b"/%2Fetc%2F/x", ["/etc/", "x"], [["etc", "x"]]),
    (b"/a%2Fb%3Fc", ["a/b?c"], [["a", "b?c"], ["a", "b"]]),
    (b"/a.%2Fb", ["a./b"], [["a.", "b"], ["a", "b"]]),
    (b"/a%2Fb/../c", ["c"], []),
]


@pytest.mark.parametrize(("sent", "matched", "others"), KEPT)
def test_an_encoded_slash_that_is_kept(
    sent: bytes, matched: list[str], others: list[list[str]]
) -> None:
    """A kept slash is part of its segment, is forwarded encoded, and has its readings."""
    result = canonical(sent, keeps_slashes=True)
    assert isinstance(result, CanonicalPath)
    assert [*result.segments] == matched
    assert [[*reading] for reading in result.slash_readings] == others
    assert unquote_to_bytes(result.path).count(b"/") == result.path.count(b"/") + sum(
        segment.count("/") for segment in matched
    )
    assert canonical(sent) is BAD_TARGET


@pytest.mark.parametrize(
    "sent",
    [b"/a%2F..", b"/..%2Fa", b"/a%2F../b", b"/a%2F.%2Fb", b"/a/.%2Fb", b"/a%2F%2e%2E%2fb"]
    + [b"/a%2F..%20", b"/a%2F..%3Fb", b"/a%5Cb%2Fc", b"/a%252Fb"],
)
def test_dots_beside_a_slash_that_is_kept(sent: bytes) -> None:
    """Dot segments to servers that decode a slash are refused: they would lead elsewhere."""
    assert canonical(sent, keeps_slashes=True) is BAD_TARGET


PLAIN = [b"/", b"//", b".", b"%2e", b"api", b"search", b"%73", b"a", b"%25", b"2e", b"%c3%a9", b"?"]
ODD = [b"..", b"%2E%2e", b"%2f", b";x", b"\\", b"%5c", b"%252e", b"%00", b"%c0%ae", b"=", b"%3b"]


def path_of(pieces: list[bytes]) -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(pieces), max_size=12).map(lambda drawn: b"/" + b"".join(drawn))


#: Paths, most of which are not refused.
PATHS = mostly(path_of(PLAIN), path_of([*PLAIN, *ODD]))


@reaches(0.1)
@given(mostly(PATHS, st.binary(max_size=40).map(lambda tail: b"/" + tail)))
@example(b"/%2e%2e%2f")
@example(b"/%2fa./%23")
def test_any_bytes_are_canonical_once_or_refused(target: bytes) -> None:
    """Any bytes are refused, or get a form that is its own canonical form."""
    for keeps_slashes in (False, True):
        result = canonical(target, keeps_slashes=keeps_slashes)
        if isinstance(result, CanonicalPath):
            reached()
            again = canonical(result.path + result.query, keeps_slashes=keeps_slashes)
            assert again == result


def settled_one_by_one(path: bytes) -> bytes:
    """RFC 3986, 6.2.2.1 and 6.2.2.2, a character at a time."""
    unreserved = rb"[A-Za-z0-9._~-]"

    def settle(match: re.Match[bytes]) -> bytes:
        byte = bytes((int(match[0][1:], 16),))
        return byte if re.fullmatch(unreserved, byte) else match[0].upper()

    settled = re.sub(rb"%[0-9A-Fa-f]{2}", settle, path)
    return re.sub(
        rb"[^A-Za-z0-9._~!$&'()*+,=:@%/-]", lambda match: b"%%%02X" % match[0][0], settled
    )


def encoded(codes: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Each byte encoded, with digits of either case."""
    forms = st.sampled_from([b"%%%02x", b"%%%02X"])
    return st.builds(lambda form, drawn: b"".join(form % one for one in drawn), forms, codes)


ANY = st.integers(0x21, 0x7E).map(lambda code: b"%c" % code)
#: Characters that a path may have as they are, or encoded.
KEPT = st.sampled_from([b"%c" % code for code in range(0x21, 0x7F) if code not in b"#%/;?\\"])
CODES = st.sampled_from([b"%4a", b"%4A", b"%6f", b"%e4%b8%ad", b"%C3%A9", b"%c3%a9"])


@reaches(0.2)
@settings(max_examples=examples(500))
@given(
    mostly(
        st.lists(CODES | encoded(KEPT) | KEPT, max_size=12),
        st.lists(CODES | encoded(st.binary(min_size=1, max_size=2)) | ANY, max_size=12),
    ).map(lambda pieces: b"/x" + b"".join(pieces))
)
@example(b"/x" + bytes(range(0x21, 0x7F)).translate(None, b"#%/;?\\."))
@example(b"/x" + b"".join(b"%%%02x" % byte for byte in range(0x20, 0x7F) if byte not in b"/;\\%"))
def test_all_at_once_equals_one_by_one(target: bytes) -> None:
    """Converting all encodings in a few steps has the same result as one by one."""
    result = canonical(target)
    path = target.partition(b"?")[0]
    if isinstance(result, Refusal) or re.search(rb"/[./]*(/|\Z)", unquote_to_bytes(path)):
        return
    reached()
    assert result.path == settled_one_by_one(path)
    assert "/".join(("", *result.segments)).encode() == unquote_to_bytes(path)


def calls_for(target: bytes) -> int:
    """How many functions are called, built-in ones included, for a target."""
    calls = 0

    def count(_frame: FrameType, event: str, _function: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        canonical(target, keeps_slashes=True)
    finally:
        sys.setprofile(None)
    return calls


#: A path repeats one of these.
SHAPES = [
    *(
        b"a",
        b"A",
        b"a.",
        b".",
        b"~",
        b"=",
        b"|",
        b'"<>[]^`{}',
        b"%61",
        b"%7e",
        b"%C3%A9",
        b"%c3%a9",
    ),
    *(b"%20", b".%20", b"%3F", b"%23x", b"%25", b"%2F", b"a%2f", b"%2F.%3F", b"%", b"%zz", b"%00"),
    *(b"%e2%84%aa", b"%ff", b";", b"%5c", b"%252e"),
    *(b"/", b"//a", b"/.", b"/a/..", b"/%61", b"/|", b"/a.", b"/%c3%a9", b"/a.%3F", b"/%2F."),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("start", [b"/", b"/" + b"/a" * 120, b"/%20", b"/=%41"])
def test_the_work_does_not_grow_with_the_path(start: bytes, shape: bytes) -> None:
    """Eight times the path takes no more calls, except for those per segment.

    A longer path takes longer within single calls, by some nanoseconds a byte.
    """
    short, long = (start + shape * (size // len(shape)) for size in (1_000, 8_000))
    assert calls_for(long) <= max(calls_for(short), 30) + 12 * MOST_SEGMENTS


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
    """Resolve dot segments and doubled slashes as any upstream would."""
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            kept[-1:] = []
        elif segment not in {b"", b"."}:
            kept.append(segment)
    return kept


@reaches(0.1)
@given(PATHS)
def test_every_reading_sees_what_was_matched(target: bytes) -> None:
    """However an upstream reads the forwarded path, it gets the segments that were matched."""
    result = canonical(target)
    if isinstance(result, Refusal):
        return
    reached()
    matched = [segment.encode() for segment in result.segments]
    for name, read in READINGS.items():
        if name == "raw":
            assert [unquote_to_bytes(one) for one in resolve(result.path)] == matched
        else:
            assert resolve(read(result.path)) == matched, name
