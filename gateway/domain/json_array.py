"""Counts the elements of an array in a JSON body, which must have only one reading.

Parsers differ in what they accept and in which of two equal keys they use. An upstream that reads
another array than the one counted here would process more than was paid for. So a body is counted
only if all parsers that accept it find the same array: it is JSON by RFC 8259, in UTF-8 and without
a byte order mark, no object in it has a key twice, and no object on the way to the array has a
second key that a lenient parser could take for the one that is looked up.

64 KiB take 10 ms at most, and 0.1 to 1 ms if they are a list of ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from gateway.domain.json_text import TooDeep, check_levels

#: A JSON object as it is parsed: its pairs, none of whose keys is equal to another one.
_Object = tuple[tuple[str, Any], ...]

#: Characters that a key can have by an escape. A parser that holds texts as C strings cuts the key
#: off at NUL; others drop lone surrogates, control or invisible characters, or cut it off there.
#: Go's encoding/json ignores case, also of the Kelvin sign and the long s, as `casefold` does.
ODD: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2060\ufeff\ufffd-\uffff\ud800-\udfff]")


#: What an object becomes that is not looked into.
_UNREAD: Final[_Object] = (("", None),)
#: Between keys that are searched together. It is not odd, and folding keeps it.
_BETWEEN: Final = "\ue000"


class _Repeated(ValueError):
    """An object has a key twice."""


def count_elements(body: bytes, path: Sequence[str]) -> int | str:
    """The number of elements of the array at these keys; or what is there instead, for a message.

    path: keys from the outermost object on; empty: the body itself is the array
    """
    if body.startswith(b"\xef\xbb\xbf"):
        return "a byte order mark"
    try:
        check_levels(body)
        value = _parse(body.decode("utf-8"), len(path))
    except UnicodeDecodeError:
        return "a body that is not UTF-8"
    except _Repeated:
        return "an object with the same key twice"
    except TooDeep as error:
        return error.found
    except ValueError:
        return "invalid JSON" if body.strip(b" \t\r\n") else "an empty body"
    for at, name in enumerate(path):
        where = f"at {'.'.join(path[:at])}" if at else "as the body"
        if type(value) is not tuple:
            return f"{_kind(value)} {where}"
        found = _member(value, name)
        if isinstance(found, str):
            return f"{found} {'.'.join(path[: at + 1])}"
        (value,) = found
    if type(value) is not list:
        return f"{_kind(value)} at {'.'.join(path)}" if path else f"{_kind(value)} as the body"
    return len(value)


def _parse(text: str, depth: int) -> Any:
    """A JSON text. depth: how many objects, one in another, are looked into

    With one, only the outermost is kept, whose end comes last: keeping thousands takes as long as
    parsing them. The others are `_UNREAD`. Raises ValueError.
    """
    if depth > 1:
        return _decoder(_pairs).decode(text)
    last: list[tuple[str, Any]] = []

    def ended(pairs: list[tuple[str, Any]]) -> _Object:
        nonlocal last
        if len(pairs) > 1 and len(dict(pairs)) < len(pairs):
            raise _Repeated
        last = pairs
        return _UNREAD

    value = _decoder(ended).decode(text)
    return tuple(last) if value is _UNREAD else value


def _member(pairs: _Object, name: str) -> tuple[Any] | str:
    """The value of a key; or why there is none."""
    folded = _fold(name)
    # Looking at each key takes long. Where its text is in one of them only, no other is like it.
    everything = ODD.sub("", _fold(_BETWEEN.join([key for key, _ in pairs])))
    if everything.count(folded) == 1 and name in (values := dict(pairs)):
        return (values[name],)
    alike = [pair for pair in pairs if _fold(pair[0]) == folded]
    if ODD.search("".join([key for key, _ in pairs])):
        odd = [pair for pair in pairs if ODD.search(pair[0]) and pair not in alike]
        alike += [pair for pair in odd if _is_alike(_fold(pair[0]), folded)]
    if len(alike) > 1:
        return "more than one spelling of"
    if not alike or alike[0][0] != name:
        return "nothing at"
    return (alike[0][1],)


def _fold(key: str) -> str:
    """A key without case, underscores and hyphens: `item_ids` is `itemIds` to many parsers."""
    return fold_case(key).replace("_", "").replace("-", "").strip()


def fold_case(key: str) -> str:
    """A key without case. To Java's equalsIgnoreCase, both odd forms of i are an i."""
    return key.casefold().replace("\u0131", "i").replace("i\u0307", "i")


def _is_alike(key: str, folded: str) -> bool:
    """Could a parser that cuts odd characters off, or drops them, find this name in the key?"""
    return folded in (ODD.split(key, 1)[0].strip(), ODD.sub("", key).strip())


def _pairs(pairs: list[tuple[str, Any]]) -> _Object:
    if len(pairs) > 1 and len(dict(pairs)) < len(pairs):
        raise _Repeated
    return tuple(pairs)


def _no_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a text"
        case tuple():
            return "an object"
        case list():
            return "an array"
        case _:
            return "a number"


def _decoder(ended: Callable[[list[tuple[str, Any]]], _Object]) -> json.JSONDecoder:
    """ended: returns what is kept of an object

    Numbers become their lengths: only their grammar matters, and converting long ones is slow.
    """
    return json.JSONDecoder(
        object_pairs_hook=ended, parse_constant=_no_constant, parse_int=len, parse_float=len
    )
