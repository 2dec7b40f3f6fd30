"""Real MCP servers behind the gateway: sessions, questions to the client and streams work."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.judges.clients import LIST, Shown, clients, drive
from tests.judges.environments import needs_judges, node, package, python
from tests.judges.site import started, started_site
from tests.kit.ports import free_port
from tests.kit.wire import fetch

# All clients run within the first test.
pytestmark = [needs_judges(), pytest.mark.timeout(400)]

EVERYTHING = package("@modelcontextprotocol/server-everything/dist/index.js")
ROUTES = """
routes:
  everything: {match: "* /mcp",        upstream: everything, mcp: {tools: {"*": allow}}}
  npm:        {match: "* /npm",        upstream: npm,        mcp: {tools: {"*": allow}}}
  pypi:       {match: "* /servers/**", upstream: pypi,       mcp: {tools: {"*": allow}}}
"""
UPSTREAM = '  {name}: {{servers: ["http://{host}:{port}"]}}\n'
#: Where each server answers: `server-everything` itself, and behind the two `mcp-proxy`.
PATHS = {"everything": "/mcp", "npm": "/npm", "pypi": "/servers/all/mcp/"}
STEPS: list[list[Any]] = [
    LIST,
    ["call", "echo", {"message": "hello"}],
    ["call", "get-sum", {"a": 1, "b": 2}],
    ["call", "trigger-long-running-operation", {"duration": 0.2, "steps": 4}],
    ["call", "trigger-sampling-request", {"prompt": "What is the capital of France?"}],
]
CLIENTS = ("mcp-1", "mcp-2", "sdk-1", "client-2-auto")


def commands(ports: dict[str, int]) -> dict[str, list[str | Path]]:
    """Each server's command."""
    stdio: list[str | Path] = [node(), EVERYTHING, "stdio"]
    npm = package("mcp-proxy/dist/bin/mcp-proxy.mjs")
    pypi = ["-m", "mcp_proxy", "--port", str(ports["pypi"]), "--pass-environment"]
    return {
        "everything": [node(), EVERYTHING, "streamableHttp"],
        "npm": [
            *(node(), npm, "--host", "127.0.0.1", "--port", str(ports["npm"])),
            *("--server", "stream", "--streamEndpoint", "/npm", "--", *stdio),
        ],
        "pypi": [python("sdk-1"), *pypi, "--named-server", "all", " ".join(map(str, stdio))],
    }


async def use(folder: Path) -> dict[str, dict[str, Shown]]:
    """What clients do with each server: by its name, "CLIENT direct" and "CLIENT gateway"."""
    found: dict[str, dict[str, Shown]] = {}
    async with AsyncExitStack() as stack:
        ports = {name: free_port() for name in PATHS}
        for name, command in commands(ports).items():
            await stack.enter_async_context(started(folder / name, ports[name], *command))
        upstreams = "upstreams:\n" + "".join(
            UPSTREAM.format(name=name, host="localhost", port=port) for name, port in ports.items()
        )
        site = await stack.enter_async_context(
            started_site(folder, "", routes=ROUTES, upstreams=upstreams)
        )
        key = await site.key()
        for client in CLIENTS:
            cases = [
                {
                    "name": f"{name} {where}",
                    "url": f"http://localhost:{port}{PATHS[name]}",
                    "key": key,
                    "steps": STEPS,
                }
                for name in PATHS
                for where, port in (("direct", ports[name]), ("gateway", site.port))
            ]
            found[client] = await drive(folder / client, clients()[client], cases)
        # Sessions are sealed: an id that a server gave is none of the gateway's.
        headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", "1")]
        body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
        refused = await fetch(site.port, "/mcp", key=key, method="POST", headers=headers, body=body)
        assert refused.status == 404
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Shown]]:
    return asyncio.run(use(tmp_path_factory.mktemp("servers")))


@pytest.mark.parametrize("server", PATHS)
@pytest.mark.parametrize("client", CLIENTS)
def test_it_works_as_without_the_gateway(
    found: dict[str, dict[str, Shown]], client: str, server: str
) -> None:
    """Each step shows the same, with as many notifications."""
    direct, gateway = (found[client][f"{server} {where}"] for where in ("direct", "gateway"))
    assert gateway.steps == direct.steps
    assert direct.outcomes[:5] == ["ok"] * 5, direct
    if server == "npm":
        # It sends the last report after the result, or not: directly as well.
        assert {direct.events["progress"], gateway.events["progress"]} <= {3, 4}
    else:
        assert gateway.events == direct.events
    if server == "everything":
        assert direct.events["progress"] == 4
        assert "Paris" in gateway.steps[5].text
