"""Streams that are held open through two gateways on one store, for concurrency limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from redis.asyncio import Redis

from gateway.domain import key_format
from tests.end_to_end.conftest import Site
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.upstream import Exchange, echo
from tests.kit.wire import Response, Wire, bearer, build_request


async def events(exchange: Exchange) -> None:
    """An event stream that ends when the client closes, or a short answer."""
    if not exchange.request.target.endswith("/events"):
        await echo(exchange)
        return
    await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
    await exchange.ended()
    raise ConnectionError


@dataclass
class HeldStreams:
    """Two gateways on one store, and the streams that a test holds open through them."""

    site: Site
    files: dict[str, str]
    upstream: str
    store: Redis
    gateways: list[ServedGateway]
    wires: list[Wire] = field(default_factory=list)

    async def enter(
        self, key: str, gateway: ServedGateway | int = 0, target: str = "/mcp/events"
    ) -> tuple[Wire, Response]:
        """Open a stream; it stays open until the test ends, or its wire is closed."""
        served = self.gateways[gateway] if isinstance(gateway, int) else gateway
        wire = await Wire.connect(served.port)
        self.wires.append(wire)
        await wire.send(build_request("GET", target, bearer(key)))
        head = await wire.read_head()
        if head.status == 200:
            assert await wire.read_chunk() == b"data: 1\n\n"
        else:
            head.body = await wire.read_body(head)
        return wire, head

    async def fill(self, key: str, gateway: ServedGateway | int = 0) -> list[Wire]:
        """Open as many as a key may have."""
        entered = [await self.enter(key, gateway) for _ in range(5)]
        assert [head.status for _, head in entered] == [200] * 5
        return [wire for wire, _ in entered]

    async def admits(self, key: str, gateway: int = 0) -> bool:
        """Is a short request admitted now?"""
        answer = await self.gateways[gateway].fetch("/mcp/short", key=key)
        assert answer.status in (200, 429)
        return answer.status == 200

    async def held(self, key: str, limit: str = "connections") -> int:
        """How many leases the store has."""
        parsed = key_format.parse(key.encode())
        assert parsed is not None
        held: int = await self.store.zcard(self.count_of(parsed.id, limit))
        return held

    async def leave(self) -> None:
        """Close all streams."""
        for wire in self.wires:
            await wire.close()
        self.wires.clear()

    def count_of(self, key_id: str, limit: str = "connections") -> str:
        return f"gw:limit:{{{key_id}}}:key:{key_id}:{limit}:concurrency:6000000"

    async def holds(self, key: str, count: int) -> None:
        """Wait until the store has this many leases."""

        async def is_so() -> bool:
            return await self.held(key) == count

        await eventually(is_so, f"{count} leases are held")
