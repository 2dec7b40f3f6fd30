-- Kept events of an integration, the newest first; fewer than asked for where they are large.
--
-- KEYS: any name in the shard; ARGV: integration, the bound of when they were accepted, how many
-- Returns for each: id, integration, type, body, when it was accepted, deliveries that are not over.

local found, bytes = {}, 0
for _, event in ipairs(redis.call('ZREVRANGEBYSCORE', shard .. 'events:' .. ARGV[1], ARGV[2],
    '-inf', 'LIMIT', 0, tonumber(ARGV[3]))) do
  local its = redis.call('HMGET', shard .. 'event:' .. event, 'integration', 'type', 'body', 'at',
    'left')
  if its[3] then
    bytes = bytes + #its[3]
    -- One event alone may be longer than that.
    if #found > 0 and bytes > MOST_REPLY then break end
    found[#found + 1] = {event, its[1], its[2], its[3], its[4], its[5]}
  end
end
return found
