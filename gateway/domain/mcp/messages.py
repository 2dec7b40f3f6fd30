"""Reads the JSON-RPC messages of MCP clients: what a decision needs, with only one reading.

An upstream that found another method or tool in a body than the gateway did would run what nobody
was asked for. So an object in which two parsers could find different values is refused: a key
twice, one that is a protocol name only where letter case is ignored, or one with odd characters.

The values are skipped by msgspec, which validates them without building them. It goes over a body
twice, once for the message and once for its params: whatever else is looked into is short, or it is
read by `_Members`. A long body can be read in two steps (`begin_body`). How long the worst ones
take is measured by `tests/bench/mcp_bodies.py`.

https://modelcontextprotocol.io/specification: 2025-03-26 to 2026-07-28.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET

from gateway.domain.json_array import ODD, fold_case
from gateway.domain.mcp.settings import CALL

Kind = Literal["request", "notification", "response"]

#: The codes of JSON-RPC 2.0, and that of MCP 2026-07-28 for a header that differs from the body.
UNREADABLE: Final = -32700
INVALID: Final = -32600
INVALID_PARAMS: Final = -32602
HEADER_MISMATCH: Final = -32020

#: The most requests of an array, and the last version that has arrays.
MOST_MESSAGES: Final = 32
LAST_WITH_ARRAYS: Final = "2025-03-26"
#: The longest array: hardly any client sends one, and its messages take long, each with its keys.
MOST_ARRAY_BYTES: Final = 256 * 1024
#: A longer body is read in two steps, between which others are served.
ONE_STEP_BYTES: Final = 64 * 1024
#: The last version with sessions.
LAST_STATEFUL: Final = "2025-11-25"
#: The longest id, as JSON.
MOST_ID_BYTES: Final = 256
#: The most keys of a message, and of its params: more take long, and no message has them.
MOST_KEYS: Final = 32
#: The longest of these keys, in characters.
MOST_KEY: Final = 256
#: The longest method or version, and the longest name or URI, as JSON.
MOST_METHOD_BYTES: Final = 256
MOST_NAME_BYTES: Final = 64 * 1024
#: The longest `_meta`, as JSON: it is gone over a third time.
MOST_META_BYTES: Final = 64 * 1024

#: The longest object that is read as clients write it: any other is then gone over once more.
MOST_COMPACT_BYTES: Final = 16 * 1024

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
#: By a reading of a key that ignores letter case.
_ALIKE: Final = {fold_case(name): name for name in (*_MESSAGE_NAMES, *_PARAM_NAMES, *_META_NAMES)}
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


_Object = dict[_Key, msgspec.Raw]
Pairs = list[tuple[str, msgspec.Raw]]


class _Reader:
    """Reads the pairs of objects without reading their values.

    form: an object, or the array of them; most_keys: in all of these together
    """

    def __init__(self, form: Any, most_keys: int) -> None:
        self._most = self._left = most_keys
        self._decode = msgspec.json.Decoder(form, dec_hook=self._key).decode

    def _key(self, _type: type, text: Any) -> _Key:
        self._left -= 1
        if self._left < 0:
            raise _Invalid(f"an object has more than {MOST_KEYS} keys")
        if len(text) > MOST_KEY:
            raise _Invalid(f"a key has more than {MOST_KEY} characters")
        return _Key(text)

    def read(self, text: bytes | msgspec.Raw) -> Any:
        self._left = self._most
        try:
            return self._decode(text)
        except msgspec.ValidationError as error:
            raise (error.__cause__ if isinstance(error.__cause__, _Invalid) else error) from None


class _Members:
    """Reads the members of an object that have these names, and leaves their values unread.

    An object as clients write it has well-known keys only, and no white space. msgspec reads that
    without a call for each key, but takes the last of equal keys. So it is written again: if that
    has as many bytes, nothing else is in the object, and no key is there twice or in an odd form.
    Any other object is read key by key.
    """

    def __init__(self, names: Collection[str], *more: str) -> None:
        """names: the attributes are what follows the last slash of each; more well-known keys"""
        self._names = names
        self._attributes = {name: name.rpartition("/")[2] for name in (*names, *more)}
        self._form = msgspec.defstruct(
            "_Form",
            [
                (
                    attribute,
                    msgspec.Raw | msgspec.UnsetType,
                    msgspec.field(default=UNSET, name=name),
                )
                for name, attribute in self._attributes.items()
            ],
            forbid_unknown_fields=True,
        )
        self._decode = msgspec.json.Decoder(self._form).decode

    def read(self, text: bytes | msgspec.Raw) -> Any:
        """Of the text of an object: as attributes; UNSET: it has no such key."""
        size = len(memoryview(text))
        if size <= MOST_COMPACT_BYTES:
            try:
                found = self._decode(text)
            except msgspec.DecodeError:
                pass
            else:
                if len(_encode(found)) == size:
                    return found
        return self.of(_pairs(_read_object(text)))

    def of(self, pairs: Pairs) -> Any:
        """The same, of the pairs of an object."""
        found = _unambiguous(pairs, self._names)
        read = {self._attributes[name]: found[name] for name in self._names if name in found}
        return self._form(**read)


_encode: Final = msgspec.json.Encoder().encode
_message: Final = _Members(_MESSAGE_NAMES)
_params: Final = _Members(_PARAM_NAMES, "arguments", "cursor")
_meta: Final = _Members(_META_NAMES, "progressToken", *_CLIENT)
_SPACES: Final = b" \t\r\n"
#: By the first byte.
_KINDS: Final = {
    **{b"[": "an array", b'"': "a text", b"n": "null"},
    **dict.fromkeys((b"t", b"f"), "a boolean"),
}


def _array_of(element: Any) -> Any:
    """The form of an array: elements beyond the fields end the reading, so that a million of them
    take no time.
    """
    return msgspec.defstruct(
        "_Array",
        [(f"at_{index}", element | msgspec.UnsetType, UNSET) for index in range(MOST_MESSAGES)],
        array_like=True,
        forbid_unknown_fields=True,
    )


_read_object: Final = _Reader(_Object, MOST_KEYS).read
_read_objects: Final = _Reader(_array_of(_Object), MOST_KEYS * MOST_MESSAGES).read
#: The same with elements of any kind.
_read_any: Final = msgspec.json.Decoder(_array_of(msgspec.Raw)).decode
_text: Final = msgspec.json.Decoder(str).decode


def begin_body(body: bytes) -> Pairs:
    """The first half of `read_body`. []: that has to do all, as the body is an array or faulty."""
    try:
        body.decode("utf-8")
        return _pairs(_read_object(body))
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError, _Invalid):
        return []


def read_body(body: bytes, version: str, begun: Pairs | None = None) -> Body | Fault:
    """The messages of a POST's body.

    version: the value of MCP-Protocol-Version; "": it has none
    begun:   by `begin_body`
    """
    try:
        if begun:
            message = _read_one(_message.of(begun))
        else:
            # msgspec does not validate the texts that it skips.
            body.decode("utf-8")
            if body.lstrip(_SPACES)[:1] == b"[":
                return _read_array(body, version)
            message = _read_one(_message.read(body))
        return message if isinstance(message, Fault) else Body((message,))
    except _Invalid as error:
        return Fault(error.code, f"Invalid message: {error}.")
    except UnicodeDecodeError:
        return Fault(UNREADABLE, "The body is not UTF-8.")
    except RecursionError:
        return Fault(UNREADABLE, "The JSON of the body is nested too deeply.")
    except msgspec.ValidationError:
        found = _kind_of(body.lstrip(_SPACES))
        return Fault(INVALID, f"Invalid message: expected a JSON object, found {found}.")
    except msgspec.DecodeError:
        return Fault(UNREADABLE, "The body is not valid JSON.")


def _read_array(body: bytes, version: str) -> Body | Fault:
    if version > LAST_WITH_ARRAYS:
        raise _Invalid(f"MCP {version} has no arrays of messages")
    if len(body) > MOST_ARRAY_BYTES:
        raise _Invalid(f"an array has more than {MOST_ARRAY_BYTES} bytes")
    try:
        found = msgspec.structs.astuple(_read_objects(body))
    except msgspec.ValidationError:
        raise _Invalid(_fault_of_array(body)) from None
    messages = []
    for element in found:
        if element is UNSET:
            break
        one = _read_one(_message.of(_pairs(element)))
        if isinstance(one, Fault):
            return one
        messages.append(one)
    if not messages:
        raise _Invalid("the array is empty")
    return Body(tuple(messages), is_array=True)


def _fault_of_array(body: bytes) -> str:
    """What is wrong with an array that has too many elements, or one that is no object."""
    try:
        found = msgspec.structs.astuple(_read_any(body))
    except msgspec.ValidationError:
        return f"an array has more than {MOST_MESSAGES} elements"
    for at, element in enumerate(found, 1):
        if bytes(element)[:1] != b"{":
            return f"expected an array of objects, found {_kind_of(bytes(element))} as element {at}"
    raise AssertionError("each element is an object")


def _kind_of(value: bytes) -> str:
    """What a JSON value that is no object is, for an error. value: without white space before it"""
    return _KINDS.get(value[:1], "a number")


def _read_one(parts: Any) -> Message | Fault:
    """One message, by its members."""
    read_id = b"" if parts.id is UNSET else _read_id(parts.id)
    try:
        return _read_message(parts, read_id)
    except _Invalid as error:
        return Fault(error.code, f"Invalid message: {error}.", read_id or b"null")


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
        return ""
    value = UNSET if params is None else getattr(params, named)
    if value is not UNSET:
        return _read_text(value, named, MOST_NAME_BYTES, INVALID_PARAMS)
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


def _object(members: _Members, value: msgspec.Raw, name: str) -> Any:
    """The members of a value that has to be an object."""
    try:
        return members.read(value)
    except msgspec.ValidationError:
        found = _kind_of(bytes(value))
        text = f'expected an object as "{name}", found {found}'
        raise _Invalid(text, INVALID_PARAMS) from None


def _pairs(read: _Object) -> Pairs:
    if len(read) > MOST_KEYS:
        raise _Invalid(f"an object has more than {MOST_KEYS} keys")
    return [(key.text, value) for key, value in read.items()]


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


def _unambiguous(pairs: Pairs, names: Collection[str]) -> dict[str, msgspec.Raw]:
    """The pairs of an object in which each parser finds the same values under these names."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Invalid("an object has a key twice")
    others = found.keys() - set(names)
    if not others:
        return found
    if ODD.search("".join(others)):
        raise _Invalid("a key with characters that some parsers ignore")
    # Together: there may be many, and a key has no LF.
    folded = {each.strip() for each in fold_case("\n".join(others)).split("\n")}
    for alike in folded & _ALIKE.keys():
        if _ALIKE[alike] in names:
            raise _Invalid(f'a key that some parsers take for "{_ALIKE[alike]}"')
    return found
