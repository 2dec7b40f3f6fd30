"""The endpoint of the transport HTTP with SSE, of 2024-11-05: where clients send their messages.

https://modelcontextprotocol.io/specification/2024-11-05/basic/transports: a stream begins with an
event `endpoint`, whose data is a URL. A server that speaks it at its own paths names one that no
route with `mcp` has, such as "/messages/?session_id=1": its clients would send their calls past the
checks. Streams of later revisions have no such event.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gateway.domain.mcp.events import EMPTY_LINE, last_end

#: The longest beginning of a stream that is looked at. A longer URL is refused in requests.
MOST_BYTES: Final = 16 * 1024

#: A line with which an event is no comment; and how long what is before its end may be.
_FIELD = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|[\r\n])(data|event)[:\r\n]")
_MOST_BEFORE: Final = len(b"\xef\xbb\xbfevent:") - 1
_NAME = re.compile(r"^event: ?(.*)$", re.MULTILINE)
_DATA = re.compile(r"^data: ?(.*)$", re.MULTILINE)


class FirstEvent:
    """The first event of a stream, which is passed on when it is known to be allowed.

    Comments before it are passed on. allows: whether clients may send messages to the URL of an
    event `endpoint`

    refused: the URL that they may not; nothing is passed on any more
    """

    __slots__ = ("_allows", "_field", "_kept", "is_known", "refused")

    def __init__(self, allows: Callable[[str], bool]) -> None:
        self._allows = allows
        self._kept = b""
        #: Where the first field of data, or with a name, begins in what is kept; None: nowhere.
        self._field: int | None = None
        self.is_known = False
        self.refused: str | None = None

    @property
    def kept(self) -> int:
        """Bytes of an event that is not complete."""
        return len(self._kept)

    def feed(self, data: bytes) -> bytes:
        """The next bytes; returns what is passed on now."""
        if self.refused is not None:
            return b""
        if self.is_known:
            return data
        # Only new bytes can have the field, or complete an event.
        begin, known = 0, len(self._kept)
        kept = self._kept + data
        if self._field is None:
            found = _FIELD.search(kept, max(known - _MOST_BEFORE, 0))
            comments = kept if found is None else kept[: found.start(1) + 1]
            # There may be 20,000 of them: none is looked at by itself.
            begin = last_end(comments, max(known - 3, 0))
            self._field = None if found is None else found.start(1) - begin
        if self._field is not None:
            end = EMPTY_LINE.search(kept, max(begin + self._field, known - 3))
            if end is not None and not self._judge(kept[begin : end.end()]):
                self._kept = b""
                return kept[:begin]
        if self.is_known or len(kept) - begin > MOST_BYTES:
            self.is_known, self._kept = True, b""
            return kept
        self._kept = kept[begin:]
        return kept[:begin]

    def end(self) -> bytes:
        """The stream has ended; returns what is left."""
        kept, self._kept = self._kept, b""
        return kept

    def _judge(self, event: bytes) -> bool:
        """May a whole event, which is no comment, be passed on?"""
        self.is_known = True
        text = event.decode("utf-8", "replace").removeprefix("\ufeff")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        names = _NAME.findall(text)
        if not names or names[-1] != "endpoint":
            return True
        url = "\n".join(_DATA.findall(text))
        if not self._allows(url):
            self.refused = url
        return self.refused is None


def target_of(url: str, path: str, authority: str) -> str | None:
    """The path and query that a client requests which was given a URL; None: of another server.

    path, authority: of the request that got it: "/mcp/sse", "api.example.com"
    """
    url = url.strip().partition("#")[0]
    scheme, found, rest = url.partition("//")
    if found and scheme.lower() in ("", "http:", "https:"):
        other, slash, tail = rest.partition("/")
        return slash + tail if slash and other.lower() == authority.lower() else None
    if url.startswith("/"):
        return url
    if url.startswith("?"):
        return path + url
    if ":" in url.partition("/")[0].partition("?")[0]:
        return None
    return path.rpartition("/")[0] + "/" + url
