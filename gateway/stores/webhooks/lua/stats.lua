-- What the shard has.
--
-- KEYS: any name in the shard
-- Returns: deliveries that wait, in flight, dead letters, events that are over, bytes, how long the
-- first delivery is due in us, open breakers, how long the first event is over in us or -1.

local function first(name)
  return tonumber(redis.call('ZRANGE', shard .. name, 0, 0, 'WITHSCORES')[2])
end

local counts = redis.call('HMGET', shard .. 'counts', 'waiting', 'dead')
local head, lease, over = first('heads'), first('leases'), first('finished')
-- A lease that ended is due as well: no courier has claimed anything since.
local due = math.max(0, now - (head or now), now - (lease or now))
return {tonumber(counts[1]) or 0, redis.call('ZCARD', shard .. 'leases'), tonumber(counts[2]) or 0,
  redis.call('ZCARD', shard .. 'finished'), tonumber(redis.call('GET', shard .. 'bytes')) or 0,
  due, redis.call('ZCARD', shard .. 'breakers'), over and math.max(0, now - over) or -1}
