"""Lists of tools, without those that a key may not call."""

from __future__ import annotations

import json

import pytest

from gateway.domain.mcp.lists import LONGEST_LIST, Unreadable, edited_fields, filtered
from gateway.domain.mcp.members import MOST_ELEMENTS, MOST_KEYS


def admits(name: str) -> bool:
    return name != "secret"


def test_what_stays_is_as_it_was() -> None:
    """Order, unknown members, and the form of numbers and texts are kept."""
    answer = (
        b'{"jsonrpc": "2.0", "id": 1e0, "result": {"nextCursor": "\\u0041", "tools": ['
        b'{"name": "b", "inputSchema": {"maximum": 10000000000000000000000.50}}, '
        b'{"description": "x", "name": "secret"}, {"name": "a"}], "_meta": {}}}'
    )
    assert filtered(answer, admits, "") == (
        b'{"jsonrpc":"2.0","id":1e0,"result":{"nextCursor":"\\u0041","tools":['
        b'{"name": "b", "inputSchema": {"maximum": 10000000000000000000000.50}},{"name": "a"}]'
        b',"_meta":{}}}'
    )


@pytest.mark.parametrize(
    "answer",
    [
        b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "a"}}',
        b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"tools": []}}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}',
        b'{"jsonrpc": "2.0", "id": 1, "result": []}',
    ],
)
def test_other_answers(answer: bytes) -> None:
    """An answer without a list is unchanged."""
    assert filtered(answer, admits, "2026-07-28") == answer


@pytest.mark.parametrize(
    ("version", "scope", "expected"),
    [
        ("", None, None),
        ("", "public", "private"),
        ("2025-11-25", None, None),
        ("2026-07-28", None, "private"),
        ("2026-07-28", "public", "private"),
    ],
)
def test_no_cache_shares_it(version: str, scope: str | None, expected: str | None) -> None:
    """From 2026-07-28 on answers may be cached, and this one differs by key."""
    result = {"tools": [], **({} if scope is None else {"cacheScope": scope})}
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()
    read = json.loads(filtered(answer, admits, version))
    assert read["result"].get("cacheScope") == expected


def test_arrays() -> None:
    """Each answer of an array is filtered."""
    part = b'{"id":1,"result":{"tools":[{"name":"secret"}]}}'
    assert filtered(b"[%b, %b]" % (part, part), admits, "") == b"[%b,%b]" % (
        (part.replace(b'{"name":"secret"}', b""),) * 2
    )


@pytest.mark.parametrize(
    "answer",
    [
        b'{"result":{"tools":[%b{}]}}' % (b'{"name":"a"},' * LONGEST_LIST),
        b"",
        b"x",
        b"1",
        b'{"result":{"tools":{}}}',
        b'{"result":{"tools":[1]}}',
        b'{"result":{"tools":[{"name":1}]}}',
        b'{"result":{"tools":[{}]}}',
        b'{"result":{"tools":[{"name":"\xff"}]}}',
        b'{"result":{"tools":' + b"[" * 5_000 + b"]" * 5_000 + b"}}",
    ],
)
def test_unreadable_answers(answer: bytes) -> None:
    """They are no lists, and the caller decides what happens."""
    with pytest.raises(Unreadable):
        filtered(answer, admits, "")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (b"", b""),
        (b'ETag: "a"\r\nX-Any: y\r\nLast-Modified: z\r\n', b"X-Any: y\r\n"),
        (b"Digest: a\r\ncontent-digest: b\r\nRepr-Digest: c\r\nContent-MD5: d\r\n", b""),
        (b"X-ETag: a\r\nEtags: b\r\nX: etag: c\r\n", b"X-ETag: a\r\nEtags: b\r\nX: etag: c\r\n"),
        (b"Cache-Control: public, max-age=60\r\n", b""),
        (b'Cache-Control: private="set-cookie"\r\n', b""),
        (b"Cache-Control: not-private\r\ncache-control: s-maxage=9\r\n", b""),
        (b"CDN-Cache-Control: max-age=9\r\nExample-CDN-Cache-Control: max-age=9\r\n", b""),
    ],
)
def test_fields_of_an_edited_list(given: bytes, kept: bytes) -> None:
    """Nothing describes the server's bytes, and only the client may cache it."""
    assert edited_fields(given) == kept + b"Cache-Control: private\r\n"


@pytest.mark.parametrize(
    "control",
    [b"private", b"no-store", b"max-age=60 , Private", b"no-store, max-age=0", b"a=b,private,c"],
)
def test_what_no_cache_shares_stays(control: bytes) -> None:
    """The server has said it itself, with how long the client may use it."""
    line = b"Cache-Control: %b\r\n" % control
    assert edited_fields(b"Surrogate-Control: max-age=9\r\n" + line) == line


def listing(tools: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"result":{"tools":%b}}' % tools


@pytest.mark.parametrize(
    "answer",
    [
        b"[%b]" % b",".join([b"{}"] * (MOST_ELEMENTS + 1)),
        b"[%b]" % b",".join([listing(b"[]")] * (MOST_ELEMENTS + 1)),
        listing(b"[%b]" % b",".join([b'{"name":"a"}'] * (LONGEST_LIST + 1))),
        listing(b'[{"name":"a"},1]'),
        listing(b"[{}]"),
        listing(b"7"),
        b'{"result":{%b"tools":[]}}' % b"".join(b'"%x":1,' % key for key in range(MOST_KEYS)),
        b'{%b"result":{}}' % b"".join(b'"%x":1,' % key for key in range(MOST_KEYS)),
    ],
)
def test_unusual_forms_are_not_filtered(answer: bytes) -> None:
    """Reading them all could take long, and no server sends them."""
    with pytest.raises(Unreadable):
        filtered(answer, admits, "")


@pytest.mark.parametrize(
    "answer",
    [
        b'{"result":{"Tools":[{"name":"secret"}]}}',
        b'{"result":{"tools":[],"tools":[{"name":"secret"}]}}',
        b'{"result":{"tools":[]},"result":{"tools":[{"name":"secret"}]}}',
        b'{"Result":{"tools":[{"name":"secret"}]}}',
    ],
)
def test_two_readings(answer: bytes) -> None:
    """A client could find other tools than were filtered: that is told, not passed in silence."""
    with pytest.raises(Unreadable):
        filtered(answer, admits, "")
