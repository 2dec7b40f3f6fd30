"""What the log says of records that cannot be read."""

from __future__ import annotations

import pytest

from gateway.domain.ports import CorruptRecord
from gateway.stores.unreadable import UnreadableLog


def test_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """The first is named at once, the next one a second later, with how many were left out."""
    moments = iter([0.0, 0.1, 0.2, 1.0, 2.0])
    log = UnreadableLog(lambda: next(moments))
    for name in "abcde":
        log.note(CorruptRecord("key", name))
    reason = "cannot be read: something else wrote to it"
    assert [record.getMessage() for record in caplog.records] == [
        f"the store's record of key a {reason}",
        f"the store's record of key d {reason} (2 such lines were left out)",
        f"the store's record of key e {reason}",
    ]
