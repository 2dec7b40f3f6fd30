-- A page of deliveries of a list, the newest first.
--
-- KEYS: any name in the shard
-- ARGV: the list, the bounds of when they were added to it (from, to), how many to look at, how many
--       to return, the type of their events or PREFIX.* ('': any), their states (none: all)
-- Returns where to go on, or 0 at the end; and the deliveries.

local kind, states, any = ARGV[6], {}, #ARGV == 6
for i = 7, #ARGV do states[ARGV[i]] = true end

local function show(id)
  if not any and not states[redis.call('HGET', shard .. 'delivery:' .. id, 'state')] then return end
  if not is_of_type(of_delivery(id) or '', kind) then return end
  local its = delivery_shown(id)
  return its, its and #its[6]
end

return page_of(shard .. ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), show)
