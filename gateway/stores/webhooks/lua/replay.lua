-- Queues deliveries of kept events that a watch takes, unless it has one waiting or in flight, or the
-- event has the most already.
--
-- KEYS: any name in the shard
-- ARGV: integration, watch, accepted from and before in us as bounds of a range, how many events and
--       deliveries to look at, how many deliveries to queue, the most of a watch in flight, the
--       budget in bytes, the most bytes of the account's events of which any delivery is left
-- Returns the deliveries queued, the time from which events were not looked at or -1, 1 if there was
-- no room, and the events left out because the watch has one; nothing if it is not there or disabled.

local integration, watch = ARGV[1], ARGV[2]
local number, most = tonumber(ARGV[5]), tonumber(ARGV[6])
local budget, share = tonumber(ARGV[8]), tonumber(ARGV[9])
local record = redis.call('HGET', shard .. 'watches:' .. integration, watch)
local patterns = record and patterns_of(watch, record)
if not patterns then return false end

local looked = 0

local function has_one(event)
  local ids = redis.call('SMEMBERS', shard .. 'deliveries:' .. event)
  looked = looked + #ids
  for _, id in ipairs(ids) do
    local _, its = of_delivery(id)
    if its == watch then
      looked = looked + 1
      local state = redis.call('HGET', shard .. 'delivery:' .. id, 'state')
      if state == 'queued' or state == 'waiting' or state == 'leased' then return true end
    end
  end
  return false
end

local queued, next_us, full, waiting = 0, -1, 0, 0
local found = redis.call('ZRANGEBYSCORE', shard .. 'events:' .. integration, ARGV[3], ARGV[4],
  'WITHSCORES', 'LIMIT', 0, number + 1)
for i = 1, #found, 2 do
  local event = found[i]
  looked = looked + 1
  -- Of the first one there are not so many that it takes long.
  if i > 1 and looked > number then
    next_us = tonumber(found[i + 1])
    break
  end
  local kind = redis.call('HGET', shard .. 'event:' .. event, 'type')
  local taken = i <= 2 * number and kind and takes(patterns, kind)
  local has = taken and has_one(event)
  if has then waiting = waiting + 1 end
  local wanted = taken and not has and not has_many(event)
  if wanted and not has_room_again(event, budget, share) then full = 1 end
  if i > 2 * number or full == 1 or (wanted and queued == most) then
    next_us = tonumber(found[i + 1])
    break
  end
  if wanted then
    -- A microsecond apart, so that lists of deliveries have them in order.
    deliver_again(integration, event, watch, now + queued, true)
    queued = queued + 1
  end
end
if queued > 0 then
  set_turn(watch, tonumber(ARGV[7]))
  redis.call('PUBLISH', shard .. 'due', queued)
end
return {queued, text(next_us), full, waiting}
