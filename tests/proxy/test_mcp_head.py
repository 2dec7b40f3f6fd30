"""What the fields of a request say to an MCP route, read once."""

from __future__ import annotations

from gateway.domain.mcp.sessions import Seals, Session
from gateway.http1.head import Fields
from gateway.proxy.mcp_head import McpHead

LINES = b"Host: a\r\nmcp-SESSION-id: x\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nX-Id: 1\r\n"
ROUTE, LINEAGE = "mcp", "k1"


class CountingSeals(Seals):
    """Counts what it opens."""

    def __init__(self, secret: bytes) -> None:
        super().__init__([secret])
        self.opened = 0

    def open(self, sealed: str, lineage: str, route: str) -> Session | None:
        self.opened += 1
        return super().open(sealed, lineage, route)


def head_with(**headers: str) -> McpHead:
    """headers: with _ for each -"""
    values = {name.replace("_", "-"): value for name, value in headers.items()}
    return McpHead(Fields(forward=LINES), lambda name: values.get(name, ""))


def test_what_it_says() -> None:
    """Without headers of MCP it says nothing."""
    head = head_with(content_type="application/json", mcp_method="ping", last_event_id="1")
    assert (head.is_json, head.headers.method, head.resumes, head.has_session) == (
        *(True, "ping", True),
        False,
    )
    head = head_with(content_type="application/json", content_encoding="gzip")
    assert (head.is_json, head.headers, head.resumes) == (False, ("", "", ""), False)


def test_lines_for_the_upstream() -> None:
    """Without the client's session id and codings, whatever their letter case."""
    assert head_with().forward == b"Host: a\r\nAccept: */*\r\nX-Id: 1\r\n"


def test_a_session_is_opened_once() -> None:
    """For the same key, route and secrets; for any other it is opened again."""
    seals, others = CountingSeals(b"s" * 40), CountingSeals(b"t" * 40)
    session = Session("a", "0123456789")
    sealed = seals.seal(session, LINEAGE, ROUTE)
    assert sealed is not None
    head = head_with(mcp_session_id=sealed)
    assert head.has_session
    for _ in range(3):
        assert head.session(seals, LINEAGE, ROUTE) == session
    assert seals.opened == 1
    assert head.session(seals, "k2", ROUTE) is None
    assert head.session(seals, LINEAGE, "other") is None
    assert head.session(others, LINEAGE, ROUTE) is None
    assert head.session(seals, LINEAGE, ROUTE) == session
    assert (seals.opened, others.opened) == (4, 1)


def test_a_forged_session_is_opened_once() -> None:
    """It stays refused."""
    seals = CountingSeals(b"s" * 40)
    head = head_with(mcp_session_id="a.0123456789.forged")
    assert [head.session(seals, LINEAGE, ROUTE) for _ in range(3)] == [None] * 3
    assert seals.opened == 1
