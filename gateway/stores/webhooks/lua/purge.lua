-- Forgets events of an integration that is removed, also those with deliveries that are not over.
--
-- KEYS: any name in the shard; ARGV: the integration, the most events and deliveries to forget
-- Returns how many of its events are left.
--
-- The names of deliveries that wait stay in the queues of its watches: the next claims remove them.

local list, left = shard .. 'events:' .. ARGV[1], tonumber(ARGV[2])
for _, event in ipairs(redis.call('ZRANGE', list, 0, left - 1)) do
  if left <= 0 then break end
  local account, size = share_of(event)
  if (tonumber(redis.call('HGET', shard .. 'event:' .. event, 'left')) or 0) > 0 then
    add_pending(account, -size)
  end
  local _, deliveries = drop(event)
  redis.call('ZREM', list, event)
  left = left - 1 - deliveries
end
return redis.call('ZCARD', list)
