-- Pauses a watch, resumes it (also one that was disabled), forgets its failures, removes it, suspends it
-- with its account, or restores it with that: one that its owner has paused stays so.
--
-- KEYS: the watches of its integration; ARGV: the watch, 'pause', 'resume', 'forget', 'remove', 'suspend'
-- or 'restore'
-- Returns 0 if there is no such watch, else 1.

local watch, what = ARGV[1], ARGV[2]
local health = shard .. 'health:' .. watch
if redis.call('HEXISTS', KEYS[1], watch) == 0 then return 0 end
if what == 'pause' then
  -- One that was disabled meanwhile stays so.
  if redis.call('HGET', health, 'status') ~= 'disabled' then
    redis.call('HSET', health, 'status', 'paused')
    redis.call('HDEL', health, 'why')
  end
elseif what == 'suspend' then
  if not redis.call('HGET', health, 'status') then
    redis.call('HSET', health, 'status', 'paused', 'why', SUSPENDED)
  end
elseif what == 'restore' then
  if redis.call('HGET', health, 'status') == 'paused'
    and redis.call('HGET', health, 'why') == SUSPENDED then
    redis.call('HDEL', health, 'status', 'why')
  end
elseif what == 'remove' then
  -- What waits for it stays, and is cancelled when its turn comes.
  redis.call('HDEL', KEYS[1], watch)
  redis.call('UNLINK', health)
else
  local its = redis.call('HMGET', health, 'proven', 'since')
  if its[1] == '1' and its[2] then redis.call('HSET', health, 'succeeded', its[2]) end
  redis.call('HDEL', health, 'failures', 'failed', 'tried', 'since', 'proven', 'open', 'openings',
    'ramp')
  if what == 'resume' then redis.call('HDEL', health, 'status', 'why', 'disabled') end
end
if what ~= 'pause' and what ~= 'suspend' and what ~= 'restore' then
  redis.call('ZREM', shard .. 'breakers', watch)
end
-- With any cap: the next claim looks at what is in flight.
set_turn(watch, math.huge)
return 1
