"""Runs of real clients through a gateway: what works, and what each shows of a refusal."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.judges.environments import PROGRAMS, python, versions
from tests.judges.relay import relay
from tests.judges.site import Site, everything, run, script, started_site
from tests.kit.eventually import eventually
from tests.kit.keys import make_key
from tests.kit.ports import free_port
from tests.kit.wire import fetch

#: The tool whose calls the upstream `broken` ends without an answer.
BREAKING: Final = "test_image_content"
#: Routes to the same server: what each refuses.
ROUTES: Final = """
routes:
  all:
    match: "* /mcp/all"
    upstream: api
    mcp:
      tools:
        test_audio_content: {permission: "scm:read"}
        test_embedded_resource: deny
        "*": allow
  scoped:
    match: "* /mcp/scoped"
    upstream: api
    scopes: [tools:admin]
    mcp: {tools: {"*": allow}}
  limited:
    match: "* /mcp/limited"
    upstream: api
    mcp: {tools: {test_simple_text: {rate: 1/hour}, "*": allow}}
  results:
    match: "* /mcp/results"
    upstream: api
    mcp: {limited_calls: result, tools: {test_simple_text: {rate: 1/hour}, "*": allow}}
  lists:
    match: "* /mcp/lists"
    upstream: api
    mcp: {tools: {"*": allow}}
    limits: [{name: lists, rate: 1/hour}]
  list-results:
    match: "* /mcp/list-results"
    upstream: api
    mcp: {limited_calls: result, tools: {"*": allow}}
    limits: [{name: list-results, rate: 1/hour}]
  down:
    match: "* /mcp/down"
    upstream: down
    mcp: {tools: {"*": allow}}
  broken:
    match: "* /mcp/broken"
    upstream: broken
    mcp: {tools: {"*": allow}}
"""
UPSTREAMS: Final = """
upstreams:
  api: {{servers: ["http://127.0.0.1:{server}"]}}
  broken: {{servers: ["http://127.0.0.1:{broken}"]}}
  down: {{servers: ["http://127.0.0.1:{down}"], health: {{path: /, interval: 1s}}}}
"""

LIST: Final[list[Any]] = ["list"]
CALL: Final[list[Any]] = ["call", "test_simple_text", {}]
OTHER: Final[list[Any]] = ["call", "test_multiple_content_types", {}]


@dataclass(frozen=True)
class Case:
    """A refusal that a client meets.

    title: what happens
    words: of the gateway's message
    path:  of its route
    at:    which of the steps is refused; 0: the connection
    steps: until it, and after it
    again: the steps after it are refused as well
    """

    title: str
    words: str
    path: str
    at: int
    steps: tuple[list[Any], ...]
    again: bool = False


CASES: Final = {
    "401": Case("A key that is not known, when it connects", "API key", "all", 0, (LIST,)),
    "403": Case(
        "A key without the scope of the route, when it connects",
        "Needed: tools:admin.",
        "scoped",
        0,
        (LIST,),
    ),
    "503": Case(
        "No server is available, when it connects",
        "No healthy upstream server.",
        "down",
        0,
        (LIST,),
    ),
    "permission": Case(
        "A call of a tool for which the key lacks the permission",
        "Needed: scm:read.",
        "all",
        2,
        (LIST, ["call", "test_audio_content", {}], CALL),
    ),
    "unknown": Case(
        "A call of a tool that is denied",
        "Unknown tool: test_embedded_resource.",
        "all",
        2,
        (LIST, ["call", "test_embedded_resource", {}], CALL),
    ),
    "429": Case(
        'A call over a limit, `limited_calls: "429"`',
        "Try again in",
        "limited",
        3,
        (LIST, CALL, CALL, OTHER),
    ),
    "result": Case(
        "A call over a limit, `limited_calls: result`",
        "Try again in",
        "results",
        3,
        (LIST, CALL, CALL, OTHER),
    ),
    "list": Case(
        'Another request over a limit, `limited_calls: "429"`',
        "Try again in",
        "lists",
        2,
        (LIST, LIST, LIST),
        again=True,
    ),
    "list-result": Case(
        "Another request over a limit, `limited_calls: result`",
        "Try again in",
        "list-results",
        2,
        (LIST, LIST, LIST),
        again=True,
    ),
    "404": Case(
        "A session that the gateway does not know",
        "Session not found. Start a new one with initialize.",
        "spoiled",
        3,
        (LIST, OTHER, CALL, CALL),
    ),
    "502": Case(
        "The server ends the connection while it handles a call",
        "closed the connection before it responded",
        "broken",
        2,
        (LIST, ["call", BREAKING, {}], CALL),
    ),
}

#: What every client does with a server that refuses nothing.
WORK: Final = (
    LIST,
    CALL,
    ["call", "test_error_handling", {}],
    ["call", "test_tool_with_progress", {}],
    ["call", "test_tool_with_logging", {}],
    ["call", "test_sampling", {"prompt": "What is the capital of France?"}],
    ["call", "test_input_required_result_sampling", {}],
    ["call", "test_reconnection", {}],
    ["call", "test_trigger_tool_change", {}],
)
#: A change is announced on the stream of a session.
CHANGED: Final = (["changed"],)


@dataclass(frozen=True)
class Client:
    """A client of others.

    version:  its package in `environments.versions`
    has_sessions: it speaks a revision with sessions; otherwise 2026-07-28
    mode:     how its user sets it, if not as it is by default
    """

    title: str
    version: str
    command: tuple[str | Path, ...]
    has_sessions: bool = True
    mode: str = ""

    @property
    def label(self) -> str:
        return f"{self.title} {versions()[self.version]}" + (
            f", `{self.mode}`" if self.mode else ""
        )


def _in_python(environment: str, kind: str) -> tuple[str | Path, ...]:
    return (python(environment), PROGRAMS / "client.py", kind)


def clients() -> dict[str, Client]:
    """All clients, by a short name."""
    sdk, client = "`@modelcontextprotocol/sdk`", "`@modelcontextprotocol/client`"
    mjs = "client.mjs"
    return {
        "mcp-1": Client("Python `mcp`", "sdk-1/mcp", _in_python("sdk-1", "sdk-1")),
        "mcp-2": Client("Python `mcp`", "sdk-2/mcp", _in_python("sdk-2", "sdk-2"), False),
        "mcp-2-legacy": Client(
            "Python `mcp`", "sdk-2/mcp", _in_python("sdk-2", "sdk-2-legacy"), True, 'mode="legacy"'
        ),
        "fastmcp": Client(
            "Python `fastmcp`", "sdk-2/fastmcp", _in_python("sdk-2", "fastmcp"), False
        ),
        "sdk-1": Client(sdk, "@modelcontextprotocol/sdk", (*script(mjs), "sdk-1")),
        "client-2": Client(client, "@modelcontextprotocol/client", (*script(mjs), "client-2")),
        "client-2-auto": Client(
            client,
            "@modelcontextprotocol/client",
            (*script(mjs), "client-2-auto"),
            False,
            'mode: "auto"',
        ),
        "mcp-remote": Client("`mcp-remote`", "mcp-remote", (*script(mjs), "mcp-remote")),
    }


@dataclass(frozen=True)
class Step:
    """One step of a client. outcome: ok, result (with isError), error, hung, or lost (not done)"""

    step: str
    outcome: str
    text: str


@dataclass(frozen=True)
class Shown:
    """What a client did. events: how many notifications it got, by their kind"""

    steps: tuple[Step, ...]
    events: Mapping[str, int]

    @property
    def outcomes(self) -> list[str]:
        return [step.outcome for step in self.steps]

    def has_message(self, case: Case) -> bool:
        """Does it show the message of the gateway?"""
        return case.words in self.steps[case.at].text

    def goes_on(self, case: Case) -> bool:
        """Do the steps after the refusal succeed, and the end?"""
        return all(
            step.outcome == "ok" or (case.again and case.words in step.text)
            for step in self.steps[case.at + 1 :]
        )


@dataclass
class Clinic:
    """The server that clients call, and the gateway in front of it.

    spoiled: a port of that gateway, which spoils sessions in which OTHER was called
    """

    server: int
    site: Site
    spoiled: int

    async def knows_what_is_down(self) -> bool:
        answer = await fetch(
            self.site.port,
            "/mcp/down",
            key=await self.site.key(),
            method="POST",
            headers=[("Content-Type", "application/json")],
            body=b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
        )
        return answer.status == 503


@asynccontextmanager
async def clinic(folder: Path) -> AsyncIterator[Clinic]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(everything(folder / "server"))
        broken = await stack.enter_async_context(relay(server, "", breaks_at=BREAKING))
        upstreams = UPSTREAMS.format(server=server, broken=broken, down=free_port())
        site = await stack.enter_async_context(
            started_site(folder, "", routes=ROUTES, upstreams=upstreams)
        )
        spoiled = await stack.enter_async_context(relay(site.port, "", spoils_at=OTHER[1]))
        here = Clinic(server, site, spoiled)
        await eventually(here.knows_what_is_down, "the health check finds that it is down")
        yield here


async def drive(folder: Path, client: Client, cases: list[dict[str, Any]]) -> dict[str, Shown]:
    """Let a client do these cases."""
    status, output, errors = await run(folder, client.command, json.dumps(cases), 300)
    assert status == 0, errors[-2000:]
    return {
        name: Shown(tuple(Step(**step) for step in found["shown"]), found["events"])
        for name, found in json.loads(output.splitlines()[-1]).items()
    }


async def drive_all(folder: Path, here: Clinic, client: Client) -> dict[str, Shown]:
    """All cases with one client; "direct" and "gateway" are what works without and through it."""
    steps = WORK + CHANGED if client.has_sessions else WORK
    unknown, _ = make_key(secrets.randbelow)
    key = await here.site.key()
    gateway = f"http://127.0.0.1:{here.site.port}/mcp"
    spoiled = f"http://127.0.0.1:{here.spoiled}/mcp"
    cases: list[dict[str, Any]] = [
        {
            "name": name,
            "url": f"{spoiled}/all" if case.path == "spoiled" else f"{gateway}/{case.path}",
            "key": unknown if name == "401" else key,
            "steps": case.steps,
        }
        for name, case in CASES.items()
    ]
    direct = f"http://127.0.0.1:{here.server}/mcp/all"
    cases += [
        {"name": "direct", "url": direct, "key": key, "steps": steps},
        {"name": "gateway", "url": f"{gateway}/all", "key": key, "steps": steps},
    ]
    return await drive(folder, client, cases)


async def everyone(folder: Path) -> dict[str, dict[str, Shown]]:
    """All cases with all clients, two of them at a time."""
    free = asyncio.Semaphore(2)

    async def one(here: Clinic, name: str, client: Client) -> tuple[str, dict[str, Shown]]:
        async with free:
            return name, await drive_all(folder / name, here, client)

    async with clinic(folder) as here:
        found = await asyncio.gather(
            *(one(here, name, client) for name, client in clients().items())
        )
    return dict(found)
