"""Filters the answers to tools/list: a model is offered only what its key may call.

The bytes of what stays are those of the server: numbers and texts keep their form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.domain.json_text import TooDeep, check_levels
from gateway.domain.mcp.members import SPACES, Invalid, Members, read_elements, read_object
from gateway.domain.mcp.messages import LAST_STATEFUL

#: The largest answer that is filtered, and the most tools: more take the event loop too long. It
#: holds hundreds of tools, and takes 3 ms, or 18 ms if it is all brackets.
MOST_BYTES: Final = 512 * 1024
LONGEST_LIST: Final = 10_000

#: What lists have in them.
MARK: Final = b'"tools"'

_Object = dict[str, msgspec.Raw]
_quoted: Final = msgspec.json.encode
_SCOPE: Final = "cacheScope"
_message: Final = Members(("result",))
_result: Final = Members(("tools", _SCOPE))


#: Fields that do not hold for a list that was edited for one key: validators and digests of the
#: server's bytes, and permissions for shared caches (RFC 9213). With a validator a client could
#: learn that its list is unchanged, though its key may call other tools by now.
_OF_ORIGINAL: Final = re.compile(
    rb"(?im)^(?:etag|last-modified|digest|content-digest|repr-digest|content-md5"
    rb"|(?:[a-z-]+-)?cdn-cache-control|surrogate-control):[^\r\n]*\r\n"
)
_CACHE_CONTROL: Final = re.compile(rb"(?im)^cache-control:[^\r\n]*\r\n")
#: RFC 9111, 5.2.2.7: `private` with an argument is about some fields only.
_is_private: Final = re.compile(
    rb"(?im)^cache-control:(?:[^\r\n\"]*,)?[ \t]*(?:private|no-store)[ \t]*(?:,[^\r\n]*)?\r\n"
).search


class _Named(msgspec.Struct):
    name: str


#: Ends at the first element that is no tool; and all of them, unread.
_named: Final = msgspec.json.Decoder(list[_Named]).decode
_tools: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Unreadable(Exception):
    """It is no answer that could be filtered."""


def edited_fields(lines: bytes) -> bytes:
    """The header lines of a list for one key: no cache may give it to another one.

    Caches know nothing of a key in the header apiKey, and `public` lets them share the answers to
    requests with Authorization.
    """
    lines = _OF_ORIGINAL.sub(b"", lines)
    if _is_private(lines):
        return lines
    return _CACHE_CONTROL.sub(b"", lines) + b"Cache-Control: private\r\n"


def filtered(answer: bytes, admits: Callable[[str], bool], version: str) -> bytes:
    """An answer without the tools that are not admitted; others are unchanged. Raises Unreadable.

    version: of the protocol; "": the message names none
    """
    try:
        check_levels(answer)
        if answer.lstrip(SPACES)[:1] == b"[":
            parts = [_one(part, admits, version) for part in read_elements(answer)]
            return b"[%b]" % b",".join(parts)
        return _one(answer, admits, version)
    except (msgspec.DecodeError, UnicodeDecodeError, TooDeep, Invalid) as error:
        raise Unreadable from error


def _one(answer: bytes, admits: Callable[[str], bool], version: str) -> bytes:
    message = _message.checked(read_object(answer))
    if "result" not in message or bytes(message["result"])[:1] != b"{":
        return answer
    result = _result.checked(read_object(message["result"]))
    if "tools" not in result:
        return answer
    named = _named(result["tools"])
    if len(named) > LONGEST_LIST:
        raise Unreadable
    tools = zip(named, _tools(result["tools"]), strict=True)
    admitted = b",".join([bytes(tool) for each, tool in tools if admits(each.name)])
    result["tools"] = msgspec.Raw(b"[%b]" % admitted)
    if _SCOPE in result or version > LAST_STATEFUL:
        # It differs by key: no cache may share it.
        result[_SCOPE] = msgspec.Raw(b'"private"')
    message["result"] = msgspec.Raw(_joined(result))
    return _joined(message)


def _joined(pairs: _Object) -> bytes:
    return b"{%b}" % b",".join(b"%b:%b" % (_quoted(key), bytes(raw)) for key, raw in pairs.items())
