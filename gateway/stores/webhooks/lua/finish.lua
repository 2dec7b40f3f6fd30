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
local its = redis.call('HMGET', delivery, 'token', 'replay', 'log', 'attempts')
if its[1] ~= token then return false end

local event, watch = of_delivery(id)
local name = shard .. 'health:' .. watch
redis.call('ZREM', shard .. 'leases', id)
if #ARGV[6] > SHORT then grow(event, #ARGV[6] - SHORT) end

local health = health_of(watch)
-- Writes how the delivery is now; no claim has it.
local function be(state, why)
  redis.call('HSET', delivery, 'token', '', 'attempts', (tonumber(its[4]) or 0) + 1, 'log',
    its[3] and its[3] .. '\n' .. ARGV[6] or ARGV[6], 'state', state, 'reason', why,
    'ended', state == 'waiting' and '' or text(now))
  if state ~= 'waiting' then settle(event) end
end

-- A claim has written it: the watch was removed since then, and nothing may be left of it.
if not health.held then
  if result == 'delivered' then be('delivered', '') else be('cancelled', DELETED) end
  return {0, 0}
end
local average = tonumber(health.ms)
health.held = math.max(0, (tonumber(health.held) or 0) - 1)
health.ms = string.format('%.1f', average and average + (ms - average) / 8 or ms)

if result == 'delivered' then
  health.proven, health.failures, health.tried, health.since = '1', 0, 0, text(now)
  -- After a breaker was open: 1, 2, 4, 8 at once.
  local ramp = tonumber(health.ramp)
  if health.open then redis.call('ZREM', shard .. 'breakers', watch) end
  if health.open or health.openings or health.failed or ramp then
    redis.call('HDEL', name, 'open', 'openings', 'ramp', 'failed')
    health.open, health.openings = nil, nil
    health.ramp = ramp and ramp * 2 < cap and ramp * 2 or nil
    if health.ramp then redis.call('HSET', name, 'ramp', health.ramp) end
  end
  be('delivered', '')
else
  health.failures = (tonumber(health.failures) or 0) + 1
  health.tried = (tonumber(health.tried) or 0) + 1
  health.since = health.since or text(now)
  redis.call('HSETNX', name, 'failed', text(now))
  -- What was in flight when the breaker opened is no probe.
  local open = tonumber(health.open)
  if health.failures >= tonumber(ARGV[8]) and (not open or open <= now) then
    health.open, health.ramp = text(now + tonumber(ARGV[9])), 1
    redis.call('HSET', name, 'open', health.open, 'ramp', 1)
    redis.call('HINCRBY', name, 'openings', 1)
    if health.status ~= 'disabled' then redis.call('ZADD', shard .. 'breakers', 0, watch) end
  end
  if result == 'waiting' and health.status == 'disabled' then
    be('cancelled', 'disabled')
  elseif result == 'waiting' then
    be('waiting', '')
    enqueue(id, watch, now + tonumber(ARGV[5]), its[2])
  else
    be('dead', reason)
    give_up(id, redis.call('HGET', shard .. 'event:' .. event, 'integration') or '')
  end
end
redis.call('HSET', name, 'held', health.held, 'ms', health.ms, 'proven', health.proven or '',
  'failures', health.failures, 'tried', health.tried, 'since', health.since)
set_turn(watch, cap, health)
return {health.tried, now - tonumber(health.since)}
