"""Scripts that each work in one shard of events and deliveries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

#: Sends one command. Raises StoreDown, and NoScriptError.
Execute = Callable[..., Awaitable[Any]]


def tag_of(shard: int) -> str:
    """What all names of a shard begin with."""
    return f"gw:{{hooks:{shard}}}:"


class Script:
    """A script, with the functions that all of them share."""

    def __init__(self, name: str) -> None:
        folder = files("gateway.stores.webhooks") / "lua"
        self.text = b"".join((folder / part).read_bytes() for part in ("common.lua", name))
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest()

    async def run(self, execute: Execute, names: tuple[str, ...], arguments: Iterable[Any]) -> Any:
        """What it returns. names: at least one, all of one shard; raises StoreDown"""
        given = (len(names), *names, *arguments)
        try:
            return await execute("EVALSHA", self.sha, *given)
        except NoScriptError:
            return await execute("EVAL", self.text, *given)
