"""Integrations and watches in Redis.

gw:{keys}:hooks:integrations       hash: integration -> its record
gw:{keys}:hooks:captures           hash: capture address -> integration
gw:{hooks:N}:watches:INTEGRATION   hash: watch -> its record, which `queue` reads as well

Records are untrusted input; `records` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from gateway.domain.ports import CorruptRecord
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.watches import MOST_WATCHES, Watch
from gateway.stores.names import KEYS_TAG
from gateway.stores.webhooks.queue import Execute, shard_of, tag_of
from gateway.stores.webhooks.records import (
    read_integration,
    read_watch,
    write_integration,
    write_watch,
)

INTEGRATIONS: Final = KEYS_TAG + "hooks:integrations"
CAPTURES: Final = KEYS_TAG + "hooks:captures"
#: The most integrations; listing them reads them all.
MOST_INTEGRATIONS: Final = 10_000

State = Literal["active", "failing", "disabled", "paused"]

# KEYS: the hash; ARGV: field, value, the most fields. Returns 1; 0: it is taken; -1: it is full.
_ADD: Final = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then return -1 end
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
"""
# KEYS: the hash; ARGV: field, the value that it has to have, the new one
_REPLACE: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""
# KEYS: the watches' hash, the watch's health, its turns; ARGV: the watch.
# What waits for it stays in its queue, and is cancelled when its turn comes.
_REMOVE: Final = """
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HDEL', KEYS[2], 'status', 'why', 'open', 'ramp')
if redis.call('EXISTS', KEYS[3]) == 1 then redis.call('ZADD', KEYS[4], 0, ARGV[1]) end
redis.call('ZREM', KEYS[5], ARGV[1])
return 1
"""


class Taken(Exception):
    """The id exists."""


class TooMany(Exception):
    """There is no room for another one."""


class Changed(Exception):
    """It was changed or removed since it was read."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a watch does.

    why:       it was disabled; "": it was not
    in_flight: deliveries; waiting: those that wait
    failures:  in a row; last_success_us: 0: none is known
    probe_us:  when its breaker lets the next attempt through; 0: it is closed
    """

    state: State
    why: str
    in_flight: int
    waiting: int
    failures: int
    last_success_us: int
    probe_us: int


class Resources:
    """Integrations and watches. execute: sends one command, as `Redis.execute_command` does"""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    # -- integrations ------------------------------------------------------------------------------

    async def add_integration(self, integration: Integration) -> None:
        """Raises Taken and TooMany."""
        added = await self._add(
            INTEGRATIONS, integration.id, write_integration(integration), MOST_INTEGRATIONS
        )
        if added and integration.capture:
            await self._execute("HSET", CAPTURES, integration.capture, integration.id)

    async def integration(self, integration: str) -> Integration | None:
        """Raises CorruptRecord."""
        found = await self._execute("HGET", INTEGRATIONS, integration)
        return None if found is None else read_integration(integration, found)

    async def integrations(self) -> list[Integration]:
        """All that can be read, by id."""
        found = _pairs(await self._execute("HGETALL", INTEGRATIONS))
        return sorted(_readable(found, read_integration), key=lambda each: each.id)

    async def captures_to(self, capture: str) -> Integration | None:
        """The integration with this capture address. Raises CorruptRecord."""
        found = await self._execute("HGET", CAPTURES, capture)
        if found is None:
            return None
        integration = await self.integration(found.decode("ascii", "replace"))
        return integration if integration is not None and integration.capture == capture else None

    async def replace_integration(self, old: Integration, new: Integration) -> None:
        """Raises Changed."""
        await self._replace(INTEGRATIONS, old.id, write_integration(old), write_integration(new))
        if new.capture != old.capture:
            await self._execute("HSET", CAPTURES, new.capture, new.id)
            await self._execute("HDEL", CAPTURES, old.capture)

    async def remove_integration(self, integration: Integration) -> None:
        """With its watches."""
        for watch in await self.watches(integration.id):
            await self.remove_watch(watch)
        await self._execute("HDEL", CAPTURES, integration.capture)
        await self._execute("HDEL", INTEGRATIONS, integration.id)

    # -- watches -----------------------------------------------------------------------------------

    async def add_watch(self, watch: Watch) -> None:
        """Raises Taken and TooMany."""
        await self._add(_watches(watch.integration), watch.id, write_watch(watch), MOST_WATCHES)

    async def watch(self, integration: str, watch: str) -> Watch | None:
        """Raises CorruptRecord."""
        found = await self._execute("HGET", _watches(integration), watch)
        return None if found is None else read_watch(watch, found)

    async def watches(self, integration: str) -> list[Watch]:
        """All that can be read, the oldest first."""
        found = _pairs(await self._execute("HGETALL", _watches(integration)))
        return sorted(_readable(found, read_watch), key=lambda each: (each.created_us, each.id))

    async def replace_watch(self, old: Watch, new: Watch) -> None:
        """Raises Changed."""
        await self._replace(_watches(old.integration), old.id, write_watch(old), write_watch(new))

    async def remove_watch(self, watch: Watch) -> None:
        """What waits for it is cancelled by the next claims."""
        tag = tag_of(shard_of(watch.integration))
        names = (
            _watches(watch.integration),
            *(f"{tag}{kind}:{watch.id}" for kind in ("health", "queue")),
            *(f"{tag}turns:{kind}" for kind in ("other", "good")),
        )
        await self._execute("EVAL", _REMOVE, len(names), *names, watch.id)

    async def health(self, watch: Watch) -> Health:
        tag = tag_of(shard_of(watch.integration))
        found = _pairs(await self._execute("HGETALL", f"{tag}health:{watch.id}"))
        status = found.get("status", b"").decode("ascii", "replace")
        failures = _number(found.get("failures"))
        state: State = "failing" if failures else "active"
        if status in ("disabled", "paused"):
            state = cast(State, status)
        return Health(
            state=state,
            why=found.get("why", b"").decode("utf-8", "replace"),
            in_flight=_number(found.get("held")),
            waiting=int(await self._execute("ZCARD", f"{tag}queue:{watch.id}")),
            failures=failures,
            last_success_us=_number(found.get("since")) if found.get("proven") == b"1" else 0,
            probe_us=_number(found.get("open")),
        )

    # ----------------------------------------------------------------------------------------------

    async def _add(self, name: str, field: str, value: bytes, most: int) -> bool:
        added = await self._execute("EVAL", _ADD, 1, name, field, value, most)
        if added == 0:
            raise Taken(field)
        if added < 0:
            raise TooMany(most)
        return True

    async def _replace(self, name: str, field: str, old: bytes, new: bytes) -> None:
        if not await self._execute("EVAL", _REPLACE, 1, name, field, old, new):
            raise Changed(field)


def _watches(integration: str) -> str:
    return f"{tag_of(shard_of(integration))}watches:{integration}"


def _pairs(found: Any) -> dict[str, bytes]:
    """The fields of a hash, which redis-py returns as a dict or, by an older protocol, a list."""
    pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
    return {name.decode("ascii", "replace"): value for name, value in pairs}


def _readable(found: dict[str, bytes], read: Any) -> Iterable[Any]:
    for name, content in found.items():
        try:
            yield read(name, content)
        except CorruptRecord:
            continue


def _number(value: bytes | None) -> int:
    try:
        return max(0, int(float(value or b"0")))
    except (ValueError, OverflowError):
        return 0
