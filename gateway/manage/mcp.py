"""MCP servers: which keys have connections open, and the calls of tools, by route and tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.domain.ports import ConnectionStore, CorruptRecord, KeyStore
from gateway.manage.accounts import key_words
from gateway.manage.batches import ask_each
from gateway.manage.limits import LimitNow, Limits
from gateway.manage.problems import NotThere
from gateway.manage.usage_sums import Sum, UsageReport, busiest_routes

#: The most keys that are listed: each takes some requests to the store.
MOST_LISTED: Final = 100
SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Connected:
    """A key with connections.

    name, account, plan: as `key_words` returns them
    reported: how many it has open by the workers' reports, up to some seconds ago; one that is
              used at two workers counts twice
    limits:   the limits that count connections, as they are now over all gateways; None: the
              policies are not known
    """

    key_id: str
    name: str
    account: str
    plan: str
    reported: int
    limits: tuple[LimitNow, ...] | None


class Connections:
    """Reads which keys have connections open. Every method may raise StoreDown.

    limits: None: the policies are not known
    """

    def __init__(self, reports: ConnectionStore, keys: KeyStore, limits: Limits | None) -> None:
        self._reports = reports
        self._keys = keys
        self._limits = limits

    async def most(self, count: int = SHOWN) -> tuple[list[Connected], int]:
        """The keys with the most connections, and how many keys with any were reported.

        A key is known if it is among the 100 with the most connections at one worker.
        """
        reported = await self._reports.connected()
        by_count = sorted(reported.items(), key=lambda pair: (-pair[1], pair[0]))
        found = await ask_each(lambda pair: self._of(*pair), by_count[:count])
        return found, len(reported)

    async def of_key(self, key_id: str) -> Connected:
        """One key. Raises NotThere."""
        if await self._keys.get(key_id) is None:
            raise NotThere(f"there is no key {key_id}")
        return await self._of(key_id, (await self._reports.connected()).get(key_id, 0))

    async def _of(self, key_id: str, reported: int) -> Connected:
        name, account, plan = await key_words(self._keys, key_id)
        limits: tuple[LimitNow, ...] | None = ()
        if account:
            limits = await self._open(key_id)
        return Connected(key_id, name, account, plan, reported, limits)

    async def _open(self, key_id: str) -> tuple[LimitNow, ...] | None:
        if self._limits is None:
            return None
        try:
            return await self._limits.of_connections(key_id)
        except (NotThere, CorruptRecord):  # it was deleted, or overwritten, meanwhile
            return ()


def tool_rows(reports: Mapping[str, UsageReport]) -> list[tuple[str, str, Sum]]:
    """Route, tool and calls; routes by name, the tool with the most calls first."""
    return [
        (route, tool, one)
        for route, report in sorted(reports.items())
        for tool, one in busiest_routes(report)
    ]


def why_not(one: Sum) -> list[tuple[str, int]]:
    """The outcomes of calls that were not admitted, most first: ("limited:mcp/search", 3)."""
    found = [(outcome, calls) for outcome, calls in one.counts.items() if outcome != "admitted"]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))


def tool_as_json(route: str, tool: str, one: Sum) -> dict[str, object]:
    """Calls of a tool as the admin API and the command show them."""
    return {
        "route": route,
        "tool": tool,
        "calls": one.requests,
        "totals": dict(one.counts),
        "groups": one.groups,
    }


def connected_as_json(one: Connected) -> dict[str, object]:
    """A key with connections as the admin API and the command show it."""
    return {
        "id": one.key_id,
        "name": one.name or None,
        "account": one.account or None,
        "plan": one.plan or None,
        "reported": one.reported,
        "limits": None if one.limits is None else [_open_as_json(now) for now in one.limits],
    }


def open_words(limits: Iterable[LimitNow]) -> str:
    """How many connections are open of how many: "2 of 5 (mcp-connections)"."""
    return ", ".join(f"{one.used} of {one.limit.amount} ({one.limit.name})" for one in limits)


def _open_as_json(now: LimitNow) -> dict[str, object]:
    return {
        "name": now.limit.name,
        "routes": list(now.routes),
        "per": now.limit.per,
        "mode": "shadow" if now.limit.shadow else "enforce",
        "open": now.used,
        "limit": now.limit.amount,
    }
