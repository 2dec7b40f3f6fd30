"""Reads Content-Type fields: the one reader for those of clients, providers and servers.

Parsers of libraries take seconds for some values of 30 KB, raise other errors than ValueError, and
accept what others read in another way. Here a value is read by the grammar of RFC 9110, 8.3.1, and
its parameters only if it is no longer than usual ones are.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

#: The longest value that is read, in characters. Usual ones have less than 100.
MOST_CHARACTERS: Final = 256

_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_is_name = re.compile(f"{_WORD}/{_WORD}").fullmatch
#: The value is a token or quoted. A quoted one has no character here at which a careless parser
#: would split the field.
_parameter = re.compile(rf"[ \t]*;[ \t]*({_WORD})=(?:({_WORD})|\"([^\"\\;,=]*)\")").match


class MediaType(NamedTuple):
    """What a Content-Type field says.

    name:       "application/json", in lower case; "": there is none, or it cannot be read
    parameters: their names in lower case, and their values without quotes; None: they cannot be
                read, or the field is longer than MOST_CHARACTERS
    length:     of the field, in characters
    """

    name: str
    parameters: tuple[tuple[str, str], ...] | None
    length: int

    def is_exactly(self, name: str) -> bool:
        """Can all of the field be read, and is this the media type?"""
        return self.name == name and self.parameters is not None

    @property
    def is_utf8(self) -> bool:
        """Does it name no charset, or UTF-8, once?"""
        names = [name for name, _ in self.parameters or () if name.startswith("charset")]
        values = [value.lower() for name, value in self.parameters or () if name == "charset"]
        return not names or (len(names) == 1 and values == ["utf-8"])

    @property
    def words(self) -> str:
        """What was found, for the sender: a readable name, and no other part of the field."""
        if not self.length:
            return "no Content-Type"
        if self.length > MOST_CHARACTERS:
            return f"a Content-Type of {self.length} characters, of at most {MOST_CHARACTERS}"
        if not self.name or self.parameters is None:
            return "a Content-Type that cannot be read"
        return f"the Content-Type {self.name}"


def read_media_type(*values: str) -> MediaType:
    """Read the values of all Content-Type fields of a message, of which there should be one.

    The time that it takes is bounded, however long they are.
    """
    # Several fields are one with commas (RFC 9110, 5.3), which a media type does not have.
    value = values[0] if len(values) == 1 else ", ".join(values)
    return _read_short(value) if len(value) <= MOST_CHARACTERS else _read(value)


def _read(value: str) -> MediaType:
    is_short = len(value) <= MOST_CHARACTERS
    name, semicolon, _ = value[: MOST_CHARACTERS + 1].partition(";")
    is_whole = is_short or semicolon
    parameters = _read_parameters(value[len(name) :]) if is_short else None
    name = name.strip(" \t")
    return MediaType(name.lower() if is_whole and _is_name(name) else "", parameters, len(value))


#: Clients and servers send the same few.
_read_short = functools.lru_cache(256)(_read)


def _read_parameters(rest: str) -> tuple[tuple[str, str], ...] | None:
    """The parameters in what follows the name; None: they cannot be read."""
    found = []
    at = 0
    while parameter := _parameter(rest, at):
        found.append((parameter[1].lower(), parameter[2] or parameter[3]))
        at = parameter.end()
    return None if rest[at:].strip(" \t") else tuple(found)
