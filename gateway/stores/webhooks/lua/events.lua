-- A page of kept events of an integration, the newest first.
--
-- KEYS: any name in the shard
-- ARGV: integration, the bounds of when they were accepted (from, to), how many to look at, how many
--       to return, their type or PREFIX.* ('': any)
-- Returns where to go on, or 0 at the end; and the events.

local kind = ARGV[6]

local function show(event)
  if not is_of_type(event, kind) then return end
  local its = event_shown(event)
  return its, its and #its[4]
end

return page_of(shard .. 'events:' .. ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]),
  show)
