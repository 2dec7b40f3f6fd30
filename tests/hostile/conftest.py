"""A gateway as users run it, with deadlines that are short or never pass, and load on it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.end_to_end.test_observed import counted
from tests.hostile.backend import Backend
from tests.kit.certificates import Certificate, make_certificate
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.policies import write_policies

Serve = Callable[..., Awaitable[ServedGateway]]

PLANS = "plans:\n  any: {rate: 1000000/hour}\n"
#: No key is needed here: the tests are about connections.
ROUTES = 'routes:\n  api: {match: "* /**", upstream: api, auth: none}\n'

#: Between the requests of one client, if many send all the time. Without it, the clients alone
#: would use up both cores of a small machine, and delay the gateway's start.
PAUSE_S = 0.03

#: No deadline passes: only what is detected at once ends.
LONG = "timeouts: {header: 10m, body: 10m, idle: 10m, response: 10m, write: 10m, drain: 1s}\n"


@pytest_asyncio.fixture(loop_scope="session")
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Start a gateway before this upstream: `await serve(upstream.url, gateway="timeouts: …")`."""
    async with AsyncExitStack() as stack:
        count = 0

        async def start(
            upstream: str,
            *arguments: str,
            store: str = "memory://",
            ports: tuple[int, int] | None = None,
            **files: str,
        ) -> ServedGateway:
            nonlocal count
            folder = tmp_path / f"gateway-{(count := count + 1)}"
            texts = {"gateway": LONG, "plans": PLANS, "routes": ROUTES, **files}
            policies = write_policies(folder / "policies", upstream, **texts)
            served = ServedGateway(folder, policies, store, *arguments, ports=ports)
            return await stack.enter_async_context(served)

        yield start


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Of the receivers of webhooks."""
    return make_certificate(tmp_path_factory.mktemp("tls"), ["127.0.0.1", "receiver.test"])


@pytest_asyncio.fixture(loop_scope="session")
async def backend() -> AsyncIterator[Backend]:
    """A running upstream, in a separate process."""
    async with Backend() as backend:
        yield backend


async def abuse(port: int, kind: str, connections: int, *arguments: str) -> dict[str, Any]:
    """Run the tool of this kind, as a separate process; return its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtests.abuse", "--kind", kind, "--port", str(port)),
        *("--connections", str(connections), *arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        out, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0
    result: dict[str, Any] = json.loads(out)
    return result


async def open_connections(gateway: ServedGateway, side: str) -> float:
    """The gateway's count of open connections on this side: "downstream" or "upstream"."""
    return await counted(gateway, "gateway_connections", side=side, state="open")


async def at_rest(gateway: ServedGateway) -> None:
    """Wait until no request is in flight and no client is connected."""

    async def nothing() -> bool:
        inflight = await counted(gateway, "gateway_inflight_requests")
        return inflight == 0 == await open_connections(gateway, "downstream")

    await eventually(nothing, "no request in flight, no client connected")
