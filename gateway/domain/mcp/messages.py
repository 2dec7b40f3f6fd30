"""Reads the JSON-RPC messages of MCP clients: what a decision needs, with only one reading.

An upstream that found another method or tool in a body than the gateway did would run what nobody
was asked for. So a body that has more than one reading is refused (`members`).

msgspec goes over a body twice, once for the message and once for its params: whatever else is
looked into is short. Before that the levels of a body are counted. A long body can be read in three
steps (`read_in_steps`). How long the worst ones take is measured by `tests/bench/mcp_bodies.py`.

https://modelcontextprotocol.io/specification: 2025-03-26 to 2026-07-28.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET

from gateway.domain.json_array import ODD, fold_case
from gateway.domain.json_text import TooDeep, check_levels
from gateway.domain.mcp.members import (
    MOST_ELEMENTS,
    SPACES,
    Invalid,
    Members,
    Pairs,
    kind_of,
    read_elements,
    read_object,
    read_objects,
)
from gateway.domain.mcp.settings import CALL, LIST

Kind = Literal["request", "notification", "response"]

#: The codes of JSON-RPC 2.0, and that of MCP 2026-07-28 for a header that differs from the body.
UNREADABLE: Final = -32700
INVALID: Final = -32600
INVALID_PARAMS: Final = -32602
HEADER_MISMATCH: Final = -32020

#: The last version that has arrays of messages.
LAST_WITH_ARRAYS: Final = "2025-03-26"
#: The longest array: hardly any client sends one, and its messages take long, each with its keys.
MOST_ARRAY_BYTES: Final = 256 * 1024
#: A longer body is read in steps, between which others are served.
ONE_STEP_BYTES: Final = 64 * 1024
#: The last version with sessions.
LAST_STATEFUL: Final = "2025-11-25"
#: The longest id, as JSON.
MOST_ID_BYTES: Final = 256
#: The longest method or version, and the longest name or URI, as JSON.
MOST_METHOD_BYTES: Final = 256
MOST_NAME_BYTES: Final = 64 * 1024
#: The longest `_meta`, as JSON: it is gone over a third time.
MOST_META_BYTES: Final = 64 * 1024

#: What the method of each notification contains.
NOTICES: Final = "notifications/"

#: The parameter that names what is asked for, by method. Only a call must have it.
NAMED: Final = {
    CALL: "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "resources/subscribe": "uri",
    "resources/unsubscribe": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/result": "taskId",
    "tasks/cancel": "taskId",
}
_MESSAGE_NAMES: Final = ("jsonrpc", "id", "method", "params", "result", "error")
_PARAM_NAMES: Final = tuple(dict.fromkeys(("_meta", *NAMED.values())))
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_CLIENT: Final = (
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
)
_META_NAMES: Final = (_VERSION,)
#: By a reading that ignores letter case.
_NAMED_ALIKE: Final = {fold_case(method): method for method in (*NAMED, LIST)}
_INTEGER = re.compile(rb"-?[0-9]+").fullmatch


class Message(msgspec.Struct, frozen=True):
    """One message.

    id:      of a request or response, as JSON: b'"a"' or b"7"; b"" of a notification
    method:  "tools/call"; "" of a response
    name:    of the tool, prompt, resource or task that it asks for; "" if it has none
    version: of the protocol, which messages name from 2026-07-28 on; "" before
    """

    kind: Kind
    id: bytes = b""
    method: str = ""
    name: str = ""
    version: str = ""


class Body(msgspec.Struct, frozen=True):
    """The messages of a body. is_array: it is an array of them"""

    messages: tuple[Message, ...]
    is_array: bool = False

    @property
    def requests(self) -> tuple[Message, ...]:
        """Those that are answered."""
        return tuple([message for message in self.messages if message.kind == "request"])


class _Invalid(Invalid):
    """With a code of JSON-RPC."""

    def __init__(self, message: str, code: int = INVALID) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a body is refused. code: of JSON-RPC; id: of the message, as JSON, if it was read"""

    code: int
    message: str
    id: bytes = b"null"


_message: Final = Members(_MESSAGE_NAMES)
_params: Final = Members(_PARAM_NAMES, "arguments", "cursor")
_meta: Final = Members(_META_NAMES, "progressToken", *_CLIENT)
_text: Final = msgspec.json.Decoder(str).decode


def read_in_steps(body: bytes, version: str) -> Iterator[Body | Fault | None]:
    """Reads as `read_body`, in steps of a similar length: None after each but the last."""
    fault = _fault_of_text(body)
    if fault is not None:
        yield fault
        return
    yield None
    try:
        begun = read_object(body)
    except (msgspec.DecodeError, Invalid):
        begun = None  # It is an array, or faulty.
    yield None
    yield read_text(body, version, begun)


def read_body(body: bytes, version: str) -> Body | Fault:
    """The messages of a POST's body.

    version: the value of MCP-Protocol-Version; "": it has none
    """
    return _fault_of_text(body) or read_text(body, version)


def _fault_of_text(body: bytes) -> Fault | None:
    """Why this is no text that may be read; None: it is one."""
    try:
        # msgspec does not validate the texts that it skips.
        body.decode("utf-8")
        check_levels(body)
    except UnicodeDecodeError:
        return Fault(UNREADABLE, "The body is not UTF-8.")
    except TooDeep as error:
        return Fault(UNREADABLE, f"Invalid JSON: {error}.")
    return None


def read_text(body: bytes, version: str, begun: Pairs | None = None) -> Body | Fault:
    """The messages of a body in UTF-8 that has not too many levels.

    begun: the pairs of the body, if its object was read before
    """
    try:
        if begun:
            message = _read_one(_message.of(begun))
        elif body.lstrip(SPACES)[:1] == b"[":
            return _read_array(body, version)
        else:
            message = _read_one(_message.read(body))
        return message if isinstance(message, Fault) else Body((message,))
    except Invalid as error:
        return Fault(_code_of(error), f"Invalid message: {error}.")
    except msgspec.ValidationError:
        found = kind_of(body.lstrip(SPACES))
        return Fault(INVALID, f"Invalid message: expected a JSON object, found {found}.")
    except msgspec.DecodeError:
        return Fault(UNREADABLE, "The body is not valid JSON.")


def _read_array(body: bytes, version: str) -> Body | Fault:
    if version > LAST_WITH_ARRAYS:
        raise _Invalid(f"MCP {version} has no arrays of messages")
    if len(body) > MOST_ARRAY_BYTES:
        raise _Invalid(f"an array has more than {MOST_ARRAY_BYTES} bytes")
    try:
        found = read_objects(body)
    except msgspec.ValidationError:
        raise _Invalid(_fault_of_array(body)) from None
    messages = []
    for pairs in found:
        one = _read_one(_message.of(pairs))
        if isinstance(one, Fault):
            return one
        messages.append(one)
    if not messages:
        raise _Invalid("the array is empty")
    return Body(tuple(messages), is_array=True)


def _fault_of_array(body: bytes) -> str:
    """What is wrong with an array that has too many elements, or one that is no object."""
    try:
        found = read_elements(body)
    except msgspec.ValidationError:
        return f"an array has more than {MOST_ELEMENTS} elements"
    at, element = next(pair for pair in enumerate(found, 1) if pair[1][:1] != b"{")
    return f"expected an array of objects, found {kind_of(element)} as element {at}"


def _read_one(parts: Any) -> Message | Fault:
    """One message, by its members."""
    read_id = b"" if parts.id is UNSET else _read_id(parts.id)
    try:
        return _read_message(parts, read_id)
    except Invalid as error:
        return Fault(_code_of(error), f"Invalid message: {error}.", read_id or b"null")


def _read_message(parts: Any, read_id: bytes) -> Message:
    if parts.jsonrpc is UNSET or bytes(parts.jsonrpc) != b'"2.0"':
        raise _Invalid('"jsonrpc" is not "2.0"')
    has_result, has_error = parts.result is not UNSET, parts.error is not UNSET
    if parts.method is UNSET:
        if has_result is has_error:
            raise _Invalid('expected one of "method", "result" and "error"')
        # A server that could not read a request answers without its id.
        return Message("response", read_id)
    if has_result or has_error:
        raise _Invalid('"method" together with "result" or "error"')
    method = _read_text(parts.method, "method", MOST_METHOD_BYTES)
    params = None if parts.params is UNSET else _object(_params, parts.params, "params")
    if not read_id:
        if parts.id is not UNSET:
            raise _Invalid('"id" is neither text nor integer')
        if NOTICES not in method:
            # JSON-RPC servers run it, and do not answer.
            raise _Invalid('a request without "id"')
    return Message(
        "request" if read_id else "notification",
        read_id,
        method,
        _read_name(method, params),
        "" if params is None or params._meta is UNSET else _read_version(params._meta),
    )


def _read_name(method: str, params: Any) -> str:
    named = NAMED.get(method)
    if named is None:
        alike = _NAMED_ALIKE.get(fold_case(method).strip())
        if alike is not None and alike != method:
            raise _Invalid(f'a method that some servers take for "{alike}"')
        if not method.isascii() or not method.isprintable():
            raise _Invalid('"method" has other characters than printable ASCII')
        return ""
    value = UNSET if params is None else getattr(params, named)
    if value is not UNSET:
        name = _read_text(value, named, MOST_NAME_BYTES, INVALID_PARAMS)
        if method == CALL and ODD.search(name):
            raise _Invalid('"name" has control or invisible characters', INVALID_PARAMS)
        return name
    if method != CALL:
        return ""  # Nothing is decided by it, and the server may not have the method.
    raise _Invalid(f'{method} without "{named}"', INVALID_PARAMS)


def _read_version(value: msgspec.Raw) -> str:
    """The version of `_meta`."""
    if len(memoryview(value)) > MOST_META_BYTES:
        raise _Invalid(f'"_meta" has more than {MOST_META_BYTES} bytes', INVALID_PARAMS)
    meta = _object(_meta, value, "_meta")
    if meta.protocolVersion is UNSET:
        return ""
    return _read_text(meta.protocolVersion, _VERSION, MOST_METHOD_BYTES, INVALID_PARAMS)


def _code_of(error: Invalid) -> int:
    return error.code if isinstance(error, _Invalid) else INVALID


def _object(members: Members, value: msgspec.Raw, name: str) -> Any:
    """The members of a value that has to be an object."""
    try:
        return members.read(value)
    except msgspec.ValidationError:
        found = kind_of(bytes(value))
        text = f'expected an object as "{name}", found {found}'
        raise _Invalid(text, INVALID_PARAMS) from None


def _read_id(value: msgspec.Raw) -> bytes:
    """An id, as JSON; b"" for null, which some responses have."""
    if len(memoryview(value)) > MOST_ID_BYTES:
        raise _Invalid(f'"id" has more than {MOST_ID_BYTES} bytes')
    text = bytes(value)
    if text == b"null":
        return b""
    if text[:1] != b'"' and not _INTEGER(text):
        raise _Invalid('"id" is neither text nor integer')
    return text


def _read_text(value: msgspec.Raw, name: str, most: int, code: int = INVALID) -> str:
    """most: the most bytes of it, as JSON"""
    if len(memoryview(value)) > most:
        raise _Invalid(f'"{name}" has more than {most} bytes', code)
    try:
        return _text(value)
    except msgspec.DecodeError:
        raise _Invalid(f'"{name}" is not a text', code) from None
