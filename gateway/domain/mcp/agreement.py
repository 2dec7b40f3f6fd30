"""Do the headers of an MCP request agree with its body? The body decides; servers read either."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.domain.mcp.messages import HEADER_MISMATCH, Body, Fault

VERSION: Final = "mcp-protocol-version"
METHOD: Final = "mcp-method"
NAME: Final = "mcp-name"
SESSION: Final = "mcp-session-id"
#: Of a GET that continues a stream, of any earlier request.
LAST_EVENT: Final = "last-event-id"
#: Those that a decision reads, with the fields by which a server chooses how to read a body.
FIELDS: Final = (
    *(VERSION, METHOD, NAME, SESSION, LAST_EVENT),
    *("content-type", "content-encoding"),
)

#: A text that is no plain header value.
_ENCODED = re.compile(r"=\?base64\?([A-Za-z0-9+/=]*)\?=").fullmatch


class Headers(NamedTuple):
    """The values of MCP's own headers; "": it is absent."""

    version: str
    method: str
    name: str


def read_headers(header: Callable[[str], str]) -> Headers:
    """header: the value of one by its lower-case name; "": there is none"""
    return Headers(header(VERSION), header(METHOD), _decoded(header(NAME)))


def disagreement(body: Body, headers: Headers) -> Fault | None:
    """Why the request is refused; None: all headers that it has agree."""
    message = body.messages[0]
    version, method, name = headers
    if version and message.version and (body.is_array or version != message.version):
        header = VERSION
    elif method and (body.is_array or method != message.method):
        header = METHOD
    elif name and (body.is_array or name != message.name):
        header = NAME
    else:
        return None
    text = f"The header {header} differs from the body."
    return Fault(HEADER_MISMATCH, text, message.id or b"null")


def _decoded(value: str) -> str:
    """A header's value, which may be encoded; one that cannot be decoded agrees with nothing."""
    found = _ENCODED(value) if value else None
    if found is None:
        return value
    try:
        return b64decode(found[1], validate=True).decode("utf-8")
    except ValueError:
        return value
