"""JSON that others wrote: it is read only if arrays and objects are nested no deeper than a bound.

A parser's own bound differs by its release: Python 3.11 reads some 990 levels, 3.14 more than
20,000, and msgspec there 100,000. Code that calls itself once a level may then fail where the
parser did not. So levels are counted before anything is parsed, and the bound is the same with
every Python. The client library has a copy of this module, as it is a distribution of its own.

Brackets count outside of strings. Their kinds do not matter: a parser ends at the first one that
does not fit, as at anything else that is no JSON, so it never goes deeper than what is counted.

To count them one by one would take ten times as long as msgspec takes for the whole text, so they
are taken in pairs. An even level is reached only after an even number of brackets. For such a level
"[[" is one step up by two, "]]" one step down, and "[]" and "][" are none: what is left has half as
many levels, and at most half as many steps. An odd level becomes even by one more bracket in front.
After four rounds, at most a sixteenth of the steps is left to be counted one by one.

1 MiB takes 1 to 10 ms: up to three times as long as msgspec takes to check it, and less than to
build its values. In a text with fewer brackets than levels, those are only counted.
"""

from __future__ import annotations

import json
from array import array
from binascii import unhexlify
from itertools import accumulate
from typing import Any, Final

#: The most levels of arrays and objects, one in another. A number or text alone has none.
MOST_LEVELS: Final = 100

#: A level at which the steps are so few that they are counted one by one.
_SMALL: Final = 8
#: Steps: a bracket that opens, and one that closes.
_UP: Final = b"1"
_DOWN: Final = b"0"
_STEPS: Final = bytes.maketrans(b"[{]}", b"1100")
_OTHERS: Final = bytes(set(range(256)) - set(b'[]{}"'))
#: Pairs of steps as bytes, which `unhexlify` makes of their digits.
_HALVED: Final = bytes.maketrans(b"\x11\x00", b"10")
_LEVEL: Final = b"\x10\x01"
#: Steps as the signed bytes 1 and -1.
_SIGNED: Final = bytes.maketrans(b"10", b"\x01\xff")


class TooDeep(ValueError):
    """A text has too many levels.

    found: what was found, for an error: "101 levels of arrays and objects at byte 5001"
    """

    def __init__(self, at: int) -> None:
        """at: the index of the byte that begins the first level too many"""
        self.found = f"{MOST_LEVELS + 1} levels of arrays and objects at byte {at + 1}"
        super().__init__(f"found {self.found}, expected at most {MOST_LEVELS}")


def read_json(content: bytes | str, **options: Any) -> Any:
    """The value of a text, as `json.loads` reads it with these options.

    Raises TooDeep, which is a ValueError, and ValueError if it is no JSON.
    """
    if isinstance(content, bytes):
        content = content.decode(json.detect_encoding(content), "surrogatepass")
    check_levels(content.encode("utf-8", "surrogatepass"))
    return json.loads(content, **options)  # noqa: TID251


def check_levels(content: bytes) -> None:
    """Raises TooDeep. content: a text in UTF-8, which need not be JSON"""
    if content.count(b"{") + content.count(b"[") <= MOST_LEVELS:
        return
    marks = content.translate(_STEPS, _OTHERS)
    if b"\\" in content:
        content = _without_escapes(content)
        marks = content.translate(_STEPS, _OTHERS)
    if _reaches(_outside(marks), MOST_LEVELS + 1):
        raise TooDeep(_place(content))


def _without_escapes(content: bytes) -> bytes:
    """A text in which each quote begins or ends a string; everything stays where it is."""
    return content.replace(b"\\\\", b"__").replace(b'\\"', b"__")


def _outside(marks: bytes) -> bytes:
    """The steps outside of strings. marks: the steps and quotes of a text without escapes"""
    # Two quotes beside each other are a string without brackets, or between two with them.
    return b"".join(marks.replace(b'""', b"").split(b'"')[::2])


def _reaches(steps: bytes, level: int) -> bool:
    """Are so many arrays and objects ever open at once? level: at least 1"""
    while level > _SMALL:
        if level % 2:
            steps, level = _UP + steps, level + 1
        if len(steps) % 2:
            steps += _DOWN
        steps, level = unhexlify(steps).translate(_HALVED, _LEVEL), level // 2
    return max(accumulate(array("b", steps.translate(_SIGNED))), default=0) >= level


def _place(content: bytes) -> int:
    """The index of the byte that begins the first level too many. content: without escapes

    The half that it is in is looked for again and again, which takes twice as long as one look.
    """
    begin, end, level, quote = 0, len(content), MOST_LEVELS + 1, b""
    while end - begin > 1:
        middle = (begin + end) // 2
        part = quote + content[begin:middle]
        steps = _outside(part.translate(_STEPS, _OTHERS))
        if _reaches(steps, level):
            end = middle
        else:
            begin, level = middle, level - steps.count(_UP) + steps.count(_DOWN)
            quote = b'"' if part.count(b'"') % 2 else b""
    return begin
