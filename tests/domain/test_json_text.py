"""Levels of JSON are counted as one by one, and bounded at each place where others send it."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from gateway_client.calls import error_of, json_of
from gateway_client.webhooks.events import read_event
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.console.webhook_parts import json_text as shown_text
from gateway.cli.log_lines import as_object
from gateway.domain.json_array import count_elements
from gateway.domain.json_text import MOST_LEVELS, TooDeep, check_levels, read_json
from gateway.domain.mcp.lists import Unreadable, filtered
from gateway.domain.mcp.messages import Body, Fault, read_body, read_in_steps
from gateway.domain.ports import CorruptRecord
from gateway.domain.webhooks.events import Integration, captured, published
from gateway.domain.webhooks.kinds.linear import LINEAR
from gateway.domain.webhooks.raw_bodies import as_kept
from gateway.domain.webhooks.signatures import sign
from gateway.manage.deliveries import body_as_json
from gateway.manage.json_object import read_object
from gateway.manage.key_file import read_line
from gateway.manage.refusals import Refused, told_of
from gateway.policies.openapi import read_openapi
from gateway.stores.webhooks.records import read_integration, write_integration
from tests.policies.folder import complaints, write

#: A text in which anything may be, and most of all what matters.
TEXTS = st.text('[]{}"\\a\u00e9', max_size=400).map(str.encode)
VALUES = st.recursive(
    st.none() | st.integers() | st.text('[]{}"\\,:\u00e9\ud800', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text('[]{}"\\', max_size=4), inner, max_size=4)
    ),
    max_leaves=30,
)


def place_of(content: bytes, most: int = MOST_LEVELS) -> int | None:
    """Which byte begins the first level too many, from 1 on: read one by one."""
    level, at, is_in_string = 0, 0, False
    while at < len(content):
        if content[at : at + 2] in (b"\\\\", b'\\"'):
            at += 1
        elif content[at : at + 1] == b'"':
            is_in_string = not is_in_string
        elif not is_in_string and content[at : at + 1] in (b"[", b"{"):
            level += 1
            if level > most:
                return at + 1
        elif not is_in_string and content[at : at + 1] in (b"]", b"}"):
            level -= 1
        at += 1
    return None


def found_place(content: bytes) -> int | None:
    """The same, by `check_levels`."""
    try:
        check_levels(content)
    except TooDeep as error:
        words = rf"found {MOST_LEVELS + 1} levels of arrays and objects at byte (\d+), expected at "
        found = re.fullmatch(rf"{words}most {MOST_LEVELS}", str(error))
        assert found is not None
        return int(found[1])
    return None


def levels_of(value: Any) -> int:
    """How deep a value is."""
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(levels_of, value), default=0) if isinstance(value, list) else 0


def wrapped(content: bytes, levels: int) -> bytes:
    """An array and an object in turn around a text, so many of both together."""
    for level in range(levels):
        content = b'{"a":%b}' % content if level % 2 else b"[%b]" % content
    return content


def lists(levels: int) -> bytes:
    """Lists in one another."""
    return b"[" * levels + b"]" * levels


@given(VALUES, st.integers(MOST_LEVELS - 6, MOST_LEVELS + 2), st.booleans())
def test_values_at_the_bound(value: Any, levels: int, escaped: bool) -> None:
    """A value is refused if it has more levels than the bound, whatever is in its texts."""
    text = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    content = wrapped(text, levels)
    is_deep = levels + levels_of(value) > MOST_LEVELS
    assert (found_place(content) is not None) is is_deep
    assert found_place(content) == place_of(content)


@given(
    st.lists(TEXTS | st.integers(0, 120).map(lambda most: b"[" * most), max_size=8).map(b"".join)
)
def test_any_text(content: bytes) -> None:
    """The place is that of the first level too many, in a text that need not be JSON."""
    assert found_place(content) == place_of(content)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", None),
        (lists(MOST_LEVELS), None),
        (b"[" * MOST_LEVELS, None),
        (lists(MOST_LEVELS + 1), MOST_LEVELS + 1),
        (b"[" * (MOST_LEVELS + 1), MOST_LEVELS + 1),
        (b"{" * (MOST_LEVELS + 1), MOST_LEVELS + 1),
        (b"[" * 1_000_000, MOST_LEVELS + 1),
        (b"[%b]" % b",".join([lists(MOST_LEVELS - 1)] * 90), None),
        (
            b"[%b]" % b",".join([lists(MOST_LEVELS - 1)] * 90 + [lists(MOST_LEVELS)]),
            1 + 90 * 199 + 100,
        ),
        (b"[%b]" % b",".join([b"[]"] * 9_000), None),
        (b'"%b"' % (b"[" * 1_000), None),
        (b'["\\"%b"]' % (b"[" * 1_000), None),
        (b'["\\\\",%b]' % lists(MOST_LEVELS), 6 + MOST_LEVELS),
        (b'["\\\\\\"%b"]' % lists(MOST_LEVELS), None),
        ("[\u005b\u5b5b%b]".encode().replace(b"%b", lists(MOST_LEVELS)), 5 + MOST_LEVELS - 1),
    ],
    ids=lambda value: str(value)[:30],
)
def test_places(content: bytes, place: int | None) -> None:
    """A bracket in a string does not count, and closing ones make room for others."""
    assert found_place(content) == place == place_of(content)


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_codings(coding: str) -> None:
    """What `json.loads` decodes is counted as it is read: a byte of UTF-16 is no bracket."""
    text = json.dumps(["\u5b5b" * 500, "\u2222"], ensure_ascii=False)
    assert read_json(text.encode(coding)) == json.loads(text) == read_json(text)
    with pytest.raises(TooDeep):
        read_json(lists(MOST_LEVELS + 1).decode().encode(coding))


def test_options() -> None:
    """They are those of `json.loads`, and so is what is taken for a text, and each other error."""
    assert read_json(b"[1.5]", parse_float=str) == ["1.5"]
    assert read_json('"\ud800"') == read_json(b'"\xed\xa0\x80"') == "\ud800"
    with pytest.raises(json.JSONDecodeError):
        read_json(b"[")
    with pytest.raises(UnicodeDecodeError):
        read_json(b'"\xff"')


# -- where others' JSON enters ---------------------------------------------------------------------

SECRET = "s" * 20
NOW_S = 1_800_000_000
INTEGRATION = Integration("int_1", "acme", "generic", "Theirs", created_us=1)
CALL = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":DEEP}}}'
)
EVENT = {"id": "evt_1", "type": "a.b", "created": "2026-11-23T16:43:58.446Z"}
FROM = {"id": "int_1", "provider": "generic", "name": "Theirs"}


def counted(body: bytes) -> None:
    found = count_elements(body, ("ids",))
    if isinstance(found, str):
        raise ValueError(found)


def of_mcp(read: Callable[[bytes], Body | Fault | None], body: bytes) -> None:
    found = read(body)
    if isinstance(found, Fault):
        raise ValueError(found.message)


def last_step(body: bytes) -> Body | Fault | None:
    *_, read = read_in_steps(body, "")
    return read


def capture(body: bytes) -> None:
    """Of a webhook of a generic provider."""
    signed = sign(body, [SECRET], event_id="x", now_s=NOW_S)
    captured(INTEGRATION, body, lambda name: signed.get(name, ""), [SECRET], NOW_S * 1_000_000)


def of_linear(body: bytes) -> None:
    """Its time is read before the webhook is taken as one of the provider's."""
    mac = hmac.digest(SECRET.encode(), body, "sha256").hex()
    LINEAR.verify(body, lambda name: mac if name == "linear-signature" else "", [SECRET], NOW_S)


def of_admin(body: bytes) -> None:
    """The message of the answer."""
    try:
        read_object(body)
    except Refused as error:
        told = told_of(error)
        assert told is not None
        raise ValueError(told.message) from error


def of_openapi(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "document")
        path.write_bytes(content)
        read_openapi(path)


def of_page(content: bytes) -> None:
    """An error page in JSON."""
    with TemporaryDirectory() as folder:
        Path(folder, "page").write_bytes(content)
        faults = complaints(write(Path(folder), e="error_pages: {json: page}\n"))
        if faults:
            raise ValueError(*faults)


def of_client(body: bytes) -> None:
    json_of(httpx.Response(200, content=body, request=httpx.Request("GET", "http://a")))


#: Readers that say why they refuse a text, each with a text whose levels DEEP completes.
TELLING: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "a cost": (counted, b'{"ids":[DEEP]}'),
    "an MCP message": (partial(of_mcp, partial(read_body, version="")), CALL),
    "a long MCP message": (partial(of_mcp, last_step), CALL),
    "several MCP messages": (
        partial(of_mcp, partial(read_body, version="2025-03-26")),
        b"[%b]" % CALL,
    ),
    "a webhook": (capture, b'{"type":"a.b","data":{"a":DEEP}}'),
    "a webhook of Linear": (of_linear, b'{"webhookTimestamp":%d,"a":DEEP}' % (NOW_S * 1000)),
    "a body for the APIs": (of_admin, b'{"a":DEEP}'),
    "a file of keys": (read_line, b'{"key":DEEP}'),
    "a line of a log": (as_object, b'{"a":DEEP}'),
    "an OpenAPI document": (of_openapi, b'{"openapi":"3.1.0","paths":{"/a":{"get":{}}},"a":DEEP}'),
    "an error page": (of_page, b"DEEP"),
    "an event at a receiver": (
        read_event,
        json.dumps({**EVENT, "integration": FROM, "data": {"a": "DEEP"}})
        .replace('"DEEP"', "DEEP")
        .encode(),
    ),
    "an answer to the client library": (of_client, b"[DEEP]"),
}


def completed(template: bytes, levels: int) -> bytes:
    """A text with so many levels in all."""
    some = MOST_LEVELS // 2
    outer = levels_of(json.loads(template.replace(b"DEEP", lists(some)))) - some
    return template.replace(b"DEEP", lists(levels - outer))


def words_of(read: Callable[[bytes], object], content: bytes) -> str:
    """What it says; "": it accepts the text."""
    try:
        read(content)
    except Exception as error:
        return f"{error} {getattr(error, 'faults', '')}"
    return ""


@pytest.mark.parametrize("name", TELLING)
def test_who_tells(name: str) -> None:
    """A text with as many levels as the bound is read; of one more, the place is told."""
    read, template = TELLING[name]
    assert "levels" not in words_of(read, completed(template, MOST_LEVELS))
    content = completed(template, MOST_LEVELS + 1)
    words = f"{MOST_LEVELS + 1} levels of arrays and objects at byte {place_of(content)}"
    assert words in words_of(read, content)


def is_integration(content: bytes) -> bool:
    written = json.loads(write_integration(INTEGRATION))
    record = json.dumps({**written, "later": "DEEP"}).encode().replace(b'"DEEP"', content)
    try:
        return read_integration("int_1", record) == INTEGRATION
    except CorruptRecord:
        return False


def is_filtered(content: bytes) -> bool:
    answer = b'{"result":{"tools":[{"name":"a","inputSchema":%b}]}}' % content
    try:
        return filtered(answer, lambda name: True, "") == answer
    except Unreadable:
        return False


#: Readers that take a text that is too deep as none, and the levels around it.
SILENT: dict[str, tuple[Callable[[bytes], bool], int]] = {
    "a record in the store": (is_integration, 1),
    "an MCP server's list of tools": (is_filtered, 4),
    "a body that is kept, shown to operators": (lambda body: body_as_json(body) is not None, 0),
    "a body that is kept, shown to customers": (lambda body: as_kept(body) is not None, 0),
    "a body that is kept, on a page": (lambda body: "\n" in shown_text(body)[0], 0),
    "an error's body, at the client library": (
        lambda body: has_code(b'{"code":"X","more":%b}' % body),
        1,
    ),
}


def has_code(body: bytes) -> bool:
    request = httpx.Request("GET", "http://a")
    return error_of(httpx.Response(500, content=body, request=request)).code == "X"


@pytest.mark.parametrize("name", SILENT)
def test_who_does_not_tell(name: str) -> None:
    """A text with as many levels as the bound is read, and one more is as no JSON."""
    is_read, outer = SILENT[name]
    assert is_read(lists(MOST_LEVELS - outer))
    assert not is_read(lists(MOST_LEVELS - outer + 1))


def test_an_event_of_the_api() -> None:
    """The event has a level more than its data, and receivers have the same bound."""
    for levels, is_read in ((MOST_LEVELS - 1, True), (MOST_LEVELS, False)):
        data = {"a": json.loads(lists(levels - 1))}
        try:
            event = published(INTEGRATION, "a.b", data, "x", NOW_S * 1_000_000)
        except TooDeep:
            assert not is_read
        else:
            assert is_read
            assert read_event(event.body).data == data
