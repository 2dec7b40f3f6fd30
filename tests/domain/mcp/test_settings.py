"""Rules of tools."""

from __future__ import annotations

import pytest

from gateway.domain.limits import Limit
from gateway.domain.mcp.settings import Mcp, Tool
from tests.kit.keys import make_key

RATE = Limit("mcp/search", "rate", 3, 60_000_000)


def test_tools_without_rules() -> None:
    """They have those of all others."""
    mcp = Mcp(tools={"search": Tool(limit=RATE)}, others=Tool(is_denied=True))
    assert mcp.tool("search").limit is RATE
    assert mcp.tool("Search").is_denied
    assert mcp.limits == (RATE,)


@pytest.mark.parametrize(
    ("permission", "expected"),
    [(None, True), (("scm", "read"), True), (("scm", "write"), False), (("edr", "read"), False)],
)
def test_permissions(permission: tuple[str, str] | None, expected: bool) -> None:
    """A key needs the action in the area."""
    _, record = make_key(lambda below: 1 % below, permissions={"scm": ("read",)})
    assert Tool(permission=permission).is_permitted(record) is expected
