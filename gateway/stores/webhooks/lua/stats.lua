-- What the shard has.
--
-- KEYS: any name in the shard; ARGV: the most of a watch in flight
-- Returns: deliveries that wait, in flight, dead letters, events that are over, bytes, how long the
-- first delivery is due in us, open breakers, how long the first event is over in us or -1, how many
-- of those that wait could be sent now, and the accounts with the most bytes of events of which any
-- delivery waits, each followed by those.

-- The watches that are looked at for the last one; of the others each counts as one delivery.
local MOST_HEADS = 50
local MOST_ACCOUNTS = 32

local function first(name)
  return tonumber(redis.call('ZRANGE', shard .. name, 0, 0, 'WITHSCORES')[2])
end

local counts = redis.call('HMGET', shard .. 'counts', 'waiting', 'dead')
local head, lease, over = first('heads'), first('leases'), first('finished')
-- A lease that ended is due as well: no courier has claimed anything since.
local due = math.max(0, now - (head or now), now - (lease or now))

-- Of each watch as many as may begin: more couriers would not send the others sooner.
local sendable = redis.call('ZCOUNT', shard .. 'heads', '-inf', text(now))
for _, watch in ipairs(redis.call('ZRANGEBYSCORE', shard .. 'heads', '-inf', text(now),
    'LIMIT', 0, MOST_HEADS)) do
  local its = redis.call('ZCOUNT', shard .. 'queue:' .. watch, '-inf', text(now))
    + redis.call('ZCOUNT', shard .. 'replays:' .. watch, '-inf', text(now))
  local health = health_of(watch)
  sendable = sendable - 1 + math.min(its, room(health, tonumber(ARGV[1])), allowed_now(health))
end
return {tonumber(counts[1]) or 0, redis.call('ZCARD', shard .. 'leases'), tonumber(counts[2]) or 0,
  redis.call('ZCARD', shard .. 'finished'), tonumber(redis.call('GET', shard .. 'bytes')) or 0,
  due, redis.call('ZCARD', shard .. 'breakers'), over and math.max(0, now - over) or -1,
  sendable, redis.call('ZREVRANGE', shard .. 'accounts', 0, MOST_ACCOUNTS - 1, 'WITHSCORES')}
