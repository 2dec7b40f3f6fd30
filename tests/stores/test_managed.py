"""The stores of commands and console, with a server that sends invalid replies or none."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.domain.audit import Event
from gateway.domain.keys import Account
from gateway.domain.ports import CorruptRecord, KeyChanged, KeyFilter, StoreDown, TokenMark
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.managed import ManagedStores, open_managed
from gateway.stores.redis import clients, errors
from gateway.stores.redis.address import parse_url
from gateway.stores.redis.topology import read_master
from tests.kit.listening import answering
from tests.kit.rows import each_row

Ask = Callable[[ManagedStores], Awaitable[object]]

ASKED: dict[str, Ask] = {
    "get": lambda stores: stores.keys.get("aaaaaaaaaaaa"),
    "page": lambda stores: stores.keys.page(KeyFilter()),
    "records": lambda stores: stores.keys.records(),
    "last used": lambda stores: stores.keys.last_used(["aaaaaaaaaaaa", "bbbbbbbbbbbb"]),
    "account": lambda stores: stores.keys.account("acme"),
    "accounts": lambda stores: stores.keys.accounts(),
    "put account": lambda stores: stores.keys.put_account(Account("acme")),
    "replace account": lambda stores: stores.keys.replace_account(None, Account("acme")),
    "usage": lambda stores: stores.usage.read("key:aaaaaaaaaaaa", "hour", 0, 7_200),
    "usage of a plan": lambda stores: stores.usage.read("plan:pro", "hour", 0, 7_200),
    "plans": lambda stores: stores.usage.plans(),
    "routes": lambda stores: stores.usage.mcp_routes(),
    "connected": lambda stores: stores.connections.connected(),
    "report": lambda stores: stores.connections.report("a", {"aaaaaaaaaaaa": 1}),
    "busiest": lambda stores: stores.usage.busiest("hour", 0, 7_200, 10),
    "warnings": lambda stores: stores.warnings.newest(),
    "entries": lambda stores: stores.audit.entries(),
    "oldest": lambda stores: stores.audit.oldest(),
    "head": lambda stores: stores.audit.head(),
    "append": lambda stores: stores.audit.append(Event(1, "a", "b", "c")),
    "has ended": lambda stores: stores.admin.has_ended("session"),
    "mark token": lambda stores: stores.admin.mark_token(TokenMark("00", "host", "path"), 60),
    "reset": lambda stores: stores.counters.reset(["gw:limit:{a}:b"]),
    "time": lambda stores: stores.sync(),
}
REPLIES = {
    "null": b"$-1\r\n",
    "null array": b"*-1\r\n",
    "integer": b":1\r\n",
    "status": b"+OK\r\n",
    "text": b"$3\r\nabc\r\n",
    "NaN": b",nan\r\n",
    "bool": b"#t\r\n",
    "map": b"%1\r\n+a\r\n+b\r\n",
    "map by lists": b"%1\r\n*0\r\n:1\r\n",
    "errors in an array": b"*3\r\n-ERR x\r\n:1\r\n$-1\r\n",
    "arrays in arrays": b"*1\r\n*1\r\n:1\r\n",
    "empty array": b"*0\r\n",
    "empty push": b">0\r\n:1\r\n",
    "attribute": b"|1\r\n+a\r\n+b\r\n:1\r\n",
}


@each_row("reply", REPLIES.values())
async def test_invalid_replies(reply: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Any reply is an answer, a corrupt record or StoreDown; nothing crashes."""
    failed = dict[str, BaseException]()
    with caplog.at_level(logging.ERROR):
        async with (
            answering(reply) as server,
            open_managed(parse_url(f"redis://127.0.0.1:{server.port}/0")) as it,
        ):
            for what, ask in ASKED.items():
                try:
                    await ask(it)
                except (StoreDown, CorruptRecord, KeyChanged):
                    pass
                except Exception as error:
                    failed[what] = error
    assert failed == {}
    assert [record.getMessage() for record in caplog.records if "crashed" in record.msg] == []


async def test_the_error_of_an_invalid_reply(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error says that the store's reply was unexpected; the log has the traceback."""
    monkeypatch.setattr(errors, "_throttle", LogThrottle())
    async with (
        answering(b":1\r\n") as server,
        open_managed(parse_url(f"redis://127.0.0.1:{server.port}/0")) as it,
    ):
        with pytest.raises(StoreDown, match="sent an unexpected reply"):
            await it.keys.page(KeyFilter())
    assert any(line.exc_info and "cannot be read" in line.msg for line in caplog.records)


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
async def test_a_silent_server(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for a silent server is short, retries included."""
    monkeypatch.setattr(clients, "COMMAND_TIMEOUT_S", 0.05)
    async with answering(b"") as server:
        url = f"{scheme}://127.0.0.1:{server.port}" + (
            "/main" if scheme == "redis+sentinel" else ""
        )
        async with open_managed(parse_url(url)) as it:
            with pytest.raises(StoreDown, match=r"no answer within 0\.05 s"):
                await it.keys.page(KeyFilter())


@each_row("reply", REPLIES.values())
async def test_invalid_replies_of_a_sentinel(reply: bytes) -> None:
    """An invalid reply of a Sentinel is StoreDown."""
    async with answering(reply) as server:
        address: Any = parse_url(f"redis+sentinel://127.0.0.1:{server.port}/main")
        with pytest.raises(StoreDown, match="no master"):
            await read_master(address)
