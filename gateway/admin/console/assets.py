"""The console's style, script and icons, from the package.

The address of each has a hash of its content (`address_of`), so that browsers cache it forever and
never show a page in the style of another release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Final

from aiohttp import web

_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    content_type: str
    address: str


def _read() -> Mapping[str, _File]:
    found = {}
    for file in files("gateway.admin.console").joinpath("static").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in _TYPES:
            content = file.read_bytes()
            digest = sha256(content).hexdigest()[:12]
            address = f"/console/static/{file.name}?v={digest}"
            found[file.name] = _File(content, _TYPES[suffix], address)
    return found


_FILES: Final = _read()


def address_of(name: str) -> str:
    """Where a file is served: "/console/static/console.css?v=0f3c…"."""
    return _FILES[name].address


async def show(request: web.Request) -> web.StreamResponse:
    file = _FILES.get(request.match_info["name"])
    if file is None:
        raise web.HTTPNotFound
    # Icons that the style sheet refers to have no hash in their address.
    caching = "immutable, max-age=31536000" if "v" in request.query else "max-age=3600"
    return web.Response(
        body=file.content,
        content_type=file.content_type,
        charset="utf-8",
        headers={"Cache-Control": f"public, {caching}"},
    )
