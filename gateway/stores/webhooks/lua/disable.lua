-- Disables a watch: it gets no more events, and what waits for it is cancelled, some in each call.
--
-- KEYS: any name in the shard; ARGV: the watch, why, how many deliveries to cancel at most
-- Returns how many still wait.

local watch, why = ARGV[1], ARGV[2]
local queue = shard .. 'queue:' .. watch
redis.call('HSET', shard .. 'health:' .. watch, 'status', 'disabled', 'why', why)
for _, id in ipairs(redis.call('ZRANGE', queue, 0, tonumber(ARGV[3]) - 1)) do
  redis.call('ZREM', queue, id)
  set_state(id, 'cancelled', 'the watch was disabled: ' .. why)
  local event = of_delivery(id)
  if event then settle(event) end
end
set_turn(watch, 0)
return redis.call('ZCARD', queue)
