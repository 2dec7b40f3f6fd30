"""Counting an array of a JSON body: one reading, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.json_array import count_elements
from tests.kit.reach import mostly, reached, reaches

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=20,
)
#: Keys that no parser takes for `ids`.
OTHERS = st.dictionaries(st.sampled_from(["a", "id", "idss", "d.ids", "\u2170ds"]), VALUES)


@given(st.lists(VALUES, max_size=30), OTHERS, st.booleans())
def test_as_many_as_there_are(elements: list[Any], others: dict[str, Any], escaped: bool) -> None:
    """Whatever the elements and the other keys are, in any encoding of them."""
    body = json.dumps({**others, "ids": elements}, ensure_ascii=escaped)
    try:
        encoded = body.encode()
    except UnicodeEncodeError:
        encoded = json.dumps({**others, "ids": elements}).encode()
    assert count_elements(encoded, ("ids",)) == len(elements)
    assert count_elements(b'{"data": %b}' % encoded, ("data", "ids")) == len(elements)
    assert count_elements(json.dumps(elements).encode(), ()) == len(elements)


PARTS = st.sampled_from(["1", "-0.5e1", '"a"', '"\\u0000"', "{}", "[1, 2]", '{"a": [3]}'])
ODD_PARTS = st.sampled_from(["01", "NaN", "'a'", "]", "[", ",", '"', "/**/", "\0", "\u00e9", "1 2"])


def array_of(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """An array of elements, and of these parts after them."""
    return st.tuples(st.lists(PARTS, max_size=5), *parts).map(
        lambda drawn: f"[{', '.join([*drawn[0], *drawn[1:]])}]".encode()
    )


@reaches(0.1)
@given(mostly(array_of(), array_of(ODD_PARTS), array_of(ODD_PARTS, PARTS), st.binary(max_size=40)))
def test_only_json_is_counted(body: bytes) -> None:
    """What is counted is a JSON array for the standard library's parser as well."""
    found = count_elements(body, ())
    if isinstance(found, int):
        reached()
        assert len(json.loads(body.decode())) == found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b' {"ids" : [1, [2, 3], {"ids": [4]}] } \r\n', 3),
        (b'{"ids": []}', 0),
        (b'{"\\u0069ds": [1]}', 1),  # an escaped letter is that letter
        (b'{"other": [1], "ids": ["a\\ud800"]}', 1),  # lone surrogates matter in keys only
        (b'{"ids": {"0": 1}}', "an object at ids"),
        (b'{"ids": "1,2,3"}', "a text at ids"),
        (b'{"ids": null}', "null at ids"),
        (b'{"ids": true}', "a boolean at ids"),
        (b'{"ids": 12}', "a number at ids"),
        (b'{"Ids": [1]}', "nothing at ids"),
        (b"{}", "nothing at ids"),
        (b"[1, 2]", "an array as the body"),
        (b'"ids"', "a text as the body"),
        (b"", "an empty body"),
        (b" \r\n", "an empty body"),
    ],
)
def test_what_is_found(body: bytes, expected: int | str) -> None:
    """The number of elements, or what is there instead."""
    assert count_elements(body, ("ids",)) == expected


@pytest.mark.parametrize(
    ("body", "path", "expected"),
    [
        (b'{"data": {"ids": [1, 2]}, "ids": [1]}', "data.ids", 2),
        (b'{"data": [{"ids": [1, 2]}]}', "data.ids", "an array at data"),
        (b'{"data": {"ids": 3}}', "data.ids", "a number at data.ids"),
        (b'{"data": {}}', "data.ids", "nothing at data.ids"),
        (b'{"data.ids": [1]}', "data.ids", "nothing at data"),
        (b'{"data": {"ids": [1]}, "DATA": {}}', "data.ids", "more than one spelling of data"),
        (b'{"data": {"ids": [1], "IDS": []}}', "data.ids", "more than one spelling of data.ids"),
        (b'{"item_ids": [1], "itemIds": []}', "item_ids", "more than one spelling of item_ids"),
        (b'{"ids": [1], "i-d_s": []}', "ids", "more than one spelling of ids"),
        (b'{"ids": {}}', "ids", "an object at ids"),
        (b'{"ids": {"ids": [1]}}', "ids", "an object at ids"),
        (b'{"ids": [{"ids": [1, 2]}], "z": {"ids": 1}}', "ids", 1),
        (b"[1, 2]", "", 2),
        (b'[{"a": 1}, {}]', "", 2),
        (b'{"ids": [1]}', "", "an object as the body"),
    ],
)
def test_nested_arrays(body: bytes, path: str, expected: int | str) -> None:
    """Every key but the last has an object."""
    assert count_elements(body, tuple(path.split(".")) if path else ()) == expected


REPEATED, SPELLINGS = "an object with the same key twice", "more than one spelling of ids"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("ids", REPEATED),
        ("\\u0069ds", REPEATED),
        ("IDS", SPELLINGS),
        ("iDs", SPELLINGS),
        ("id\\u017f", SPELLINGS),  # Go's encoding/json takes the long s for an s
        ("\\u0131DS", SPELLINGS),  # to Java's equalsIgnoreCase, both are an i
        ("\\u0130ds", SPELLINGS),
        ("ids\\u0000", SPELLINGS),
        ("ids\\u0000x", SPELLINGS),  # to C, a text ends at NUL
        ("ids\\ud800", SPELLINGS),
        ("i\\udfffds", SPELLINGS),
        ("IDS\\ud800\\ud800", SPELLINGS),
        ("\\ufeffids", SPELLINGS),
        ("ids\\u200b", SPELLINGS),
        (" ids", SPELLINGS),
        ("ids\\t", SPELLINGS),
        ("id", 1),
        ("idsx", 1),
        ("xids", 1),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_a_second_key(other: str, expected: int | str, first: bool) -> None:
    """A key that some parser takes for the counted one is refused, before and after it."""
    counted, second = '"ids": [1]', f'"{other}": [1, 2, 3]'
    body = ", ".join((second, counted) if first else (counted, second))
    assert count_elements(f"{{{body}}}".encode(), ("ids",)) == expected


def is_alike(key: str) -> bool:
    """Could a lenient parser take this key for `ids`? Each key by itself, in the plainest way."""
    folded = key.casefold().replace("_", "").replace("-", "").strip()
    odd = "\x00\u200b\ud800\x85"
    end = min((folded.index(one) for one in odd if one in folded), default=len(folded))
    kept = "".join(one for one in folded if one not in odd)
    return "ids" in (folded, folded[:end].strip(), kept.strip())


@given(
    st.lists(
        st.text("iIds\u017f_- x\x00\u200b\ud800\x85\ue000", max_size=5), unique=True, max_size=6
    )
)
def test_any_keys(keys: list[str]) -> None:
    """At whatever depth: one key of the object is `ids`, and no other is like it."""
    members = ", ".join(f"{json.dumps(key)}: [{{}}, {{}}]" for key in keys if key != "ids")
    body = '{"ids": [1, 2, 3]' + (f", {members}" if members else "") + "}"
    expected = "more than one spelling of" if any(map(is_alike, {*keys} - {"ids"})) else 3
    for text, path in (body, ("ids",)), (f'{{"data": {body}}}', ("data", "ids")):
        found = count_elements(text.encode(), path)
        assert found == (expected if expected == 3 else f"{expected} {'.'.join(path)}")


@pytest.mark.parametrize(
    "body",
    [
        b'{"ids": [1]} x',
        b'{"ids": [1]} {"ids": [1, 2]}',
        b'{"ids": [1]}\x00',
        b'{"ids": [1,]}',
        b'{"ids": [1],}',
        b"{'ids': [1]}",
        b"{ids: [1]}",
        b'{"ids": [NaN]}',
        b'{"ids": [-Infinity]}',
        b'{"ids": [01]}',
        b'{"ids": [+1]}',
        b'{"ids": [1.]}',
        b'{"ids": [0x1]}',
        b'{"ids": [1] /* [2] */}',
        b'// \n{"ids": [1]}',
        b'{"ids": ["\n"]}',
        b'{"ids": ["\\x41"]}',
        b'{"id\ns": [1]}',
        b'{"ids": [1]',
        b"\xa0[1]",
        b'\x0b{"ids": [1]}',
    ],
)
def test_no_json(body: bytes) -> None:
    """Nothing that only some parsers accept."""
    assert count_elements(body, ("ids",)) in {"invalid JSON", "a body that is not UTF-8"}


@pytest.mark.parametrize(
    "body", [b'{"ids":' + b"[" * 60_000, b'{"ids":' + b"[" * 30_000 + b"]" * 30_000 + b"}"]
)
def test_no_end_of_levels(body: bytes) -> None:
    """What is nested beyond the bound is not parsed."""
    found = "101 levels of arrays and objects at byte 107"
    assert count_elements(body, ("ids",)) == found


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
def test_other_encodings(coding: str) -> None:
    """UTF-8 alone, without a byte order mark."""
    assert isinstance(count_elements('{"ids": [1]}'.encode(coding), ("ids",)), str)


@pytest.mark.parametrize("body", [b'{"ids": ["\xff"]}', b'{"ids": ["\xc0\xaf"]}', b"\xed\xa0\x80"])
def test_invalid_utf8(body: bytes) -> None:
    """Overlong forms and surrogates included."""
    assert count_elements(body, ("ids",)) == "a body that is not UTF-8"
