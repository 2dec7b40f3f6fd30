"""Real clients in Python, as a program: `python client.py KIND`, with cases as JSON as its input.

A case is {"name", "url", "key", "steps"}: a connection of its own, and what is done on it. The
output has what each step of each case showed. See client.mjs, which does the same with the clients
in TypeScript.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

#: A step that takes longer hangs: no answer takes a second.
STEP_S = 15


@dataclass
class Events:
    """What came from the server beside answers."""

    counts: dict[str, int] = field(default_factory=lambda: {"progress": 0, "log": 0})
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def progress(self, *_: object) -> None:
        self.counts["progress"] += 1

    async def log(self, *_: object) -> None:
        self.counts["log"] += 1

    async def message(self, message: Any) -> None:
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            self.changed.set()


class Connection:
    """One client, whatever its package."""

    def __init__(self, client: Any, events: Events) -> None:
        self.client, self.events = client, events

    async def list(self) -> str:
        found = await self.client.list_tools()
        return ",".join(tool.name for tool in getattr(found, "tools", found))

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, str]:
        result = await self.client.call_tool(
            tool, arguments, progress_callback=self.events.progress
        )
        failed = getattr(result, "isError", None) or getattr(result, "is_error", None)
        return ("result" if failed else "ok"), result.content[0].text


class FastConnection(Connection):
    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, str]:
        from fastmcp.exceptions import ToolError

        try:
            result = await self.client.call_tool(
                tool, arguments, progress_handler=self.events.progress
            )
        except ToolError as error:  # which is made of a result with isError
            return "result", str(error)
        return "ok", result.content[0].text


@asynccontextmanager
async def sdk_1(url: str, key: str) -> AsyncIterator[Connection]:
    from mcp import ClientSession, types
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async def sample(*_: object) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    events = Events()
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {key}"})
    async with (
        http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(
            read,
            write,
            sampling_callback=sample,
            logging_callback=events.log,
            message_handler=events.message,
        ) as session,
    ):
        await session.initialize()
        yield Connection(session, events)


async def sample_2(*_: object) -> Any:
    import mcp_types as types

    content = types.TextContent(type="text", text="Paris")
    return types.CreateMessageResult(role="assistant", content=content, model="m")


@asynccontextmanager
async def sdk_2(url: str, key: str, mode: str = "auto") -> AsyncIterator[Connection]:
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    events = Events()
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {key}"})
    async with (
        http,
        Client(
            streamable_http_client(url, http_client=http),
            mode=mode,
            sampling_callback=sample_2,
            logging_callback=events.log,
            log_level="info",
            message_handler=events.message,
        ) as client,
    ):
        yield Connection(client, events)


def sdk_2_legacy(url: str, key: str) -> Any:
    return sdk_2(url, key, "legacy")


@asynccontextmanager
async def fastmcp(url: str, key: str) -> AsyncIterator[Connection]:
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    events = Events()
    transport = StreamableHttpTransport(url, headers={"Authorization": f"Bearer {key}"})
    async with Client(
        transport,
        sampling_handler=sample_2,
        log_handler=events.log,
        message_handler=events.message,
    ) as client:
        yield FastConnection(client, events)


KINDS = {"sdk-1": sdk_1, "sdk-2": sdk_2, "sdk-2-legacy": sdk_2_legacy, "fastmcp": fastmcp}


def words(error: BaseException) -> str:
    """What an error says, without the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def take(connection: Connection, step: list[Any]) -> tuple[str, str]:
    """Take one step: how it ended, and its text."""
    match step:
        case ["list"]:
            return "ok", await connection.list()
        case ["call", tool, arguments]:
            return await connection.call(tool, arguments)
        case ["changed"]:
            await connection.events.changed.wait()
            return "ok", ""
    raise AssertionError(step)


async def attempt(kind: str, case: dict[str, Any]) -> dict[str, Any]:
    """Do all steps of a case, with what came of each; those after a lost connection are "lost"."""
    shown: list[dict[str, str]] = []
    at, steps = "connect", [*case["steps"]]
    events = Events()
    try:
        async with asyncio.timeout(STEP_S) as timeout:
            loop = asyncio.get_running_loop()
            async with KINDS[kind](case["url"], case["key"]) as connection:
                events = connection.events
                shown.append({"step": at, "outcome": "ok", "text": ""})
                while steps:
                    step = steps.pop(0)
                    at = " ".join(map(str, step[:2]))
                    timeout.reschedule(loop.time() + STEP_S)
                    try:
                        outcome, text = await take(connection, step)
                    except Exception as error:
                        outcome, text = "error", words(error)
                    shown.append({"step": at, "outcome": outcome, "text": text})
                at = "close"
                timeout.reschedule(loop.time() + STEP_S)
        shown.append({"step": "close", "outcome": "ok", "text": ""})
    except TimeoutError:
        shown.append({"step": at, "outcome": "hung", "text": ""})
    except BaseException as error:
        shown.append({"step": at, "outcome": "error", "text": words(error)})
    shown += [
        {"step": " ".join(map(str, step[:2])), "outcome": "lost", "text": ""} for step in steps
    ]
    return {"shown": shown, "events": events.counts}


async def main() -> None:
    cases = json.load(sys.stdin)
    print(json.dumps({case["name"]: await attempt(sys.argv[1], case) for case in cases}))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    asyncio.run(main())
