-- A page of kept events of an integration, the newest first.
--
-- KEYS: any name in the shard; ARGV: integration, the bound of when they were accepted, how many
-- Returns where to go on, or 0 at the end; and the events.

local function show(event)
  local its = event_shown(event)
  return its, its and #its[4]
end

return page_of(shard .. 'events:' .. ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[3]), show)
