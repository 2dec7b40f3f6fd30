"""Bodies of events: shown as they are kept, and checked without being built."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.webhooks.raw_bodies import as_kept, written

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def shown(body: bytes) -> Any:
    return json.loads(written({"event": as_kept(body)}))["event"]


@given(json_values)
def test_what_is_kept(value: Any) -> None:
    """Each event that the gateway writes is shown as it is, bytes for bytes."""
    body = json.dumps(value).encode("ascii")
    assert written({"event": as_kept(body)}) == b'{"event":' + body + b"}"


@pytest.mark.parametrize(
    "text", ["\ud800", "\udfff\ud800", "\\\ud800", "\\\\ud800", "x\ud83d\ude00\ud83d"]
)
def test_halves_of_characters(text: str) -> None:
    """An escape of half a character, which JSON may have, is shown as well."""
    body = json.dumps({"a": text}).encode("ascii")
    assert shown(body) == json.loads(body)


@given(st.binary() | st.text(alphabet='{}[]",:\\\\u0d8ftne1 .-').map(str.encode))
def test_rubbish(body: bytes) -> None:
    """What another program wrote there is null, or it is JSON: the answer always is."""
    found = shown(body)
    assert found is None or found == json.loads(body)


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b"[1,]", b"{}x", b"\xff", b"[" * 100_000])
def test_no_json(body: bytes) -> None:
    """Null."""
    assert shown(body) is None
