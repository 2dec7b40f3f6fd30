"""The requests by which MCP clients look for OAuth."""

from __future__ import annotations

import pytest

from gateway.domain.mcp.discovery import is_discovery


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/.well-known/oauth-protected-resource", True),
        ("GET", "/.well-known/oauth-protected-resource/mcp/tools", True),
        ("HEAD", "/.well-known/oauth-authorization-server", True),
        ("GET", "/mcp/.well-known/openid-configuration", True),
        ("POST", "/register", True),
        ("POST", "/mcp/register", True),
        ("GET", "/register", False),
        ("POST", "/registered", False),
        ("POST", "/.well-known/oauth-protected-resource", False),
        ("GET", "/.well-known/oauth-protected-resources", False),
        ("GET", "/.well-known/security.txt", False),
        ("GET", "/well-known/openid-configuration", False),
        ("GET", "/mcp", False),
    ],
)
def test_discovery(method: str, path: str, expected: bool) -> None:
    """Metadata is read, and clients are registered by POST."""
    assert is_discovery(method, path) is expected
