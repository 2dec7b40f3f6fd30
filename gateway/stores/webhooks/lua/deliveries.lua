-- A page of deliveries of a list, the newest first.
--
-- KEYS: any name in the shard
-- ARGV: the list, the bound of when they were added to it, how many to look at, how many to return,
--       their states (none: all)
-- Returns where to go on, or 0 at the end; and the deliveries.

local states, any = {}, #ARGV == 4
for i = 5, #ARGV do states[ARGV[i]] = true end

local function show(id)
  if not any and not states[redis.call('HGET', shard .. 'delivery:' .. id, 'state')] then return end
  local its = delivery_shown(id)
  return its, its and #its[6]
end

return page_of(shard .. ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), show)
