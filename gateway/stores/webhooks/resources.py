"""Integrations and watches in Redis.

gw:{keys}:hooks:integrations       hash: integration -> its record
gw:{keys}:hooks:captures           hash: capture address -> integration
gw:{keys}:hooks:mark               the mark of the webhook key
gw:{keys}:hooks:noticed            hash: account -> its integration of the kind `gateway`
gw:{keys}:hooks:account:NAME       set of an account's integrations
gw:{keys}:deleted                  hash: account -> when it was deleted: older integrations are not
                                   those of a new account of this name
gw:{keys}:hooks:watches            hash: watch -> integration
gw:{keys}:hooks:replaying:NAME     exists while a replay of an account is in progress: its token
gw:{hooks:N}:watches:INTEGRATION   hash: watch -> its record, which `queue` reads as well

Records are untrusted input; `records` reads them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from gateway.domain.ports import CorruptRecord
from gateway.domain.webhooks.deliveries import shard_of
from gateway.domain.webhooks.events import Integration
from gateway.domain.webhooks.kinds.own import GATEWAY
from gateway.domain.webhooks.watches import MOST_WATCHES, Health, State, Watch
from gateway.stores.names import DELETED, KEYS_TAG, NOTICED
from gateway.stores.webhooks.records import (
    MOST_BYTES,
    read_integration,
    read_watch,
    write_integration,
    write_watch,
)
from gateway.stores.webhooks.scripts import Execute, Script, tag_of

INTEGRATIONS: Final = KEYS_TAG + "hooks:integrations"
CAPTURES: Final = KEYS_TAG + "hooks:captures"
MARK: Final = KEYS_TAG + "hooks:mark"
#: Indexes, by which those of one account are found without reading all. That of watches is written
#: before the record and removed after it: what it names may not be there.
ACCOUNTS: Final = KEYS_TAG + "hooks:account:"
WATCHES: Final = KEYS_TAG + "hooks:watches"
REPLAYING: Final = KEYS_TAG + "hooks:replaying:"
#: The most integrations; listing them reads them all.
MOST_INTEGRATIONS: Final = 10_000

# KEYS: the integrations, the accounts with one of the kind `gateway`, the account's integrations,
# the capture addresses; ARGV: id, record, the most, the account of one of this kind or '', the
# capture address or ''
_ADD_INTEGRATION: Final = """
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3])
  or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
if ARGV[4] ~= '' and redis.call('HSETNX', KEYS[2], ARGV[4], ARGV[1]) == 0 then return 0 end
redis.call('SADD', KEYS[3], ARGV[1])
if ARGV[5] ~= '' then redis.call('HSET', KEYS[4], ARGV[5], ARGV[1]) end
return redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
"""
# KEYS: the integrations, the accounts with one of the kind `gateway`, the capture addresses, the
# account's integrations; ARGV: id, account, capture address
_REMOVE_INTEGRATION: Final = """
redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('HGET', KEYS[2], ARGV[2]) == ARGV[1] then redis.call('HDEL', KEYS[2], ARGV[2]) end
redis.call('HDEL', KEYS[3], ARGV[3])
redis.call('SREM', KEYS[4], ARGV[1])
return 1
"""
# KEYS: the hash; ARGV: field, the value that it has to have, the new one
_REPLACE: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""
# KEYS: any of the shard; ARGV: its tag, watches
_HEALTHS: Final = """
local found = {}
for i = 2, #ARGV do
  local waiting, first = 0, ''
  for _, name in ipairs({'queue:', 'replays:'}) do
    local queue = ARGV[1] .. name .. ARGV[i]
    waiting = waiting + redis.call('ZCARD', queue)
    local its = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')[2]
    if its and (first == '' or tonumber(its) < tonumber(first)) then first = its end
  end
  found[#found + 1] = {redis.call('HGETALL', ARGV[1] .. 'health:' .. ARGV[i]), waiting, first}
end
return found
"""
# Records that are too long were written by others, and are left out of replies: a reply that is too
# long ends the connection, which others use. KEYS: the hash; ARGV: field, the most bytes
_RECORD: Final = """
local found = redis.call('HGET', KEYS[1], ARGV[1])
if found and #found > tonumber(ARGV[2]) then return '' end
return found
"""
# KEYS: the hash; ARGV: the most bytes of a record, the most records
_RECORDS: Final = """
local found = redis.call('HGETALL', KEYS[1])
local short = {}
for i = 1, math.min(#found, 2 * ARGV[2]), 2 do
  if #found[i] + #found[i + 1] <= tonumber(ARGV[1]) then
    short[#short + 1], short[#short + 2] = found[i], found[i + 1]
  end
end
return short
"""
# KEYS: the name; ARGV: the value that it has to have
_END: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""
_WRITE: Final = Script("write.lua")
_STATUS: Final = Script("status.lua")
_HASTEN: Final = Script("hasten.lua")
#: Deliveries that one call makes due, which takes the server a few milliseconds.
_HASTENED: Final = 500
#: A replay takes some seconds. One whose process was killed is over after so long.
_REPLAY_S: Final = 60


class Resources:
    """Integrations and watches. Every method raises StoreDown.

    execute: sends one command
    """

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    async def has_mark(self, mark: str) -> bool:
        """Is this the mark of the webhook key? The first one that asks decides."""
        await self._execute("SET", MARK, mark, "NX")
        found = await self._execute("GET", MARK)
        return bool(found == mark.encode())

    async def is_marked(self) -> bool:
        """Has it the mark of a webhook key? Else it has lost its data since a courier began."""
        return bool(await self._execute("EXISTS", MARK))

    # -- integrations ------------------------------------------------------------------------------

    async def add_integration(self, integration: Integration) -> bool:
        """False: there are too many, one has this id, or the account has its one of the kind
        `gateway`.
        """
        names = INTEGRATIONS, NOTICED, ACCOUNTS + integration.account, CAPTURES
        its = integration.account if integration.kind == GATEWAY.name else ""
        arguments = (
            *(integration.id, write_integration(integration), MOST_INTEGRATIONS),
            *(its, integration.capture),
        )
        added = await self._execute("EVAL", _ADD_INTEGRATION, len(names), *names, *arguments)
        return bool(added)

    async def integration(self, integration: str) -> Integration | None:
        """Raises CorruptRecord."""
        found = await self._record(INTEGRATIONS, integration)
        return None if found is None else read_integration(integration, found)

    async def integrations(self) -> list[Integration]:
        """All that can be read, by id."""
        found = await self.integration_records()
        return sorted(_readable(found, read_integration), key=lambda each: each.id)

    async def integrations_of(self, account: str) -> list[Integration]:
        """Those of an account that can be read, by id."""
        names = list(await self._execute("SMEMBERS", ACCOUNTS + account))
        if not names:
            return []
        values = await self._execute("HMGET", INTEGRATIONS, *names)
        pairs = zip(names, values, strict=True)
        found = {name.decode("ascii", "replace"): value for name, value in pairs if value}
        deleted_us = _number(await self._execute("HGET", DELETED, account))
        its = (
            each
            for each in _readable(found, read_integration)
            if each.account == account and (not deleted_us or each.created_us > deleted_us)
        )
        return sorted(its, key=lambda each: each.id)

    async def integration_records(self) -> dict[str, bytes]:
        """The records of all, as they were written."""
        return _pairs(await self._execute("HGETALL", INTEGRATIONS))

    async def captures_to(self, capture: str) -> Integration | None:
        """The integration with this capture address. Raises CorruptRecord."""
        found = await self._execute("HGET", CAPTURES, capture)
        if found is None:
            return None
        integration = await self.integration(found.decode("ascii", "replace"))
        return integration if integration is not None and integration.capture == capture else None

    async def replace_integration(self, old: Integration, new: Integration) -> bool:
        """False: it was changed or removed since it was read."""
        await self._execute("SADD", ACCOUNTS + new.account, new.id)
        replaced = await self._replace(
            INTEGRATIONS, old.id, write_integration(old), write_integration(new)
        )
        if replaced and new.capture != old.capture:
            await self._execute("HSET", CAPTURES, new.capture, new.id)
            await self._execute("HDEL", CAPTURES, old.capture)
        return replaced

    async def remove_integration(self, integration: Integration) -> None:
        """With its watches."""
        for watch in await self.watches(integration.id):
            await self.remove_watch(watch)
        names = INTEGRATIONS, NOTICED, CAPTURES, ACCOUNTS + integration.account
        arguments = integration.id, integration.account, integration.capture
        await self._execute("EVAL", _REMOVE_INTEGRATION, len(names), *names, *arguments)

    # -- watches -----------------------------------------------------------------------------------

    async def add_watch(self, watch: Watch) -> bool:
        """False: its integration has too many, or one has this id."""
        name = _watches(watch.integration)
        await self._execute("HSET", WATCHES, watch.id, watch.integration)
        added = await self._write(watch, b"")
        if not added and not await self._execute("HEXISTS", name, watch.id):
            await self._execute("HDEL", WATCHES, watch.id)
        return added

    async def watch(self, integration: str, watch: str) -> Watch | None:
        """Raises CorruptRecord."""
        found = await self._record(_watches(integration), watch)
        return None if found is None else read_watch(watch, found)

    async def integration_of(self, watch: str) -> str | None:
        """The id of the integration that the watch is of, or was."""
        found = await self._execute("HGET", WATCHES, watch)
        return None if found is None else str(found.decode("ascii", "replace"))

    async def watches(self, integration: str) -> list[Watch]:
        """All that can be read, the oldest first."""
        arguments = (_watches(integration), MOST_BYTES, MOST_WATCHES)
        found = _pairs(await self._execute("EVAL", _RECORDS, 1, *arguments))
        return sorted(_readable(found, read_watch), key=lambda each: (each.created_us, each.id))

    async def replace_watch(self, old: Watch, new: Watch) -> bool:
        """Its rate holds at once. False: it was changed or removed since it was read."""
        return await self._write(new, write_watch(old))

    async def remove_watch(self, watch: Watch) -> bool:
        """What waits for it is cancelled by the next claims. False: it was removed before."""
        is_removed = await self._set_status(watch, "remove")
        await self._execute("HDEL", WATCHES, watch.id)
        return is_removed

    async def pause(self, watch: Watch) -> bool:
        """What arrives waits. False: it was removed."""
        return await self._set_status(watch, "pause")

    async def resume(self, watch: Watch) -> bool:
        """Deliver what waits, now: it begins anew, also after it was disabled.

        False: it was removed.
        """
        is_there = await self._set_status(watch, "resume")
        await self._hasten(watch)
        return is_there

    async def forget_failures(self, watch: Watch) -> bool:
        """Deliver what waits now, unless it is paused: its URL is another one.

        False: it was removed.
        """
        is_there = await self._set_status(watch, "forget")
        await self._hasten(watch)
        return is_there

    async def suspend(self, watch: Watch) -> None:
        """What arrives waits while its account is suspended."""
        await self._set_status(watch, "suspend")

    async def restore(self, watch: Watch) -> None:
        """Deliver what waits, if it waits only because the account was suspended."""
        await self._set_status(watch, "restore")

    async def _hasten(self, watch: Watch) -> None:
        names = (f"{tag_of(shard_of(watch.integration))}leases",)
        for queue in ("queue", "replays"):
            until_us, number = 0, _HASTENED
            while number == _HASTENED:
                arguments = (watch.id, queue, until_us, _HASTENED)
                found = await _HASTEN.run(self._execute, names, arguments)
                until_us, number = int(found[0]), int(found[1])

    async def _set_status(self, watch: Watch, what: str) -> bool:
        names = (_watches(watch.integration),)
        return bool(await _STATUS.run(self._execute, names, (watch.id, what)))

    async def begin_replay(self, account: str) -> str | None:
        """The token of a replay of this account. None: another one is in progress."""
        token = secrets.token_hex(8)
        begun = await self._execute("SET", REPLAYING + account, token, "NX", "EX", _REPLAY_S)
        return token if begun else None

    async def end_replay(self, account: str, token: str) -> None:
        """That replay is over."""
        await self._execute("EVAL", _END, 1, REPLAYING + account, token)

    async def health(self, watch: Watch) -> Health:
        (found,) = await self.healths([watch])
        return found

    async def healths(self, watches: Sequence[Watch]) -> list[Health]:
        """Those of watches of one integration."""
        if not watches:
            return []
        tag = tag_of(shard_of(watches[0].integration))
        names = (each.id for each in watches)
        found = await self._execute("EVAL", _HEALTHS, 1, f"{tag}leases", tag, *names)
        return [_health(_pairs(fields), waiting, first) for fields, waiting, first in found]

    # ----------------------------------------------------------------------------------------------

    async def _record(self, name: str, field: str) -> bytes | None:
        found: bytes | None = await self._execute("EVAL", _RECORD, 1, name, field, MOST_BYTES)
        return found

    async def _write(self, watch: Watch, old: bytes) -> bool:
        rate = (watch.rate.amount, watch.rate.period_us) if watch.rate else (0, 0)
        arguments = (watch.id, write_watch(watch), old, MOST_WATCHES, *rate)
        return bool(await _WRITE.run(self._execute, (_watches(watch.integration),), arguments))

    async def _replace(self, name: str, field: str, old: bytes, new: bytes) -> bool:
        return bool(await self._execute("EVAL", _REPLACE, 1, name, field, old, new))


def _watches(integration: str) -> str:
    return f"{tag_of(shard_of(integration))}watches:{integration}"


def _health(found: dict[str, bytes], waiting: int, first: bytes) -> Health:
    status = found.get("status", b"").decode("ascii", "replace")
    failures = _number(found.get("failures"))
    allowed_us = _number(found.get("allowed"))
    state: State = "failing" if failures else "active"
    if status in ("disabled", "paused"):
        state = cast(State, status)
    return Health(
        state=state,
        why=found.get("why", b"").decode("utf-8", "replace"),
        in_flight=_number(found.get("held")),
        waiting=waiting,
        failures=failures,
        last_success_us=_number(found.get("since" if found.get("proven") == b"1" else "succeeded")),
        next_us=max(_number(first), _number(found.get("open")), allowed_us)
        if waiting and not status
        else 0,
        disabled_us=_number(found.get("disabled")),
        failed_us=_number(found.get("failed")),
        allowed_us=allowed_us,
    )


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
