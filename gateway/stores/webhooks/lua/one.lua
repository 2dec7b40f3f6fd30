-- One event, one delivery, or the deliveries of one event.
--
-- KEYS: any name in the shard; ARGV: 'event', 'delivery' or 'deliveries', the id
-- Returns it, or a list of them.

local what, id = ARGV[1], ARGV[2]
if what == 'event' then return event_shown(id) or false end
if what == 'delivery' then return delivery_shown(id) or false end
-- To its watches at first, of which there are 50 at most, and again.
local found = {}
for i, each in ipairs(redis.call('SMEMBERS', shard .. 'deliveries:' .. id)) do
  if i > MOST_AGAIN + 50 then break end
  found[#found + 1] = delivery_shown(each)
end
return found
