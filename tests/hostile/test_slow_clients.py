"""1,500 slow clients of each kind at once: they are ended by their deadlines, and harm nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from loadtests.abuse.healthy import keep_asking
from tests.hostile.conftest import Serve, abuse, at_rest
from tests.hostile.victim import Victim
from tests.kit import proc

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONNECTIONS = 1500
#: A slow connection may cost so much of the gateway's memory: twice the pieces that wait for one.
MOST_BYTES_EACH = 128 * 1024

HASTY = "timeouts: {header: 2s, body: 2s, write: 2s}\n"
#: The healthy client's upstream is not the one that the slow ones keep busy.
ROUTES = """
routes:
  calm: {match: "* /calm", upstream: calm, auth: none}
  api:  {match: "* /**",   upstream: api,  auth: none}
"""


@pytest_asyncio.fixture(loop_scope="session")
async def calm() -> AsyncIterator[Victim]:
    async with Victim() as victim:
        yield victim


@pytest.mark.parametrize(
    ("kind", "arguments", "status"),
    [
        ("slow-header", ("--path", "/short"), "408"),
        ("slow-body", ("--path", "/short"), "408"),
        ("slow-read", ("--path", "/long"), "200"),
    ],
)
async def test_slow_clients_end_and_harm_nobody(
    victim: Victim, calm: Victim, serve: Serve, kind: str, arguments: tuple[str, ...], status: str
) -> None:
    """All healthy requests succeed meanwhile; slow ones get 408 or are cut, and cost little."""
    upstreams = (
        f'upstreams: {{api: {{servers: ["{victim.url}"]}}, calm: {{servers: ["{calm.url}"]}}}}'
    )
    gateway = await serve(victim.url, gateway=HASTY, routes=ROUTES, upstreams=upstreams)
    pid = gateway.worker_pid
    before = await keep_asking(gateway.port, "/calm", "", lambda so_far: len(so_far.waits_s) >= 500)
    memory = proc.rss_bytes(pid)
    attack = asyncio.create_task(abuse(gateway.port, kind, CONNECTIONS, *arguments))
    during = await keep_asking(gateway.port, "/calm", "", lambda _: attack.done())
    outcome = await attack
    grown = proc.peak_rss_bytes(pid) - memory
    print(f"\n{kind}: {outcome}, {grown / CONNECTIONS / 1024:.1f} KiB of memory each")
    print(f"healthy before: {before.figures()}\nhealthy during: {during.figures()}")
    assert set(during.statuses) == {200}
    assert (outcome["opened"], outcome["ended"], outcome["held"]) == (CONNECTIONS, CONNECTIONS, 0)
    assert outcome["statuses"] == {status: CONNECTIONS}
    assert grown < CONNECTIONS * MOST_BYTES_EACH
    await at_rest(gateway)
