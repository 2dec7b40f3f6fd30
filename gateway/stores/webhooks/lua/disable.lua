-- Disables a watch: it gets no more events, and what waits for it is cancelled, some in each call.
--
-- KEYS: any name in the shard; ARGV: the watch, why, how many deliveries to cancel at most
-- Returns how many still wait.

local watch, why, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
redis.call('HSET', shard .. 'health:' .. watch, 'status', 'disabled', 'why', why)
redis.call('ZREM', shard .. 'breakers', watch)
local left = 0
for _, queue in ipairs({shard .. 'queue:' .. watch, shard .. 'replays:' .. watch}) do
  local ids = most > 0 and redis.call('ZRANGE', queue, 0, most - 1) or {}
  for _, id in ipairs(ids) do
    count('waiting', -redis.call('ZREM', queue, id))
    set_state(id, 'cancelled', 'the watch was disabled: ' .. why)
    local event = of_delivery(id)
    if event then settle(event) end
  end
  most = most - #ids
  left = left + redis.call('ZCARD', queue)
end
set_turn(watch, 0)
return left
