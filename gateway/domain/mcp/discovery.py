"""Paths at which MCP clients look for OAuth after a 401.

An answer that is not JSON breaks some of them, and metadata would make them ask people to sign in.
So a request for one without a key gets a 404, which is no failed authentication.
"""

from __future__ import annotations

import re
from typing import Final

_METADATA: Final = re.compile(
    r"(?:/.*)?/\.well-known/"
    r"(?:oauth-protected-resource|oauth-authorization-server|openid-configuration)(?:/.*)?"
).fullmatch


def is_discovery(method: str, path: str) -> bool:
    """Is it a request for metadata of OAuth, or for the registration of a client?"""
    if method == "POST":
        return path.endswith("/register")
    return method in {"GET", "HEAD"} and _METADATA(path) is not None
