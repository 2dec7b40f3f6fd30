"""The scripts of the key store in Redis."""

from __future__ import annotations

from typing import Final

# A script that deletes NO_NAME first may write to a full store: Redis refuses a write that needs
# memory only if it is the first write of a script.
#
# Existing records and accounts can be changed in a full store, so that a revocation works there;
# the new value is about as large as the old one. New records are refused.
#
# The scripts return 1 if the wanted value is stored now, also when an earlier try, whose reply was
# lost, has written it. Older releases of the cluster's client have no transactions, so that even
# unconditional writes are a script.

#: ARGV: the most bytes of each value, and of all. A missing value is ''; one that is not a string
#: becomes a text that is no record. The reply may omit the values of the last names.
READ: Final = """
local found, size, most = {}, 0, tonumber(ARGV[2])
for i, name in ipairs(KEYS) do
  local value = redis.pcall('GETRANGE', name, 0, ARGV[1])
  if type(value) ~= 'string' then value = 'of another type' end
  found[i], size = value, size + #value
  if size > most then break end
end
return found
"""
# ZCARD fails where the index has another type, before anything is written.
ADD: Final = """
redis.call('ZCARD', KEYS[2])
if KEYS[3] then
  local made = redis.call('GET', KEYS[3])
  if made and made ~= ARGV[3] then
    return made
  end
end
if redis.call('SET', KEYS[1], ARGV[1], 'NX') then
  redis.call('ZADD', KEYS[2], ARGV[2], ARGV[3])
  if KEYS[3] then
    redis.call('SET', KEYS[3], ARGV[3], 'EX', ARGV[4])
  end
  return 1
end
return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0
"""
REPLACE: Final = """
local now = redis.call('GET', KEYS[1])
if now == ARGV[1] then
  redis.call('DEL', KEYS[2])
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
  return 1
end
return now == ARGV[2] and 1 or 0
"""
REPLACE_ACCOUNT: Final = """
local now = redis.call('GET', KEYS[1]) or ''
if now == ARGV[1] then
  if now ~= '' then redis.call('DEL', KEYS[3]) end
  redis.call('SADD', KEYS[2], ARGV[3])
  redis.call('SET', KEYS[1], ARGV[2])
  return 1
end
return now == ARGV[2] and 1 or 0
"""
PUT_ACCOUNT: Final = """
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""
#: SREM is first: without permission for it, nothing is written. KEYS[3] has when accounts were
#: deleted, in microseconds.
REMOVE_ACCOUNT: Final = """
local now = redis.call('GET', KEYS[1])
if now and now ~= ARGV[1] then return 0 end
redis.call('SREM', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[1])
local clock = redis.call('TIME')
redis.call('HSET', KEYS[3], ARGV[2], string.format('%d%06d', clock[1], clock[2]))
return 1
"""
