"""Commands on a name of ours under which others may have put a value of another type."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from gateway.domain.ports import StoreDown, WrongType
from gateway.stores.translated import translated

Kind = Literal["set", "zset", "stream"]


@asynccontextmanager
async def typed(client: Any, name: str, kind: Kind) -> AsyncIterator[None]:
    """The same as `translated`; where the store refuses the type of this name, WrongType."""
    try:
        async with translated():
            yield
    except StoreDown as error:
        if "WRONGTYPE" in str(error.__cause__):
            await check_type(client, name, kind)
        raise


async def check_type(client: Any, name: str, kind: Kind) -> None:
    """Raises WrongType where a value of another type is under the name."""
    async with translated():
        found = (await client.type(name)).decode("ascii", "replace")
    if found not in (kind, "none"):
        raise WrongType(name, found, kind)
