-- Records an attempt, and what follows it.
--
-- KEYS: any name in the shard
-- ARGV: the token of its claim, delivery, result ('delivered', 'waiting', 'dead'), the reason of a dead
--       one, the wait in us of a waiting one, the attempt as JSON, its milliseconds, the failures in
--       a row that open the breaker, the wait in us until its probe, the most of a watch in flight
-- Returns how many attempts of the watch have failed since its last success, and the us since then or
-- since its first failure; nothing if the lease has ended, and another claim may have the delivery.

local token, id, result, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local ms, cap = tonumber(ARGV[7]), tonumber(ARGV[10])
local delivery = shard .. 'delivery:' .. id
if redis.call('HGET', delivery, 'token') ~= token then return false end

local event, watch = of_delivery(id)
local name = shard .. 'health:' .. watch
redis.call('HDEL', delivery, 'token')
redis.call('ZREM', shard .. 'leases', id)
redis.call('HINCRBY', delivery, 'attempts', 1)
local log = redis.call('HGET', delivery, 'log')
redis.call('HSET', delivery, 'log', log and log .. '\n' .. ARGV[6] or ARGV[6])

local health = health_of(watch)
local held = math.max(0, (tonumber(health.held) or 0) - 1)
local average = tonumber(health.ms)
average = average and average + (ms - average) / 8 or ms
redis.call('HSET', name, 'held', held, 'ms', string.format('%.1f', average))
if result == 'delivered' then
  -- After a breaker was open: 1, 2, 4, 8 at once.
  local ramp = tonumber(health.ramp)
  redis.call('HSET', name, 'proven', 1, 'failures', 0, 'tried', 0,
    'since', string.format('%.0f', now))
  redis.call('HDEL', name, 'open', 'openings', 'ramp')
  if ramp and ramp * 2 < cap then redis.call('HSET', name, 'ramp', ramp * 2) end
  set_state(id, 'delivered', '')
  settle(event)
else
  local failures = redis.call('HINCRBY', name, 'failures', 1)
  redis.call('HINCRBY', name, 'tried', 1)
  redis.call('HSETNX', name, 'since', string.format('%.0f', now))
  -- What was in flight when the breaker opened is no probe.
  local open = tonumber(health.open)
  if failures >= tonumber(ARGV[8]) and (not open or open <= now) then
    redis.call('HSET', name, 'open', string.format('%.0f', now + tonumber(ARGV[9])), 'ramp', 1)
    redis.call('HINCRBY', name, 'openings', 1)
  end
  if result == 'waiting' then
    redis.call('HSET', delivery, 'state', 'waiting')
    redis.call('ZADD', shard .. 'queue:' .. watch,
      string.format('%.0f', now + tonumber(ARGV[5])), id)
  else
    set_state(id, 'dead', reason)
    redis.call('ZADD', shard .. 'dead', string.format('%.0f', now), id)
    settle(event)
  end
end
set_turn(watch, cap)
local told = redis.call('HMGET', name, 'tried', 'since')
return {tonumber(told[1]) or 0, now - (tonumber(told[2]) or now)}
