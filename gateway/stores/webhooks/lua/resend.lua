-- Queues a delivery of an event once more, beside those that were made before.
--
-- KEYS: any name in the shard; ARGV: event, watch, the most of a watch in flight
-- Returns the new delivery; nothing if the event is not kept any more, or the watch is disabled.

local event, watch = ARGV[1], ARGV[2]
local name = shard .. 'event:' .. event
local size = tonumber(redis.call('HGET', name, 'size'))
if not size or redis.call('HGET', shard .. 'health:' .. watch, 'status') == 'disabled' then
  return false
end
local id = event .. ':' .. watch .. ':' .. redis.call('HINCRBY', name, 'resent', 1)
local at = string.format('%.0f', now)
redis.call('HSET', shard .. 'delivery:' .. id, 'state', 'queued', 'attempts', 0, 'at', at)
redis.call('SADD', shard .. 'deliveries:' .. event, id)
redis.call('ZADD', shard .. 'recent:' .. watch, at, id)
redis.call('ZADD', shard .. 'queue:' .. watch, at, id)
redis.call('HINCRBY', name, 'left', 1)
redis.call('HSET', name, 'size', size + EACH)
redis.call('INCRBY', shard .. 'bytes', EACH)
redis.call('ZREM', shard .. 'finished', event)
set_turn(watch, tonumber(ARGV[3]))
redis.call('PUBLISH', shard .. 'due', 1)
return id
