"""The header lines of a message, by the grammar of RFC 9112, 5."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

#: Any letters of a name, or none.
NAME_REST: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]*+"
_NAME: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
#: field-name ":" OWS field-value OWS, each line ended by CRLF. "A server MUST reject any received
#: request message that contains whitespace between a header field name and colon"; obs-fold, bare
#: CR or LF, NUL and other control characters do not match either.
_LINES = re.compile(rb"(?:%b:[\t\x20-\x7e\x80-\xff]*+\r\n)*" % _NAME).fullmatch
#: A value that is not empty, without whitespace around it.
PLAIN_VALUE: Final = rb"[!-~\x80-\xff][\t\x20-\x7e\x80-\xff]*+(?<![\t ])"
#: As nearly all programs write them: one space before the value, and none after it.
_PLAIN_LINES = re.compile(rb"(?:%b: (?:%b)?\r\n)*" % (_NAME, PLAIN_VALUE)).fullmatch

#: Finds a LF that no CR precedes: each LF first, which is quick, and then what is before it.
bare_lf: Final = re.compile(rb"\n(?<!\r\n)").search

#: The fields of plain lines: each line without its CRLF, its name, and its value.
split_fields = re.compile(rb"(([^:]++): ([^\r]*+))\r\n").findall


def plain_lines(block: bytes) -> bytes | None:
    r"""The lines as b"Name: value\r\n", without other whitespace around the value.

    block: the lines, each with its CRLF, without the empty line after them
    None:  a line is malformed
    """
    if _PLAIN_LINES(block):
        return block
    if not _LINES(block):
        return None
    fields = [line.partition(b":") for line in block.split(b"\r\n")[:-1]]
    return b"".join([b"%b: %b\r\n" % (name, value.strip(b" \t")) for name, _, value in fields])


def name_of(line: bytes) -> bytes:
    """The name of a line, in lower case."""
    return line[: line.find(b":")].lower()


def without(block: bytes, names: Container[bytes]) -> bytes:
    """The lines without those of these names, which are in lower case."""
    lines = block.split(b"\r\n")[:-1]
    return b"".join([line + b"\r\n" for line in lines if name_of(line) not in names])
