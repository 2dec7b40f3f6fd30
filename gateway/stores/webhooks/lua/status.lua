-- Pauses a watch, resumes it (also one that was disabled), or removes it.
--
-- KEYS: the watches of its integration; ARGV: the watch, 'pause', 'resume' or 'remove'
-- Returns 0 if there is none to remove, else 1.

local watch, what = ARGV[1], ARGV[2]
local health = shard .. 'health:' .. watch
if what == 'pause' then
  redis.call('HSET', health, 'status', 'paused')
else
  -- What waits for a watch that is removed stays, and is cancelled when its turn comes.
  if what == 'remove' and redis.call('HDEL', KEYS[1], watch) == 0 then return 0 end
  redis.call('HDEL', health, 'status', 'why', 'failures', 'tried', 'since', 'proven', 'open',
    'openings', 'ramp')
  redis.call('ZREM', shard .. 'breakers', watch)
end
-- With any cap: the next claim looks at what is in flight.
set_turn(watch, math.huge)
return 1
