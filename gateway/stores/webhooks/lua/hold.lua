-- Gives a lease back without an attempt, as the account of its watch is suspended: the watch is paused.
--
-- KEYS: any name in the shard
-- ARGV: the token of its claim, delivery, its integration, the most of a watch in flight
-- Returns 1; 0 if the lease has ended, and another claim may have the delivery.

local token, id, integration, cap = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local delivery = shard .. 'delivery:' .. id
local its = redis.call('HMGET', delivery, 'token', 'replay', 'attempts')
if its[1] ~= token then return 0 end

local _, watch = of_delivery(id)
local health = shard .. 'health:' .. watch
redis.call('ZREM', shard .. 'leases', id)
redis.call('HDEL', delivery, 'token')
redis.call('HSET', delivery, 'state', (tonumber(its[3]) or 0) > 0 and 'waiting' or 'queued')
-- Nothing may be left of a watch that was removed: its next claim cancels what waits for it.
if redis.call('HEXISTS', shard .. 'watches:' .. integration, watch) == 1 then
  redis.call('HINCRBY', health, 'held', -1)
  if not redis.call('HGET', health, 'status') then
    redis.call('HSET', health, 'status', 'paused', 'why', SUSPENDED)
  end
end
enqueue(id, watch, now, its[2])
set_turn(watch, cap)
return 1
