-- Makes what waits for a watch due now, in the same order, some deliveries in each call.
--
-- KEYS: any name in the shard
-- ARGV: the watch, its queue ('queue' or 'replays'), the time up to which all are due (0: now), how
--       many deliveries at most
-- Returns the time up to which all are due now, and how many deliveries were made due.

local watch, from, most = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local queue = shard .. ARGV[2] .. ':' .. watch
local at = from > 0 and from or now
local ids = redis.call('ZRANGEBYSCORE', queue, '(' .. text(at), '+inf', 'LIMIT', 0, most)
for _, id in ipairs(ids) do
  -- A microsecond apart, so that they stay in order.
  at = at + 1
  redis.call('ZADD', queue, text(at), id)
end
-- With any cap: the next claim looks at what is in flight.
set_turn(watch, math.huge)
if redis.call('ZCARD', queue) > 0 then redis.call('PUBLISH', shard .. 'due', #ids) end
return {text(at), #ids}
