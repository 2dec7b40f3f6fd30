-- Disables a watch: it gets no more events, and what waits for it is cancelled, some in each call.
--
-- KEYS: any name in the shard
-- ARGV: the watch, its integration, why, how many deliveries to cancel at most
-- Returns how many still wait, which claims cancel if this is not called again; and 1 if it has not
-- been disabled before. {0, 0} if the watch is not there: claims cancel what waits for it.

local watch, integration, why, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local MOST_NOTICES = 10000

if redis.call('HEXISTS', shard .. 'watches:' .. integration, watch) == 0 then return {0, 0} end
local is_new = redis.call('HGET', shard .. 'health:' .. watch, 'status') ~= 'disabled'
if is_new then
  -- With it, so that its notice is sent even if the courier dies now.
  local at = string.format('%.0f', now)
  redis.call('ZADD', shard .. 'disabled', at, cjson.encode({integration, watch, why, at}))
  redis.call('ZREMRANGEBYRANK', shard .. 'disabled', 0, -1 - MOST_NOTICES)
  redis.call('HSET', shard .. 'health:' .. watch, 'status', 'disabled', 'why', why,
    'disabled', at)
end
redis.call('ZREM', shard .. 'breakers', watch)
cancel_waiting(watch, most)
set_turn(watch, 0)
return {redis.call('ZCARD', shard .. 'queue:' .. watch)
  + redis.call('ZCARD', shard .. 'replays:' .. watch), is_new and 1 or 0}
