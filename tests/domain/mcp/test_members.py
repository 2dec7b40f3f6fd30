"""Members of JSON objects have one reading, whichever way they are read."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from gateway.domain.mcp.members import (
    MOST_COMPACT_BYTES,
    MOST_ELEMENTS,
    MOST_KEY,
    MOST_KEYS,
    Invalid,
    Members,
    kind_of,
    read_elements,
    read_object,
    read_objects,
)

MEMBERS = Members(("id", "org.example/version"), "more")


def test_members() -> None:
    """By name, or what follows its last slash; values are left as they are."""
    found = MEMBERS.read(b'{"id":1e0,"org.example/version":"a","more":[ 1 ]}')
    assert (bytes(found.id), bytes(found.version)) == (b"1e0", b'"a"')
    assert MEMBERS.read(b"{}").id is UNSET
    assert bytes(MEMBERS.read(b'{"other":1,"id":2}').id) == b"2"


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"id", b"org.example/version", b"more", b"ID", b"i\\u0064", b"x"]),
            st.sampled_from([b"1", b'"a"', b"[ 1, 2 ]", b'{"id":1}', b"null"]),
        ),
        max_size=4,
    )
)
def test_one_reading(pairs: list[tuple[bytes, bytes]]) -> None:
    """Without white space or with it: the same members, or the same error."""
    plain = b"{%b}" % b",".join(b'"%b":%b' % pair for pair in pairs)
    spaced = b"{ %b}" % plain[1:-1]
    keys = [json.loads(b'"%b"' % key) for key, _ in pairs]
    if len(set(keys)) < len(keys) or "ID" in keys:
        for text in (plain, spaced):
            with pytest.raises(Invalid):
                MEMBERS.read(text)
        return
    wanted = dict(zip(keys, (value for _, value in pairs), strict=True))
    for text in (plain, spaced):
        found = MEMBERS.read(text)
        assert wanted.get("id") == (None if found.id is UNSET else bytes(found.id))
        version = None if found.version is UNSET else bytes(found.version)
        assert wanted.get("org.example/version") == version


def test_a_long_object() -> None:
    """It has the same reading."""
    text = b'{"id":1,"more":"%b"}' % (b"x" * MOST_COMPACT_BYTES)
    assert bytes(MEMBERS.read(text).id) == b"1"
    with pytest.raises(Invalid, match="twice"):
        MEMBERS.read(text[:-1] + b',"id":2}')


def test_bounds() -> None:
    """Of keys, their length, and elements."""
    keys = [b'"%x":1' % key for key in range(MOST_KEYS + 1)]
    assert len(read_object(b"{%b}" % b",".join(keys[:-1]))) == MOST_KEYS
    with pytest.raises(Invalid, match=f"more than {MOST_KEYS} keys"):
        read_object(b"{%b}" % b",".join(keys))
    with pytest.raises(Invalid, match=f"more than {MOST_KEYS} keys"):
        read_objects(b"[{%b}]" % b",".join(keys))
    with pytest.raises(Invalid, match=f"more than {MOST_KEY} characters"):
        read_object(b'{"%b":1}' % (b"x" * (MOST_KEY + 1)))
    assert len(read_objects(b"[%b]" % b",".join([b"{}"] * MOST_ELEMENTS))) == MOST_ELEMENTS
    for read, element in ((read_objects, b"{}"), (read_elements, b"1")):
        with pytest.raises(msgspec.ValidationError):
            read(b"[%b]" % b",".join([element] * (MOST_ELEMENTS + 1)))


def test_equal_keys_are_kept_in_order() -> None:
    """So that who reads them can refuse them."""
    pairs = read_object(b'{"b":1,"a":2,"b":3}')
    assert [(key, bytes(value)) for key, value in pairs] == [
        *(("b", b"1"), ("a", b"2")),
        ("b", b"3"),
    ]
    assert read_objects(b'[{"a":1}]')[0][0][0] == "a"


def test_elements() -> None:
    """Of any kind, as they are."""
    assert read_elements(b' [1, "a" , {"b": 2}]') == [b"1", b'"a"', b'{"b": 2}']
    kinds = [kind_of(each) for each in (b"[]", b'"a"', b"null", b"true", b"false", b"-1")]
    assert kinds == ["an array", "a text", "null", "a boolean", "a boolean", "a number"]
