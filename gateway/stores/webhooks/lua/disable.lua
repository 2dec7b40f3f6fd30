-- Disables a watch: it gets no more events, and what waits for it is cancelled, some in each call.
--
-- KEYS: any name in the shard
-- ARGV: the watch, its integration, why, how many deliveries to cancel at most
-- Returns how many still wait.

local watch, integration, why = ARGV[1], ARGV[2], ARGV[3]
local queue = shard .. 'queue:' .. watch
local MOST_NOTICES = 10000

if redis.call('HGET', shard .. 'health:' .. watch, 'status') ~= 'disabled' then
  -- With it, so that its notice is sent even if the courier dies now.
  local at = string.format('%.0f', now)
  redis.call('ZADD', shard .. 'disabled', at, cjson.encode({integration, watch, why, at}))
  redis.call('ZREMRANGEBYRANK', shard .. 'disabled', 0, -1 - MOST_NOTICES)
  redis.call('HSET', shard .. 'health:' .. watch, 'status', 'disabled', 'why', why)
end
for _, id in ipairs(redis.call('ZRANGE', queue, 0, tonumber(ARGV[4]) - 1)) do
  redis.call('ZREM', queue, id)
  set_state(id, 'cancelled', 'the watch was disabled: ' .. why)
  local event = of_delivery(id)
  if event then settle(event) end
end
set_turn(watch, 0)
return redis.call('ZCARD', queue)
