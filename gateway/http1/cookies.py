"""Keeps the console's session cookie between the browser and the console, in both directions.

The work is linear in the length of the fields, and done only where the name occurs at all.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.domain.cookies import SECURE_SESSION, SESSION

#: In each of the names.
MARK: Final = SESSION.encode("ascii")
_is_session = re.compile(
    rf"[ \t]*+(?:{SESSION}|{SECURE_SESSION})[ \t]*+(?:=.*+)?".encode(), re.DOTALL
).fullmatch


#: A browser sends a cookie once for each path that it is set for. A field with more of them is of
#: somebody who wants them sorted out, and goes as a whole.
MOST_SESSIONS: Final = 16


def without_session(lines: bytes) -> bytes:
    """A request's header lines without the session in Cookie; other cookies stay."""
    return b"".join([_line_without_session(line) for line in lines.split(b"\r\n")[:-1]])


def _line_without_session(line: bytes) -> bytes:
    """One line with its CRLF; b"" where nothing is left of it."""
    name, _, value = line.partition(b":")
    if name.lower() == b"cookie":
        if value.count(MARK) > MOST_SESSIONS:
            return b""
        # RFC 6265, 4.2.1: cookie-pair *( ";" SP cookie-pair )
        others = [pair for pair in value.split(b";") if not _is_session(pair)]
        return b"%b: %b\r\n" % (name, b";".join(others).strip(b" \t")) if others else b""
    return line + b"\r\n"


def sets_session(value: bytes) -> bool:
    """Does this value of Set-Cookie set the session?

    RFC 6265bis, 5.6: a pair that begins with "=" has no name, and comes back without the "=".
    """
    return _is_session(value.partition(b";")[0].lstrip(b" \t=")) is not None
