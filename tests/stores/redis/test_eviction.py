"""Whether the store may evict keys and counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hiredis import ReplyError

from gateway.domain.ports import StoreDown
from gateway.stores.redis.eviction import ASK, EvictionWatch, read_policy
from tests.kit.rows import each_row


def info(policy: str, limit: int) -> bytes:
    return (
        f"# Memory\r\nused_memory:1\r\nmaxmemory:{limit}\r\nmaxmemory_human:0B\r\n"
        f"maxmemory_policy:{policy}\r\nallocator_active:1\r\n"
    ).encode()


# What INFO says, and the policy by which the server evicts.
ANSWERS = (
    (info("noeviction", 1_000), ""),
    (info("allkeys-lru", 1_000), "allkeys-lru"),
    (info("volatile-ttl", 1_000), "volatile-ttl"),
    (info("allkeys-lru", 0), ""),
    (b"maxmemory_policy:allkeys-lfu\n", "allkeys-lfu"),
    (b"maxmemory_policy:\x1b[31m\r\nmaxmemory:1\r\n", ""),
    (b"", ""),
)


@each_row(("answer", "policy"), ANSWERS)
def test_policies(answer: bytes, policy: str) -> None:
    """A server evicts if it has a limit of memory and another policy than noeviction."""
    assert read_policy(answer.decode()) == policy


async def test_changes_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """The server is asked at each connection; each change is logged once."""
    sent: list[Callable[[Any], None]] = []
    seen: list[bool] = []

    def send(encoded: bytes, done: Callable[[Any], None]) -> None:
        assert encoded == ASK
        sent.append(done)

    watch = EvictionWatch(send, "cache", seen.append)
    caplog.set_level("INFO")
    for policy in ("allkeys-lru", "allkeys-lru", "noeviction"):
        watch.connected()
        sent.pop()(info(policy, 1_000))
        evicts = policy != "noeviction"
        assert bool(watch.detail) is evicts
        assert watch.detail.startswith("may evict") is evicts
    watch.stop()
    assert seen == [True, True, False]
    assert [record.message for record in caplog.records] == [
        "store may evict keys and counters: maxmemory-policy is allkeys-lru, expected noeviction: "
        "cache",
        "store evicts nothing any more: cache",
    ]


async def test_answers_of_another_kind() -> None:
    """A user without the right is not refused again before the next connection; other errors, and
    answers that are none, change nothing.
    """
    sent: list[Callable[[Any], None]] = []
    seen: list[bool] = []
    watch = EvictionWatch(lambda _, done: sent.append(done), "cache", seen.append)
    for reply, is_asked in (
        (StoreDown("late"), True),
        (None, True),
        (ReplyError("LOADING"), True),
        (ReplyError("NOPERM User app has no permissions to run the 'info' command"), False),
    ):
        watch.connected()
        sent.pop()(reply)
        watch._ask()
        assert bool(sent) is is_asked
        sent.clear()
    watch.stop()
    assert (seen, watch.detail) == ([], "")
