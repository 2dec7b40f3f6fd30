-- Queues a delivery of an event once more, beside those that were made before.
--
-- KEYS: any name in the shard
-- ARGV: event, watch, the most of a watch in flight, the budget in bytes, the most bytes of the
--       account's events of which any delivery is left
-- Returns {delivery, 0}, {'', 1} if there is no room, {'', 2} if the event was sent again as often as
-- it may be; nothing if the event is not kept any more, or the watch is not there or disabled.

local event, watch = ARGV[1], ARGV[2]
local integration = redis.call('HGET', shard .. 'event:' .. event, 'integration')
local record = integration and redis.call('HGET', shard .. 'watches:' .. integration, watch)
if not record or not patterns_of(watch, record) then return false end
if not has_room_again(event, tonumber(ARGV[4]), tonumber(ARGV[5])) then return {'', 1} end
if has_many(event) then return {'', 2} end
local id = deliver_again(integration, event, watch, now, false)
set_turn(watch, tonumber(ARGV[3]))
redis.call('PUBLISH', shard .. 'due', 1)
return {id, 0}
