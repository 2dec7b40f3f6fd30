"""How options that several commands take are read."""

from __future__ import annotations

import click


def read_address(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, int]:
    """HOST:PORT as (host, port), for an option's `callback`.

    An IPv6 host stands in brackets, which are no part of the result; port 0 is any free one.
    """
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not (bare and colon and is_port and is_bracketed == (":" in bare)):
        raise click.BadParameter(f"found '{text}', expected HOST:PORT such as 127.0.0.1:8080")
    return bare, int(port)
