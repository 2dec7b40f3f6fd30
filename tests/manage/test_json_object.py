"""Bodies that are JSON objects, and what is refused as none."""

from __future__ import annotations

import pytest

from gateway.manage.json_object import read_object
from gateway.manage.refusals import Refused


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{",
        b"{}{}",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"a": ' + b"9" * 5_000 + b"}",
    ],
)
def test_a_body_that_is_no_object_is_refused(content: bytes) -> None:
    """So is an object that two programs would read differently; too many levels are told."""
    with pytest.raises(Refused) as refused:
        read_object(content)
    assert refused.value.refusal.code == "BODY_NOT_JSON"
    assert ("levels" in refused.value.named) is (b"[[" in content)


def test_an_object_is_read() -> None:
    """With every type of JSON."""
    content = b'{"a": [1, 2.5, true, null, "\\ud83d\\ude00"], "b": {}}'
    assert read_object(content) == {"a": [1, 2.5, True, None, "😀"], "b": {}}
