"""Reads the JSON-RPC messages of MCP clients: what a decision needs, with only one reading.

An upstream that found another method or tool in a body than the gateway did would run what nobody
was asked for. So an object in which two parsers could find different values is refused: a key
twice, or one that is a protocol name only where letter case or odd characters are ignored.

The values are skipped by msgspec, which validates them without building them, and within a bounded
time: a body of 4 MiB takes some milliseconds, and some tens if it is all brackets.

https://modelcontextprotocol.io/specification: 2025-03-26 to 2026-07-28.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from gateway.domain.json_array import fold_case, readings

Kind = Literal["request", "notification", "response"]

#: The codes of JSON-RPC 2.0, and that of MCP 2026-07-28 for a header that differs from the body.
UNREADABLE: Final = -32700
INVALID: Final = -32600
INVALID_PARAMS: Final = -32602
HEADER_MISMATCH: Final = -32020

#: The most requests of an array, and the last version that has arrays.
MOST_MESSAGES: Final = 32
LAST_WITH_ARRAYS: Final = "2025-03-26"
#: The last version with sessions.
LAST_STATEFUL: Final = "2025-11-25"
#: The longest id, as JSON.
MOST_ID_BYTES: Final = 256
#: The most keys of a message, and of its params: more take long, and no message has them.
MOST_KEYS: Final = 128
#: The longest method.
MOST_METHOD: Final = 256

#: The parameter that names what is asked for, by method.
NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "resources/subscribe": "uri",
    "resources/unsubscribe": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/result": "taskId",
    "tasks/cancel": "taskId",
}
_MESSAGE_NAMES: Final = frozenset(("jsonrpc", "id", "method", "params", "result", "error"))
_PARAM_NAMES: Final = frozenset(("_meta", *NAMED.values()))
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_META_NAMES: Final = frozenset((_VERSION,))
#: By a reading of a key that ignores letter case.
_ALIKE: Final = {fold_case(name): name for name in (*_MESSAGE_NAMES, *_PARAM_NAMES, *_META_NAMES)}
_INTEGER = re.compile(rb"-?[0-9]+").fullmatch


@dataclass(frozen=True, slots=True)
class Message:
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


@dataclass(frozen=True, slots=True)
class Body:
    """The messages of a body. is_array: it is an array of them"""

    messages: tuple[Message, ...]
    is_array: bool = False

    @property
    def requests(self) -> tuple[Message, ...]:
        """Those that are answered."""
        return tuple(message for message in self.messages if message.kind == "request")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a body is refused. code: of JSON-RPC; id: of the message, as JSON, if it was read"""

    code: int
    message: str
    id: bytes = b"null"


class _Invalid(Exception):
    def __init__(self, message: str, code: int = INVALID) -> None:
        super().__init__(message)
        self.code = code


class _Key:
    """A key of an object. Each is equal to itself alone: so a dict keeps equal keys, and order."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class _Pairs:
    """Reads the pairs of an object, at most MOST_KEYS, without reading their values."""

    def __init__(self) -> None:
        self._left = 0
        decoder = msgspec.json.Decoder(dict[_Key, msgspec.Raw], dec_hook=self._key)
        self._decode = decoder.decode

    def _key(self, _type: type, text: Any) -> _Key:
        self._left -= 1
        if self._left < 0:
            raise _Invalid(f"an object has more than {MOST_KEYS} keys")
        return _Key(text)

    def read(self, text: bytes | msgspec.Raw) -> list[tuple[str, msgspec.Raw]]:
        self._left = MOST_KEYS
        try:
            return [(key.text, value) for key, value in self._decode(text).items()]
        except msgspec.ValidationError as error:
            raise (error.__cause__ if isinstance(error.__cause__, _Invalid) else error) from None


_pairs: Final = _Pairs().read
#: Elements beyond the fields end the reading, so that a million of them take no time.
_Array: Final = msgspec.defstruct(
    "_Array",
    [(f"at_{index}", msgspec.Raw, msgspec.field(default=msgspec.Raw())) for index in range(32)],
    array_like=True,
    forbid_unknown_fields=True,
)
_elements: Final = msgspec.json.Decoder(_Array).decode
_text: Final = msgspec.json.Decoder(str).decode


def read_body(body: bytes, version: str) -> Body | Fault:
    """The messages of a POST's body.

    version: the value of MCP-Protocol-Version; "": it has none
    """
    try:
        # msgspec does not validate the texts that it skips.
        body.decode("utf-8")
        if body.lstrip(b" \t\r\n")[:1] == b"[":
            return _read_array(body, version)
        return _read_one(body)
    except _Invalid as error:
        return Fault(error.code, f"Invalid message: {error}.")
    except UnicodeDecodeError:
        return Fault(UNREADABLE, "The body is not UTF-8.")
    except RecursionError:
        return Fault(UNREADABLE, "The JSON of the body is nested too deeply.")
    except msgspec.ValidationError:
        return Fault(INVALID, "Invalid message: the body is not a JSON object.")
    except msgspec.DecodeError:
        return Fault(UNREADABLE, "The body is not valid JSON.")


def _read_array(body: bytes, version: str) -> Body | Fault:
    if version > LAST_WITH_ARRAYS:
        raise _Invalid(f"MCP {version} has no arrays of messages")
    try:
        found = msgspec.structs.astuple(_elements(body))
    except msgspec.ValidationError:
        raise _Invalid(f"an array has more than {MOST_MESSAGES} messages") from None
    read = [_read_one(bytes(element)) for element in found if bytes(element)]
    if not read:
        raise _Invalid("the array is empty")
    messages: list[Message] = []
    for one in read:
        if isinstance(one, Fault):
            return one
        messages += one.messages
    return Body(tuple(messages), is_array=True)


def _read_one(text: bytes) -> Body | Fault:
    """One message, which is an object."""
    pairs = _unambiguous(_pairs(text), _MESSAGE_NAMES)
    found_id = pairs.get("id")
    read_id = b"" if found_id is None else _read_id(bytes(found_id))
    try:
        return Body((_read_message(pairs, read_id),))
    except _Invalid as error:
        return Fault(error.code, f"Invalid message: {error}.", read_id or b"null")


def _read_message(pairs: dict[str, msgspec.Raw], read_id: bytes) -> Message:
    if bytes(pairs.get("jsonrpc", b"")) != b'"2.0"':
        raise _Invalid('"jsonrpc" is not "2.0"')
    is_answer = "result" in pairs or "error" in pairs
    if "method" not in pairs:
        if not is_answer or ("result" in pairs) is ("error" in pairs):
            raise _Invalid('expected one of "method", "result" and "error"')
        # A server that could not read a request answers without its id.
        return Message("response", read_id)
    if is_answer:
        raise _Invalid('"method" together with "result" or "error"')
    method = _read_text(pairs["method"], "method", MOST_METHOD)
    params: dict[str, msgspec.Raw] = {}
    if "params" in pairs:
        params = _unambiguous(_object(pairs["params"], "params"), _PARAM_NAMES)
    if "id" in pairs and not read_id:
        raise _Invalid('"id" is neither text nor integer')
    return Message(
        "request" if read_id else "notification",
        read_id,
        method,
        _read_name(method, params),
        _read_version(params),
    )


def _read_name(method: str, params: dict[str, msgspec.Raw]) -> str:
    named = NAMED.get(method)
    if named is None:
        return ""
    if named not in params:
        raise _Invalid(f'{method} without "{named}"', INVALID_PARAMS)
    return _read_text(params[named], named, None, INVALID_PARAMS)


def _read_version(params: dict[str, msgspec.Raw]) -> str:
    if "_meta" not in params:
        return ""
    meta = _unambiguous(_object(params["_meta"], "_meta"), _META_NAMES)
    if _VERSION not in meta:
        return ""
    return _read_text(meta[_VERSION], _VERSION, MOST_METHOD, INVALID_PARAMS)


def _object(value: msgspec.Raw, name: str) -> list[tuple[str, msgspec.Raw]]:
    """The pairs of a value that has to be an object."""
    try:
        return _pairs(value)
    except msgspec.ValidationError:
        raise _Invalid(f'"{name}" is not an object', INVALID_PARAMS) from None


def _read_id(text: bytes) -> bytes:
    """An id, as JSON; b"" for null, which some responses have."""
    if len(text) > MOST_ID_BYTES:
        raise _Invalid(f'"id" has more than {MOST_ID_BYTES} bytes')
    if text == b"null":
        return b""
    if text[:1] != b'"' and not _INTEGER(text):
        raise _Invalid('"id" is neither text nor integer')
    return text


def _read_text(value: msgspec.Raw, name: str, most: int | None, code: int = INVALID) -> str:
    try:
        text = _text(value)
    except msgspec.DecodeError:
        raise _Invalid(f'"{name}" is not a text', code) from None
    if most is not None and len(text) > most:
        raise _Invalid(f'"{name}" has more than {most} characters', code)
    return text


def _unambiguous(
    pairs: list[tuple[str, msgspec.Raw]], names: frozenset[str]
) -> dict[str, msgspec.Raw]:
    """The pairs of an object in which each parser finds the same values under these names."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Invalid("an object has a key twice")
    for key in found.keys() - names:
        for reading in readings(key):
            alike = _ALIKE.get(reading)
            if alike in names:
                raise _Invalid(f'a key that some parsers take for "{alike}"')
    return found
