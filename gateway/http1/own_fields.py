"""Fields whose values differ from message to message: keys, lengths, ids, traces, times.

The other lines of a client, or of a server, are the same in most of its messages. So what these
mean is cached, and each message takes only the reading of its own fields.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

from gateway.http1.field_lines import NAME_REST, PLAIN_VALUE

Value = TypeVar("Value")

#: The most messages that are cached, without their own fields, and how long these are.
MOST_KNOWN: Final = 512
MOST_KNOWN_BYTES: Final = 1_024
#: They are cached when they come again within so many others.
MOST_SEEN: Final = 2_048

#: Does Connection remove fields that it names? `keep-alive` and `close` are none.
names_fields: Final = re.compile(
    rb"(?:^|\n)connection:(?! (?:keep-alive|close)\r)", re.IGNORECASE
).search


class Cut:
    r"""Cuts the fields of these names, and of names with these prefixes, out of messages.

    split: for lines with a CRLF before each, and one at the end: the text up to the first such
           field, its name, its value, the text up to the next one, and so on. The texts together
           are the other lines. A field is cut out if it has a value, and its line no whitespace
           around that but the space before it; so what remains is valid if all of it was.
    any:   for such lines: is there any field of these names?
    """

    __slots__ = ("any", "split")

    def __init__(self, names: Iterable[bytes], prefixes: Iterable[bytes] = ()) -> None:
        pattern = _pattern(names, prefixes)
        self.split: Callable[[bytes], list[bytes]] = re.compile(
            rb"\r\n(%b): (%b)(?=\r\n)" % (pattern, PLAIN_VALUE)
        ).split
        self.any = re.compile(rb"\n(?:%b):" % pattern).search


def _pattern(names: Iterable[bytes], prefixes: Iterable[bytes]) -> bytes:
    """Matches the names in any letter case. Few steps where another name begins otherwise."""
    by_letter: dict[bytes, list[bytes]] = defaultdict(list)
    for name in names:
        by_letter[_any_case(name[:1])].append(_any_case(name[1:]))
    for prefix in prefixes:
        by_letter[_any_case(prefix[:1])].append(_any_case(prefix[1:]) + NAME_REST)
    return b"|".join(
        b"%b(?:%b)" % (first, b"|".join(sorted(others))) for first, others in by_letter.items()
    )


def _any_case(text: bytes) -> bytes:
    letters = (bytes((letter,)) for letter in text)
    return b"".join(
        b"[%b%b]" % (letter, letter.upper()) if letter.isalpha() else re.escape(letter)
        for letter in letters
    )


class Blocks(Generic[Value]):
    """What messages mean without their own fields, from the second time that they come.

    A flood of different ones only empties this cache.

    known: by what was put
    """

    __slots__ = ("_seen", "known")

    def __init__(self) -> None:
        self.known: dict[Hashable, Value] = {}
        #: Hashes of what came once: most of it does not come again.
        self._seen: set[int] = set()

    def comes_again(self, block: Hashable) -> bool:
        """Did it come lately? If two have the same hash, one is put too early."""
        marker, seen = hash(block), self._seen
        if marker in seen:
            return True
        if len(seen) >= MOST_SEEN:
            seen.clear()
        seen.add(marker)
        return False

    def put(self, block: Hashable, value: Value) -> None:
        """Cache what it means."""
        if len(self.known) >= MOST_KNOWN:
            self.known.clear()
        self.known[block] = value
