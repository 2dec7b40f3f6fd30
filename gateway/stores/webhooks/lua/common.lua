-- Shared by all scripts of deliveries: they are one text with it. KEYS[1] is a name in the shard.
--
-- Times are microseconds of the server. A delivery is named EVENT:WATCH:NUMBER.

local shard = string.match(KEYS[1], '^gw:{[^}]*}:')
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- The bytes of a delivery, for the budget.
local EACH = 400

local function of_delivery(id)
  return string.match(id, '^([^:]+):([^:]+):')
end

local function health_of(watch)
  local health = {}
  local found = redis.call('HGETALL', shard .. 'health:' .. watch)
  for i = 1, #found, 2 do health[found[i]] = found[i + 1] end
  return health
end

-- A watch is good while its last attempt succeeded, and its answers are quick on average.
local function is_good(health)
  return health.proven == '1' and (tonumber(health.failures) or 0) == 0
    and (tonumber(health.ms) or 0) <= 1000
end

-- How many deliveries of a watch may begin now; with an open breaker one, once its probe is due.
local function room(health, cap)
  local held = tonumber(health.held) or 0
  local open = tonumber(health.open)
  if open then return (held == 0 and open <= now) and 1 or 0 end
  return math.max(0, math.min(cap, tonumber(health.ramp) or cap) - held)
end

-- When a watch is looked at next: when its first delivery is due, but never before its breaker lets
-- a probe through. Not at all if nothing waits, or if it has no room: what finishes calls this again.
local function set_turn(watch, cap)
  local good, other = shard .. 'turns:good', shard .. 'turns:other'
  local health = health_of(watch)
  local first = redis.call('ZRANGE', shard .. 'queue:' .. watch, 0, 0, 'WITHSCORES')
  local waits = first[2] and not health.status
  local open = tonumber(health.open)
  if not waits or (room(health, cap) == 0 and not (open and (tonumber(health.held) or 0) == 0)) then
    redis.call('ZREM', good, watch)
    redis.call('ZREM', other, watch)
    return
  end
  local at = math.max(tonumber(first[2]), open or 0)
  -- One that is due now goes behind all others that are.
  if at < now then at = now end
  local into, from = good, other
  if not is_good(health) then into, from = other, good end
  redis.call('ZREM', from, watch)
  redis.call('ZADD', into, string.format('%.0f', at), watch)
end

-- One delivery of an event is over. Events without any left may be dropped when room is needed.
local function settle(event)
  if redis.call('HINCRBY', shard .. 'event:' .. event, 'left', -1) <= 0 then
    redis.call('ZADD', shard .. 'finished', string.format('%.0f', now), event)
  end
end

local function set_state(id, state, reason)
  redis.call('HSET', shard .. 'delivery:' .. id, 'state', state, 'reason', reason,
    'ended', string.format('%.0f', now))
end
