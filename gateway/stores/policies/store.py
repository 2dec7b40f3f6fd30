"""The history of policies in Redis.

gw:{keys}:policies           a stream of the newest entries
gw:{keys}:policy:HASH        the texts of a policy, while an entry names it
gw:{keys}:policies:rollback  "HASH ACTOR": a policy that was restored; expires

One script decides whether a load has an entry, so that of several gateways that load the same
change one adds it. Nothing here is used to decide requests: a full or damaged history has no other
effect than that it cannot be read.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import ResponseError

from gateway.domain.policy_files import Texts, is_hash
from gateway.domain.policy_history import MOST_KEPT, ROLLBACK_S, SAME_CHANGE_US, PolicyLoad
from gateway.domain.ports import CorruptRecord
from gateway.observe.log_throttle import LogThrottle
from gateway.stores.names import POLICIES, ROLLBACK, policy_name
from gateway.stores.policies.records import (
    MOST_ENTRY_BYTES,
    MOST_STORED_BYTES,
    label,
    read_load,
    read_texts,
    write_load,
    write_texts,
)
from gateway.stores.redis.errors import translated, typed

log = logging.getLogger("gateway")

_throttle: Final = LogThrottle(60.0)

# Entries beyond those that are kept are read as well, as others may add some.
#
# KEYS: the stream, the texts of the policy, the note of a rollback; ARGV: a token of this entry,
# the most that are kept, the time in which gateways load the same change, the texts or '', the
# policy's hash, gateway, time and cause, and then the entry's fields. Returns nothing where there
# is an entry, else its cause, its actor and the hashes of the entries that were dropped. The token
# identifies a command that is retried because its reply was lost. Values of another type under our
# names are deleted.
_ADD: Final = """
local token, most, texts = ARGV[1], tonumber(ARGV[2]), ARGV[4]
local hash, gateway, at, cause, actor = ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8], ''
local found = redis.pcall('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1000)
if found.err then
  if not string.find(found.err, 'WRONGTYPE') then return found end
  redis.call('DEL', KEYS[1])
  found = {}
end
local own, hashes = nil, {}
local known = false
for number, entry in ipairs(found) do
  local fields = {}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  if fields.token == token then return {fields.cause, fields.actor} end
  local is_same = fields.hash == hash
  if number <= most then
    if is_same and number == 1 then known = true end
    if fields.gateway == gateway then
      if own == nil and is_same and cause == 'start' then known = true end
      own = own or fields.hash or ''
    elseif is_same and math.abs((tonumber(fields.at) or 0) - at) <= tonumber(ARGV[3]) then
      known = true
    end
  end
  hashes[number] = fields.hash or ''
end
if known then return false end
if texts ~= '' then redis.call('SET', KEYS[2], texts) end
local note = redis.pcall('GET', KEYS[3])
if type(note) == 'string' and string.sub(note, 1, #hash + 1) == hash .. ' ' then
  cause, actor = 'rollback', string.gsub(string.sub(note, #hash + 2, #hash + 201), '%c', '?')
  redis.call('DEL', KEYS[3])
end
local function add()
  return redis.pcall('XADD', KEYS[1], 'MAXLEN', ARGV[2], '*', 'token', token, 'cause', cause,
    'actor', actor, unpack(ARGV, 9))
end
local added = add()
if type(added) == 'table' and added.err then
  if not string.find(added.err, 'exhausted') then return added end
  redis.call('DEL', KEYS[1])
  most = 0
  added = add()
  if type(added) == 'table' and added.err then return added end
end
local answer, kept = {cause, actor}, {[hash] = true}
for number, other in ipairs(hashes) do
  if number < most then
    kept[other] = true
  elseif not kept[other] then
    kept[other] = true
    answer[#answer + 1] = other
  end
end
return answer
"""
# ARGV: how many, and the most bytes of an entry; a longer one is returned without fields.
_READ: Final = """
local found = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', ARGV[1])
for number, entry in ipairs(found) do
  local size = 0
  for _, part in ipairs(entry[2]) do size = size + #part end
  if size > tonumber(ARGV[2]) then found[number] = {entry[1], {}} end
end
return found
"""


class RedisPolicyStore:
    """domain.ports.PolicyStore over a redis-py client, which its owner closes."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        # Each release of redis-py annotates its answers differently, and none of them narrowly.
        self._redis: Any = client

    async def add(self, load: PolicyLoad, texts: Texts | None) -> PolicyLoad | None:
        """Store an entry, and the texts of its policy; None: there is an entry for this load."""
        content = None if texts is None else write_texts(texts)
        written = write_load(load)
        fields = [part for name in _FIELDS for part in (name, written[name])]
        names = POLICIES, policy_name(load.hash), ROLLBACK
        known_by = load.hash, written["gateway"], load.at_us, load.cause
        bounds = MOST_KEPT, SAME_CHANGE_US
        token = secrets.token_hex(8)
        async with translated():
            answer = await self._redis.eval(
                *(_ADD, len(names), *names), *(token, *bounds, content or b"", *known_by, *fields)
            )
            if answer is None:
                return None
            cause, actor, *dropped = (part.decode("utf-8", "replace") for part in answer)
            unused = [policy_name(policy) for policy in dropped if is_hash(policy)]
            if unused:
                await self._redis.unlink(*unused)
        if cause != "rollback":
            return load
        return replace(load, cause="rollback", actor=label(actor))

    async def loads(self) -> list[PolicyLoad]:
        """The entries, newest first, without those that cannot be read."""
        async with typed(self._redis, POLICIES, "stream"):
            found = await self._redis.eval(_READ, 1, POLICIES, MOST_KEPT, MOST_ENTRY_BYTES)
        read = [(entry_id, read_load(_paired(fields))) for entry_id, fields in found]
        for entry_id, load in read:
            if load is None and _throttle.suppressed("policies", time.monotonic()) is not None:
                log.warning(
                    "policy history: the entry %s of %s cannot be read: something else wrote it",
                    *(entry_id.decode("ascii", "replace"), POLICIES),
                )
        return [load for _, load in read if load is not None]

    async def texts(self, policy: str) -> Texts | None:
        """The texts of the policy with this hash; None: not stored. Raises CorruptRecord."""
        async with translated():
            try:
                content = await self._redis.getrange(policy_name(policy), 0, MOST_STORED_BYTES)
            except ResponseError as error:
                if str(error).startswith("WRONGTYPE"):
                    raise CorruptRecord("policy", policy) from error
                raise
        return read_texts(policy, content) if content else None

    async def note_rollback(self, policy: str, actor: str) -> None:
        """Note that someone has restored the files of the policy with this hash."""
        async with translated():
            await self._redis.set(ROLLBACK, f"{policy} {label(actor)}", ex=ROLLBACK_S)


#: The fields that the script does not set.
_FIELDS: Final = ("at", "hash", "previous", "gateway", "summary")


def _paired(fields: Sequence[bytes]) -> Mapping[bytes, bytes]:
    return dict(zip(fields[::2], fields[1::2], strict=False))
