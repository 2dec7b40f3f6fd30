"""MCP servers: keys with connections, and calls of tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.domain.admission import grant
from gateway.domain.identity import Identity
from gateway.domain.keys import Account, with_account
from gateway.domain.mcp.checks import check_of
from gateway.domain.mcp.demands import LISTENING
from gateway.domain.ports import CorruptRecord, UsageBatch
from gateway.domain.usage import WINDOWS
from gateway.limiting.memory import MemoryLimiter
from gateway.manage.accounts import UNREADABLE
from gateway.manage.limits import Limits
from gateway.manage.mcp import (
    Connections,
    connected_as_json,
    open_words,
    tool_as_json,
    tool_rows,
    why_not,
)
from gateway.manage.problems import NotThere
from gateway.manage.usage_reports import UsageBook
from gateway.policies.load import load
from gateway.stores.audit.memory import MemoryAuditStore
from gateway.stores.keys.memory import MemoryKeyStore
from gateway.stores.limits.counters import MemoryCounters
from gateway.stores.mcp.memory import MemoryConnectionStore
from gateway.stores.usage.memory import MemoryUsageStore
from tests.kit.policies import mcp_routes, write_policies
from tests.suites.keys import plain_key

NOW = 1_800_000_000_000_000
ROUTES = mcp_routes(
    "{name: mcp, rate: 20/minute}",
    "{name: sessions, concurrency: 5, of: connections}",
    "{name: shared, concurrency: 9, of: connections, per: account, mode: shadow}",
    "{name: in-flight, concurrency: 25}",
)


class Site:
    """Connections over parts in memory."""

    def __init__(self, folder: Path) -> None:
        self.policy = load(write_policies(folder, "http://127.0.0.1:9000", routes=ROUTES))
        self.keys, self.reports = MemoryKeyStore(), MemoryConnectionStore()
        self.limiter = MemoryLimiter(lambda: NOW)
        counts = MemoryCounters(self.limiter)
        limits = Limits(*(self.keys, counts, MemoryAuditStore(), lambda: self.policy, lambda: NOW))
        self.connections = Connections(self.reports, self.keys, limits)

    async def open(self, record: Any, *tags: int) -> None:
        """Open sessions; the requests of one have the same tag."""
        account = await self.keys.account(record.account) or Account(record.account)
        granted = grant(
            self.policy,
            route := self.policy.routes["mcp"],
            Identity(with_account(record, account), account),
        )
        assert route.mcp is not None
        check = check_of(granted, route.mcp, LISTENING, lambda one: one, "", lambda _: "")
        for lease, tag in enumerate(tags, 1):
            leased = check.leased(1_000 * tag + lease, tag)
            leased.holder = 1
            assert self.limiter.decide_now(leased).allowed


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_key_and_its_limits(site: Site) -> None:
    """Each limit that counts connections: how many are open now, of how many; no other limit."""
    record = plain_key(account="acme")
    await site.keys.add(record)
    await site.open(record, 1, 1, 2)
    one = await site.connections.of_key(record.id)
    assert connected_as_json(one) == {
        **{"id": record.id, "name": record.name, "account": "acme", "plan": "free"},
        "reported": 0,
        "limits": [
            {
                **{"name": "sessions", "routes": ["mcp"], "per": "key", "mode": "enforce"},
                **{"open": 2, "limit": 5},
            },
            {
                **{"name": "shared", "routes": ["mcp"], "per": "account", "mode": "shadow"},
                **{"open": 2, "limit": 9},
            },
        ],
    }
    assert one.limits is not None
    assert open_words(one.limits) == "2 of 5 (sessions), 2 of 9 (shared)"
    with pytest.raises(NotThere):
        await site.connections.of_key("b" * 12)


async def test_the_keys_with_the_most(site: Site) -> None:
    """By what workers report, the most first, with exact counts; ties by id."""
    records = [plain_key(letter * 12) for letter in "abc"]
    for record in records:
        await site.keys.add(record)
    await site.open(records[1], 7)
    await site.reports.report("one", {"a" * 12: 1, "c" * 12: 1})
    await site.reports.report("two", {"b" * 12: 1, "c" * 12: 1})
    found, keys = await site.connections.most()
    assert [(one.key_id[0], one.reported) for one in found] == [("c", 2), ("a", 1), ("b", 1)]
    assert [one.limits and one.limits[0].used for one in found] == [0, 0, 1]
    assert keys == 3
    found, keys = await site.connections.most(1)
    assert ([one.key_id[0] for one in found], keys) == (["c"], 3)


async def test_nothing_is_open(site: Site) -> None:
    """The list is empty."""
    assert await site.connections.most() == ([], 0)


async def test_without_policies(site: Site) -> None:
    """What is reported is still known; the limits are not."""
    await site.keys.add(plain_key())
    await site.reports.report("one", {plain_key().id: 4})
    connections = Connections(site.reports, site.keys, None)
    one = await connections.of_key(plain_key().id)
    assert (one.reported, one.limits) == (4, None)
    assert connected_as_json(one)["limits"] is None


async def test_a_key_that_is_gone_or_unreadable(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed by its id, and the others are listed too."""
    await site.keys.add(plain_key())
    gone, broken, get = "b" * 12, "c" * 12, site.keys.get

    async def read(key_id: str) -> Any:
        if key_id == broken:
            raise CorruptRecord("key", key_id)
        return await get(key_id)

    monkeypatch.setattr(site.keys, "get", read)
    await site.reports.report("one", {gone: 3, broken: 2, plain_key().id: 1})
    found, _ = await site.connections.most()
    assert [(one.key_id, one.name, one.limits is None) for one in found] == [
        (gone, "", False),
        (broken, UNREADABLE, False),
        (plain_key().id, plain_key().name, False),
    ]


async def test_calls_of_tools() -> None:
    """By route, the tool with the most calls first; admitted whatever the status was."""
    usage = MemoryUsageStore()
    minute_s = NOW // 60_000_000 * 60
    counts = {
        ("mcp:tickets", "find", "admitted:2xx"): 2,
        ("mcp:tickets", "search", "admitted:2xx"): 5,
        ("mcp:tickets", "search", "admitted:4xx"): 1,
        ("mcp:tickets", "search", "limited:tickets/search"): 3,
        ("mcp:tickets", "search", "refused:tool_not_permitted"): 4,
        ("mcp:code", "other", "refused:tool_unknown"): 1,
        ("plan:free", "tickets", "admitted:2xx"): 9,
    }
    await usage.add(UsageBatch("w", 1, minute_s, counts))
    await usage.add(UsageBatch("w", 2, minute_s - 7_200, {("mcp:old", "x", "admitted:2xx"): 1}))
    book = UsageBook(usage, MemoryKeyStore(), lambda: NOW)
    reports = await book.of_tools(WINDOWS["1h"])
    rows = tool_rows(reports)
    assert [(route, tool, one.requests) for route, tool, one in rows] == [
        ("code", "other", 1),
        ("tickets", "search", 13),
        ("tickets", "find", 2),
    ]
    assert tool_as_json(*rows[1]) == {
        **{"route": "tickets", "tool": "search", "calls": 13},
        "totals": {
            "admitted": 6,
            "limited:tickets/search": 3,
            "refused:tool_not_permitted": 4,
        },
        "groups": {"admitted": 6, "limited": 3, "refused": 4, "failed": 0},
    }
    assert why_not(rows[1][2]) == [
        ("refused:tool_not_permitted", 4),
        ("limited:tickets/search", 3),
    ]
    assert list(await book.of_tools(WINDOWS["24h"])) == ["code", "old", "tickets"]


def test_policies_with_and_without(site: Site, tmp_path: Path) -> None:
    """Only a section `mcp` makes a route one to an MCP server."""
    assert site.policy.has_mcp
    plain = 'routes: {mcp: {match: "* /mcp/**", upstream: api}}'
    policy = load(write_policies(tmp_path / "plain", "http://127.0.0.1:9", routes=plain))
    assert not policy.has_mcp
