"""Notices in Redis, until couriers have accepted them as events.

gw:{keys}:hooks:noticed           hash: account -> its integration of the kind `gateway`
gw:{keys}:hooks:notices           sorted set of warnings of limits, by when
gw:{keys}:hooks:notices:dropped   how many were dropped, as there were too many
gw:{keys}:hooks:notices:audited:… exists while another courier may see the same watch disabled
gw:{hooks:N}:disabled             sorted set of watches that were disabled, by when

Workers write the first (`stores.warnings`), and `disable.lua` the last. What is read stays until it
is removed: whoever dies between has lost nothing, and another one does it again.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from gateway.domain.warnings import LimitWarning
from gateway.domain.webhooks.notices import Disabled, read_disabled, read_warning
from gateway.stores.names import AUDITED_PREFIX, NOTICED, NOTICES, NOTICES_DROPPED
from gateway.stores.webhooks.queue import Execute, tag_of

# KEYS: the number of those that were dropped. Returns it, and begins anew.
_DROPPED: Final = """
local number = redis.call('MGET', KEYS[1])[1]
if number then redis.call('DEL', KEYS[1]) end
return tonumber(number) or 0
"""

#: Longer than a notice waits while a courier is killed and another one begins.
_AUDITED_S: Final = 86_400


class NoticeStore:
    """Every method raises StoreDown. execute: sends one command"""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    async def integration_for(self, account: str) -> str | None:
        """The id of the account's integration of the kind `gateway`."""
        found = await self._execute("HGET", NOTICED, account)
        return None if found is None else str(found.decode("ascii", "replace"))

    async def limits(self, skip: int, most: int) -> list[tuple[bytes, LimitWarning | None]]:
        """The oldest warnings after so many. None: it is not one of ours."""
        found = await self._execute("ZRANGE", NOTICES, skip, skip + most - 1)
        return [(each, read_warning(each)) for each in found]

    async def remove(self, *read: bytes) -> None:
        """Those that were accepted, as they were read."""
        if read:
            await self._execute("ZREM", NOTICES, *read)

    async def dropped(self) -> int:
        """How many notices were dropped since anybody asked."""
        return int(await self._execute("EVAL", _DROPPED, 1, NOTICES_DROPPED))

    async def disabled(
        self, shard: int, skip: int, most: int
    ) -> list[tuple[bytes, Disabled | None]]:
        """The oldest watches that were disabled, after so many. None: it is not one of ours."""
        found = await self._execute("ZRANGE", f"{tag_of(shard)}disabled", skip, skip + most - 1)
        return [(each, read_disabled(each)) for each in found]

    async def remove_disabled(self, shard: int, *read: bytes) -> None:
        """Those that were accepted, as they were read."""
        if read:
            await self._execute("ZREM", f"{tag_of(shard)}disabled", *read)

    async def is_first(self, read: bytes) -> bool:
        """Is it seen for the first time? Of several couriers, one gets True."""
        name = AUDITED_PREFIX + blake2b(read, digest_size=16).hexdigest()
        return bool(await self._execute("SET", name, "", "NX", "EX", _AUDITED_S))
