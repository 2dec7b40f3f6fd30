-- Records an attempt, and what follows it.
--
-- KEYS: any name in the shard
-- ARGV: the token of its claim, delivery, result ('delivered', 'waiting', 'dead'), the reason of a dead
--       one, the wait in us of a waiting one, the attempt as JSON, its milliseconds, the failures in
--       a row that open the breaker, the wait in us until its probe, the most of a watch in flight
-- Returns how many attempts of the watch have failed since its last success, and the us since then or
-- since its first failure; nothing if the lease has ended, and another claim may have the delivery.

-- Of an attempt, which a delivery's own bytes have room for.
local SHORT = 100

local token, id, result, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local ms, cap = tonumber(ARGV[7]), tonumber(ARGV[10])
local delivery = shard .. 'delivery:' .. id
local its = redis.call('HMGET', delivery, 'token', 'replay', 'log')
if its[1] ~= token then return false end

local event, watch = of_delivery(id)
local name = shard .. 'health:' .. watch
redis.call('HDEL', delivery, 'token')
redis.call('ZREM', shard .. 'leases', id)
redis.call('HINCRBY', delivery, 'attempts', 1)
redis.call('HSET', delivery, 'log', its[3] and its[3] .. '\n' .. ARGV[6] or ARGV[6])
if #ARGV[6] > SHORT then grow(event, #ARGV[6] - SHORT) end

local health = health_of(watch)
local held = math.max(0, (tonumber(health.held) or 0) - 1)
local average = tonumber(health.ms)
average = average and average + (ms - average) / 8 or ms
redis.call('HSET', name, 'held', held, 'ms', string.format('%.1f', average))
if result == 'delivered' then
  -- After a breaker was open: 1, 2, 4, 8 at once.
  local ramp = tonumber(health.ramp)
  redis.call('HSET', name, 'proven', 1, 'failures', 0, 'tried', 0,
    'since', text(now))
  redis.call('HDEL', name, 'open', 'openings', 'ramp')
  if health.open then redis.call('ZREM', shard .. 'breakers', watch) end
  if ramp and ramp * 2 < cap then redis.call('HSET', name, 'ramp', ramp * 2) end
  set_state(id, 'delivered', '')
  settle(event)
else
  local failures = redis.call('HINCRBY', name, 'failures', 1)
  redis.call('HINCRBY', name, 'tried', 1)
  redis.call('HSETNX', name, 'since', text(now))
  -- What was in flight when the breaker opened is no probe.
  local open = tonumber(health.open)
  if failures >= tonumber(ARGV[8]) and (not open or open <= now) then
    redis.call('HSET', name, 'open', text(now + tonumber(ARGV[9])), 'ramp', 1)
    redis.call('HINCRBY', name, 'openings', 1)
    if health.status ~= 'disabled' then redis.call('ZADD', shard .. 'breakers', 0, watch) end
  end
  if result == 'waiting' and health.status == 'disabled' then
    set_state(id, 'cancelled', 'the watch was disabled: ' .. (health.why or ''))
    settle(event)
  elseif result == 'waiting' then
    redis.call('HSET', delivery, 'state', 'waiting')
    enqueue(id, watch, now + tonumber(ARGV[5]), its[2])
  else
    set_state(id, 'dead', reason)
    local integration = redis.call('HGET', shard .. 'event:' .. event, 'integration') or ''
    count('dead', redis.call('ZADD', shard .. 'dead:' .. integration, text(now), id))
    settle(event)
  end
end
set_turn(watch, cap)
local told = redis.call('HMGET', name, 'tried', 'since')
return {tonumber(told[1]) or 0, now - (tonumber(told[2]) or now)}
