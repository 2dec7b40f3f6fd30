"""Readers of options and arguments that several commands have."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from gateway.domain.policy import Policy
from gateway.domain.upstreams import Server
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load

_is_host = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*").fullmatch


class Folder(click.Path):
    """The path of a folder. An empty one, as of an empty variable, is not the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value):
            self.fail("found nothing, expected a folder; the current one is .", param, ctx)
        return Path(os.fsdecode(super().convert(value, param, ctx)))


def load_folder(folder: Path) -> Policy:
    """The policy of a folder. Raises ClickException with its first fault."""
    try:
        return load(folder)
    except PolicyFaults as faults:
        words = faults.brief(f", see gateway validate {folder}")
        raise click.ClickException(words) from faults


def read_address(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, int]:
    """HOST:PORT as (host, port), for an option's `callback`.

    An IPv6 host is in brackets, which the result does not have; port 0 is any free one.
    """
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not (bare and colon and is_port and is_bracketed == (":" in bare)):
        raise click.BadParameter(f"found '{text}', expected HOST:PORT such as 127.0.0.1:8080")
    return bare, int(port)


def read_optional_address(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[str, int] | None:
    """The same for an option without a default."""
    return None if text is None else read_address(ctx, param, text)


def read_host_names(
    _ctx: click.Context, _param: click.Parameter, texts: Sequence[str]
) -> tuple[str, ...]:
    """Host names, in lower case and without a final dot, for an option's `callback`."""
    names = tuple(text.lower().removesuffix(".") for text in texts)
    for text, name in zip(texts, names, strict=True):
        if not _is_host(name):
            raise click.BadParameter(f"found '{text}', expected a name such as gateway.internal")
    return names


def read_courier_url(
    _ctx: click.Context, _param: click.Parameter, text: str | None
) -> Server | None:
    """http://HOST:PORT of couriers, for an option's `callback`."""
    if not text:
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    extra = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in ("http", "https") or not parts.hostname or extra:
        raise click.BadParameter(f"found '{text}', expected a URL such as http://couriers:8081")
    return Server(parts.scheme, parts.hostname, port or {"http": 80, "https": 443}[parts.scheme])
