"""The values that the core gets from outside."""

from __future__ import annotations

import pytest

from gateway.domain.ports import StoreDown


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("cannot connect to redis://cache:6379/0", "cannot connect to redis://cache:6379/0"),
        ("-ERR \x1b[2J\x1b]0;pwn\x07 \x9b31m \u202e rtl\r\n", "-ERR ?[2J?]0;pwn? ?31m ? rtl??"),
        ("A" * 2_000_000, "A" * 299 + "…"),
        ("A" * 300, "A" * 300),
        ("", ""),
    ],
    ids=["plain", "commands to a terminal", "too long", "as long as can be", "none"],
)
def test_reason(reason: str, shown: str) -> None:
    """A server's message is truncated, and has no control characters."""
    assert str(StoreDown(reason)) == shown
