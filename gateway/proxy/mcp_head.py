"""What the header fields of a request say to a route in front of an MCP server."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gateway.domain.costs import MEDIA_FIELDS, is_json
from gateway.domain.mcp.agreement import LAST_EVENT, SESSION, read_headers
from gateway.domain.mcp.sessions import Seals, Session
from gateway.http1.head import Fields

#: Replaced in requests: the upstream gets its own session id, and answers that can be read.
_REPLACED: Final = re.compile(rb"(?im)^(?:mcp-session-id|accept-encoding):.*\n")


class McpHead:
    """Read once for requests of a connection with the same fields.

    fields:  it holds for a request with this very object
    is_json: the body is JSON, as it is
    headers: those of MCP that a body has to agree with
    resumes: an earlier stream is continued
    forward: the lines for the upstream, but for session and coding
    """

    __slots__ = (
        "_opened",
        "_sealed",
        "_session",
        "fields",
        "forward",
        "headers",
        "is_json",
        "resumes",
    )

    def __init__(self, fields: Fields, header: Callable[[str], str]) -> None:
        """header: the value of a field by its lower-case name; "": there is none"""
        self.fields = fields
        self.is_json = is_json(*map(header, MEDIA_FIELDS))
        self.headers = read_headers(header)
        self.resumes = bool(header(LAST_EVENT))
        self.forward = _REPLACED.sub(b"", fields.forward)
        self._sealed = header(SESSION)
        self._opened: tuple[Seals, str, str] | None = None
        self._session: Session | None = None

    @property
    def has_session(self) -> bool:
        """Does it name one, be it valid or not?"""
        return bool(self._sealed)

    def session(self, seals: Seals, lineage: str, route: str) -> Session | None:
        """The session, as `Seals.open`; opened once for requests of one key and route."""
        asked = seals, lineage, route
        if self._opened != asked:
            self._session = seals.open(self._sealed, lineage, route)
            self._opened = asked
        return self._session
