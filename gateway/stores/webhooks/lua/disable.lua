-- Disables a watch: it gets no more events, and what waits for it is cancelled, some in each call.
--
-- KEYS: any name in the shard
-- ARGV: the watch, its integration, why, how many deliveries to cancel at most
-- Returns how many still wait; 0 if the watch is not there: what waits for it is cancelled by claims.

local watch, integration, why, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local MOST_NOTICES = 10000

if redis.call('HEXISTS', shard .. 'watches:' .. integration, watch) == 0 then return 0 end
if redis.call('HGET', shard .. 'health:' .. watch, 'status') ~= 'disabled' then
  -- With it, so that its notice is sent even if the courier dies now.
  local at = string.format('%.0f', now)
  redis.call('ZADD', shard .. 'disabled', at, cjson.encode({integration, watch, why, at}))
  redis.call('ZREMRANGEBYRANK', shard .. 'disabled', 0, -1 - MOST_NOTICES)
  redis.call('HSET', shard .. 'health:' .. watch, 'status', 'disabled', 'why', why,
    'disabled', at)
end
redis.call('ZREM', shard .. 'breakers', watch)
local left = 0
for _, queue in ipairs({shard .. 'queue:' .. watch, shard .. 'replays:' .. watch}) do
  local ids = most > 0 and redis.call('ZRANGE', queue, 0, most - 1) or {}
  for _, id in ipairs(ids) do
    count('waiting', -redis.call('ZREM', queue, id))
    set_state(id, 'cancelled', 'disabled')
    local event = of_delivery(id)
    if event then settle(event) end
  end
  most = most - #ids
  left = left + redis.call('ZCARD', queue)
end
set_turn(watch, 0)
return left
