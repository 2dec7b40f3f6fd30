-- Writes the record of a watch. Its rate holds at once.
--
-- KEYS: the watches of its integration
-- ARGV: the watch, its record, the one that it has to have ('': none), the most watches; the attempts
--       of its rate (0: it has none) in so many us
-- Returns 1; 0: it has another record, or there are too many watches.

local watch, record, old = ARGV[1], ARGV[2], ARGV[3]
local amount, period = tonumber(ARGV[5]), tonumber(ARGV[6])
local health = shard .. 'health:' .. watch

if old ~= '' then
  if redis.call('HGET', KEYS[1], watch) ~= old then return 0 end
  redis.call('HSET', KEYS[1], watch, record)
elseif redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4])
  or redis.call('HSETNX', KEYS[1], watch, record) == 0 then return 0 end

if amount == 0 then
  redis.call('HDEL', health, 'step', 'allowed')
else
  local step = math.ceil((period + SLACK) / amount)
  local allowed = tonumber(redis.call('HGET', health, 'allowed'))
  redis.call('HSET', health, 'step', text(step))
  -- A slower rate before does not delay its attempts.
  if allowed then redis.call('HSET', health, 'allowed', text(math.min(allowed, now + step))) end
end
-- With any cap: the next claim looks at what is in flight.
set_turn(watch, math.huge)
if redis.call('ZSCORE', shard .. 'heads', watch) then redis.call('PUBLISH', shard .. 'due', 1) end
return 1
