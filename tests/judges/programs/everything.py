"""A server with all that the conformance suite calls, written with the official Python SDK 2.

`python everything.py PORT`; it serves every path. The names, texts and schemas are those that the
scenarios of the suite ask for. It speaks every revision that the SDK does.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections import defaultdict
from typing import Annotated, Any

import mcp_types as types
import uvicorn
from asking import TOOLS, content, form, required
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import Field

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAA"
    "DUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="


class Events(EventStore):
    """The events of a session's streams, so that a client can resume one."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        if not last_event_id.isdecimal() or not 0 < int(last_event_id) <= len(self._events):
            return None
        seen = int(last_event_id)
        stream_id = self._events[seen - 1][0]
        for at, (other, message) in enumerate(self._events[seen:], seen + 1):
            if other == stream_id and message is not None:
                await send_callback(EventMessage(message, str(at)))
        return stream_id


class Sessions(StreamableHTTPSessionManager):
    """Each session has events of its own.

    The SDK names a stream by its request's id, which other sessions use as well: from one store of
    all sessions, a client would be sent the events of others.
    """

    @property
    def event_store(self) -> EventStore:
        return Events()

    @event_store.setter  # the base class sets it once for all
    def event_store(self, store: EventStore) -> None:
        pass


server = MCPServer("everything", version="1.0.0", log_level="ERROR")


# -- content of results ----------------------------------------------------------------------------


def resource(uri: str, media: str, text: str) -> types.EmbeddedResource:
    inner = types.TextResourceContents(uri=uri, mime_type=media, text=text)
    return types.EmbeddedResource(type="resource", resource=inner)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PIXEL, mime_type="image/png")


@server.tool(structured_output=False)
def test_simple_text() -> str:
    """Returns one text."""
    return "This is a simple text response for testing."


@server.tool(structured_output=False)
def test_image_content() -> list[types.ImageContent]:
    """Returns one image."""
    return [image()]


@server.tool(structured_output=False)
def test_audio_content() -> list[types.AudioContent]:
    """Returns one sound."""
    return [types.AudioContent(type="audio", data=SOUND, mime_type="audio/wav")]


@server.tool(structured_output=False)
def test_embedded_resource() -> list[types.EmbeddedResource]:
    """Returns one resource."""
    text = "This is an embedded resource content."
    return [resource("test://embedded-resource", "text/plain", text)]


@server.tool(structured_output=False)
def test_multiple_content_types() -> list[Any]:
    """Returns a text, an image and a resource."""
    text = json.dumps({"test": "data", "value": 123})
    return [
        types.TextContent(type="text", text="Multiple content types test:"),
        image(),
        resource("test://mixed-content-resource", "application/json", text),
    ]


@server.tool(structured_output=False)
def test_error_handling() -> str:
    """Fails."""
    raise ValueError("This tool intentionally returns an error for testing")


@server.tool(structured_output=False)
def test_x_mcp_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Has an argument that clients repeat in a header."""
    return region


@server.tool(structured_output=False, description="Tool with JSON Schema 2020-12 features")
def json_schema_2020_12_tool(name: str = "") -> str:
    return name


server._tool_manager.get_tool("json_schema_2020_12_tool").parameters = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


# -- while a tool runs -----------------------------------------------------------------------------


@server.tool(structured_output=False)
async def test_tool_with_logging(ctx: Context) -> str:
    """Sends three log messages."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(text)
        await asyncio.sleep(0.05)
    return "Logged."


@server.tool(structured_output=False)
async def test_logging_tool(ctx: Context) -> str:
    """Sends a log message, which only a client that asked for it receives."""
    await ctx.info("A log message")
    return "Logged."


@server.tool(structured_output=False)
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports its progress three times."""
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100, f"{done} of 100")
        await asyncio.sleep(0.05)
    return "Done."


#: By session: a client has resumed a stream.
resumed: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


@server.tool(structured_output=False)
async def test_reconnection(ctx: Context) -> str:
    """Closes its own stream, so that the client has to resume it."""
    session = (ctx.headers or {}).get("mcp-session-id", "")
    if session:
        again = resumed[session]
        again.clear()
        await ctx.info("Before the reconnection")
        await ctx.close_sse_stream()
        async with asyncio.timeout(10):
            await again.wait()
        # The SDK loses what is sent while it replays the events of a resumed stream.
        await asyncio.sleep(0.3)
    return "Reconnected."


@server.tool(structured_output=False)
async def test_trigger_tool_change(ctx: Context) -> str:
    """Announces another list of tools."""
    if ctx.protocol_version is not None and ctx.protocol_version < "2026-07-28":
        await ctx.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "Announced."


@server.tool(structured_output=False)
async def test_trigger_prompt_change(ctx: Context) -> str:
    """Announces another list of prompts."""
    await ctx.notify_prompts_changed()
    return "Announced."


for tool in TOOLS:
    server.add_tool(tool, structured_output=False)


# -- resources and prompts -------------------------------------------------------------------------


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image."""
    return base64.b64decode(PIXEL)


@server.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A text that can be subscribed to."""
    return "Watched."


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:
    """A text about an id."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def said(text: str) -> UserMessage:
    return UserMessage(content=types.TextContent(type="text", text=text))


@server.prompt()
def test_simple_prompt() -> list[UserMessage]:
    """A text."""
    return [said("This is a simple prompt for testing.")]


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
    """A text with both arguments."""
    return [said(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")]


@server.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
    """A resource and a text."""
    text = "Embedded resource content for testing."
    return [
        UserMessage(content=resource(resourceUri, "text/plain", text)),
        said("Please process the embedded resource above."),
    ]


@server.prompt()
def test_prompt_with_image() -> list[UserMessage]:
    """An image and a text."""
    return [UserMessage(content=image()), said("Please analyze the image above.")]


@server.prompt()
async def test_input_required_result_prompt(ctx: Context) -> Any:
    """Asks for its context first."""
    given = content(ctx, "user_context")
    if given is None:
        return required(user_context=form("What context should the prompt use?", "context"))
    return [said(f"Context: {given.get('context')}")]


# -- methods without a decorator of their own ------------------------------------------------------


async def accept(_context: Any, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()


for method, params in (
    ("logging/setLevel", types.SetLevelRequestParams),
    ("resources/subscribe", types.SubscribeRequestParams),
    ("resources/unsubscribe", types.UnsubscribeRequestParams),
):
    server._lowlevel_server.add_request_handler(method, params, accept)


@server.completion()
async def complete(_ref: Any, _argument: Any, _context: Any) -> types.Completion:
    return types.Completion(values=["paris", "park", "party"], total=3, has_more=False)


application = server.streamable_http_app(retry_interval=100)
server.session_manager.__class__ = Sessions


async def serve_every_path(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        headers = dict(scope["headers"])
        if scope["method"] == "GET" and b"last-event-id" in headers:
            resumed[headers.get(b"mcp-session-id", b"").decode()].set()
        scope = {**scope, "path": "/mcp", "raw_path": b"/mcp"}
    await application(scope, receive, send)


if __name__ == "__main__":
    uvicorn.run(serve_every_path, port=int(sys.argv[1]), log_level="error")
